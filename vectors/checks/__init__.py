"""The vectors, computed again from PROTOCOLS.md with the Python standard library alone."""
