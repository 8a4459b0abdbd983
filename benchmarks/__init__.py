"""Measurements. Every figure is a ratio to a reference that ran in the same minute on the same machine."""
