"""A bus that keeps the messages of each key in order: a topic in partitions, each read in sequence."""
