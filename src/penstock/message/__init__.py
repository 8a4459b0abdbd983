"""What was said: the envelope, its identity, and how it is put on a stream and read back."""
