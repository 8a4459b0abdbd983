"""What users can say, and when it is refused."""
