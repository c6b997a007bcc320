"""Softmax (Vaswani et al. 2017, arXiv:1706.03762): M[i, j] = softmax_j(q_i . k_j / sqrt(d))."""

from __future__ import annotations

from interp.planted.variants.rule import Rule


class PlainSoftmaxRule(Rule):
    """Scaled dot-product attention, the reference that the others change."""
