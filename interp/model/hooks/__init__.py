"""Attention calls of a forward pass, shown to a visitor."""
