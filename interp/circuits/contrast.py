"""Contrast tasks: prompts that show a behaviour, the same prompts without it, and a measure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.causal.task import Task, part
from interp.circuits.contrast_batch import BatchValue, ContrastBatch
from interp.circuits.gap import NOTHING, Gap
from interp.core.columns import with_noun
from interp.core.errors import InterpError, OptionError, PromptError
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.core.ties import largest
from interp.core.tokens import words

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
BATCH = 32
LEAST_TEMPLATES = 4  # fewer are too few to estimate the variation between templates


def no_contrast(clean: Sequence[int], corrupted: Sequence[int]) -> str:
    """Say why two prompts cannot be compared token by token; empty if they can."""
    if len(clean) != len(corrupted):
        return (
            f"has {len(clean)} clean and {len(corrupted)} corrupted tokens; both sides must have"
            " the same number of tokens"
        )
    same = [*clean] == [*corrupted]
    return "has the same tokens on both sides, so there is no contrast" if same else ""


@dataclass(frozen=True, eq=False)
class ContrastTask:
    """Pairs of prompts of equal length: clean, and corrupted so that the behaviour is absent.

    Args:
        task: The clean prompts, the measure, and the corrupted prompts.
        roles: Per prompt, token positions by role, such as `{"S2": 9, "end": 13}`.
        templates: Per prompt, the name of its template; "" for all where there is only one. Where
            several prompts share one of at least two templates, templates are the clusters of the
            prompts, unless these have cluster labels already.
        truth: Heads of the circuit by role, where they are known because they were built in.
        truth_edges: Edges between heads of that circuit, as (head, input of a head).

    Raises:
        OptionError: There are no corrupted prompts, or the number of roles or templates differs
            from the number of prompts.
        PromptError: The two sides of a pair have unequal lengths or the same tokens.
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
                " so that its two sides can be compared token by token"
            )
        if not isinstance(corrupted, Prompts):
            raise OptionError(
                f"task {self.task.name} has no corrupted prompts (ids); a contrast needs one for "
                "each prompt: task.with_corrupted(prompts, model)"
            )
        for i, (a, b) in enumerate(zip(clean.ids, corrupted.ids, strict=True), 1):
            if why := no_contrast(a, b):
                raise PromptError(f"task {self.task.name}: pair {i} {why}")
        for name, given in (("roles", self.roles), ("templates", self.templates)):
            if given and len(given) != len(self):
                raise OptionError(
                    f"{name} for {len(given)} of {len(self)} prompts; give one for each prompt"
                )
        if clean.clusters is None and 1 < len(set(self.templates)) < len(self):
            labels = tuple(f"template {name}" for name in self.templates)
            shared = replace(self.task, prompts=replace(clean, clusters=labels))
            object.__setattr__(self, "task", shared)

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """The labels by which errors and intervals of circuits are clustered, one per pair.

        These are the labels of the clean prompts, if there are at least 4 different ones; fewer are
        not enough to estimate the variation between templates. Otherwise None: every pair counts as
        independent.
        """
        labels = self.clean.clusters
        return labels if labels and LEAST_TEMPLATES <= len(set(labels)) < len(self) else None

    @property
    def _shared(self) -> tuple[str, ...]:
        """The labels of clusters, however few; empty where no two pairs share one."""
        labels = self.clean.clusters or ()
        return labels if len(set(labels)) < len(labels) else ()

    @property
    def many_clusters(self) -> bool:
        """True if there are clusters enough to hold some out and to test effects over them."""
        return len(set(self.clusters or ())) >= 2 * LEAST_TEMPLATES

    @property
    def dependence(self) -> str:
        """The clusters that intervals resample, or the reason why they resample single pairs.

        Empty where no two pairs share a cluster.
        """
        labels = self._shared
        number = len(set(labels))
        if not labels:
            return ""
        what = "templates" if labels[0].startswith("template ") else "clusters"
        if self.clusters is not None:
            return f"intervals resample whole {what}: {len(self)} pairs in {number}"
        return (
            f"intervals resample single pairs as independent: {len(self)} pairs in only"
            f" {number} {what if number > 1 else what.removesuffix('s')}, fewer than"
            f" {LEAST_TEMPLATES}, so the intervals are too narrow"
        )

    @property
    def name(self) -> str:
        """The name of the task."""
        return self.task.name

    @property
    def clean(self) -> Prompts:
        """The prompts that show the behaviour."""
        return _tokens(self.task.prompts, self.task.name)

    @property
    def corrupted(self) -> Prompts:
        """The prompts without the behaviour."""
        return _tokens(self.task.corrupted, self.task.name)

    def __len__(self) -> int:
        return len(self.task)

    def batches(self, size: int = BATCH) -> Iterator[ContrastBatch]:
        """Yield all prompts in batches of a single length each, so that nothing is padded."""
        by_length: dict[int, list[int]] = {}
        for i, ids in enumerate(self.clean.ids):
            by_length.setdefault(len(ids), []).append(i)
        for members in by_length.values():
            for first in range(0, len(members), size):
                which = tuple(members[first : first + size])
                clean, corrupted = (
                    _tokens(part(p, which), self.task.name) for p in (self.clean, self.corrupted)
                )
                read_at = tuple(tuple(self.task.positions[i]) for i in which)
                yield ContrastBatch(which, clean, corrupted, read_at, self._value(which))

    def _value(self, which: tuple[int, ...]) -> BatchValue:
        if self.task.needs_clean:
            raise OptionError(
                f"task {self.task.name} compares with the clean run, which a contrast does already;"
                " give a task whose measure reads the logits only"
            )
        return BatchValue(self.task, which)

    def some(self, which: Sequence[int]) -> ContrastTask:
        """Select some of the pairs, in this order; a pair may be repeated (bootstrap).

        Raises:
            OptionError: No pair is selected.
        """
        if not len(which):
            raise OptionError(
                f"none of the {len(self)} pairs of {self.name} is left; select at least one"
            )
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
        """Return the same pairs with the heads (by role) and edges known to do the task."""
        return replace(self, truth=dict(truth), truth_edges=edges)

    def split(self, seed: int = 0) -> tuple[ContrastTask, ContrastTask]:
        """Split by template into pairs to find a circuit on and held-out pairs (about a third).

        Raises:
            OptionError: There are fewer than two templates.
        """
        kinds = sorted(set(self.templates))
        if len(kinds) < 2:
            raise OptionError(
                f"{self.name} has {len(kinds) or 'no'} template; a split needs two or more"
            )
        order = np.random.default_rng([seed, 25]).permutation(len(kinds))
        out = {kinds[i] for i in order[: max(1, round(len(kinds) / 3))]}
        held = [i for i, t in enumerate(self.templates) if t in out]
        return self.some([i for i in range(len(self)) if i not in set(held)]), self.some(held)

    def parts(
        self, seed: int = 0
    ) -> tuple[Int[Array, " pair"], Int[Array, " pair"], Int[Array, " pair"]]:
        """Split the pairs at random: to order nodes and edges, to validate a set, and held out.

        Half of the pairs are held out. Where there are many clusters, whole clusters are, otherwise
        as many pairs of each. Fewer than 16 pairs order and validate with the same ones; fewer than
        4 are not split.
        """
        every = np.arange(len(self))
        if len(self) < LEAST_TEMPLATES:
            return every, every, every
        which = np.unique(self._shared or [""] * len(self), return_inverse=True)[1]
        order = np.random.default_rng([seed, 5]).permutation(len(self))
        if self.many_clusters:
            _, place = np.unique(which[order], return_index=True)
            rank = np.argsort(np.argsort(place))[which]
        else:
            rank = np.empty(len(self), dtype=int)
            rank[order[np.argsort(which[order], kind="stable")]] = every
        held, mine = np.flatnonzero(rank % 2), np.flatnonzero(rank % 2 == 0)
        if len(mine) < 2 * LEAST_TEMPLATES:
            return mine, mine, held
        return mine[rank[mine] % 4 == 0], mine[rank[mine] % 4 == 2], held

    def said_of(self, which: Int[Array, " pair"]) -> str:
        """Say whether held-out pairs share their templates or clusters with the others."""
        if not (labels := self._shared):
            return ""
        number = len({labels[i] for i in which})
        kind = "other " if self.many_clusters else ""
        what = with_noun(number, kind + ("template" if labels[0][:9] == "template " else "cluster"))
        return f"of {what}" if kind else f"of the same {what}"

    def values(self, model: Model) -> tuple[Float[Array, " prompt"], Float[Array, " prompt"]]:
        """Measure every prompt on its clean and on its corrupted side."""
        per_side = np.zeros((2, len(self)))
        with torch.no_grad():
            for batch in self.batches():
                for side, prompts in enumerate((batch.clean, batch.corrupted)):
                    value = batch.value(model.run(prompts)).double().cpu().numpy()
                    per_side[side, list(batch.which)] = value
        return per_side[0], per_side[1]

    def gap(self, model: Model) -> tuple[float, float]:
        """Return the mean of clean minus corrupted in the task's unit, and its standard error.

        The mean is positive where the clean prompts do better, whether or not higher values of the
        measure are better.

        Raises:
            OptionError: The pairs do not show the behaviour (see `Gap`), so there is nothing that a
                circuit could explain. The message names the reason: the gap is negative or zero,
                too small, or not distinguishable from zero with so few pairs, or the measure is the
                same on every prompt.
        """
        clean, corrupted = self.values(model)
        every = np.concatenate([clean, corrupted])
        difference = self.measured_gap(clean, corrupted)
        if difference.shown:
            return difference.mean, difference.sem
        if np.ptp(every) <= NOTHING:
            raise OptionError(
                f"{self.name} on {model.name}: the metric is {every[0]:.4g} {self.task.unit} on"
                f" every prompt of all {len(self)} pairs, clean and corrupted, so it cannot show"
                " the behaviour; give another metric (a .py task can compute any from the logits)"
            )
        raise OptionError(difference.reason(model.name, self.name, self.task.unit))

    def measured_gap(
        self, clean: Float[Array, " prompt"], corrupted: Float[Array, " prompt"]
    ) -> Gap:
        """Return the gap of values of every prompt, positive where the clean prompts do better."""
        read, sign = self.task.vocabulary, self.task.sign
        tokens = None if read is None else len(read)
        return Gap.of(sign * clean, sign * corrupted, self.clusters, tokens)

    def about(self) -> dict[str, Any]:
        """Return the provenance of the task."""
        kinds = sorted(set(self.templates))
        return self.task.about() | {"templates": len(kinds) or 1, "template_names": kinds}


def _tokens(prompts: Any, name: str) -> Prompts:
    """Prompts of token ids, which `ContrastTask` has checked that the task has."""
    if not isinstance(prompts, Prompts):
        raise OptionError(f"task {name} has no prompts of token ids to compare")
    return prompts


def hashes(task: ContrastTask) -> list[str]:
    """Return a short hash of every pair's tokens, by which repeated pairs are recognised."""
    pairs = zip(task.clean.ids, task.corrupted.ids, strict=True)
    return [hashlib.sha256(repr(pair).encode()).hexdigest()[:12] for pair in pairs]


LONGEST = 256  # tokens of a pair whose patterns are read
LEAST = 0.1  # weight between two named positions from which on it is shown


def example_pair(model: Model, task: ContrastTask) -> dict[str, Any]:
    """Return the tokens of the first pair, and where each head attends from its named positions."""
    ids, other = task.clean.ids[0], task.corrupted.ids[0]
    positions = dict(task.roles[0]) if task.roles else {"end": len(ids) - 1}
    return {
        "clean": list(words(model, ids)),
        "corrupted": list(words(model, other)),
        "positions": positions,
        "attends": _attends(model, ids, sorted(set(positions.values()))),
    }


def _attends(model: Model, ids: tuple[int, ...], queries: list[int]) -> dict[str, Any]:
    if len(ids) > LONGEST:
        return {}
    try:
        cache = model.capture([list(ids)], ("pattern",), to="cpu")
    except InterpError:  # an attention without readable patterns: the pair is still an example
        return {}
    strongest: dict[str, Any] = {}
    for (stack, layer), pattern in cache.by_site("pattern").items():
        weights = pattern[0].float()
        if stack != "decoder" or weights.shape[1:] != (len(ids), len(ids)):
            continue
        rows = weights[:, queries].clone()
        for at, query in enumerate(queries):
            rows[:, at, query] = 0.0  # of other positions
        for head, row in enumerate(rows):
            named = row[:, queries]
            if float(named.max()) >= LEAST:
                at, key = divmod(largest(named.flatten()), len(queries))
                key = queries[key]
            else:
                at, key = len(queries) - 1, largest(row[-1])
            strongest[str(Head(layer, head))] = [queries[at], key, float(row[at, key])]
    return strongest
