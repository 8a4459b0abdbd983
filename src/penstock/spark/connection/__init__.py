"""The server, as the driver and the tasks reach it."""
