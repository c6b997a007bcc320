"""A contrast: prompts that show a behaviour, the same prompts without it, and what is measured."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.importance import standard_error
from interp.causal.task import Task, part
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
BATCH = 32
LEAST_GAP = 2.0  # standard errors that the clean and the corrupted value must lie apart
LEAST_TEMPLATES = 4  # fewer say too little of how far templates differ
FEW = 8  # times the pairs: where so many would decide, the model is not said to fail the task


@dataclass(frozen=True, eq=False)
class ContrastBatch:
    """Prompts of one length with what they are measured by.

    `value` takes logits of these prompts, or of several copies of them one after another, and gives
    a number per prompt (and copy), in the task's unit.
    """

    which: tuple[int, ...]
    clean: Prompts
    corrupted: Prompts
    value: Callable[[Float[Tensor, "batch pos d_vocab"]], Float[Tensor, " batch"]]


@dataclass(frozen=True, eq=False)
class ContrastTask:
    """Pairs of prompts of equal length: clean, and corrupted so that the behaviour is absent.

    Args:
        task: the clean prompts, what is read from them, and the corrupted prompts.
        roles: per prompt, token positions by what stands there, such as `{"S2": 9, "end": 13}`.
        templates: per prompt, which template it is from; "" for all where there is one. Where
            several prompts share one of at least two templates, templates are the clusters of the
            prompts, unless these are labelled already.
        truth: heads of the circuit by role, where they are known because they were built in.
        truth_edges: edges between heads of that circuit, as (head, head's input).

    Raises:
        OptionError: no corrupted prompts, or roles and templates for another number of prompts.
        PromptError: a pair of unequal lengths, or pairs that do not differ.
    """

    task: Task
    roles: tuple[Mapping[str, int], ...] = ()
    templates: tuple[str, ...] = ()
    truth: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    truth_edges: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        clean, corrupted = self.task.prompts, self.task.corrupted
        if not isinstance(clean, Prompts):
            raise OptionError(
                f"task {self.task.name}: its prompts are tensors; a contrast needs texts or ids,"
                " whose two sides can be compared token by token"
            )
        if not isinstance(corrupted, Prompts):
            raise OptionError(
                f"task {self.task.name} has no corrupted prompts (ids); a contrast needs one for "
                "each prompt: task.with_corrupted(prompts, model)"
            )
        for i, (a, b) in enumerate(zip(clean.ids, corrupted.ids, strict=True)):
            if len(a) != len(b):
                raise PromptError(
                    f"task {self.task.name}: pair {i} has {len(a)} clean and {len(b)} corrupted "
                    "tokens; both sides must have one length, token by token"
                )
            if a == b:
                raise PromptError(
                    f"task {self.task.name}: pair {i} has the same tokens on both sides, so there "
                    "is no contrast"
                )
        for name, given in (("roles", self.roles), ("templates", self.templates)):
            if given and len(given) != len(self):
                raise OptionError(f"{name} for {len(given)} of {len(self)} prompts; one for each")
        if clean.clusters is None and 1 < len(set(self.templates)) < len(self):
            labels = tuple(f"template {name}" for name in self.templates)
            shared = replace(self.task, prompts=replace(clean, clusters=labels))
            object.__setattr__(self, "task", shared)

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """The labels by which errors and intervals of circuits are clustered, one per pair.

        They are those of the clean prompts, where there are at least 4 different ones; fewer cannot
        say how far templates differ. None then: every pair counts as independent.
        """
        labels = self.clean.clusters
        return labels if labels and LEAST_TEMPLATES <= len(set(labels)) < len(self) else None

    @property
    def dependence(self) -> str:
        """The clusters that intervals draw, or why they draw pairs; empty without shared ones."""
        labels = self.clean.clusters or ()
        number = len(set(labels))
        if not labels or number == len(labels):
            return ""
        what = "templates" if labels[0].startswith("template ") else "clusters"
        if self.clusters is not None:
            return f"intervals draw whole {what}: {len(self)} pairs in {number}"
        return (
            f"intervals draw single pairs, as if they were independent: {len(self)} pairs in only"
            f" {number} {what if number > 1 else what.removesuffix('s')}, fewer than"
            f" {LEAST_TEMPLATES}, so they are too narrow"
        )

    @property
    def name(self) -> str:
        """What the task is called."""
        return self.task.name

    @property
    def clean(self) -> Prompts:
        """The prompts that show the behaviour."""
        return _tokens(self.task.prompts, self.task.name)

    @property
    def corrupted(self) -> Prompts:
        """The prompts without it."""
        return _tokens(self.task.corrupted, self.task.name)

    def __len__(self) -> int:
        return len(self.task)

    def batches(self, size: int = BATCH) -> Iterator[ContrastBatch]:
        """All prompts in batches of one length each, so that nothing is padded."""
        by_length: dict[int, list[int]] = {}
        for i, ids in enumerate(self.clean.ids):
            by_length.setdefault(len(ids), []).append(i)
        for members in by_length.values():
            for first in range(0, len(members), size):
                which = tuple(members[first : first + size])
                clean, corrupted = (
                    _tokens(part(p, which), self.task.name) for p in (self.clean, self.corrupted)
                )
                yield ContrastBatch(which, clean, corrupted, self._value(which))

    def _value(self, which: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
        task = self.task
        if task.needs_clean:
            raise OptionError(f"task {task.name} compares with the clean run, which a contrast is")

        def value(logits: Tensor) -> Tensor:
            copies, rest = divmod(len(logits), len(which))
            assert not rest
            if logits.dim() == 2:  # one output per prompt, and no positions
                if any(tuple(task.positions[i]) != (0,) for i in which):
                    raise OptionError(
                        f"task {task.name}: the model gives one output per prompt; read it with"
                        " positions=[0]"
                    )
                logits = logits[:, None]
            rows = [
                logits[c * len(which) + k, p]
                for c in range(copies)
                for k, i in enumerate(which)
                for p in task.positions[i]
            ]
            read = torch.stack(rows)
            if task.vocabulary is not None:
                read = read[:, list(task.vocabulary)]
            n = len(read) // copies
            return torch.cat([task.values(read[c * n : (c + 1) * n], which) for c in range(copies)])

        return value

    def some(self, which: Sequence[int]) -> ContrastTask:
        """Only some of the pairs, in this order; a pair may come twice (bootstrap).

        Raises:
            OptionError: none.
        """
        if not len(which):
            raise OptionError(f"none of the {len(self)} pairs of {self.name} is left")
        rows = [int(i) for i in which]
        task, old = self.task, self.task
        start = [0]
        for positions in old.positions:
            start.append(start[-1] + len(positions))
        moved = torch.tensor([r for i in rows for r in range(start[i], start[i + 1])])

        def read_rows(logits: Tensor, index: Tensor, clean: Tensor | None) -> Tensor:
            assert old.read_rows is not None
            return old.read_rows(logits, moved.to(index.device)[index], clean)

        def read_prompt(logits: Tensor, prompt: int) -> Any:
            assert old.read_prompt is not None
            return old.read_prompt(logits, rows[prompt])

        clean, corrupted = part(self.clean, rows), part(self.corrupted, rows)
        task = replace(
            old,
            prompts=clean,
            corrupted=corrupted,
            positions=tuple(old.positions[i] for i in rows),
            read_rows=None if old.read_rows is None else read_rows,
            read_prompt=None if old.read_prompt is None else read_prompt,
        )
        return replace(
            self,
            task=task,
            roles=tuple(self.roles[i] for i in rows) if self.roles else (),
            templates=tuple(self.templates[i] for i in rows) if self.templates else (),
        )

    def known(
        self, truth: Mapping[str, tuple[str, ...]], edges: tuple[tuple[str, str], ...] = ()
    ) -> ContrastTask:
        """The same pairs, with the heads by role and the edges that are known to do the task."""
        return replace(self, truth=dict(truth), truth_edges=edges)

    def split(self, seed: int = 0) -> tuple[ContrastTask, ContrastTask]:
        """Pairs to find a circuit on, and pairs of other templates (about a third) to evaluate it.

        Raises:
            OptionError: fewer than two templates.
        """
        kinds = sorted(set(self.templates))
        if len(kinds) < 2:
            raise OptionError(
                f"{self.name} has {len(kinds) or 'no'} template; two or more can be split"
            )
        order = np.random.default_rng([seed, 25]).permutation(len(kinds))
        out = {kinds[i] for i in order[: max(1, round(len(kinds) / 3))]}
        held = [i for i, t in enumerate(self.templates) if t in out]
        return self.some([i for i in range(len(self)) if i not in set(held)]), self.some(held)

    def values(self, model: Model) -> tuple[Float[Array, " prompt"], Float[Array, " prompt"]]:
        """The measure of every prompt on its clean and on its corrupted side."""
        found = np.zeros((2, len(self)))
        with torch.no_grad():
            for batch in self.batches():
                for side, prompts in enumerate((batch.clean, batch.corrupted)):
                    value = batch.value(model.run(prompts)).double().cpu().numpy()
                    found[side, list(batch.which)] = value
        return found[0], found[1]

    def gap(self, model: Model) -> tuple[float, float]:
        """The mean of clean less corrupted in the task's unit, and its standard error.

        It is positive where the clean prompts do better, whichever way the task counts.

        Raises:
            OptionError: the pairs do not show the behaviour, so there is nothing that a circuit
                could explain. The text says which it is: the gap is negative or nothing, the pairs
                are too few to tell it from zero, or the task reads the same of every prompt.
        """
        clean, corrupted = self.values(model)
        difference = clean - corrupted
        if not self.task.higher_is_better:
            difference = -difference
        n = len(self)
        mean = float(difference.mean())
        sem = float(standard_error(difference[None], self.clusters)[0]) if n > 1 else 0.0
        if mean > LEAST_GAP * sem and mean > 1e-6:
            return mean, sem
        told = f"clean less corrupted {mean:.3g} ± {sem:.2g} {self.task.unit} over {n} pairs"
        every = np.concatenate([clean, corrupted])
        if np.ptp(every) <= 1e-6:
            raise OptionError(
                f"{self.name} on {model.name}: the metric is {every[0]:.4g} {self.task.unit} on"
                f" every prompt of all {n} pairs, clean and corrupted, so it cannot show the"
                " behaviour; give another metric (a .py task reads what it wants from the logits)"
            )
        needed = n * (LEAST_GAP * sem / mean) ** 2 if mean > 1e-6 else np.inf
        if needed <= FEW * n:
            raise OptionError(
                f"too few pairs to tell whether {model.name} does {self.name}: {told}, within"
                f" {LEAST_GAP:g} standard errors of 0; if the mean stays, about"
                f" {int(np.ceil(1.5 * needed))} pairs are enough"
            )
        turned = (
            " (the corrupted prompts do better: are the sides or the answers the wrong way round?)"
            if mean < -LEAST_GAP * sem
            else ""
        )
        raise OptionError(
            f"{model.name} does not do {self.name}: {told}{turned}; there is nothing for a circuit"
            " to explain"
        )

    def about(self) -> dict[str, Any]:
        """What provenance says about the task."""
        kinds = sorted(set(self.templates))
        return self.task.about() | {"templates": len(kinds) or 1, "template_names": kinds}


def _tokens(prompts: Any, name: str) -> Prompts:
    """Prompts of token ids, which `ContrastTask` has checked that the task has."""
    if not isinstance(prompts, Prompts):
        raise OptionError(f"task {name} has no prompts of token ids to compare")
    return prompts


def hashes(task: ContrastTask) -> list[str]:
    """A short hash of every pair's tokens, by which pairs that come again are known."""
    pairs = zip(task.clean.ids, task.corrupted.ids, strict=True)
    return [hashlib.sha256(repr(pair).encode()).hexdigest()[:12] for pair in pairs]
