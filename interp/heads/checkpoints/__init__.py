"""Scores of heads over the checkpoints of a training run: curves and change points."""
