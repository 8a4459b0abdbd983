"""Rows into streams, each once."""
