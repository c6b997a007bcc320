"""Places where the attention patterns of two models differ most, head by head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.core.head import Head
from interp.core.prompts import Prompts, text_of
from interp.core.ties import ordered_by

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model

LONGEST = 1024  # tokens; whole patterns of longer prompts are not stored
SHOWN = 64  # tokens before a query, itself included, that are kept with their weights
PROMPTS = 32  # prompts whose patterns are compared
HeadPair = tuple[str, Head, Head]
"""Stack, head of the first model and head of the second."""


def changed_patterns(
    first: Model, second: Model, prompts: Prompts, pairs: Sequence[HeadPair], *, places: int = 3
) -> tuple[dict[str, Any], ...]:
    """Find the prompts and queries where the patterns of pairs of heads differ most.

    The change of a row is its total variation distance: half the sum of the absolute differences of
    its weights, 0 for equal rows and 1 for disjoint ones.
    """
    usable = [i for i, ids in enumerate(prompts.ids) if len(ids) <= LONGEST][:PROMPTS]
    candidates: list[list[dict[str, Any]]] = [[] for _ in pairs]
    changes: list[list[float]] = [[] for _ in pairs]
    for i in usable:
        one = prompts.part([i])
        before = _patterns(first, one, [(stack, a) for stack, a, _ in pairs])
        after = _patterns(second, one, [(stack, b) for stack, _, b in pairs])
        words = text_of(prompts.ids[i], first)
        for at, (p, q) in enumerate(zip(before, after, strict=True)):
            change = np.abs(q - p).sum(1) / 2
            changes[at].append(float(change.mean()))
            candidates[at].append(_place(i, words, p, q, change))
    rows = []
    for (stack, a, b), mine, sizes in zip(pairs, candidates, changes, strict=True):
        most = ordered_by(mine, lambda row: row["change"])
        named = {"stack": stack, "head": str(a)} | ({} if a == b else {"head_b": str(b)})
        mean = float(np.mean(sizes)) if sizes else float("nan")
        rows += [named | {"mean_change": mean} | row for row in most[:places]]
    return tuple(rows)


def _place(
    prompt: int, words: Sequence[str], before: np.ndarray, after: np.ndarray, change: np.ndarray
) -> dict[str, Any]:
    query = int(change.argmax())
    moved = after[query] - before[query]
    lost, gained = int(moved.argmin()), int(moved.argmax())
    row = {"prompt": prompt, "query": query, "query_token": words[query]}
    row["change"] = float(change[query])
    start = max(query + 1 - SHOWN, 0)
    row["tokens"] = list(words[start : query + 1])
    for side, weights in (("before", before), ("after", after)):
        row[side] = [round(float(x), 4) for x in weights[query, start : query + 1]]
    for what, key in (("lost", lost), ("gained", gained)):
        row |= {f"{what}_key": key, f"{what}_token": words[key]}
        row[f"{what}_weight"] = float(moved[key])
    return row


def _patterns(
    model: Model, prompt: Prompts, heads: Sequence[tuple[str, Head]]
) -> list[Float[np.ndarray, "query key"]]:
    """Return the patterns of some heads over one prompt, in order."""
    patterns: dict[tuple[str, int], np.ndarray] = {}
    asked = {(stack, head.layer) for stack, head in heads}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        key = site.stack, site.layer
        if key in asked:
            patterns[key] = call.pattern()[0].double().cpu().numpy()

    model.read(prompt, visit)
    return [patterns[stack, head.layer][head.head] for stack, head in heads]
