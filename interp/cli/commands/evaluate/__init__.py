"""Evaluate attribution methods, and edited models on tasks of lm-evaluation-harness."""

GROUP = "Explain"
