"""Minimal pairs: effect of ablating the heads that follow a relation.

A pair is a sentence and a variant that differs only in violating a dependency. The model's margin
is the difference of their log-likelihoods; ablating a head that the dependency needs reduces the
margin more than ablating other heads of the same layers.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float

from interp.core.documents import parse_json
from interp.core.errors import OptionError, PromptError, StoreError
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.text_file import read_lines
from interp.model.content import model_provenance
from interp.model.edits import zero
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.syntax.result import TreeScores

Array = np.ndarray
_TOKENS = 4096  # maximum tokens in one forward pass, padding included


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that differ in one dependency."""

    good: str
    bad: str


def read_pairs(path: str | os.PathLike, *, n: int | None = None) -> list[MinimalPair]:
    """Read pairs of a JSONL file with `sentence_good` and `sentence_bad`, as in BLiMP.

    Raises:
        StoreError: the file does not exist, or a line lacks a field; its number is given.
    """
    try:
        lines = read_lines(os.fspath(path))
    except PromptError as error:
        raise StoreError(str(error)) from error
    out = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or (n is not None and len(out) == n):
            continue
        try:
            document = parse_json(line)
            out.append(MinimalPair(str(document["sentence_good"]), str(document["sentence_bad"])))
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{path}, line {number}: not a JSON object with sentence_good and sentence_bad "
                f"({error})"
            ) from error
    if not out:
        raise StoreError(f"{path} contains no pairs")
    return out


@takes_model
def check_pairs(
    model: Model,
    pairs: Sequence[MinimalPair],
    heads: Sequence[str | tuple[int, int] | Head],
    *,
    n_random: int = 20,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Zero the heads, and random sets of as many in the same layers, and compare margins.

    Returns:
        One row per set of heads, the tested one first: heads, set ("checked" or "random"), drop
        (the score: mean drop of the margin when the heads are zeroed, in nats) with sem, null (of
        the tested set: the mean over random sets), accuracy (share of pairs whose good sentence is
        more likely with the heads zeroed) and n. `per_prompt` is the drop on each pair. Facts:
        checked, the tested heads; margin, per pair the log-likelihood of the good sentence minus
        the bad one; accuracy_clean, the accuracy with all heads; p, the share of sets, the tested
        one included, with a drop at least as large; likelihood, "log-likelihood" (decoders) or
        "pseudo-log-likelihood" (masked language models).

    Raises:
        PromptError: the model does not predict tokens, or cannot read the sentences.
        OptionError: there are no pairs, no heads, or no other heads in their layers.

    Unit: nats of log-likelihood.

    Cost: Two forward passes per pair and set of heads; masked models one per word.

    Null: random heads of the same layers.

    Not for: pairs that differ in more than the dependency, such as in length or frequency.

    Reference: minimal pairs as in BLiMP (Warstadt et al. 2020)
    """
    if not pairs or not heads:
        raise OptionError(f"{len(pairs)} pairs and {len(heads)} heads; give at least one of each")
    asked = [Head.parse(h) if isinstance(h, str) else Head(*h) for h in heads]
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    score = _scorer(model, texts)
    drawn = _random_sets(model, asked, n_random, seed)

    def margin(chosen: Sequence[Head]) -> Array:
        edits = [zero([(h.layer, h.head) for h in chosen])] if chosen else []
        with model.edited(*edits):
            likely = score()
        return likely[0::2] - likely[1::2]

    sets = [[], asked, *drawn]
    margins = []
    for at, chosen in enumerate(sets):
        margins.append(margin(chosen))
        if progress is not None:
            progress(f"{model.name}: minimal pairs", at + 1, len(sets))
    masked = model.kind != "causal"
    provenance = model_provenance(model) | {
        "n_pairs": len(pairs),
        "ablation": "zero",
        "seed": seed,
        "n_random": n_random,
        "made_by": "interp.syntax.check_pairs",
    }
    return pair_rows(
        [tuple(map(str, chosen)) for chosen in sets[1:]],
        margins[0],
        np.stack(margins[1:]),
        "pseudo-log-likelihood" if masked else "log-likelihood",
        provenance,
    )


def pair_rows(
    sets: Sequence[tuple[str, ...]],
    margin: Float[Array, " pair"],
    without: Float[Array, "set pair"],
    likelihood: str,
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per set of heads, the tested one first; see `check_pairs`."""
    drops, rest = margin - without, len(sets) - 1
    mean = drops.mean(1)
    columns = {
        "heads": [" ".join(names) for names in sets],
        "set": ["checked"] + ["random"] * rest,
        "drop": mean,
        "sem": [float(standard_error(x)) for x in drops],
        "null": [float(mean[1:].mean())] + [math.nan] * rest,
        "accuracy": (without > 0).mean(1),
        "n": len(margin),
    }
    facts = {
        "metric": "drop of the margin",
        "unit": "nats",
        "checked": sets[0],
        "margin": margin,
        "accuracy_clean": float((margin > 0).mean()),
        "p": float((1 + (mean[1:] >= mean[0]).sum()) / (1 + rest)),
        "likelihood": likelihood,
    }
    return ResultRows(
        "PairCheck", columns, ("heads", "set"), made, facts, drops, same_as={"score": "drop"}
    )


def _random_sets(model: Model, heads: Sequence[Head], n_random: int, seed: int) -> list[list[Head]]:
    """Draw sets with as many heads in each layer, without any of the tested ones."""
    rng = np.random.default_rng(seed)
    others: dict[int, list[Head]] = {}
    for head in heads:
        if head.layer not in others:
            others[head.layer] = [
                h for h in model.heads() if h.layer == head.layer and h not in heads
            ]
        if len(others[head.layer]) < sum(h.layer == head.layer for h in heads):
            raise OptionError(
                f"layer {head.layer} of {model.name} has too few other heads for random sets; "
                f"test fewer heads of it"
            )
    if n_random < 1:
        raise OptionError(f"n_random={n_random}; a comparison needs at least one random set")
    out = []
    for _ in range(n_random):
        chosen: list[Head] = []
        for layer, pool in others.items():
            n = sum(h.layer == layer for h in heads)
            chosen += [pool[i] for i in rng.choice(len(pool), n, replace=False)]
        out.append(sorted(chosen))
    return out


def _scorer(model: Model, texts: Sequence[str]) -> Any:
    """Return a function that gives the log-likelihood of every text under the model, in nats."""
    if model.tokenizer is None:
        raise PromptError(
            f"{model.name} has no tokenizer, but pairs are sentences; load it with one"
        )
    ids = Prompts.of(list(texts), model).ids
    if model.kind == "causal":
        rows = [(at, list(x), list(range(1, len(x))), list(x[1:]), -1) for at, x in enumerate(ids)]
    elif model.kind == "encoder" and model.tokenizer.mask_token_id is not None:
        special = set(model.tokenizer.all_special_ids)
        rows = []
        for at, x in enumerate(ids):
            for i, token in enumerate(x):
                if token not in special:
                    masked = [*x[:i], model.tokenizer.mask_token_id, *x[i + 1 :]]
                    rows.append((at, masked, [i], [token], 0))
    else:
        raise PromptError(
            f"{model.name} ({model.kind}) does not give the likelihood of a sentence; use a "
            f"decoder or a masked language model"
        )
    order = sorted(range(len(rows)), key=lambda r: len(rows[r][1]))

    def score() -> Array:
        out = np.zeros(len(texts))
        for batch in _batches(order, rows):
            with torch.no_grad():
                logits = model.run(Prompts(tuple(tuple(rows[r][1]) for r in batch)))
            if logits.dim() != 3 or logits.shape[-1] < model.d_vocab:
                raise PromptError(
                    f"{model.name} does not predict tokens (its output is {tuple(logits.shape)}); "
                    f"load it with its language-model head"
                )
            for row, log_p in zip(batch, logits.double().log_softmax(-1), strict=True):
                at, _, positions, targets, shift = rows[row]
                where = torch.tensor(positions, device=log_p.device) + shift
                picked = log_p[where, torch.tensor(targets, device=log_p.device)]
                out[at] += float(picked.sum())
        return out

    return score


def _batches(order: Sequence[int], rows: Sequence[tuple]) -> list[list[int]]:
    out: list[list[int]] = [[]]
    for r in order:
        if out[-1] and (len(out[-1]) + 1) * len(rows[r][1]) > _TOKENS:
            out.append([])
        out[-1].append(r)
    return out


def checked_pairs(
    model: Model,
    found: TreeScores,
    pairs: Sequence[MinimalPair],
    heads: Sequence[str] | None,
    seed: int,
    progress: Any,
) -> ResultRows | str:
    """Check the requested heads, or those above their baselines; or return why none can be."""
    from interp.syntax.wording import verdict

    if heads is not None:
        chosen = [Head.parse(head) for head in heads]
    else:
        above = [r.head for r in found.relations if verdict(r) == "above"]
        chosen = sorted({Head.parse(head.split()[-1]) for head in above})
    if not chosen:
        return "minimal pairs: no head is above its baseline; name some with --heads"
    return check_pairs(model, pairs, chosen, seed=seed, progress=progress)


def pair_document(found: ResultRows | str) -> dict[str, Any]:
    """Return a check of minimal pairs, or why there is none, as plain data."""
    if isinstance(found, str):
        return {"heads": [], "note": found}
    return {
        "heads": list(found.checked),
        "kind": found.likelihood,
        "pairs": len(found.margin),
        "accuracy": found.accuracy_clean,
        "accuracy_without": float(found.accuracy[0]),
        "margin": float(found.margin.mean()),
        "drop": float(found.drop[0]),
        "drop_sem": None if math.isnan(found.sem[0]) else float(found.sem[0]),
        "random_drops": found.drop[1:].tolist(),
        "p": found.p,
        "provenance": dict(found.provenance),
    }


def pair_check_summary(found: ResultRows) -> str:
    """Return what the margin of minimal pairs loses without the heads, and without random ones."""
    drawn = found.drop[1:]
    return (
        f"PairCheck({' '.join(found.checked)}: {found.accuracy_clean:.0%} of {len(found.margin)} "
        f"pairs, {found.accuracy[0]:.0%} without; margin {found.margin.mean():.3g} nats, lost "
        f"{found.drop[0]:.3g} ± {found.sem[0]:.2g}; random heads of the same layers "
        f"{drawn.mean():.3g} [{drawn.min():.3g}, {drawn.max():.3g}]; p {found.p:.2g})"
    )


present("PairCheck", summary=pair_check_summary)
