"""Reads a page as a script would, but in Python and from the file alone."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np


def data_of(page: str) -> dict:
    """The JSON of a page."""
    [text] = re.findall(
        r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL
    )
    return json.loads(text)


def values(page: str, item: dict, kind: str) -> np.ndarray:
    """One block of numbers."""
    [text] = re.findall(rf'<script type="text/plain" id="{item["b"]}">(.*?)</script>', page)
    raw = np.frombuffer(zlib.decompress(base64.b64decode(text)), np.uint8)
    size, (rows, columns) = item["s"], item["n"]
    assert np.dtype(kind).itemsize == size
    flat = raw.reshape(size, -1).T.copy().view(kind)[:, 0]
    if not item["t"]:
        return flat.reshape(rows, columns)
    whole = np.zeros((rows, columns), kind)
    at = 0
    for row in range(rows):
        whole[row, : row + 1] = flat[at : at + row + 1]
        at += row + 1
    assert at == len(flat)
    return whole


def weights(page: str, head: dict) -> np.ndarray:
    """The weights of a head, read back."""
    coded = values(page, head["w"], "<u1" if head["bits"] == 8 else "<u2").astype(float)
    return (coded / (2 ** head["bits"] - 1)) ** 2


def vectors(page: str, terms: dict, name: str) -> np.ndarray:
    """q or k of a head, read back."""
    return values(page, terms[name], "<i2") * values(page, terms[f"{name}s"], "<f4").astype(float)


def softmax(page: str, terms: dict) -> tuple[np.ndarray, np.ndarray]:
    """Scores and weights that follow from what the page holds, step by step as it shows them."""
    q, k = vectors(page, terms, "q"), vectors(page, terms, "k")
    scores = (q[:, None, :] * k[None, :, :] * terms["scale"]).sum(-1)
    if terms["softcap"] is not None:
        scores = terms["softcap"] * np.tanh(scores / terms["softcap"])
    if "bias" in terms:
        scores = scores + values(page, terms["bias"], "<i2") * terms["step"]
    if terms.get("causal"):
        scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
    if "seen" in terms:
        scores = np.where(values(page, terms["seen"], "<u1") > 0, scores, -np.inf)
    e = np.exp(scores - scores.max(-1, keepdims=True))
    total = e.sum(-1, keepdims=True)
    if terms["sink"] is not None:
        total = total + np.exp(terms["sink"] - scores.max(-1, keepdims=True))
    return scores, e / total
