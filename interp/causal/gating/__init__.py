"""Learned gates on heads, kv groups, layers and MLPs."""
