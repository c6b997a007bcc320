"""Mean outputs of heads on prompts that show a function, moved to prompts that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.causal.steering.function_vectors import (
    answer_probabilities,
    indirect_effects,
    mean_outputs,
)
from interp.causal.steering.in_context import in_context_prompts, known_functions
from interp.circuits.named._task import LEAST, without_scores
from interp.core.errors import OptionError
from interp.core.standard_errors import standard_error
from interp.heads.trials import Lab, Trials

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

FEWEST = 3  # functions that the model must do


def carries_functions(model: Model, lab: Lab, prompts: int, shots: int) -> Trials:
    """Score every head by what its mean output does to prompts with exchanged answers."""
    if prompts < 2 or shots < 2:
        raise OptionError(f"prompts={prompts}, shots={shots}: at least 2 prompts and 2 examples")
    known = list(known_functions(model, shots))
    if len(known) < FEWEST:
        return without_scores(
            model,
            f"the tokenizer splits the words of all functions but {', '.join(known) or 'none'}; "
            f"{FEWEST} are needed",
        )
    values: dict[Site, list[Tensor]] = {}
    beside: dict[Site, list[Tensor]] = {}
    clusters, stated = [], []
    for number, name in enumerate(known):
        lab.progress("function_vector", number, len(known))
        given = in_context_prompts(model, name, n=2 * prompts, shots=shots, seed=lab.seed)
        clean, mixed = (
            answer_probabilities(model, ids[prompts:], given.answers[prompts:])
            for ids in (given.ids, given.shuffled)
        )
        gain = clean - mixed
        error = float(standard_error(gain.numpy()[None], None)[0])
        if lab.notes and not float(gain.mean()) > LEAST * error:
            stated.append(f"{name} not used ({float(clean.mean()):.2g}, {float(mixed.mean()):.2g})")
            continue
        shown = f"{float(clean.mean()):.2g} with examples, {float(mixed.mean()):.2g} without"
        stated.append(f"{name} {shown}")
        for ids, out in ((given.ids, values), (given.shuffled, beside)):
            effects = indirect_effects(
                model,
                given.shuffled[prompts:],
                given.answers[prompts:],
                mean_outputs(model, ids[:prompts]),
            )
            for site, x in effects.items():
                out.setdefault(site, []).append(x)
        clusters += [name] * prompts
    if len(set(clusters)) < FEWEST:
        return without_scores(
            model,
            f"the model does not follow examples in {FEWEST} functions; probability of the answer "
            f"with right and with exchanged examples: {'; '.join(stated)}",
        )
    return Trials(
        {site: torch.cat(x) for site, x in values.items()},
        {site: torch.cat(x) for site, x in beside.items()},
        "the head's mean output on prompts with exchanged answers",
        {"functions": "; ".join(stated)},
        headline=f"probability of the answer: {'; '.join(stated)}",
        clusters=clusters,
    )
