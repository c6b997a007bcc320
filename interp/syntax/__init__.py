"""Dependency trees from attention heads: which head links which words, and how well."""
