"""Linear probes on heads: features, cross-validation by document, controls, saved probes.

    features   what a probe reads of each head, per item     features.py, context.py
    training   folds of documents, calibration, controls     training.py, folds.py
    result     scores with intervals, heads, saved files      result.py, saved.py

A probe shows that a feature can be read from a head, not that the model uses it.
"""

from interp.core.public_names import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
