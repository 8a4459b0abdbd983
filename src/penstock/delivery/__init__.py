"""One attempt to deliver, and what became of it. Bus, changes and jobs are faces of what is in this room."""
