"""Attribute an output of a model to the tokens of a text."""

GROUP = "Explain"
DEFAULT = "output"
