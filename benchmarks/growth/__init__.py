"""What a verb costs the server while the stream, the pending list or the parked set under it grows."""
