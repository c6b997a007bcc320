"""Cross attention from row to row of a decoder: mass per source, and drift from known places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.alignment.pairs import require_cross
from interp.alignment.speech import cross_maps, times_provenance
from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import t_test_p
from interp.core.statistics import holm
from interp.model.content import tensors_hash
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

NONE = -1  # number of a key that belongs to no source


@takes_model
def source_mass(
    model: Model,
    inputs: Mapping[str, Tensor],
    labels: Sequence[Sequence[int]],
    *,
    names: Sequence[str] | None = None,
    skip: int = 0,
) -> ResultRows:
    """Measure how much of each head's cross attention goes to each of several sources, row by row.

    For decoders that read several texts at once, or a picture and a text, in one row of keys.

    Args:
        model: a model with encoder and decoder.
        inputs: its tensors, one prompt a row, all with the same sources in the same order.
        labels: per prompt the number of the source that each key belongs to, from 0; -1 for keys
            that belong to none, such as separators and padding.
        names: names of the sources; by default their numbers.
        skip: number of first decoder rows to leave out.

    Reference: Libovicky and Helcl 2017, "Attention Strategies for Multi-Source Sequence-to-Sequence
    Learning" (arXiv 1704.06567), the flat combination.

    Returns:
        A row per head and source: `score` is the mean mass, `early` and `late` that of the first
        and last third of the rows, `change` the second minus the first with `change_sem`. `null` is
        the mass of uniform attention: the source's share of the keys that are not padding. The
        array `over_time` holds the mass at every decoder row, `[head and source, prompt, row]`, NaN
        after the last.

    Raises:
        OptionError: the model has no cross attention, or fewer than three rows are left.
        PromptError: the numbers do not fit the keys.

    Unit: attention mass.

    Cost: One forward pass.

    Null: uniform attention over all keys but padding (`attention_mask`).

    Not for: what a head writes of a source: mass on a source whose values are small does little.
    """
    maps = _maps(model, inputs)
    every = np.stack(list(maps.values()))  # [head, prompt, row, key]
    _, n, rows, keys = every.shape
    seen, written = _real(inputs, "attention_mask", (n, keys)), _written(inputs, n, rows, skip)
    if min(map(len, written)) < 3:
        raise OptionError(f"skip={skip}: at least three decoder rows of each prompt must be left")
    if len(labels) != n or any(len(each) != keys for each in labels):
        raise PromptError(f"labels: give a whole number for each of {keys} keys of {n} prompts")
    of = np.asarray(labels)
    if not np.issubdtype(of.dtype, np.integer):
        raise PromptError("labels: give whole numbers, -1 for keys of no source")
    number = int(of.max()) + 1
    names = [str(i) for i in range(number)] if names is None else list(names)
    if number < 1 or len(names) != number or of.min() < NONE:
        raise PromptError(
            f"labels hold the numbers {of.min()} to {of.max()} for {len(names)} names"
        )
    member = of[:, None] == np.arange(number)[:, None]  # [prompt, source, key]
    over_time = np.full((len(maps), number, n, max(map(len, written))), np.nan)
    parts = np.empty((3, len(maps), number, n))  # of all rows, and of the first and last third
    for i, rows_written in enumerate(written):
        mass = np.einsum("hrk,sk->hsr", every[:, i, rows_written], member[i].astype(float))
        over_time[:, :, i, : len(rows_written)], third = mass, len(rows_written) // 3
        for part, rows_of in zip(parts, (mass, mass[..., :third], mass[..., -third:]), strict=True):
            part[:, :, i] = rows_of.mean(-1)
    mean, early, late = parts.reshape(3, -1, n)
    even = (member & seen[:, None]).sum(-1) / seen.sum(-1)[:, None]  # [prompt, source]
    columns = _head_columns(maps, number) | {"source": names * len(maps), "n": n}
    columns |= {"null": np.tile(even.mean(0), len(maps))}
    summed = {"score": mean, "early": early, "late": late, "change": late - early}
    for name, values in summed.items():
        summary = cluster_summary(values.T)
        columns |= {name: summary.score, "sem" if name == "score" else f"{name}_sem": summary.sem}
    return ResultRows(
        "SourceMass",
        columns,
        ("stack", "layer", "head", "source"),
        _made(model, inputs, "source_mass", {"skip": skip, "sources": names}),
        {"metric": "source_mass", "unit": "attention mass", "limits": (0.0, 1.0)},
        mean,
        arrays={"over_time": over_time.reshape(len(mean), n, -1)},
    )


@takes_model
def attention_drift(
    model: Model,
    inputs: Mapping[str, Tensor],
    positions: Sequence[Sequence[float]],
    *,
    at: Sequence[float] | None = None,
    skip: int = 0,
    unit: str = "source positions",
) -> ResultRows:
    """Measure how fast the place that a head attends to drifts from where it should be.

    Recognisers of speech and of writing read a signal in order. Where attention runs ahead of the
    signal or falls behind, by more with every token, the output repeats or skips.

    Args:
        model: a model with encoder and decoder.
        inputs: its tensors, one recording or picture a row.
        positions: per prompt the true place of the token of each row after `skip`; NaN where it is
            not known.
        at: the place of each key in the same unit, such as seconds or columns of pixels;
            by default the number of the key.
        skip: number of first decoder rows that stand for no token of the signal.
        unit: unit of the places.

    Reference: Cheng et al. 2017, "Focusing Attention: Towards Accurate Text Recognition in Natural
    Images" (arXiv 1709.02054), which names the drift.

    Returns:
        A row per head: `score` is the slope over rows of the mean attended place minus the true
        one, in units per token, positive where attention runs ahead; `offset` is their mean
        difference with `offset_sem`. `p` is that of Student's t test over prompts, `p_holm` the
        same corrected over the heads.

    Raises:
        OptionError: the model has no cross attention.
        PromptError: positions or places of keys do not fit, or a prompt has fewer than three.

    Unit: the given unit per token.

    Cost: One forward pass.

    Null: no drift, a slope of 0. Errors of neighbouring rows are alike, so rows in random order are
    no null: with a correlation of .8 from row to row, 30 % of signals that do not drift had p below
    .05 by such orders, and 5 % by the test over prompts (400 simulated sets of 5 or 20 prompts).

    Not for: heads that do not read the signal in order: their offset grows, but nothing drifts.
    """
    maps = _maps(model, inputs)
    every = np.stack(list(maps.values()))
    _, n, rows, keys = every.shape
    axis = np.arange(keys) if at is None else np.asarray(at, float)
    if axis.shape != (keys,) or not np.isfinite(axis).all():
        raise PromptError(f"at holds {axis.shape} numbers for {keys} keys")
    known = [np.asarray(x, float) for x in positions]
    if len(known) != n:
        raise PromptError(f"positions of {len(known)} prompts for {n}; give those of each")
    written = _written(inputs, n, rows, skip)
    for i, (rows_of, true) in enumerate(zip(written, known, strict=True)):
        if len(true) > len(rows_of) or np.isfinite(true).sum() < 3:
            raise PromptError(
                f"prompt {i} needs at least three known places, and at most {len(rows_of)}, one "
                f"for each row after skip={skip}"
            )
    mass = every.sum(-1)
    centres = (every @ axis) / np.where(mass > 0, mass, np.nan)  # [head, prompt, row]
    slopes, offsets = np.empty((2, len(maps), n))
    for i, true in enumerate(known):
        real = np.isfinite(true)
        error = (centres[:, i, written[i][: len(true)]] - true)[:, real]
        step = np.flatnonzero(real) - np.flatnonzero(real).mean()
        slopes[:, i], offsets[:, i] = error @ step / (step**2).sum(), error.mean(-1)
    drift, apart = cluster_summary(slopes.T), cluster_summary(offsets.T)
    p = t_test_p(drift.score, drift.sem, drift.n - 1)
    columns = _head_columns(maps, 1) | {
        "score": drift.score,
        "sem": drift.sem,
        "null": 0.0,
        "n": drift.n,
        "p": p,
        "p_holm": holm(p),
        "offset": apart.score,
        "offset_sem": apart.sem,
    }
    return ResultRows(
        "AttentionDrift",
        columns,
        ("stack", "layer", "head"),
        _made(model, inputs, "attention_drift", {"skip": skip}),
        {"metric": "attention_drift", "unit": f"{unit} per token"},
        slopes,
        arrays={"offsets": offsets},
        shown_by="score",
    )


def _maps(model: Model, inputs: Mapping[str, Tensor]) -> dict[Head, Float[np.ndarray, "n row key"]]:
    require_cross(model)
    if not any(isinstance(x, Tensor) and x.dim() >= 2 for x in inputs.values()):
        raise PromptError("inputs hold no tensor of a prompt a row")
    return cross_maps(model, inputs)


def _real(inputs: Mapping[str, Tensor], name: str, shape: tuple[int, int]) -> np.ndarray:
    """Return which positions a mask of the inputs calls real; all if it is not given."""
    mask = inputs.get(name)
    return np.ones(shape, bool) if mask is None else mask.cpu().numpy().astype(bool)


def _written(inputs: Mapping[str, Tensor], n: int, rows: int, skip: int) -> list[np.ndarray]:
    """Return the decoder rows of each prompt, without padding and without the first ones."""
    if skip < 0:
        raise OptionError(f"skip={skip}: give a number of rows")
    return [np.flatnonzero(x)[skip:] for x in _real(inputs, "decoder_attention_mask", (n, rows))]


def _head_columns(maps: Mapping[Head, Any], times: int) -> dict[str, Any]:
    """Return the columns that name heads, each repeated."""
    heads = [head for head in maps for _ in range(times)]
    return {"stack": "cross", "layer": [h.layer for h in heads], "head": [h.head for h in heads]}


def _made(
    model: Model,
    inputs: Mapping[str, Tensor],
    name: str,
    options: dict[str, Any],
) -> dict[str, Any]:
    tensors = {k: x for k, x in inputs.items() if isinstance(x, Tensor)}
    n = len(next(iter(tensors.values())))
    prompts = {
        "prompts": "given tensors",
        "prompts_hash": tensors_hash(tensors),
        "options": options,
    }
    return times_provenance(model, name, n, None) | prompts
