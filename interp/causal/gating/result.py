"""Learned gates: one number in [0, 1] per unit, with its spread over restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_count
from interp.core.head import Head
from interp.core.intervals import around
from interp.core.presenter import present
from interp.core.result import Result
from interp.core.standard_errors import standard_error
from interp.core.statistics import prediction_band
from interp.core.ties import ordered
from interp.draw.parts import FoundPart, between, result_part

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
CLASSES = ("necessary", "sufficient", "interfering", "irrelevant")
OPEN = 0.5  # a unit is kept if its gate is above this


@dataclass(frozen=True, eq=False, repr=False)
class LearnedGates(Result):
    """Gates fitted on some prompts, and the task with the resulting sets on other prompts.

    Rows are units. Their intervals are t intervals of the gate over restarts, cut to 0 and 1: how
    much a gate depends on the start and the noise, not on the prompts. With `method="causal"` the
    gate is the one under pressure towards 0, and `upper` the one under pressure towards 1; `roles`
    derives the split.

    Args:
        method: "hard_concrete" or "causal".
        labels: the units.
        heads_of: labels of the heads of each unit; empty for an MLP.
        gate: gate of every unit in every restart.
        logit: the learned parameter, which also orders gates that are all 0 or all 1.
        cost: cost of each unit, in `cost_unit`.
        upper: gate under pressure towards 1, for causal gates.
        steps: number of steps of every restart.
        settled: for every restart, True if the stopping rule was met.
        held_out: the task on prompts that were not fitted: for "all", "none", "kept" (a row for
            every restart) and "random" (sets with as many units in every layer), `[set, prompt]`.
        fitted: the same for "all" and "kept" on the fitted prompts.
        unit: unit of the task.
        higher_is_better: direction of the task.
        clusters: a label per held-out prompt if prompts are dependent.
    """

    method: str
    labels: tuple[str, ...]
    heads_of: tuple[tuple[str, ...], ...] = field(repr=False)
    gate: Float[Array, "restart unit"] = field(repr=False)
    logit: Float[Array, "restart unit"] = field(repr=False)
    cost: Float[Array, " unit"] = field(repr=False)
    cost_unit: str
    upper: Float[Array, "restart unit"] | None
    steps: tuple[int, ...]
    settled: tuple[bool, ...]
    held_out: Mapping[str, Float[Array, "set prompt"]] = field(repr=False)
    fitted: Mapping[str, Float[Array, "set prompt"]] = field(repr=False)
    unit: str
    higher_is_better: bool
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    per_prompt = None
    why_no_per_prompt = "a gate is fitted to all prompts together; errors are over restarts"
    _units = ("part",)

    @property
    def score(self) -> Float[Array, " unit"]:
        """Mean gate over restarts."""
        return self.gate.mean(0)

    @property
    def sem(self) -> Float[Array, " unit"]:
        """Standard error over restarts; NaN for one restart."""
        return standard_error(self.gate.T)

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> Float[Array, "unit 2"]:
        return super()._bounds_of(frame, level).clip(0, 1)

    @property
    def kept(self) -> tuple[str, ...]:
        """Units whose mean gate is above a half."""
        return tuple(x for x, g in zip(self.labels, self.score, strict=True) if g > OPEN)

    @property
    def removed(self) -> tuple[str, ...]:
        """Units whose mean gate is at most a half."""
        return tuple(x for x in self.labels if x not in self.kept)

    def order(self) -> tuple[str, ...]:
        """Return the units, the first to keep first: by the mean of the learned parameter."""
        best = ordered(self.logit.mean(0))
        return tuple(self.labels[i] for i in best)

    @property
    def roles(self) -> tuple[str, ...]:
        """Class of every unit; "kept" or "removed" without causal gates.

        "necessary": kept under pressure towards 0 in every restart, so that no set that was found
        does without it. "sufficient": kept in some restarts only: part of a set that suffices, and
        replaceable. "interfering": never kept, and closed even under pressure towards 1 in most
        restarts: the task is better without it. "irrelevant": all others.
        """
        if self.upper is None:
            return tuple("kept" if g > OPEN else "removed" for g in self.score)
        kept = (self.gate > OPEN).mean(0)
        closed = (self.upper <= OPEN).mean(0)
        classes = []
        for k, c in zip(kept, closed, strict=True):
            some = "sufficient" if k > 0 else "interfering" if c > 0.5 else "irrelevant"
            classes.append("necessary" if k == 1 else some)
        return tuple(classes)

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": f"gate_{self.method}", "unit": "gate"}

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        rows: dict[str, Any] = {
            "part": self.labels,
            "layer": [Head.parse(x[0]).layer if x else np.nan for x in self.heads_of],
            "head": [Head.parse(x[0]).head if len(x) == 1 else np.nan for x in self.heads_of],
            "stack": [Head.parse(x[0]).stack if x else None for x in self.heads_of],
            "score": self.score,
            "sem": self.sem,
            "share_open": (self.gate > OPEN).mean(0),
            "role": self.roles,
            f"cost_{self.cost_unit}": self.cost,
            "n": len(self.gate),
        }
        if self.upper is not None:
            rows["upper"] = self.upper.mean(0)
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        n = len(self.gate)
        met = sum(self.settled)
        saved = self.cost[[x not in self.kept for x in self.labels]].sum() / self.cost.sum()
        lines = [
            f"Gates ({self.method}): {len(self.kept)} of {len(self.labels)} kept, {saved:.0%} of "
            f"{self.cost_unit} removed; {n} restarts, {met} met the stopping rule",
            "  kept: " + (", ".join(self.kept) or "nothing"),
        ]
        if self.upper is not None:
            for name in CLASSES:
                mine = [x for x, r in zip(self.labels, self.roles, strict=True) if r == name]
                lines.append(f"  {name}: {', '.join(mine) or 'none'}")
        if not self.held_out:
            return "\n".join([*lines, "  not judged: there is only one prompt"])
        held = self.held_out
        mean = mean_with_interval(held["kept"].mean(0), self.clusters)
        low, high = prediction_band(held["random"].mean(1))
        lines += [
            f"  on {held['all'].shape[1]} held-out prompts ({self.unit}): all "
            f"{held['all'].mean():.4g}, kept {mean}, none {held['none'].mean():.4g}",
            f"  random sets with as many in every layer: {held['random'].mean():.4g}, 95 % band "
            f"{low:.4g} to {high:.4g} ({len(held['random'])} sets)",
        ]
        return "\n".join(lines)


def mean_with_interval(
    per_prompt: Float[Array, " prompt"], clusters: Sequence[str] | None = None
) -> str:
    """Format a mean over prompts with its 95 % t interval over clusters."""
    n = cluster_count(len(per_prompt), clusters)
    low, high = around(
        per_prompt.mean(keepdims=True), [(standard_error(per_prompt[None], clusters), n - 1.0)]
    )[0]
    return f"{per_prompt.mean():.4g} [{low:.4g}, {high:.4g}]"


def gates_part(found: LearnedGates) -> FoundPart:
    """Return learned gates: which units a task keeps, and how that does on held-out prompts."""
    frame: Any = found.interval()
    task = str(found.provenance.get("task") or "a task")
    notes: dict[str, str] = {}
    for heads, row in zip(found.heads_of, frame.to_dict("records"), strict=True):
        with_unit = "" if len(heads) == 1 else f" of {row['part']}"
        for label in heads:
            notes[label] = (
                f"Gate{with_unit} for {task}: {row['score']:.2f}{between(row['low'], row['high'])} "
                f"over {row['n']} restarts, {row['role']}"
            )
    title = f"Learned gates ({found.method.replace('_', ' ')}): {task}"
    lines = [" ".join(line.split()) for line in str(found).splitlines()]
    text = " ".join(f"{line[:1].upper()}{line[1:].rstrip('.')}." for line in lines)
    kept = {*found.kept}
    units = zip(found.labels, found.heads_of, strict=True)
    heads = [x for name, of in units for x in of if name in kept]
    return result_part(found, "gates", title, text, frame, heads=heads, notes=notes)


present(LearnedGates, part=gates_part)
