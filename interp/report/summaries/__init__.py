"""Text of results without a class of their own: one function per kind, listed in `by_type`."""
