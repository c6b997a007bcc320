"""Simultaneous translation: write while the source is still being read, and measure the latency."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch

from interp.alignment.latency import (
    average_lagging,
    average_proportion,
    differentiable_average_lagging,
    length_adaptive_average_lagging,
)
from interp.alignment.pairs import EncodedPairs, encode_pairs
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.statistics import finite_mean
from interp.model.content import result_provenance
from interp.model.head_arguments import parse_heads, require_heads
from interp.model.model_argument import takes_model
from interp.model.policy import Policy
from interp.policies.reading import AlignAtt, EDAtt

if TYPE_CHECKING:
    from interp.model.model import Model

VALUES = {"edatt": (0.1, 0.3, 0.6, 0.9), "alignatt": (1.0, 2.0, 3.0), "wait-k": (1.0, 2.0, 4.0)}
"""Values of each policy: alpha, number of newest words, and k."""
LATENCIES = ("lagging", "adaptive_lagging", "proportion", "differentiable_lagging")


@takes_model
def simultaneous(
    model: Model,
    pairs: Any,
    policy: Literal["edatt", "alignatt", "wait-k"] = "edatt",
    *,
    values: Sequence[float] | None = None,
    heads: Any = None,
    recent: int = 2,
    max_new_tokens: int = 64,
    progress: Progress | None = None,
) -> ResultRows:
    """Translate while the source is read word by word, and measure quality and latency.

    After each source word the model goes on from what it has written, until the policy waits for
    the next word; at the end of the source it writes the rest. What is written stays.

    Args:
        model: the encoder-decoder model.
        pairs: sentence pairs; see `interp.alignment.encode_pairs`.
        policy: edatt: wait once attention leans on the newest words. alignatt: wait once the most
            attended word is among the newest. wait-k: k words behind, without attention.
        values: values of the policy to try: alpha, the number of newest words, or k.
        heads: cross-attention heads that the policies read; by default all of the layer at two
            thirds of the depth, as published.
        recent: with edatt: number of newest words.
        max_new_tokens: most tokens of a translation.
        progress: called after each pair.

    Reference: Papi, Negri and Turchi 2023 (EDAtt) and Papi, Turchi and Negri 2023 (AlignAtt).

    Returns:
        One row per value, and a row `whole`, which waits for the whole source: policy, value, score
        (share of the reference's tokens that are written at their place) with sem, n, and the mean
        latencies in source words: lagging (AL), adaptive_lagging (LAAL), proportion (AP, a share),
        differentiable_lagging (DAL). Arrays `[row, pair]`: each latency as `each_...`.

    Raises:
        OptionError: the model has no cross attention, or no such heads, or a value is not possible.
        PromptError: a pair does not fit the model.

    Unit: share of tokens.

    Cost: One translation per source word and value.

    Null: heads that do not align, given as `heads`; wait-k, which reads no attention.

    Not for: translation quality as such: words that are right at another place count as wrong.
    """
    encoded = encode_pairs(model, pairs)
    tried = VALUES[policy] if values is None else tuple(map(float, values))
    bad = [v for v in tried if not v > 0 or (policy != "edatt" and v != int(v))]
    if bad or not tried:
        raise OptionError(
            f"values {bad or '[]'} of {policy}; give numbers above 0, whole ones for alignatt and "
            "wait-k"
        )
    chosen = _cross_heads(model, heads)
    rows = [(policy, value) for value in tried] + [("whole", np.nan)]
    right = np.zeros((len(rows), len(encoded)))
    late = np.zeros((len(LATENCIES), *right.shape))
    report = progress or silent
    for at in range(len(encoded)):
        for row, (name, value) in enumerate(rows):
            tokens, delays = _translated(
                model, encoded, at, name, value, (chosen, recent), max_new_tokens
            )
            words = 1 + max(encoded.source_words[at])
            labels = [t for t in encoded.labels[at] if t not in _ends(model)]
            hits = sum(a == b for a, b in zip(tokens, labels, strict=False))
            right[row, at] = hits / max(1, len(labels))
            late[:, row, at] = _latencies(delays, words, len(labels))
        report("pairs", at + 1, len(encoded))
    columns = {
        "policy": [name for name, _ in rows],
        "value": [value for _, value in rows],
        "score": right.mean(1),
        "n": len(encoded),
        "sem": standard_error(right),
        **{name: finite_mean(x) for name, x in zip(LATENCIES, late, strict=True)},
    }
    made_by = result_provenance(
        model,
        "interp.policies.simultaneous",
        encoded.prompts,
        policy=policy,
        values=tried,
        heads=[str(h) for h in chosen],
        recent=recent,
        max_new_tokens=max_new_tokens,
    )
    arrays = {f"each_{name}": x for name, x in zip(LATENCIES, late, strict=True)}
    facts = {"metric": "simultaneous_translation", "unit": "share of tokens", "limits": (0.0, 1.0)}
    return ResultRows(
        "Simultaneous", columns, ("policy", "value"), made_by, facts, right, arrays=arrays
    )


def _cross_heads(model: Model, heads: Any) -> tuple[Head, ...]:
    if heads is not None:
        chosen = tuple(Head(h.layer, h.head, "cross") for h in parse_heads(heads))
        require_heads(model.sites, chosen, "cross", model.name)
        return chosen
    sites = [s for s in model.sites if s.stack == "cross"]
    site = sites[max(0, 2 * len(sites) // 3 - 1)]
    return tuple(Head(site.layer, h, "cross") for h in range(site.n_heads))


def _ends(model: Model) -> set[int]:
    end: Any = getattr(model.config, "eos_token_id", None)
    return {x for x in (end if isinstance(end, list) else [end]) if x is not None}


def _translated(
    model: Model,
    encoded: EncodedPairs,
    at: int,
    name: str,
    value: float,
    reads: tuple[tuple[Head, ...], int],
    limit: int,
) -> tuple[list[int], list[int]]:
    """Return the tokens of a translation, and how many source words each waited for."""
    ids, words = encoded.prompts.ids[at], encoded.source_words[at]
    assert encoded.prompts.decoder is not None
    start, total = encoded.prompts.decoder.ids[at][0], 1 + max(words)
    tokens: list[int] = []
    delays: list[int] = []
    for heard in range(total if name == "whole" else 1, total + 1):
        source = [t for t, w in zip(ids, words, strict=True) if w < heard]
        kept = [w for w in words if w < heard]
        frames = [i for i, w in enumerate(kept) if w >= 0]
        policy, new = None, limit - len(tokens)
        if heard < total:
            newest = [i for i, w in enumerate(kept) if w >= 0]
            policy = _policy(name, value, reads, newest, kept)
            if name == "wait-k":
                new = min(new, heard - int(value) + 1 - len(tokens))
        if new < 1 or not frames:
            continue
        prefix = torch.tensor([[start, *tokens]], device=model.device)
        out = model.generate(
            {"input_ids": torch.tensor([source], device=model.device)},
            new,
            policy=policy,
            decoder_input_ids=prefix,
            num_beams=1,
        )
        ends = _ends(model)
        for token in out.ids[0, prefix.shape[1] :].tolist():
            if token in ends:
                break
            tokens.append(token)
            delays.append(heard)
    return tokens, delays


def _policy(
    name: str,
    value: float,
    reads: tuple[tuple[Head, ...], int],
    frames: Sequence[int],
    words: Sequence[int],
) -> Policy | None:
    """Return the policy for the source words heard so far; their tokens are the positions."""
    heads, recent = reads
    if name == "wait-k":
        return None
    number = recent if name == "edatt" else int(value)
    newest = max(words) - number  # words after it are the newest
    count = sum(words[i] > newest for i in frames)
    if name == "edatt":
        return EDAtt(heads, value, count, frames)
    return AlignAtt(heads, count, frames)


def _latencies(delays: Sequence[int], words: int, reference: int) -> tuple[float, ...]:
    if not delays:
        return (np.nan,) * len(LATENCIES)
    return (
        average_lagging(delays, words, reference),
        length_adaptive_average_lagging(delays, words, reference),
        average_proportion(delays, words),
        differentiable_average_lagging(delays, words),
    )
