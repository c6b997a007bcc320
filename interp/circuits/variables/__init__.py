"""Causal variables: which subspace of which head holds a variable of a stated computation."""
