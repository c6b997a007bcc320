"""Scores of many models: stored as they are computed, in processes, as a job array or on Ray.

`ScoreSweep` in `scored_models.py` is what `interp score` runs. Importing this package does not load
torch.
"""
