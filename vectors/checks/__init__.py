"""The vectors, recomputed from docs/spec with the Python standard library alone."""
