"""Where messages are kept: the verbs of a stream server."""
