"""Heads whose effect on a task's answer includes what later layers make of their output."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import experiment

if TYPE_CHECKING:
    from torch import Tensor

    from interp.circuits.named._task import Tried
    from interp.model.calls.sites import Site
    from interp.model.model import Model


@experiment(
    unit="logit",
    requires=("tokens", "causal"),
    chance="effect on the corrupted prompts",
    end="both",
    task="its option task",
)
def jacobian_effect(model, lab, *, task: str = "induction", pairs: int = 24):
    """Effect of a head on a task's answer, directly and by what later layers make of it on average.

    The Jacobian lens of a head: its output at the answering position, read towards the task's
    measure through the mean derivative of the last stream by the outputs of the head's layer, over
    all positions of the clean prompts of the other half of the pairs. The derivative sums over the
    position itself and all later ones. As in `direct_effect`, the scale of the final norm is held
    at its value, and a measure that is not linear in the logits is replaced by its derivative. A
    head of the last layer of a model without MLPs has its direct effect. A model that cannot do the
    task gets no scores.

    Cost: One forward pass per prompt of both sides and one for the measure; per pair a backward
    pass over half of the clean prompts.

    Null: the same on the corrupted prompts.

    Not for: heads that act at other positions than the one that answers, such as previous-token
    heads, and effects through attention patterns that depend on the prompt: a mean derivative keeps
    only what is alike everywhere. Patch those (`interp circuit`).

    Options:
        task: a contrast task of `interp circuit` (`induction`, `ioi`, `greater_than`,
            `subject_verb`, `docstring`), or a .jsonl or .py file with one.
        pairs: number of pairs of prompts.

    Reference: Gurnee et al. 2026, "Verbalizable Representations Form a Global Workspace" (the
    lens of streams; its application to one head follows by linearity).
    """
    from interp.circuits.named._task import task_or_reason
    from interp.heads.trials import Trials

    checked = task_or_reason(model, lab, task, pairs)
    if isinstance(checked, Trials):
        return checked
    real, null = _effects(model, lab, checked)
    return Trials(
        real,
        null,
        "the same on the corrupted prompts, in which nothing determines the answer",
        {"task": checked.summary()},
        headline=checked.summary(),
        clusters=checked.task.clusters,
    )


def _effects(model: Model, lab, found: Tried) -> tuple[dict[Site, Tensor], dict[Site, Tensor]]:
    """Return effects on the clean and on the corrupted prompts, `[pair, head]` by site."""
    import torch

    from interp.circuits.named._task import answer_row
    from interp.lens.finish import finish, model_layers, predicting_stack
    from interp.lens.jacobian import jacobian_directions

    task, stack = found.task, predicting_stack(model)
    last = model_layers(model, stack)[-1]
    sites = [s for s in model.sites if s.stack == stack]
    n = len(task)
    outputs: list[dict[Site, list[Tensor]]] = [{s: [] for s in sites} for _ in range(2)]
    scaled: list[list[Tensor]] = [[], []]
    for side, prompts in enumerate((task.clean, task.corrupted)):
        for i, ids in enumerate(prompts.ids):
            cache = model.capture([tuple(ids)], ["resid_post", "z"], stack=stack)
            end, row = finish(model, cache, stack), answer_row(task, i)
            stream = cache["resid_post", last, stack][0, row]
            scaled[side].append(
                end.back_all(found.weights[i : i + 1].to(stream.device), stream[None])[0]
                .double()
                .cpu()
            )
            for site in sites:
                z = cache["z", site.layer, site.stack][0, :, row]
                outputs[side][site].append(z.double().cpu())
    effects = [{s: torch.zeros(n, s.n_heads, dtype=torch.double) for s in sites} for _ in range(2)]
    halves = [list(range(n))[0::2], list(range(n))[1::2]]
    for judged, used in (halves, halves[::-1]):
        ids = [task.clean.ids[i] for i in used]
        directions = torch.stack([scaled[0][i] for i in judged])
        back = jacobian_directions(
            model,
            ids,
            directions,
            progress=lambda _, done, total: lab.progress("jacobian_effect", done, total),
        )
        for k, i in enumerate(judged):
            for side in range(2):
                # both sides have one direction; only the scale of the final norm differs
                factor = float(scaled[side][i].norm() / scaled[0][i].norm().clamp_min(1e-300))
                for site in sites:
                    z = outputs[side][site][i]
                    effects[side][site][i] = factor * (back[site][k] * z).sum(-1)
    return effects[0], effects[1]
