"""Change of the name movers' attention when an earlier head's output is replaced."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.contrast import ContrastBatch, ContrastTask
from interp.circuits.named._task import Tried, effects, half, mean_effect, task_or_reason, tried
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.heads.declaration import Lab, Trials
from interp.model.edits import resample

if TYPE_CHECKING:
    from interp.model.locate.sites import Site
    from interp.model.model import Model

Mover = tuple["Site", int]


def inhibition(model: Model, lab: Lab, pairs: int, movers: int) -> Trials:
    """Score every head by the attention of the movers that is lost without its output.

    Raises:
        OptionError: fewer than four pairs, or no mover.
    """
    if pairs < 4 or movers < 1:
        raise OptionError(
            f"pairs={pairs}, movers={movers}: there must be at least 4 pairs, of which half choose "
            "the movers, and 1 mover"
        )
    found = task_or_reason(model, lab, "ioi", pairs)
    if isinstance(found, Trials):
        return found
    chosen, judged = half(found.task, False), half(found.task, True)
    ranked = mean_effect(effects(model, tried(model, chosen), chosen.clean))
    top = [(site, head) for _, site, head in ranked[:movers]]
    values, null = _lost(model, lab, judged, top)
    return Trials(
        values,
        null,
        "the head's output on another prompt of the same length",
        _notes(found, top),
        headline=found.told(),
        clusters=judged.clusters,
    )


def _notes(found: Tried, top: list[Mover]) -> dict[str, str]:
    names = ", ".join(f"L{site.layer}H{head}" for site, head in top)
    return {"task": found.told(), "name movers": f"{names}, chosen on the other half of the pairs"}


def _lost(
    model: Model, lab: Lab, task: ContrastTask, top: list[Mover]
) -> tuple[dict[Site, Tensor], dict[Site, Tensor]]:
    """Return the attention that is lost by corrupted outputs, and by those of other prompts."""
    values = {s: torch.zeros(len(task), s.n_heads, dtype=torch.double) for s in model.sites}
    null = {s: torch.zeros(len(task), s.n_heads, dtype=torch.double) for s in model.sites}
    last = max(site.layer for site, _ in top)
    heads = [(s, h) for s in model.sites if s.layer < last for h in range(s.n_heads)]
    batches = list(task.batches())
    for number, batch in enumerate(batches):
        plain = _preference(model, task, batch, top)
        corrupted = model.capture(batch.corrupted, ("z",)).z_by_site()
        clean = model.capture(batch.clean, ("z",)).z_by_site()
        others = {at: z[_other(task, batch)] for at, z in clean.items()}
        row = _end(task, batch)
        for done, (site, head) in enumerate(heads):
            for source, out in ((corrupted, values), (others, null)):
                edit = resample([Head(site.layer, head)], source, positions=[row], stack=site.stack)
                with model.edited(edit):
                    now = _preference(model, task, batch, top)
                out[site][list(batch.which), head] = plain - now
            lab.tell("s_inhibition", number * len(heads) + done + 1, len(batches) * len(heads))
    return values, null


def _end(task: ContrastTask, batch: ContrastBatch) -> int:
    return task.roles[batch.which[0]]["end"]


def _other(task: ContrastTask, batch: ContrastBatch) -> list[int]:
    """Return for each prompt of a batch another one of its template, or itself if there is none."""
    alike: dict[str, list[int]] = defaultdict(list)
    for k, i in enumerate(batch.which):
        alike[task.templates[i]].append(k)
    after: dict[int, int] = {}
    for members in alike.values():
        after |= dict(zip(members, members[1:] + members[:1], strict=True))
    return [after[k] for k in range(len(batch.which))]


def _preference(
    model: Model, task: ContrastTask, batch: ContrastBatch, top: list[Mover]
) -> Float[Tensor, " prompt"]:
    """Return the movers' mean attention to the receiver minus that to the giver's mentions."""
    layers = sorted({site.layer for site, _ in top})
    row = _end(task, batch)
    cache = model.capture(
        batch.clean, ("pattern",), layers=layers, stack=top[0][0].stack, rows=[row]
    )
    total = torch.zeros(len(batch.which), dtype=torch.double)
    for site, head in top:
        pattern = cache["pattern", site.layer, site.stack][:, head].double().cpu()
        for k, i in enumerate(batch.which):
            at = task.roles[i]
            to = pattern[k, 0]
            total[k] += to[at["IO"]] - to[at["S1"]] - to[at["S2"]]
    return total / len(top)
