"""Interception of the attention calls of a forward pass."""
