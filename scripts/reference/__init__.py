"""What of the documentation is made from the code and from measurements: `make docs` writes it."""
