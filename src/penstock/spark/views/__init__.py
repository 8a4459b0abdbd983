"""What stands in the server beside the entries, as tables."""
