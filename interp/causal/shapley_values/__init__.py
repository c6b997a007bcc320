"""Shapley and Banzhaf values of heads: exact, sampled and from surrogates."""
