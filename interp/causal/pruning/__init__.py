"""Pruning curves: the task against the number of heads removed."""
