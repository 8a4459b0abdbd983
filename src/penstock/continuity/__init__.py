"""Whether anything is missing behind a place: for all who read without a pending list."""
