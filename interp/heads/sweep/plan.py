"""Cost estimate of `interp score --dry-run`, measured on one prompt."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch

from interp.core.prompts import Prompts
from interp.heads.estimate import estimate_score, readable
from interp.heads.machine_limits import PARTS, Machine, roofline
from interp.heads.scoring import LONGEST_PERIOD
from interp.heads.sweep.compiling import guessed_lengths
from interp.heads.sweep.config_plan import config_alone, plan_text, planned
from interp.heads.sweep.each import each_model
from interp.model.streamed import streamed_weights
from interp_kernels.api import free_memory

if TYPE_CHECKING:
    from interp.heads.declaration import BoundAnalysis
    from interp.heads.sweep.scored_models import ScoreSweep
    from interp.model.model import Model

TIMED = 4096  # tokens that are timed at most: a plan of a long run must not be one
DEFAULT_TOKENS = 2 * LONGEST_PERIOD + 1  # of the longest default prompt, with its first token


def plan_all(
    batch: ScoreSweep, sources: Mapping[str, str], machine: str | None, say: Callable[[str], None]
) -> list[str]:
    """Say for every model its metrics, memory and time; return the names of those that failed.

    Models are loaded and run on one prompt, which is timed; nothing is scored or written. Of a
    folder with a config and no weights the cost is computed from the config.
    """
    rates = None if machine is None else Machine.parse(machine)

    def work(source: str, name: str) -> None:
        if config_alone(source):
            say(plan_of_config(batch, source, name, rates))
            return
        with batch.voice.bars(name) as progress:
            model = batch.loading.load(source, name, progress)
            text = plan(batch, model, rates)
        say(text)

    return [*each_model(sources, batch.voice, work)]


def plan_of_config(
    batch: ScoreSweep, source: str, name: str, machine: Machine | None = None
) -> str:
    """Return the cost of scoring a model of which only the config is there, as lines of text."""
    model = planned(source, name, batch.loading.dtype)
    device = torch.device(batch.loading.device or "cpu")
    metrics = [b for b in batch.metrics if b.patterned()]
    lengths = guessed_lengths(batch.prompt_file, batch.max_length) or [DEFAULT_TOKENS] * 16
    rates = machine or Machine.measured(device, model.dtype)
    free = None if machine else free_memory(device)  # a named machine has its own
    text = plan_text(
        model, metrics, batch.batch_size, lengths, _runs(batch, metrics), rates, free, batch.engine
    )
    if batch.prompt_file is not None and batch.max_length is None:
        text += "\n  tokens    guessed: four bytes of the file each, since there is no tokenizer"
    return text


def plan(batch: ScoreSweep, model: Model, machine: Machine | None = None) -> str:
    """Return the cost of scoring one model, as lines of text."""
    metrics = batch.applying(model)
    patterned = [b for b in metrics if b.patterned()]
    experiments = [b for b in metrics if b.analysis.kind == "experiment"]
    weights = len(metrics) - len(patterned) - len(experiments)
    lines = [
        f"{model.name}: {len(metrics)} metrics ({len(patterned)} of attention,"
        f" {weights} of weights, {len(experiments)} experiments)",
        f"  weights   {readable(_bytes(model))} in {str(model.dtype).removeprefix('torch.')} on"
        f" {model.device}",
    ]
    if (parts := streamed_weights(model.module)) is not None:
        lines.append(
            "  offload   the weights stay in their files and are read in each run, in"
            f" {len(parts.parts)} parts; at most {readable(max(parts.room, *parts.bytes))} of them"
            " are in memory"
        )
    if patterned:
        prompts = batch.prompts(model)
        if isinstance(prompts, Prompts):
            lines.append(
                "  memory    "
                f"{estimate_score(model, prompts, patterned, batch.batch_size, batch.engine)}"
            )
            runs = _runs(batch, patterned)
            at_least = _forward(model, prompts) * runs
            lines.append(
                f"  time      forward passes alone about {_spelled(at_least)}: {len(prompts)}"
                f" prompts x {runs} runs (scores and nulls), timed on"
                f" at most {TIMED:,} tokens of the longest prompt"
            )
            lines += limits(batch, model, prompts, patterned, machine)
        else:
            lines.append("  memory    not estimated: this model does not read tokens")
    if experiments:
        lines.append("  not counted: experiments, which make their own prompts")
    return "\n".join(lines)


def limits(
    batch: ScoreSweep,
    model: Model,
    prompts: Prompts,
    patterned: list[BoundAnalysis],
    machine: Machine | None,
) -> list[str]:
    """Return the operations and bytes of one run over the prompts, and the limit that binds."""
    result = roofline(model, prompts, patterned, engine=batch.engine, machine=machine)
    done, moved = result.totals["pass"]
    shares = ", ".join(f"{part} {100 * result.shares['pass'][part]:.1f} %" for part in PARTS)
    rates, limit, seconds = result.machine, result.binds["pass"], result.seconds["pass"]
    return [
        f"  work      {done:.3g} operations ({shares}) and {moved:.3g} bytes a run",
        f"  limit     {limit}: {done / moved:.3g} operations per byte, where the machine"
        f" ({rates.name}: {rates.operations / 1e9:.3g} GFLOP/s, {rates.bandwidth / 1e9:.3g} GB/s)"
        f" has {rates.operations / rates.bandwidth:.3g}; at least {seconds:.2g} s a run",
        f"  decoding  one more token is limited by {result.binds['decode']}, attention is"
        f" {100 * result.shares['decode']['attention']:.1f} % of its operations",
    ]


def _runs(batch: ScoreSweep, patterned: list[BoundAnalysis]) -> int:
    """Return the number of runs over the prompts, those of the nulls included."""
    nulls = {_null(batch, b) for b in patterned}
    drawn = "random-init" in nulls or batch.null == "auto"
    return 1 + ("shuffled-tokens" in nulls) + batch.null_draws * drawn


def _null(batch: ScoreSweep, bound: BoundAnalysis) -> str:
    return bound.analysis.default_null if batch.null == "auto" else batch.null


def _forward(model: Model, prompts: Prompts) -> float:
    """Estimate the seconds for all prompts from the longest one, in proportion to tokens.

    Of a prompt of more than `TIMED` tokens only these and their first half are timed, which tells
    the part that grows with the square of the tokens from the part that grows with their number.
    """
    lengths = [len(ids) for ids in prompts.ids]
    longest = max(prompts.ids, key=len)
    if len(longest) <= TIMED:
        return _seconds(model, longest) * sum(lengths) / len(longest)
    half, whole = (_seconds(model, longest[:n]) for n in (TIMED // 2, TIMED))
    square = max(whole - 2 * half, 0.0) * 2 / TIMED**2
    linear = whole / TIMED - square * TIMED
    return sum(linear * n + square * n**2 for n in lengths)


def _seconds(model: Model, ids: tuple[int, ...]) -> float:
    """Return the seconds of one forward pass over a prompt."""
    prompt = Prompts((ids,))
    model.run(prompt)  # the first run of a model also allocates and compiles
    begin = time.perf_counter()
    model.run(prompt)
    return time.perf_counter() - begin


def _bytes(model: Model) -> int:
    return sum(p.numel() * p.element_size() for p in model.module.parameters())


def _spelled(seconds: float) -> str:
    if seconds < 1:
        return f"{math.ceil(seconds * 10) / 10:g} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
