"""Check of shares by ablation: predicted and measured changes when a writer is removed from a side.

The prediction holds the scale of the norms, as the shares do. The measurement runs the model's own
norm and projection on the stream without the writer, for one side of one head, and computes the
attention pattern again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.circuits.linear_scores import LinearScores
from interp.circuits.why.batches import asked_heads, asked_prompts, decomposed
from interp.circuits.why.positions import STRONGEST, Places
from interp.circuits.why.qk_shares import qk_shares
from interp.circuits.why.score_parts import ScoreParts, added_scores
from interp.circuits.why.shares import QKShares
from interp.circuits.why.stream_parts import BIAS, StreamParts
from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.interrupts import holding
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.statistics import DRAWS, percentile_interval, redraw, tails_of
from interp.core.ties import ranked
from interp.model.calls.call import Call, precise
from interp.model.content import model_provenance
from interp.model.hooks.inference import in_this_thread
from interp.model.locate.find_sites import first_tensor
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.core.prompts import Prompts
    from interp.model.calls.sites import Site
    from interp.model.head_arguments import HeadsLike
    from interp.model.model import Model

Array = np.ndarray
SIDES = ("query", "key")


@takes_model
def check_shares(
    model: Model,
    heads: HeadsLike,
    prompts: Any,
    *,
    at: Any = STRONGEST,
    top: int = 3,
    seed: int = 0,
) -> ResultRows:
    """Remove the writers of the largest shares from one side of each head, and measure the change.

    Writers are chosen on every second prompt and judged on the others.

    Args:
        model: The model.
        heads: One head or several.
        prompts: At least four texts or lists of token ids.
        at: Rule of the positions, as for `qk_shares`.
        top: Number of writers for each side of each head: those with the largest absolute share
            relative to the visible keys.
        seed: Seed of the random directions and of the bootstrap.

    Returns:
        One row per head, side and writer removed: score (the measured change of the attention
        score) with sem, null (the change when a part of the same size and random direction is
        removed), n, clusters, predicted, attention (measured change of the weight) and
        attention_predicted. `per_prompt` is NaN for prompts that chose. Arrays `[row, prompt]`:
        predictions, weights, weight_predictions and random (the change by the random direction).
        Facts: correlations, of predicted and measured changes over rows and prompts with the
        interval over prompts, for "score" and "attention", and for "random" of the prediction with
        the change by the random direction.

    Raises:
        OptionError: There are fewer than four prompts, or `top` is below 1.
        UnreadableAttention: As for `qk_shares`; or the stream of a block cannot be replaced.

    Unit: Attention score; `attention` is a difference of weights.

    Cost: A forward pass for each writer and one for each random direction.

    Null: A random direction of the same length at each position in place of the writer.

    Not for: effects on the output of the model.
    """
    given = asked_prompts(model, prompts)
    if len(given) < 4:
        raise OptionError(
            f"{len(given)} prompts; a check needs at least 4: half choose the writers, and the "
            "others judge them"
        )
    if top < 1:
        raise OptionError(f"top={top} is not a number of writers; give 1 or more")
    places, chosen = Places(at), asked_heads(model, heads)
    choosing, judging = given.part(range(0, len(given), 2)), range(1, len(given), 2)
    shares = qk_shares(model, [(s.layer, h) for s, h in chosen], choosing, at=at, null="none")
    rows = [
        (site, head, side, writer)
        for site, head in chosen
        for side in SIDES
        for writer in _largest(shares, f"L{site.layer}H{head}", side, top)
    ]
    values = np.full((5, len(rows), len(given)), np.nan)
    _measure(model, given, list(judging), places, rows, values, seed)
    labels = given.clusters
    correlations = {
        name: _correlation(values[a], values[b], labels, seed)
        for name, a, b in (("score", 1, 0), ("attention", 3, 2), ("random", 1, 4))
    }
    provenance = model_provenance(model) | {
        "made_by": "interp.circuits.check_shares",
        "options": {
            "at": places.label,
            "top": top,
            "seed": seed,
            "heads": [f"L{s.layer}H{h}" for s, h in chosen],
        },
        "prompts": {"design": given.design, "n": len(given), "hash": given.hash},
        "prompts_hash": given.hash,
        "prompt_ids": list(given.prompt_ids),
    }
    score, predicted, attention, attention_predicted, random = (
        cluster_summary(x.T, labels) for x in values
    )
    columns = {
        "layer": [site.layer for site, *_ in rows],
        "head": [head for _, head, *_ in rows],
        "side": [x[2] for x in rows],
        "writer": [x[3] for x in rows],
        "score": score.score,
        "sem": score.sem,
        "null": random.score,
        "n": score.n,
        "clusters": score.clusters,
        "predicted": predicted.score,
        "attention": attention.score,
        "attention_predicted": attention_predicted.score,
    }
    facts = {
        "model": model.name,
        "metric": "change of the score without the writer",
        "unit": "attention score",
        "correlations": correlations,
    }
    names = ("predictions", "weights", "weight_predictions", "random")
    return ResultRows(
        "ShareCheck",
        columns,
        ("layer", "head", "side", "writer"),
        provenance,
        facts,
        values[0],
        arrays=dict(zip(names, values[1:], strict=True)),
        clusters=labels,
        by="abs",
    )


def _largest(found: QKShares, head: str, side: str, top: int) -> list[str]:
    frame: Any = found.of(head).side(side)
    frame = frame[~frame["writer"].isin([BIAS, "position bias"])]
    order = ranked(frame, "relative", absolute=True).index[:top]
    return frame.loc[order, "writer"].tolist()


def _measure(
    model: Model,
    given: Prompts,
    judging: Sequence[int],
    places: Places,
    rows: Sequence[tuple[Site, int, str, str]],
    values: Array,
    seed: int,
) -> None:
    generator = torch.Generator().manual_seed(seed)
    for some, run in decomposed(model, given.part(judging)):
        stream, added = StreamParts(run), added_scores(run)
        known: dict[tuple[Site, int], ScoreParts] = {}
        runs: dict[tuple[Site, str], list[tuple[Tensor, Tensor]]] = {}
        for i, (site, head, side, writer) in enumerate(rows):
            if (site, head) not in known:
                known[site, head] = ScoreParts(stream, added[site], site, head)
            parts, before = known[site, head], stream.before(site)
            if writer not in before.names:
                continue
            if (site, writer) not in runs:
                part = before.x[:, :, before.names.index(writer)]
                noise = torch.randn(part.shape, generator=generator).to(part)
                noise *= part.norm(dim=-1, keepdim=True) / noise.norm(dim=-1, keepdim=True)
                runs[site, writer] = [_without(run, site, x) for x in (part, noise)]
            changed = [_score(run, site, head, side, x) for x in runs[site, writer]]
            w = parts.names.index(writer)
            left, right = parts.q, parts.k
            mine = left[:, w] @ right.sum(1).mT if side == "query" else left.sum(1) @ right[:, w].mT
            predicted = parts.product - parts.scale * mine
            for row, number in enumerate(some):
                prompt = judging[number]
                at = places.of(model, given.part([prompt]), parts.seen[row], parts.pattern[row])
                if at:
                    values[:, i, prompt] = _changes(
                        parts, row, at, changed[0][row], predicted[row], changed[1][row]
                    )


def _changes(
    parts: ScoreParts,
    row: int,
    at: Sequence[tuple[int, int]],
    measured: Tensor,
    predicted: Tensor,
    random: Tensor,
) -> list[float]:
    q, k = torch.tensor(list(at)).unbind(1)
    added, seen = parts.added, parts.seen[row][q]
    base, changes = parts.product[row], []
    for new in (measured, predicted):
        scores = added.capped(new[q]) + parts.bias[row][q]
        weights = added.weights(parts.head, scores, seen)
        change = weights[torch.arange(len(q)), k] - parts.pattern[row][q, k]
        changes += [float((new - base)[q, k].mean()), float(change.mean())]
    changes.append(float((random - base)[q, k].mean()))
    return [changes[0], changes[2], changes[1], changes[3], changes[4]]


def _without(run: LinearScores, site: Site, part: Tensor) -> tuple[Tensor, Tensor]:
    """Return queries and keys of a layer when a part is removed from the stream that it reads."""
    read: dict[str, Tensor] = {}

    def visit(at: Site, call: Call, real: Tensor) -> None:
        if at == site:
            assert call.q is not None
            assert call.k is not None
            read["q"], read["k"] = precise(call.q).double(), precise(call.k).double()

    with torch.no_grad(), _reduced(run, site, part), run.model.visited(visit):
        run.model.run(run.inputs)
    return read["q"], read["k"]


@holding
@contextmanager
def _reduced(run: LinearScores, site: Site, part: Tensor) -> Iterator[None]:
    stream = site.streams["resid_pre"]
    if stream.side != "in" or stream.run:
        raise UnreadableAttention(
            f"{site.name} ({site.module}): the stream that it reads is not the input of a module, "
            "so no writer can be removed from it"
        )

    def hook(_: Any, args: tuple, kwargs: dict) -> Any:
        from interp.circuits.stream_hooks import replace_first

        x = first_tensor(args)
        x = first_tensor(kwargs) if x is None else x
        assert x is not None
        return replace_first((args, kwargs), x, (x - part.reshape(x.shape).to(x.dtype)))

    module = run.model.module.get_submodule(stream.module)
    handle = module.register_forward_pre_hook(in_this_thread(hook), with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


def _score(
    run: LinearScores, site: Site, head: int, side: str, changed: tuple[Tensor, Tensor]
) -> Float[Tensor, "batch query key"]:
    q = run.cache["q", site.layer][:, head].double()
    k = run.cache["k", site.layer][:, site.kv_head(head)].double()
    q = changed[0][:, head] if side == "query" else q
    k = changed[1][:, site.kv_head(head)] if side == "key" else k
    return run.scale(site) * q @ k.mT


def _correlation(
    x: Array, y: Array, clusters: tuple[str, ...] | None, seed: int
) -> tuple[float, float, float]:
    """Return Pearson's correlation over rows and prompts, with its bootstrap interval."""
    known = ~np.isnan(x) & ~np.isnan(y)
    prompts = np.flatnonzero(known.any(0))
    labels = [str(p) if clusters is None else clusters[p] for p in prompts]
    groups = [np.flatnonzero(np.array(labels) == name) for name in dict.fromkeys(labels)]

    def moments(which: Array) -> Array:
        columns = prompts[which]
        a, b = x[:, columns], y[:, columns]
        here = ~np.isnan(a) & ~np.isnan(b)
        a, b = a[here], b[here]
        return np.array([len(a), a.sum(), b.sum(), a @ a, b @ b, a @ b])

    def coefficient(m: Array) -> Array:
        n, a, b, aa, bb, ab = np.moveaxis(m, -1, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            return (ab / n - a * b / n**2) / np.sqrt(
                np.maximum(aa / n - (a / n) ** 2, 0) * np.maximum(bb / n - (b / n) ** 2, 0)
            )

    each = np.stack([moments(group) for group in groups])
    value = float(coefficient(each.sum(0)))
    if len(groups) < 2:
        return value, float("nan"), float("nan")
    drawn = redraw(len(groups), DRAWS, np.random.default_rng(seed))
    drawn_values = coefficient(each[drawn].sum(1))
    low, high = percentile_interval(drawn_values[np.isfinite(drawn_values)], tails_of(0.95))
    return value, float(low), float(high)


def share_check_summary(found: ResultRows) -> str:
    """Return the correlations of predicted and measured changes."""
    r, low, high = found.correlations["attention"]
    s, below, above = found.correlations["score"]
    return (
        f"ShareCheck({found.facts['model']}: {len(found)} writers removed from one side, "
        f"{int((~np.isnan(found.per_prompt)).any(0).sum())} held-out prompts; correlation of "
        f"predicted and measured change: score {s:.3f} ({below:.3f} to {above:.3f}), "
        f"attention {r:.3f} ({low:.3f} to {high:.3f}))"
    )


present(
    "ShareCheck",
    summary=share_check_summary,
    text="interp.report.printed.circuits:share_check_text",
)
