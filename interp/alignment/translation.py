"""Heads of translation models: what ablation costs, beside confidence and spread of positions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.alignment.pairs import encode_pairs
from interp.causal.ablation import leave_one_out
from interp.causal.measures import loss
from interp.core.clusters import cluster_summary
from interp.core.errors import PromptError
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.protocols import Progress
from interp.core.rank_statistics import spearman
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.statistics import DRAWS, percentile_interval, redraw_counts
from interp.core.ties import ranked
from interp.draw.parts import FoundPart, between, result_part
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

Array = np.ndarray
LEAST_RELIABLE = 0.5  # share of the variance over heads that is not noise


def translation_rows(
    heads: Sequence[Head],
    rise: Float[Array, "head pair"],
    confidence: Float[Array, "head pair"],
    position_variance: Float[Array, "head pair"],
    null: Float[Array, " head"],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per head; see `translation_heads` for the columns."""
    arrays = {"confidence": confidence, "position_variance": position_variance}
    columns: dict[str, Any] = {
        "stack": [head.stack for head in heads],
        "layer": [head.layer for head in heads],
        "head": [head.head for head in heads],
        "null": null,
        "n": rise.shape[1],
    }
    for name, values in {"score": rise, **arrays}.items():
        summary = cluster_summary(values.T)
        columns |= {name: summary.score, "sem" if name == "score" else f"{name}_sem": summary.sem}
    facts = {"metric": "loss_without_head", "unit": "nats per token (+ helps)"}
    units = ("stack", "layer", "head")
    each = {f"each_{name}": values for name, values in arrays.items()}
    return ResultRows("TranslationHeads", columns, units, made, facts, rise, arrays=each)


def rank_agreement(found: ResultRows, seed: int = 0) -> pd.DataFrame:
    """Return Spearman's correlation of the ablation with each statistic, per stack and overall.

    `low` and `high` are the 95 % interval for other pairs; the heads are fixed. Noise in the
    means of heads moves their correlation towards 0, and once more in bootstrap draws of the
    pairs, so the interval holds the percentiles of the draws and their reflection at the
    correlation. Where noise is more than half of the variance of the means over heads
    (`reliability` below 0.5, the lower of both values), the ranks are not known, and the
    interval is -1 to 1. NaN where all heads have the same value.
    """
    import pandas as pd

    found.require_kind("TranslationHeads", "translation_heads")
    n = found.per_prompt.shape[1]
    times = redraw_counts(n, DRAWS, np.random.default_rng(seed)).astype(float)
    times /= times.sum(1, keepdims=True)
    rows = []
    of = found.columns["stack"]
    stacks = list(dict.fromkeys(of))
    for stack in ["all", *stacks] if len(stacks) > 1 else stacks:
        mine = [i for i, head_stack in enumerate(of) if stack in ("all", head_stack)]
        for name in ("confidence", "position_variance"):
            values = found.arrays[f"each_{name}"]
            both = np.stack([found.per_prompt[mine], values[mine]])
            drawn = np.array([spearman(x)[0, 1] for x in np.einsum("shp,dp->dsh", both, times)])
            known = drawn[np.isfinite(drawn)]
            score, certain = spearman(both.mean(-1))[0, 1], reliability(both)
            low, high = _reflected(score, known, certain) if len(known) else (np.nan, np.nan)
            rows.append(
                {
                    "stack": stack,
                    "statistic": name,
                    "spearman": score,
                    "low": low,
                    "high": high,
                    "reliability": certain,
                    "heads": len(mine),
                    "pairs": both.shape[2],
                }
            )
    return pd.DataFrame(rows)


def reliability(values: Float[Array, "statistic head pair"]) -> float:
    """Return the share of the variance of means over heads that is not noise of the pairs, 0 to 1.

    The lowest over statistics. What all heads share on a pair does not change their order, and is
    left out. NaN with one head or one pair.
    """
    if min(values.shape[1:]) < 2:
        return np.nan
    apart = values - values.mean(1, keepdims=True)
    noise = (standard_error(apart) ** 2).mean(1)
    total = apart.mean(2).var(1, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return float(np.clip(1 - noise / total, 0, 1).min())


def _reflected(score: float, drawn: Float[Array, " draw"], certain: float) -> tuple[float, float]:
    low, high = percentile_interval(drawn)
    if certain < LEAST_RELIABLE:
        return -1.0, 1.0
    return max(-1.0, min(low, 2 * score - high)), min(1.0, max(high, 2 * score - low))


@takes_model
def translation_heads(
    model: Model,
    pairs: Any,
    *,
    stack: str | None = None,
    null: bool = True,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure what each head is needed for in translation, beside two statistics of its attention.

    Args:
        model: the encoder-decoder model.
        pairs: sentence pairs; gold alignments are not needed. See `encode_pairs`.
        stack: "encoder", "decoder" or "cross"; all by default.
        null: also ablate the same architecture with random weights.
        seed: seed of the random weights.
        batch_size: pairs per forward pass.
        progress: called after each step.

    Reference: Voita et al. 2019, "Analyzing Multi-Head Self-Attention" (confidence). The position
    variance is that of the attended position, sum A j^2 - (sum A j)^2.

    Returns:
        One row per head: stack, layer, head, score (the rise of the loss per target token if the
        head's output is zeroed) with sem and null, n, confidence (mean over rows of the largest
        weight, without weights on the end token of the source) and position_variance (mean over
        rows of the variance of the attended position, in squared tokens), each with its sem. Arrays
        `[head, pair]`: each_confidence, each_position_variance. `rank_agreement` correlates them.

    Raises:
        OptionError: the model has no cross attention, or no such stack.
        PromptError: a pair does not fit the model, or has a target of one token.

    Unit: nats per token.

    Cost: One forward pass per head, from the head's layer on, and one more.

    Null: the same ablation on random weights.

    Not for: sharing credit between heads: where two heads do the same, ablating either costs
    little.
    """
    encoded = encode_pairs(model, pairs)
    decoder = encoded.prompts.decoder
    assert decoder is not None
    short = [i for i, ids in enumerate(decoder.ids) if len(ids) < 2]
    if short:
        raise PromptError(f"the target of pair {short[0]} holds only an end token")
    task = loss(model, encoded.prompts, name="target_loss")
    ablation = leave_one_out(
        model,
        task,
        null="random-init" if null else "none",
        stack=stack,
        seed=seed,
        progress=progress,
    )
    frame = ablation.to_pandas()
    of = tuple(
        Head(int(row["layer"]), int(row["head"]), row["stack"]) for row in frame.to_dict("records")
    )
    confidence, variance = _statistics(model, encoded, batch_size)
    return translation_rows(
        of,
        np.asarray(ablation.per_prompt, float),
        np.stack([confidence[head] for head in of]),
        np.stack([variance[head] for head in of]),
        frame["null"].to_numpy(float),
        result_provenance(
            model,
            "interp.alignment.translation_heads",
            encoded.prompts,
            seed=seed,
            stack=stack,
            kind="zero",
        ),
    )


def _statistics(
    model: Model, encoded: Any, batch_size: int
) -> tuple[dict[Head, Array], dict[Head, Array]]:
    """Return confidence and position variance of every head, `[pair]` each."""
    values: dict[str, dict[Head, list[float]]] = {"confidence": {}, "variance": {}}
    start = 0
    for batch in model.batches(encoded.prompts, batch_size):
        ends = [
            [key for key, word in enumerate(encoded.source_words[start + i]) if word < 0]
            for i in range(len(batch))
        ]

        def visit(
            site: Site, call: Call, real: Tensor, batch: Any = batch, ends: Any = ends
        ) -> None:
            model.require_finite(call, site)
            pattern = call.pattern().double().cpu()
            for i, source in enumerate(batch.ids):
                rows = pattern[i][:, real[i].cpu()]
                keys = len(batch.decoder.ids[i]) if site.stack == "decoder" else len(source)
                hidden = ends[i] if site.stack != "decoder" else []
                for name, each in (
                    ("confidence", confidences(rows[..., :keys], hidden)),
                    ("variance", position_variances(rows[..., :keys])),
                ):
                    for h, value in enumerate(each.tolist()):
                        head = Head(site.layer, h, site.stack)
                        values[name].setdefault(head, []).append(value)

        model.read(batch, visit, last=1)
        start += len(batch)
    confidence, variance = (
        {head: np.array(x) for head, x in values[name].items()}
        for name in ("confidence", "variance")
    )
    return confidence, variance


def confidences(
    pattern: Float[Tensor, "head row key"], hidden: list[int]
) -> Float[Tensor, " head"]:
    """Return the mean over rows of the largest weight, without those on some keys."""
    remaining = pattern.clone()
    remaining[..., hidden] = 0
    return remaining.amax(-1).mean(-1)


def position_variances(pattern: Float[Tensor, "head row key"]) -> Float[Tensor, " head"]:
    """Return the mean over rows of the variance of the attended position, in squared tokens."""
    at = torch.arange(pattern.shape[-1], dtype=pattern.dtype)
    middle = (pattern * at).sum(-1, keepdim=True)
    return (pattern * (at - middle) ** 2).sum(-1).mean(-1)


def translation_heads_summary(found: ResultRows) -> str:
    """Return the head whose ablation costs most."""
    if not len(found):
        return "TranslationHeads without rows"
    first = found.top(1).to_pandas().iloc[0]
    return (
        f"TranslationHeads: {len(found)} heads on {found.per_prompt.shape[1]} pairs; without "
        f"{first['stack']}.L{first['layer']}H{first['head']} the loss rises most, by "
        f"{first['score']:.3g} ± {first['sem']:.2g} nats per token"
    )


def translation_part(found: ResultRows) -> FoundPart:
    """Return what the loss of the target rises by without each head."""
    frame: Any = ranked(found.to_pandas(), "score")
    notes, needed = {}, []
    for row in frame.to_dict("records"):
        label = f"{row['stack']} L{row['layer']}H{row['head']}"
        notes[label] = (
            f"Translation: without it the loss of the target rises by {row['score']:+.3g}"
            f"{between(row['low'], row['high'])} nats per token; confidence "
            f"{row['confidence']:.2f}, position variance {row['position_variance']:.3g}"
        )
        if row["low"] > 0:
            needed.append(label)
    title = "Heads of the translation"
    shown = {"heads": needed[:4], "notes": notes}
    return result_part(found, "alignment", title, f"{found}.", frame, **shown)


present("TranslationHeads", summary=translation_heads_summary, part=translation_part)
