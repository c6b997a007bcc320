"""The task of a named head: its pairs, whether the model can do it, and heads' effects on it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.contrast import ContrastTask
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.standard_errors import standard_error
from interp.core.ties import ordered_by
from interp.heads.trials import Lab, Trials
from interp.lens.direct_effects import LogitRead, direct_effects

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

LEAST = 2.0  # standard errors by which the corrupted prompts must lower the right answer's lead


@dataclass(frozen=True)
class Tried:
    """A task with the model's values on it, clean and corrupted.

    Args:
        task: the pairs.
        clean: value per clean prompt, in the task's unit.
        corrupted: value per corrupted prompt, measured in the same way.
        weights: per pair the derivative of the value by the logits at the position that answers;
            for a difference of logits these are 1 and -1.
    """

    task: ContrastTask
    clean: Float[Tensor, " pair"]
    corrupted: Float[Tensor, " pair"]
    weights: Float[Tensor, "pair d_vocab"]

    @property
    def why_not(self) -> str:
        """The reason why the model cannot do the task; empty if it can.

        The right answer must lead on average, and the lead must be smaller in the corrupted
        prompts by more than 2 standard errors over clusters.
        """
        if len(self.clean) < 2:
            return ""
        gain = self.clean - self.corrupted
        mean, more, unit = float(self.clean.mean()), float(gain.mean()), self.task.task.unit
        error = float(standard_error(gain.numpy()[None], self.task.clusters)[0])
        if mean <= 0:
            return (
                f"the model cannot do the task {self.task.name}: on average the right answer leads "
                f"by {mean:.3g} {unit}"
            )
        if not more > LEAST * error:
            return (
                f"the model does not use what the task {self.task.name} is about: in the corrupted "
                f"prompts the right answer's lead is smaller by {more:.3g} +- {error:.2g} {unit}"
            )
        return ""

    def summary(self) -> str:
        """Return the model's result on the task."""
        right = int((self.clean > 0).sum())
        return (
            f"task {self.task.name}: the right answer leads in {right} of {len(self.clean)} "
            f"prompts, by {float(self.clean.mean()):.3g} {self.task.task.unit} on average and "
            f"{float(self.corrupted.mean()):.3g} in the corrupted prompts"
        )


def tried(model: Model, task: ContrastTask) -> Tried:
    """Run both sides of a task."""
    if any(len(at) != 1 for at in task.task.positions) or not task.task.has_gradient:
        raise OptionError(
            f"task {task.name}: direct effects need one position that answers and a measure with "
            "a derivative, such as a difference of logits"
        )
    n = len(task)
    values = {side: torch.zeros(n, dtype=torch.double) for side in ("clean", "corrupted")}
    weights: list[Tensor] = [torch.empty(0)] * n
    for batch in task.batches():
        for side, prompts in (("clean", batch.clean), ("corrupted", batch.corrupted)):
            logits = model.run(prompts).detach().double().requires_grad_()
            with torch.enable_grad():
                value = batch.value(logits)
            values[side][list(batch.which)] = value.detach().double().cpu()
            if side == "clean":
                [slope] = torch.autograd.grad(value.sum(), logits)
                for k, i in enumerate(batch.which):
                    weights[i] = slope[k, answer_row(task, i)].cpu()
    return Tried(task, values["clean"], values["corrupted"], torch.stack(weights))


def answer_row(task: ContrastTask, pair: int) -> int:
    """Return the position of a pair that answers, counted from the front."""
    return task.task.positions[pair][0] % len(task.clean.ids[pair])


def effects(model: Model, given: Tried, prompts: Prompts) -> dict[Site, Float[Tensor, "pair head"]]:
    """Return every head's direct effect on the task's value, on one side of the pairs."""
    reads = [LogitRead(i, answer_row(given.task, i)) for i in range(len(given.task))]
    return direct_effects(model, prompts.ids, reads, lambda k: given.weights[k])


def task_or_reason(model: Model, lab: Lab, task: str, pairs: int) -> Tried | Trials:
    """Return the task with the model's values, or a result without scores and with the reason.

    On a null (`lab.notes` is False) the model need not be able to do the task.
    """
    if pairs < 2:
        raise OptionError(f"pairs={pairs}: there must be at least 2")
    try:
        checked = tried(model, make_contrast(model, task, n=pairs, seed=lab.seed))
    except PromptError as error:
        if not lab.notes:
            raise
        return without_scores(model, f"the task {task} cannot be made for this model: {error}")
    if lab.notes and checked.why_not:
        return without_scores(model, checked.why_not)
    return checked


def without_scores(model: Model, why: str) -> Trials:
    """Return a result without scores, for a model that cannot do the task."""
    values = {
        site: torch.full((1, site.n_heads), torch.nan, dtype=torch.double) for site in model.sites
    }
    return Trials(values, values, "none", headline=f"no scores: {why}")


def direct(model: Model, lab: Lab, name: str, task: str, pairs: int, sign: int = 1) -> Trials:
    """Direct effects on a task as trials, with those on the corrupted prompts as the null."""
    checked = task_or_reason(model, lab, task, pairs)
    if isinstance(checked, Trials):
        return checked
    lab.progress(name, 0, 2)
    real = effects(model, checked, checked.task.clean)
    lab.progress(name, 1, 2)
    null = effects(model, checked, checked.task.corrupted)
    lab.progress(name, 2, 2)
    whole = sum(float(x.mean(0).sum()) for x in real.values())
    notes = {
        "task": checked.summary(),
        "all heads": f"direct effects of all heads sum to {whole:.3g} of "
        f"{float(checked.clean.mean()):.3g} {checked.task.task.unit}",
    }
    return Trials(
        {site: sign * x for site, x in real.items()},
        {site: sign * x for site, x in null.items()},
        "direct effect on the corrupted prompts, in which nothing determines the answer",
        notes,
        headline=checked.summary(),
        clusters=checked.task.clusters,
    )


def half(task: ContrastTask, second: bool) -> ContrastTask:
    """Return every second pair, from the first or from the second one on."""
    return task.some(range(int(second), len(task), 2))


def mean_effect(values: dict[Site, Tensor]) -> list[tuple[float, Site, int]]:
    """Return all heads with their mean effect, the largest first."""
    means = [
        (float(x), site, head)
        for site, rows in values.items()
        for head, x in enumerate(rows.mean(0).tolist())
    ]
    return ordered_by(means, lambda one: one[0])
