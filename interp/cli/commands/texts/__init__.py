"""Analyse documents: sentences that matter, sources, influence, categories, graphs."""

GROUP = "Measure"
