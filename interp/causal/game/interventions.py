"""Interventions on heads: what replaces the output z of an ablated head, one declaration each.

Games, checkpoints, circuits, the command line and the explorer read `INTERVENTIONS`, so that an
entry of this table is all that a new one needs. torch is imported when one is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from interp import model as edits
from interp.core.errors import OptionError, UnknownName
from interp.core.ties import either

if TYPE_CHECKING:
    from torch import Tensor

    from interp.causal.game.replacement import TaskRuns
    from interp.causal.task import Task
    from interp.core.head import Head
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.edits import Edit

REMOVALS = ("zero", "mean")
"""What weights can hold in place of a removed head: nothing, or a constant."""


@dataclass(frozen=True, eq=False)
class Intervention:
    """Replacement of z of a head; z is 0 if neither `live` nor `fixed` is given.

    Args:
        name: name in options and results.
        formula: what z becomes.
        not_for: the questions that it does not answer.
        page: what a page of one prompt says of it; empty if one prompt is not enough.
        why_no_page: why a page of one prompt does not offer it.
        needs: what it reads besides the prompts of the task: a corpus of reference prompts, or
            another prompt of the same length for each.
        live: makes the replacement from the attention call of the current run.
        fixed: makes the replacement of each batch of a task by site, before any head is ablated.
        edit: makes the edit of heads of a stack from z of what it needs, by stack and layer; by
            default from `live`.
        of_activations: needs z itself, which a model that runs elsewhere does not return.
        of_mlps: an MLP can be replaced in the same way.
        removal: one of `REMOVALS` if weights can hold it.
    """

    name: str
    formula: str
    not_for: str
    page: str = ""
    why_no_page: str = ""
    needs: Literal["corpus", "prompt"] | None = None
    live: Callable[[Call], Tensor] | None = None
    fixed: Callable[[TaskRuns], list[dict[Site, Tensor]]] | None = None
    edit: Callable[[Sequence[Head], Any, str | None], Edit] | None = None
    of_activations: bool = False
    of_mlps: bool = False
    removal: str | None = None

    @property
    def is_zero(self) -> bool:
        """True if the head writes nothing."""
        return self.live is None and self.fixed is None

    def of_pairs(self, task: Task) -> bool:
        """Return True if it reads the corrupted prompts of a task."""
        return self.needs == "prompt" and task.corrupted is not None

    def edit_of(self, heads: Sequence[Head], source: Any = None, stack: str | None = None) -> Edit:
        """Return the edit of some heads of a stack; `source` is z of what it needs, by layer."""
        if self.edit is not None:
            return self.edit(heads, source, stack)
        live = self.live
        assert live is not None
        from interp.model.edits import Edit

        return Edit(self.name, tuple(heads), lambda call, site, real: live(call), stack=stack)


def _zero(heads: Sequence[Head], source: Any, stack: str | None) -> Edit:
    from interp.model.edits import zero

    return zero(heads, stack=stack)


def _uniform(call: Call) -> Tensor:
    from interp.model.hooks.long_output import uniform_output

    return uniform_output(call)


ENTRIES = (
    Intervention(
        "zero",
        "The head writes nothing: z is 0.",
        "later layers that rely on a head's constant part: zero is then out of distribution, "
        "which causes part of the damage.",
        "the head writes nothing",
        edit=_zero,
        of_mlps=True,
        removal="zero",
    ),
    Intervention(
        "mean-batch",
        "z is its mean over all prompts and positions of the task.",
        "few prompts: the mean is taken over them, so each prompt keeps part of its own "
        "activation.",
        "the head writes its mean over the positions of this prompt",
        fixed=lambda runs: runs.means(by_position=False),
        edit=lambda heads, source, stack: edits.mean(heads, stack=stack),
        of_mlps=True,
        removal="mean",
    ),
    Intervention(
        "mean-position",
        "z is its mean over the prompts at each position.",
        "prompts whose positions are not comparable.",
        why_no_page="mean-position averages over prompts at each position, so it changes nothing "
        "for one prompt; use mean-batch or mean-dataset, or `interp importance ablate` with "
        "several prompts",
        fixed=lambda runs: runs.means(by_position=True),
        edit=lambda heads, source, stack: edits.mean(heads, over="position", stack=stack),
    ),
    Intervention(
        "mean-dataset",
        "z is its mean over user-supplied reference prompts.",
        "reference prompts unlike those of the task.",
        "the head writes its mean over reference prompts, one per line",
        needs="corpus",
        fixed=lambda runs: runs.reference_means(),
        edit=lambda heads, source, stack: edits.mean(
            heads, over="dataset", reference=source, stack=stack
        ),
        removal="mean",
    ),
    Intervention(
        "resample",
        "z is that of the corrupted prompt, or of another prompt of the same length.",
        "the total effect of a head: it measures only its effect on the difference between the "
        "two prompts.",
        "the head writes what it writes in a reference prompt of the same length",
        needs="prompt",
        fixed=lambda runs: runs.other_prompts(),
        edit=lambda heads, source, stack: edits.resample(heads, source, stack=stack),
        of_activations=True,
    ),
    Intervention(
        "uniform-attention",
        "Attention is spread uniformly over the visible keys; the head still writes values.",
        "removing a head: it still writes the mean of the values. It tests whether the choice of "
        "tokens matters.",
        "the head attends to all visible keys equally",
        live=_uniform,
        edit=lambda heads, source, stack: edits.uniform(heads, stack=stack),
        of_activations=True,
    ),
)
INTERVENTIONS: Mapping[str, Intervention] = {entry.name: entry for entry in ENTRIES}
ON_PAIRS: Mapping[str, str] = {"corrupted": "resample"} | {
    name: name for name, entry in INTERVENTIONS.items() if entry.needs != "prompt"
}
"""Names in the evaluation of circuits, whose tasks are pairs of prompts."""
MASKS = tuple(sorted(name for name, entry in INTERVENTIONS.items() if entry.fixed is None))
"""Those of which a prompt's value does not depend on other prompts."""


def names_with(condition: Callable[[Intervention], Any], form: str = "{}") -> str:
    """Return the names of some interventions for a sentence: `zero, mean-batch or resample`."""
    names = [form.format(x.name) for x in INTERVENTIONS.values() if condition(x)]
    return either(names, len(names))


def over_corpus(form: str = "{}") -> str:
    """Return the names of the interventions that need reference prompts, for a sentence."""
    return names_with(lambda x: x.needs == "corpus", form)


def intervention(kind: str) -> Intervention:
    """Return the intervention of a name; raises UnknownName."""
    if kind not in INTERVENTIONS:
        raise UnknownName("kind of ablation", kind, INTERVENTIONS)
    return INTERVENTIONS[kind]


def check_kind(kind: str, reference: object) -> None:
    """Raise if a kind does not exist or lacks its reference prompts."""
    needed = intervention(kind).needs == "corpus"
    if needed and reference is None:
        raise OptionError(f"kind={kind!r} needs reference= prompts to take the mean over")
    if not needed and reference is not None:
        raise OptionError(
            f"kind={kind!r} does not accept reference prompts; use {over_corpus('kind={!r}')}"
        )
