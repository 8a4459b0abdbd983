"""Sequential change streams: one message at a time, in order, to one reader at a time."""
