"""Measure what each head does for a task: ablation, Shapley values, gates, gradients."""

GROUP = "Measure"
DEFAULT = "rank"
