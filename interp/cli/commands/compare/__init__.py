"""Compare two models, pair their similar heads, or follow heads over a training run."""

GROUP = "Measure"
DEFAULT = "heads"
