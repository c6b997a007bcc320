"""Attention rows that follow known rules, in place of those of a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from interp.core.prompts import Prompts
from interp.profiles import first_look
from interp.profiles.corpus import TextWindow
from interp.profiles.rows_read import AttentionRows

Row = Callable[[TextWindow], np.ndarray]
"""Weights of every pair of query and key of a window, before they are normalised."""


def documents(n: int, length: int, seed: int, vocab: int = 24) -> Prompts:
    """Return random documents after token 0, in which tokens repeat often."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(1, vocab, (n, length - 1))
    return Prompts(tuple((0, *row.tolist()) for row in rows))


def pairs(window: TextWindow) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return queries, keys and token ids of a window."""
    query = np.asarray(window.queries)[:, None]
    return query, np.arange(len(window.ids))[None], np.asarray(window.ids)


def even(window: TextWindow) -> np.ndarray:
    query, key, _ = pairs(window)
    return ((key <= query) & (key > 0)).astype(float)


def on(window: TextWindow, mask: Callable[..., Any]) -> np.ndarray:
    """Return the even row over the keys of a predicate; zeros where it has none."""
    query, key, tokens = pairs(window)
    reads = mask.__code__.co_argcount > 2
    found = (mask(query, key, tokens) if reads else mask(query, key)) * even(window)
    return found / np.maximum(found.sum(1, keepdims=True), 1)


def mixture(*parts: tuple[float, Callable[..., Any]], sink: float = 0.2) -> Row:
    """Return a head that gives each predicate a share of its attention, and the rest evenly."""

    def row(window: TextWindow) -> np.ndarray:
        found = sum(share * on(window, mask) for share, mask in parts) + np.zeros_like(even(window))
        left = 1 - np.asarray(found).sum(1, keepdims=True)
        found = found + left * even(window) / even(window).sum(1, keepdims=True)
        return (1 - sink) * found

    return row


def elsewhere(window: TextWindow) -> np.ndarray:
    """Return a head on one key that neither its place nor its token explains."""
    found = 0.2 * even(window) / even(window).sum(1, keepdims=True)
    for row, key in enumerate(hidden_keys(window)):
        found[row, key] += 0.7
    return found


def hidden_keys(window: TextWindow) -> list[int]:
    """Return the key of every query to which `elsewhere` attends."""
    seeds = (np.random.default_rng([*window.ids, int(query)]) for query in window.queries)
    return [
        int(rng.integers(1, query + 1)) for rng, query in zip(seeds, window.queries, strict=True)
    ]


def plant(
    patch: pytest.MonkeyPatch,
    heads: Sequence[Row],
    vectors: Callable[[TextWindow], Sequence[np.ndarray]] | None = None,
) -> None:
    """Let the heads of every layer attend like some rows, in turn.

    Args:
        patch: undoes it.
        heads: the rows.
        vectors: queries, keys and values of every position of a window, which all heads share.
    """

    def read(model: Any, window: TextWindow, special: Any, visit: Any, sites: Any) -> None:
        visible = torch.from_numpy(even(window) > 0)
        at = 0
        for site in sites:
            mine = [heads[(at + h) % len(heads)](window) for h in range(site.n_heads)]
            at += site.n_heads
            pattern, call = torch.from_numpy(np.stack(mine)).float(), None
            if vectors is not None:
                q, k, v = (
                    torch.from_numpy(x).float().expand(1, site.n_heads, *x.shape)
                    for x in vectors(window)
                )
                call = SimpleNamespace(q=q, k=k, v=v, z=torch.zeros_like(v), n_heads=site.n_heads)
            visit(site, AttentionRows.of(pattern, visible, call))  # pyright: ignore

    patch.setattr(first_look, "read_rows", read)
