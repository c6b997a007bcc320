"""Times of tokens from the cross attention of speech models, judged by given times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.result import Result
from interp.heads.alignment.pairs import require_cross
from interp.heads.alignment.warping import token_frames
from interp.model.content import model_provenance, tensors_hash
from interp.model.given import takes_model
from interp.model.hooks.calls import Call
from interp.model.locate.sites import Site

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

Array = np.ndarray
SECONDS_PER_FRAME = 0.02  # of Whisper's encoder
DECLARED = "declared heads together"
CHOSEN = "chosen heads together"


@dataclass(frozen=True, eq=False, repr=False)
class TimeAlignments(Result):
    """Error of token times from cross attention; rows are heads, and sets of heads together.

    The score is the mean distance between found and given start times, in seconds, on recordings
    that did not choose heads.

    Args:
        names: each row's head, or the name of a set of heads.
        of: the heads of each row.
        per_prompt: mean error of each judged recording, seconds, `[row, recording]`.
        null: error of tokens that are spaced evenly over the sound.
        starts: start times that each row found, seconds, `[row, recording, token]`, NaN beyond.
    """

    names: tuple[str, ...]
    of: tuple[tuple[Head, ...], ...]
    per_prompt: Float[Array, "row recording"]
    null: Float[Array, " row"]
    starts: Float[Array, "row recording token"]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _units = ("heads_read",)
    _per_row = ("names", "of", "per_prompt", "null", "starts")
    _by = "lowest"

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        found = cluster_summary(self.per_prompt.T)
        single = [heads[0] if len(heads) == 1 else None for heads in self.of]
        return pd.DataFrame(
            {
                "heads_read": list(self.names),
                "stack": "cross",
                "layer": [np.nan if head is None else head.layer for head in single],
                "head": [np.nan if head is None else head.head for head in single],
                "metric": "time_alignment_error",
                "score": found.score,
                "sem": found.sem,
                "null": self.null,
                "n": found.n,
                "unit": "seconds",
            }
        )

    def __repr__(self) -> str:
        if not len(self.names):
            return "TimeAlignments without rows"
        first = self.top(1).to_pandas().iloc[0]
        return (
            f"TimeAlignments of {len(self.names)} rows on {self.per_prompt.shape[1]} recordings; "
            f"lowest error {first['heads_read']}: {first['score']:.3g} ± {first['sem']:.2g} s, "
            f"evenly spaced tokens {first['null']:.3g} s"
        )


@takes_model
def time_alignment(
    model: Model,
    inputs: Mapping[str, Tensor],
    times: Sequence[Sequence[float]],
    *,
    skip: int = 0,
    frames: Sequence[int] | int | None = None,
    choose: int = 3,
    select: float = 0.5,
    width: int | None = None,
    seconds: float = SECONDS_PER_FRAME,
    seed: int = 0,
) -> TimeAlignments:
    """Compare token times from cross attention with given times, for every head.

    Args:
        model: a speech model with encoder and decoder, such as Whisper.
        inputs: its tensors, `input_features` and `decoder_input_ids`, one recording a row. Row r of
            the decoder stands for the token that it emits.
        times: the start of the token of each row after `skip`, in seconds; NaN where unknown.
        skip: number of first decoder rows that stand for no token of the sound (prompt tokens).
        frames: frames of `input_features` that hold sound, per recording; all by default. The
            encoder has half as many positions.
        choose: number of heads with the lowest error that are read together.
        select: share of the recordings on which they are chosen; the others judge.
        width: encoder positions of the median filter; by default the config's, else 7.
        seconds: duration of one encoder position.
        seed: seed of the split.

    Heads that the model declares (`generation_config.alignment_heads`) are read together too.

    Reference: Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision",
    and the word timestamps of its repository.

    Raises:
        OptionError: the model has no cross attention, or an option is out of range.
        PromptError: there are fewer than four recordings, or times that do not fit the tokens.

    Unit: seconds.

    Cost: One forward pass, and one dynamic program of tokens times frames per head.

    Null: tokens spaced evenly over the sound.

    Not for: tokens out of order: times never go back.
    """
    require_cross(model)
    ids = inputs.get("decoder_input_ids")
    if ids is None or not any(isinstance(x, Tensor) and x.dim() >= 2 for x in inputs.values()):
        raise PromptError("inputs need decoder_input_ids beside the tensor of the sound")
    n, rows = ids.shape
    if len(times) != n or n < 4:
        raise PromptError(f"times of {len(times)} recordings for {n}; give those of four or more")
    if choose < 1 or not 0 < select < 1 or not 0 <= skip < rows:
        raise OptionError(
            f"choose={choose}, select={select}, skip={skip}: choose at least one head, select "
            f"lies between 0 and 1, and skip leaves some of {rows} rows"
        )
    known = [np.asarray(t, float) for t in times]
    for i, each in enumerate(known):
        if not 1 <= len(each) <= rows - skip or np.isnan(each).all():
            raise PromptError(
                f"recording {i} has {len(each)} times for {rows - skip} rows after skip={skip}; "
                "give one per token, at least one of them a number"
            )
    width = int(width or getattr(model.config, "median_filter_width", None) or 7)
    maps = cross_maps(model, inputs)
    heads = list(maps)
    every = np.stack([maps[head] for head in heads])  # [head, recording, row, frame]
    sound = _positions(frames, n, every.shape[-1])
    declared = _declared(model, heads)

    def started(which: Sequence[int], i: int) -> Array:
        part = every[list(which), i, skip : skip + len(known[i]), : sound[i]]
        return token_frames(part, width) * seconds

    order = np.random.default_rng(seed).permutation(n)
    cut = min(max(1, round(select * n)), n - 2)
    chosen, judged = sorted(order[:cut].tolist()), sorted(order[cut:].tolist())
    single = np.array(
        [[_error(started([h], i), known[i]) for i in range(n)] for h in range(len(heads))]
    )
    first = np.argsort(single[:, chosen].mean(1), kind="stable")[:choose].tolist()
    sets = [(str(head), [h]) for h, head in enumerate(heads)]
    sets += [(CHOSEN, sorted(first))] + ([(DECLARED, declared)] if declared else [])
    longest = max(len(known[i]) for i in judged)
    starts = np.full((len(sets), len(judged), longest), np.nan)
    for row, (_, which) in enumerate(sets):
        for at, i in enumerate(judged):
            starts[row, at, : len(known[i])] = started(which, i)
    errors = [
        [_error(starts[row, at, : len(known[i])], known[i]) for at, i in enumerate(judged)]
        for row in range(len(sets))
    ]
    even = [_error(np.arange(len(t)) * sound[i] * seconds / len(t), t)
            for i, t in enumerate(known)]  # fmt: skip
    made = {
        "made_by": "interp.heads.alignment.time_alignment", "prompts": "given recordings",
        "prompts_hash": tensors_hash({k: x for k, x in inputs.items() if isinstance(x, Tensor)}),
        "n_prompts": n, "seed": seed, "engine": "stored",
        "options": {"skip": skip, "choose": choose, "select": select, "width": width,
                    "seconds": seconds},
    }  # fmt: skip
    return TimeAlignments(
        tuple(name for name, _ in sets),
        tuple(tuple(heads[h] for h in which) for _, which in sets),
        np.array(errors),
        np.full(len(sets), np.mean([even[i] for i in judged])),
        starts,
        model_provenance(model) | made,
    )


def _error(found: Array, known: Array) -> float:
    return float(np.nanmean(np.abs(found - known)))


def _positions(frames: Sequence[int] | int | None, n: int, most: int) -> list[int]:
    if frames is None:
        return [most] * n
    each = [frames] * n if isinstance(frames, int) else list(frames)
    sound = [int(f) // 2 for f in each]
    if len(sound) != n or not all(1 <= x <= most for x in sound):
        raise PromptError(
            f"frames={frames}: give 2 to {2 * most} frames for each of {n} recordings"
        )
    return sound


def cross_maps(
    model: Model, inputs: Mapping[str, Tensor]
) -> dict[Head, Float[Array, "recording row frame"]]:
    """Return the attention of every cross-attention head, by head."""
    found: dict[Head, Array] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site.stack == "cross":
            model.require_finite(call, site)
            pattern = call.pattern().detach().to(torch.float64).cpu().numpy()
            for h in range(site.n_heads):
                found[Head(site.layer, h, "cross")] = pattern[:, h]

    model.read(inputs, visit)
    return dict(sorted(found.items(), key=lambda item: (item[0].layer, item[0].head)))


def _declared(model: Model, heads: Sequence[Head]) -> list[int]:
    """Return the heads that the model's generation config names, by their index."""
    config = getattr(model.module, "generation_config", None)
    listed = getattr(config, "alignment_heads", None) or ()
    named = [Head(int(layer), int(head), "cross") for layer, head in listed]
    missing = [head for head in named if head not in heads]
    if missing:
        raise OptionError(
            f"generation_config.alignment_heads names {missing[0]}, which {model.name} lacks"
        )
    return [list(heads).index(head) for head in named]
