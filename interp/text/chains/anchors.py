"""Thought anchors: the sentences of a reasoning trace that the rest attends to and depends on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError, UnknownName
from interp.core.prompts import Prompts
from interp.core.protocols import Progress, silent
from interp.core.statistics import finite_mean
from interp.core.ties import ordered
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model
from interp.text.chains.anchors_result import UNITS, Anchors
from interp.text.chains.chain import Chain, require_answer
from interp.text.chains.hidden import suppression_effects
from interp.text.chains.receivers import HEADS, largest_receivers, receiver_heads
from interp.text.chains.rollouts import rollout_effects
from interp.text.chains.vertical import APART, sentence_attention, vertical_scores

if TYPE_CHECKING:
    from interp.core.head import Head
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model

WAYS = ("attention", "suppression", "resampling")
"""Analyses of sentences: `attention` reads, the other two intervene."""


@takes_model
def thought_anchors(
    model: Model,
    chains: Sequence[Chain],
    *,
    methods: Sequence[str] | None = None,
    heads: Sequence[Head] | None = None,
    n_heads: int = HEADS,
    min_distance: int = APART,
    candidates: int | None = None,
    later: bool = True,
    temperature: float = 1.0,
    n_rollouts: int = 16,
    max_new_tokens: int | None = None,
    batch_size: int = 4,
    beyond: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Anchors:
    """Find the sentences of long texts that later ones attend to and depend on.

    Args:
        model: the model.
        chains: texts in sentences; with a question and an answer for the effect on the answer.
        methods: any of `attention`, `suppression` and `resampling`. By default the first two, and
            resampling too if every chain has an answer.
        heads: receiver heads; by default the k heads of largest kurtosis on the other chains, or on
            the chain itself if there is one only.
        n_heads: number of receiver heads.
        min_distance: least distance in sentences of attention.
        candidates: hide only this many sentences per chain, those that receive most attention, and
            as many at random; all by default.
        later: measure the effect of hiding on every later sentence, which keeps the predictions of
            the whole chain; False measures the answer alone.
        temperature: of predictions and of sampling.
        n_rollouts: continuations from before each sentence.
        max_new_tokens: most tokens of a continuation; the rest of the chain by default.
        batch_size: hidden sentences per forward pass.
        beyond: allow more tokens than the config states.
        seed: seed of sampling and of the sentences hidden at random.
        progress: callback with the name of the step, the steps done and their total.

    Raises:
        PromptError: a chain does not fit the model or has too few sentences.
        OptionError: an option is out of range, or an answer is needed and missing.
        UnknownName: a way is not known.

    Unit: see `UNITS`: attention weight, nats, probability.

    Null: the mean over the sentences of a chain.

    Not for: proof that a text explains an answer: sentences can be redundant, and then each alone
    has no effect.

    Reference: Bogdan et al. 2025, "Thought Anchors: Which LLM Reasoning Steps Matter?".

    Cost: One forward pass per hidden sentence, and the rollouts of `rollout_effects`.
    """
    answered = bool(chains) and all(c.answer for c in chains)
    wanted = methods or WAYS[: 3 if answered else 2]
    for way in wanted:
        if way not in WAYS:
            raise UnknownName("way to find anchors", way, WAYS)
    if n_heads < 1 or (candidates is not None and candidates < 1):
        raise OptionError(f"n_heads={n_heads}, candidates={candidates}: both must be at least 1")
    if "resampling" in wanted:
        for chain in chains:
            require_answer(chain)
    progress = progress or silent
    receivers = receiver_heads(
        model,
        chains,
        min_distance=min_distance,
        null=False,
        beyond=beyond,
        seed=seed,
        progress=progress,
    )
    chosen = [
        tuple(heads) if heads is not None else _others(receivers, i, n_heads)
        for i in range(len(chains))
    ]
    sizes = [len(c) for c in chains]
    total, starts = sum(sizes), np.cumsum([0, *sizes])
    values = {name: np.full(total, np.nan) for name in UNITS}
    sems = {name: np.full(total, np.nan) for name in ("resampling", "counterfactual")}
    attended, depends = np.full(total, -1), np.full(total, -1)
    rng = np.random.default_rng(seed)
    for chain, mine, start in zip(chains, chosen, starts, strict=False):
        part = slice(start, start + len(chain))
        pairs = sentence_attention(model, chain, mine, beyond=beyond)
        values["receiver"][part] = vertical_scores(pairs, min_distance)
        attended[part] = _strongest(pairs, min_distance)
        if "suppression" in wanted:
            which = _some(values["receiver"][part], candidates, rng)
            hid = suppression_effects(
                model,
                chain,
                which,
                later=later,
                temperature=temperature,
                batch_size=batch_size,
                beyond=beyond,
                progress=progress,
            )
            at = start + np.array(hid.sentences)
            values["suppression_answer"][at] = hid.answer
            values["suppression"][at] = finite_mean(hid.divergence)
            depends[part] = _largest_effect(hid.divergence, hid.sentences)
        if "resampling" in wanted:
            rolled = rollout_effects(
                model,
                chain,
                n_rollouts=n_rollouts,
                max_new_tokens=max_new_tokens,
                temperature=temperature,
                seed=seed,
                beyond=beyond,
                progress=progress,
            )
            for name, sem in sems.items():
                values[name][part], sem[part] = getattr(rolled, name).T
    computed = {n: v for n, v in values.items() if np.isfinite(v).any() or n == "receiver"}
    provenance = result_provenance(
        model,
        "interp.text.chains.thought_anchors",
        Prompts(tuple(c.prompt for c in chains), "chains"),
        seed=seed,
        engine="streamed",
        ways=list(wanted),
        k=n_heads,
        heads=None if heads is None else [str(h) for h in heads],
        heads_chosen_on="given"
        if heads is not None
        else "the other chains"
        if len(chains) > 1
        else "the same chain",
        apart=min_distance,
        candidates=candidates,
        temperature=temperature,
        rollouts=n_rollouts,
        tokens=max_new_tokens,
        beyond=beyond,
    )
    return Anchors(
        tuple(c.name for c in chains),
        np.concatenate([np.full(n, i) for i, n in enumerate(sizes)]),
        np.concatenate([np.arange(n) for n in sizes]),
        tuple(t for c in chains for t in c.texts),
        computed,
        {n: v for n, v in sems.items() if n in computed},
        attended,
        depends,
        tuple(chosen),
        provenance,
    )


def _others(found: ResultRows, which: int, k: int) -> tuple[Head, ...]:
    """Return the heads of largest kurtosis on the other chains; on the same if it is the only."""
    others = [i for i in range(len(found.chains)) if i != which]
    return largest_receivers(found, k, others or [which])


def _strongest(pairs: np.ndarray, apart: int) -> np.ndarray:
    """Return for each sentence the earlier one it attends to most, at least `apart` back."""
    n = len(pairs)
    at = np.arange(n)
    far = np.where(at[:, None] - at[None, :] >= apart, pairs, -1.0)
    best = far.argmax(1)
    return np.where(far.max(1) > 0, best, -1)


def _some(scores: np.ndarray, most: int | None, rng: np.random.Generator) -> list[int]:
    n = len(scores)
    if most is None or 2 * most >= n:
        return list(range(n))
    order = ordered(scores)
    drawn = rng.choice(order[most:], most, replace=False)
    return sorted({*order[:most], *drawn.tolist()})


def _largest_effect(divergence: np.ndarray, sentences: Sequence[int]) -> np.ndarray:
    """Return for each sentence the hidden one that changes it most; -1 where none was measured."""
    known = np.where(np.isfinite(divergence), divergence, -1.0)
    best = np.array(sentences)[known.argmax(0)]
    return np.where(known.max(0) > 0, best, -1)
