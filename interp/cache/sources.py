"""Source of an answer in a long context, by the attention of chosen heads, with calibration.

The context is divided into segments, of which those that hold the answer are the known source.
Heads are chosen, and the probability that a segment is a source is fitted, on some needles; both
are judged on the others. Only the rows of the answer and the last rows of the prompt are formed, so
memory is linear in the length.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.cache.confidence import (
    best_separating,
    confidence_scores,
    fit_confidence,
    source_shares,
)
from interp.cache.segments import LAST, WIDTH, Segments, read_segments, segment_ends
from interp.cache.windows import cached_sites
from interp.core.clusters import score_columns
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.core.ties import ordered_by
from interp.draw.parts import FoundPart, result_part
from interp.heads.needle.instance import Instance, prompts_of
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

WAYS: Mapping[str, str] = {
    "citation": "mass per token from the rows of the answer, by the heads that best separate the "
    "source",
    "lookback": "lookback ratio of the segment, by the heads that best separate the source",
    "evaluator": "pooled weights of the prompt's last rows, by the best heads of the best layer",
    "all_heads": "mass per token from the rows of the answer, mean of all heads",
    "position": "the later the segment, the higher: a baseline that reads nothing",
}
"""Ways to score segments."""


def source_curve(found: ResultRows, method: str) -> pd.DataFrame:
    """Return precision and recall of a way at every threshold of its calibrated probability.

    Over the segments of all held-out prompts.

    Args:
        found: result of `attribute_context`.
        method: one of its ways.

    Raises:
        UnknownName: the way is not among those measured.
    """
    import pandas as pd
    from sklearn.metrics import precision_recall_curve

    found.require_kind("ContextSources", "attribute_context")
    ways = found.columns["metric"]
    if method not in ways:
        raise UnknownName("way to find a source", method, ways)
    p = found.probability[ways.index(method)]
    precision, recall, at = precision_recall_curve(found.truth, p)
    return pd.DataFrame({"probability": at, "precision": precision[:-1], "recall": recall[:-1]})


@takes_model
def attribute_context(
    model: Model,
    instances: Sequence[Instance],
    *,
    segment: int = 16,
    k: int = 8,
    held_out: float = 0.5,
    last: int | None = None,
    width: int = WIDTH,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Find the segment that an answer comes from by attention, and judge it on held-out needles.

    For contexts too long to intervene on: one forward pass each, segments of equal length, needles
    as known sources. For documents in sentences, with gradients and ablations beside attention, and
    for an answer whose sources are not known, use `text.context.judge_sources` and
    `answer_sources`.

    Args:
        model: the model.
        instances: prompts with known sources, such as `needle.ids_instances(...)`, of any length,
            from several needles.
        segment: tokens per segment.
        k: number of heads that each way reads (EHPC reads 8); those of one layer for the evaluator.
        held_out: share of the needles on which the ways are judged.
        last: last rows of a prompt that the evaluator reads; by default those of the question, at
            most 16 (EHPC reads 16).
        width: tokens of the evaluator's moving average (EHPC pools 32).
        seed: seed of the division of the needles.
        progress: callback with the name of the step, the steps done and their total.

    Returns:
        One row per way of `WAYS`: score, the average precision on held-out needles; null, that of
        segments in random order; the scores of its calibrated probability; heads, the chosen ones.
        Facts: random, the null per prompt; truth, whether each segment of all held-out prompts is a
        source; of_prompt, the prompt of each segment; lengths, tokens of each held-out prompt;
        chosen, the heads of each way, best first. By row: shares, the score of each segment as a
        share of its prompt's total, and probability, `[way, segment]`. Prompts of a needle are a
        cluster. `source_curve` gives precision and recall.

    Raises:
        PromptError: there are fewer than two needles, or a context has one segment.
        OptionError: an option is out of range, or the model has no causal attention over tokens.

    Unit: average precision.

    Cost: One forward pass per instance; only the rows of the answer and the last rows are formed.

    Null: segments in random order; and `position`, which reads nothing.

    Not for: proof that the answer depends on the segment: remove it, and compare.

    Reference: Chuang et al. 2024, "Lookback Lens"; Fei et al. 2025, "Efficient Prompt Compression
    with Evaluator Heads"; the choice and the calibration: this project.
    """
    if k < 1 or not 0 < held_out < 1:
        raise OptionError(f"k={k}, held_out={held_out}: k is at least 1, held_out between 0 and 1")
    needles = sorted({x.needle for x in instances})
    if len(needles) < 2:
        raise PromptError(
            f"{len(needles)} needle: heads are chosen on some needles and judged on others; give "
            "at least two"
        )
    order = np.random.default_rng(seed).permutation(needles).tolist()
    out = set(order[: min(max(1, round(held_out * len(order))), len(order) - 1)])
    progress, seen = progress or silent, []
    for done, x in enumerate(instances, 1):
        rows = min(LAST, len(x.question)) if last is None else last
        ends = segment_ends(model, x, segment)
        seen.append(read_segments(model, x, ends, last=rows, width=width))
        progress("prompts", done, len(instances))
    fit = [s for s, x in zip(seen, instances, strict=True) if x.needle not in out]
    judged = [s for s, x in zip(seen, instances, strict=True) if x.needle in out]
    sites = cached_sites(model)
    heads = [Head(s.layer, h, s.stack) for s in sites for h in range(s.n_heads)]
    tables = {name: _table(name, sites) for name in ("citation", "lookback", "evaluator", "pooled")}
    sources = [s.source.numpy() for s in fit]
    picked = {
        way: best_separating([tables[way](s) for s in fit], sources, k)
        for way in ("citation", "lookback")
    }
    picked["evaluator"] = _of_best_layer(fit, tables["evaluator"], heads, k)
    scorers: dict[str, Callable[[Segments], np.ndarray]] = {
        "citation": lambda s: tables["citation"](s)[picked["citation"]].sum(0),
        "lookback": lambda s: tables["lookback"](s)[picked["lookback"]].sum(0),
        "evaluator": lambda s: tables["pooled"](s)[picked["evaluator"]].sum(0),
        "all_heads": lambda s: tables["citation"](s).sum(0),
        "position": lambda s: np.arange(1.0, len(s.ends) + 1),
    }
    precision, shares, chances = [], [], []
    truth = np.concatenate([s.source.numpy() for s in judged])
    for way in WAYS:
        known, mine = ([source_shares(scorers[way](s)) for s in part] for part in (fit, judged))
        precision.append(
            [average_precision(s.source, x) for s, x in zip(judged, mine, strict=True)]
        )
        shares.append(np.concatenate(mine))
        points = fit_confidence(np.concatenate(known), np.concatenate(sources))
        chances.append(np.interp(shares[-1], *points))
    held = [x for x in instances if x.needle in out]
    provenance = result_provenance(
        model,
        "interp.cache.attribute_context",
        prompts_of(instances),
        seed=seed,
        segment=segment,
        k=k,
        held_out=held_out,
        last=last,
        width=width,
    )
    random, each = np.array([random_precision(s.source) for s in judged]), np.array(precision)
    needles = tuple(f"needle {x.needle}" for x in held)
    chosen = {way: tuple(heads[i] for i in which) for way, which in picked.items()}
    stated = [confidence_scores(x, truth) for x in chances]
    columns = {"metric": list(WAYS)} | score_columns(each, needles)
    columns |= {"null": float(random.mean()), "unit": "average precision"}
    columns |= {name: [x[name] for x in stated] for name in stated[0]}
    columns["heads"] = [" ".join(map(str, chosen.get(way, ()))) for way in WAYS]
    facts = {
        "random": random,
        "truth": truth,
        "chosen": chosen,
        "of_prompt": np.concatenate([np.full(len(s.ends), i) for i, s in enumerate(judged)]),
        "lengths": tuple(x.length for x in held),
    }
    arrays = {"shares": np.array(shares), "probability": np.array(chances)}
    return ResultRows(
        "ContextSources",
        columns,
        ("metric",),
        provenance,
        facts,
        each,
        arrays=arrays,
        clusters=needles,
    )


def _table(name: str, sites: Sequence[Any]) -> Callable[[Segments], np.ndarray]:
    """Return a function that stacks one measure of all heads, `[head, segment]`."""

    def of(segments: Segments) -> np.ndarray:
        each = getattr(segments, name)
        masses = np.concatenate([each[site].numpy() for site in sites])
        if name in ("citation", "evaluator"):  # mass per token: the last segment is shorter
            masses = masses / np.array([b - a for a, b in segments.ends])
        return masses

    return of


def _of_best_layer(
    parts: Sequence[Segments],
    table: Callable[[Segments], np.ndarray],
    heads: Sequence[Head],
    k: int,
) -> list[int]:
    """Return the best heads of the layer whose heads attend most to the source together."""
    mass = np.mean([table(s)[:, s.source.numpy()].sum(1) for s in parts], 0)
    places = [(h.stack, h.layer) for h in heads]
    layers = dict.fromkeys(places)
    sums = {p: sum(m for m, q in zip(mass, places, strict=True) if q == p) for p in layers}
    layer = ordered_by(layers, lambda p: sums[p])[0]
    mine = [i for i, p in enumerate(places) if p == layer]
    return sorted(mine, key=lambda i: -mass[i])[:k]


def average_precision(truth: Any, scores: np.ndarray) -> float:
    """Return the average precision of segments ranked by score; tied ones share a threshold."""
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(np.asarray(truth), scores))


def random_precision(truth: Any) -> float:
    """Return the expected average precision of segments in random order, exactly."""
    labels = np.asarray(truth)
    number, sources = len(labels), int(labels.sum())
    harmonic = float((1 / np.arange(1, number + 1)).sum())
    return (harmonic + (sources - 1) / (number - 1) * (number - harmonic)) / number


def average_precision_summary(found: ResultRows) -> str:
    """Return the mean precision of each way of finding sources, beside a random order."""
    ways = zip(found.metric, found.per_prompt.mean(1), strict=True)
    return (
        f"ContextSources, average precision on {found.per_prompt.shape[1]} held-out prompts: "
        f"{', '.join(f'{way} {x:.2f}' for way, x in ways)}; random order {found.random.mean():.2f}"
    )


def sources_part(found: ResultRows) -> FoundPart:
    """Return how well heads find the part of a long context that an answer comes from."""
    return result_part(found, "cache", "Where answers come from", " ".join(str(found).split()))


present("ContextSources", summary=average_precision_summary, part=sources_part)
