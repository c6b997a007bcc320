"""Choice of the pairs that a circuit is found on, and of the held-out pairs to measure it on."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from interp.circuits.contrast import ContrastTask, hashes
from interp.circuits.tasks import TASKS, make_contrast
from interp.circuits.tasks.named import is_file, split_templates, third
from interp.circuits.tasks.template_file import LEAST_PAIRS
from interp.core.errors import PromptError

if TYPE_CHECKING:
    from interp.circuits.result import Circuit
    from interp.model.model import Model

TRIES = 8  # number of seeds to try for prompts that are mostly new
LEAST_NEW = 0.5  # as a share of the requested pairs


@dataclass(frozen=True)
class Plan:
    """Pairs to find a circuit on, and held-out pairs to measure it on.

    About a third is held out: of the templates where the task has templates, else of the pairs of a
    file (or of the templates that the file names). For random prompts, new random prompts are
    drawn. Pairs that a circuit was found on are not used to measure it, as long as there are
    others.

    Args:
        task: Name of a task, or a file of pairs.
        n: Number of pairs.
        seed: Seed of prompts and of the split.
        same_templates: Use all templates both to find and to measure.
        used: Templates of a circuit that was found before.
        seen: Hashes of the pairs of that circuit.
    """

    task: str
    n: int
    seed: int
    same_templates: bool = False
    used: tuple[int, ...] | None = None
    seen: frozenset[str] = frozenset()
    _whole: list[ContrastTask] = field(
        default_factory=list, repr=False
    )  # pairs of a file, read once

    @property
    def templates(self) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        """Numbers of the templates to find on and to measure on; None for all or none."""
        if is_file(self.task):
            return None, None
        mine, held = split_templates(self.task, self.seed)
        if held and self.used is not None:
            every = sorted({*mine, *held})
            mine, held = self.used, tuple(i for i in every if i not in self.used)
        return (None, None) if self.same_templates or not held else (mine, held)

    def after(self, found: Circuit) -> Plan:
        """Return the plan with the templates and pairs that a circuit was found on."""
        names = [str(name) for name in found.made.get("template_names") or ()]
        used = {int(at[0]) for name in names if (at := re.findall(r"\d+$", name))}
        seen = frozenset(map(str, found.made.get("pairs") or ()))
        return replace(self, used=tuple(sorted(used)) or None, seen=seen)

    def pairs(self, model: Model) -> ContrastTask:
        """Make the pairs to find a circuit on."""
        if is_file(self.task):
            whole = self._file(model)
            return whole.some(self._rows(whole)[0][: self.n])
        mine = self.templates[0]
        return make_contrast(model, self.task, n=self.n, seed=self.seed, templates=mine)

    def only_look(self, model: Model) -> str:
        """Say why a circuit is not measured on other pairs: its file has too few; else nothing."""
        if not is_file(self.task) or len(self._file(model)) >= LEAST_PAIRS:
            return ""
        return (
            f"a look at {len(self._file(model))} pairs: no pair was held out to measure the circuit"
            f" on; {LEAST_PAIRS} or more are needed for that"
        )

    def fresh(self, model: Model) -> ContrastTask:
        """Make the pairs to measure a circuit on."""
        if is_file(self.task):
            if look := self.only_look(model):
                raise PromptError(f"{self.task}: {look}")
            whole = self._file(model)
            return whole.some(self._rows(whole)[1][: self.n])
        held, best, most = self.templates[1], None, -1
        for more in range(TRIES):
            pairs = make_contrast(
                model, self.task, n=self.n, seed=self.seed + 1 + more, templates=held
            )
            new = [i for i, h in enumerate(hashes(pairs)) if h not in self.seen]
            if len(new) > most:
                best, most = (
                    pairs if not new or len(new) == len(pairs) else pairs.some(new),
                    len(new),
                )
            if most >= LEAST_NEW * len(pairs):
                break
        assert best is not None
        return best

    def summary(self, n: int, seen: int = 0) -> str:
        """Describe the pairs that the circuit is measured on."""
        from interp.circuits.tasks.wording import template_line

        mine, held = self.templates
        if seen:
            return f"on {n} pairs, {seen} of which it was found on (there are too few others)"
        if mine is None or held is None:
            return f"on {n} other pairs"
        texts = "; ".join(template_line(TASKS[self.task].templates[i]) for i in held)
        return (
            f"on {n} pairs of {len(held)} held-out of {len(mine) + len(held)} templates ({texts})"
        )

    def _file(self, model: Model) -> ContrastTask:
        from interp.circuits.tasks import own_pairs

        if not self._whole:
            self._whole.append(own_pairs.all_pairs(model, Path(self.task)))
        return self._whole[0]

    def _rows(self, whole: ContrastTask) -> tuple[list[int], list[int]]:
        """Return the numbers of a file's pairs to find a circuit on, and to measure it on."""
        if len(whole) < LEAST_PAIRS:
            return list(range(len(whole))), []
        kinds = list(dict.fromkeys(whole.templates))
        out = {kinds[i] for i in third(len(kinds), self.seed)[1]}
        mine = [i for i, kind in enumerate(whole.templates) if kind not in out]
        held = [i for i, kind in enumerate(whole.templates) if kind in out]
        if self.seen:
            new = [i for i, h in enumerate(hashes(whole)) if h not in self.seen]
        else:
            return mine, held
        return mine, new or held
