"""Scores of attention heads: detectors, weights, experiments, and the engine that runs them."""
