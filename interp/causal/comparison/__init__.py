"""Rank comparisons of several importances of the same heads."""
