"""Streaming jobs of the user's own: topics in, topics and tables out."""
