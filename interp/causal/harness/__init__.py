"""Edited models on the tasks of lm-evaluation-harness, and these tasks as tasks of a game."""
