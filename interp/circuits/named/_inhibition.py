"""Change of the name movers' attention when an earlier head's output is replaced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.circuits.contrast import ContrastTask
from interp.circuits.contrast_batch import ContrastBatch
from interp.circuits.named._task import Tried, effects, half, mean_effect, task_or_reason, tried
from interp.circuits.tasks.ioi_pairs import PLACES, THINGS
from interp.circuits.tasks.wording import single
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.heads.trials import Lab, Trials
from interp.model.edits import resample

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

Mover = tuple["Site", int]
_Ids = tuple[int, ...]


def inhibition(model: Model, lab: Lab, pairs: int, movers: int) -> Trials:
    """Score every head by the attention of the movers that is lost without its output."""
    if pairs < 4 or movers < 1:
        raise OptionError(
            f"pairs={pairs}, movers={movers}: there must be at least 4 pairs, of which half choose "
            "the movers, and 1 mover"
        )
    trial_task = task_or_reason(model, lab, "ioi", pairs)
    if isinstance(trial_task, Trials):
        return trial_task
    chosen, judged = half(trial_task.task, False), half(trial_task.task, True)
    ranked = mean_effect(effects(model, tried(model, chosen), chosen.clean))
    top = [(site, head) for _, site, head in ranked[:movers]]
    others, alone = _other_words(model, judged, lab.seed)
    values, null = _lost(model, lab, judged, top, others)
    notes = _notes(trial_task, top)
    if alone:
        notes["without a null"] = f"{len(alone)} of {len(judged)} prompts have no word to exchange"
    return Trials(
        values,
        null,
        "the head's output on the same prompt with another place or thing",
        notes,
        headline=trial_task.summary(),
        clusters=judged.clusters,
    )


def _notes(found: Tried, top: list[Mover]) -> dict[str, str]:
    names = ", ".join(f"L{site.layer}H{head}" for site, head in top)
    return {
        "task": found.summary(),
        "name movers": f"{names}, chosen on the other half of the pairs",
    }


def _lost(
    model: Model, lab: Lab, task: ContrastTask, top: list[Mover], others: Sequence[_Ids | None]
) -> tuple[dict[Site, Tensor], dict[Site, Tensor]]:
    """Return the attention that is lost by corrupted outputs, and by those with another word.

    NaN for heads of layers that cannot reach the movers, and in the null for a prompt without
    another version.
    """
    values = {s: torch.full((len(task), s.n_heads), torch.nan).double() for s in model.sites}
    null = {s: x.clone() for s, x in values.items()}
    last = max(site.layer for site, _ in top)
    heads = [(s, h) for s in model.sites if s.layer < last for h in range(s.n_heads)]
    batches = list(task.batches())
    for number, batch in enumerate(batches):
        plain = _preference(model, task, batch, top)
        kept = [k for k, i in enumerate(batch.which) if others[i] is not None]
        version = [others[i] or batch.clean.ids[k] for k, i in enumerate(batch.which)]
        corrupted = model.capture(batch.corrupted, ("z",)).z_by_site()
        other = model.capture(version, ("z",)).z_by_site()
        row = _end(task, batch)
        for done, (site, head) in enumerate(heads):
            every = range(len(batch.which))
            for source, out, which in ((corrupted, values, every), (other, null, kept)):
                edit = resample([Head(site.layer, head)], source, positions=[row], stack=site.stack)
                with model.edited(edit):
                    now = _preference(model, task, batch, top)
                out[site][[batch.which[k] for k in which], head] = (plain - now)[list(which)]
            lab.progress("s_inhibition", number * len(heads) + done + 1, len(batches) * len(heads))
    return values, null


def _end(task: ContrastTask, batch: ContrastBatch) -> int:
    return task.roles[batch.which[0]]["end"]


def _other_words(
    model: Model, task: ContrastTask, seed: int
) -> tuple[list[_Ids | None], tuple[int, ...]]:
    """Return every prompt with another place or thing, and the prompts that have none of one token.

    The persons, and so what the heads must tell the movers, stay the same.
    """
    rng = np.random.default_rng([seed, 36])
    known = [list(single(model, words, 0, "words").values()) for words in (THINGS, PLACES)]
    out: list[_Ids | None] = []
    for ids in task.clean.ids:
        changed = list(ids)
        for at, token in enumerate(ids):
            for words in known:
                rest = [w for w in words if w != token]
                if token in words and rest:
                    changed[at] = int(rng.choice(rest))
        out.append(tuple(changed) if tuple(changed) != tuple(ids) else None)
    return out, tuple(i for i, version in enumerate(out) if version is None)


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
