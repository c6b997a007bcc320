"""Causal checks of head scores: ablation of the highest heads beside random sets."""
