"""A streaming query that runs: where it keeps how far it is, what lets batches in, and who follows it to its end."""
