"""Codes and reconstructions of every architecture, in numpy, from the definitions."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def encoded(kind: str, w: dict[str, Array], x: Array, k: int | None, rescale: bool) -> Array:
    """Codes, one row and one feature at a time where the definition is by row."""
    centred = x - w["b_dec"]
    if kind == "gated":
        gate = centred @ w["W_enc"] + w["b_gate"]
        size = centred @ (w["W_enc"] * np.exp(w["r_mag"])) + w["b_mag"]
        return np.where(gate > 0, np.maximum(size, 0), 0)
    pre = centred @ w["W_enc"] + w["b_enc"]
    if kind == "standard":
        return np.maximum(pre, 0)
    if kind == "jumprelu":
        return np.where(pre > w["threshold"], np.maximum(pre, 0), 0)
    assert kind == "topk"
    if rescale:
        pre = pre * np.sqrt((w["W_dec"] ** 2).sum(1))
    out = np.zeros_like(pre)
    for i, row in enumerate(pre):
        for f in np.argsort(-row)[:k]:
            out[i, f] = max(row[f], 0.0)
    return out


def decoded(w: dict[str, Array], codes: Array, rescale: bool) -> Array:
    """Reconstructions."""
    if rescale:
        codes = codes / np.sqrt((w["W_dec"] ** 2).sum(1))
    return codes @ w["W_dec"] + w["b_dec"]
