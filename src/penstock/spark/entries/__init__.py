"""Entries of a stream as Arrow batches."""
