"""Times of tokens from the cross attention of speech models, judged by given times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.alignment.pairs import require_cross
from interp.alignment.time_result import DECLARED, NULL_DRAWS, judged_times
from interp.alignment.timed_rows import TimedRows
from interp.alignment.warping import smoothed_weights
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.result_rows import ResultRows
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.content import model_provenance, tensors_hash
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
SECONDS_PER_FRAME = 0.02  # of Whisper's encoder


@takes_model
def time_alignment(
    model: Model,
    inputs: Mapping[str, Tensor],
    times: Sequence[Sequence[float]],
    *,
    skip: int = 0,
    frames: Sequence[int] | int | None = None,
    n_heads: int = 3,
    select: float = 0.5,
    width: int | None = None,
    seconds: float = SECONDS_PER_FRAME,
    n_random: int = NULL_DRAWS,
    seed: int = 0,
) -> ResultRows:
    """Compare token times from cross attention with given times, for every head.

    Args:
        model: a speech model with encoder and decoder, such as Whisper.
        inputs: its tensors, `input_features` and `decoder_input_ids`, one recording a row. Row r of
            the decoder stands for the token that it emits.
        times: the start of the token of each row after `skip`, in seconds; NaN where unknown.
        skip: number of first decoder rows that stand for no token of the sound (prompt tokens).
        frames: frames of `input_features` that hold sound, per recording; all by default. The
            encoder has half as many positions.
        n_heads: number of heads with the lowest error that are read together.
        select: share of the recordings on which they are chosen; the others judge.
        width: encoder positions of the median filter; by default the config's, else 7.
        seconds: duration of one encoder position.
        n_random: number of random orders of the token rows.
        seed: seed of the split and of the null.

    Heads that the model declares (`generation_config.alignment_heads`) are read together too.
    `word_time_errors` takes sounds and texts in place of tensors.

    Reference: Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision",
    and the word timestamps of its repository.

    Returns:
        The rows of `word_time_errors`.

    Raises:
        OptionError: the model has no cross attention, or an option is out of range.
        PromptError: there are fewer than four recordings, or times that do not fit the tokens.

    Unit: seconds.

    Cost: One forward pass, and one dynamic program of tokens times frames per head and null draw.

    Null: the token rows of the attention in random order. The error of tokens that are spaced
    evenly over the sound stands beside it (`even`).

    Not for: tokens out of order: times never go back.
    """
    require_cross(model)
    ids = inputs.get("decoder_input_ids")
    if ids is None or not any(isinstance(x, Tensor) and x.dim() >= 2 for x in inputs.values()):
        raise PromptError("inputs need decoder_input_ids beside the tensor of the sound")
    n, rows = ids.shape
    if len(times) != n:
        raise PromptError(f"times of {len(times)} recordings for {n}; give those of each")
    if not 0 <= skip < rows:
        raise OptionError(f"skip={skip}: skip leaves some of {rows} rows; give a smaller number")
    known = [np.asarray(t, float) for t in times]
    for i, each in enumerate(known):
        if not 1 <= len(each) <= rows - skip or np.isnan(each).all():
            raise PromptError(
                f"recording {i} has {len(each)} times for {rows - skip} rows after skip={skip}; "
                "give one per token, at least one of them a number"
            )
    maps = cross_maps(model, inputs)
    every = np.stack(list(maps.values()))  # [head, recording, row, frame]
    sound = _positions(frames, n, every.shape[-1])
    width = filter_width(model, width)
    timed = [
        TimedRows(smoothed_weights(every[:, i, skip : skip + len(t), : sound[i]], width), t, len(t))
        for i, t in enumerate(known)
    ]
    settings = {
        "prompts_hash": tensors_hash({k: x for k, x in inputs.items() if isinstance(x, Tensor)}),
        "options": {
            "skip": skip,
            "choose": n_heads,
            "select": select,
            "width": width,
            "seconds": seconds,
            "null_draws": n_random,
        },
    }
    return judged_times(
        tuple(maps),
        timed,
        sets={DECLARED: declared_heads(model)},
        n_heads=n_heads,
        select=select,
        seconds=seconds,
        n_random=n_random,
        seed=seed,
        provenance=times_provenance(model, "time_alignment", n, seed) | settings,
    )


def times_provenance(model: Model, name: str, n: int, seed: int | None) -> dict[str, Any]:
    """Return the provenance of times in n recordings, without options and hash of the prompts."""
    settings = {
        "made_by": f"interp.alignment.{name}",
        "prompts": "given recordings",
        "n_prompts": n,
        "seed": seed,
        "engine": "stored",
    }
    return model_provenance(model) | settings


def filter_width(model: Model, width: int | None) -> int:
    """Return the width of the median filter: the given one, else the config's, else 7."""
    return int(getattr(model.config, "median_filter_width", None) or 7) if width is None else width


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
    maps: dict[Head, Array] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site.stack == "cross":
            model.require_finite(call, site)
            pattern = call.pattern().detach().to(torch.float64).cpu().numpy()
            for h in range(site.n_heads):
                maps[Head(site.layer, h, "cross")] = pattern[:, h]

    model.read(inputs, visit)
    return dict(sorted(maps.items(), key=lambda item: (item[0].layer, item[0].head)))


def declared_heads(model: Model) -> tuple[Head, ...]:
    """Return the heads that the model's generation config names for times; empty without any."""
    config = getattr(model.module, "generation_config", None)
    listed = getattr(config, "alignment_heads", None) or ()
    named = [Head(int(layer), int(head), "cross") for layer, head in listed]
    return known_cross_heads(model, named, "generation_config.alignment_heads")


def known_cross_heads(model: Model, heads: Sequence[Head], by: str) -> tuple[Head, ...]:
    """Return the heads, each once; raises OptionError for one that the cross attention lacks."""
    sizes = {site.layer: site.n_heads for site in model.sites if site.stack == "cross"}
    for head in heads:
        if head.head >= sizes.get(head.layer, 0):
            raise OptionError(
                f"{by} names {head}, which {model.name} lacks; its cross attention has "
                f"{len(sizes)} layers of {max(sizes.values(), default=0)} heads"
            )
    return tuple(dict.fromkeys(heads))
