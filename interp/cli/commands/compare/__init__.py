"""Compare models, corpora or checkpoints, and pair similar heads of two models."""

GROUP = "Measure"
DEFAULT = "heads"
