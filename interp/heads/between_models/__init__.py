"""Comparison of models head by head: differences on shared prompts, and matching of heads."""
