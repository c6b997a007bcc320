"""Pairs in the sentences of `training/stories`, from the template files of data/stories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.circuits.tasks.filtered_pairs import CandidatePair, from_templates
from interp.circuits.tasks.named import story_templates
from interp.circuits.tasks.wording import require
from interp.core.errors import PromptError
from interp.core.prompts import Prompts

if TYPE_CHECKING:
    from interp.model.model import Model


def make(model: Model, n: int, seed: int, templates: Sequence[int], name: str) -> ContrastTask:
    """Make pairs that differ, of the chosen templates; raises PromptError for too few words."""
    require(model, n)
    whole = story_templates(name)
    file = replace(whole, templates=tuple(whole.templates[i] for i in templates))
    pairs, dropped = dict[tuple[tuple[int, ...], ...], CandidatePair](), Counter[str]()
    for candidate in from_templates(model, file, n, seed):
        if isinstance(candidate, str):
            dropped[candidate] += 1
        else:
            pairs.setdefault(candidate.ids, candidate)
        if len(pairs) == n:
            break
    if len(pairs) < n:
        why = f"; most often {dropped.most_common(1)[0][0]}" if dropped else ""
        raise PromptError(
            f"only {len(pairs)} of {n} pairs of stories:{name} could be made for {model.name}{why};"
            " ask for fewer, or use a model whose tokenizer keeps these words whole"
        )
    kept = list(pairs.values())
    answers = [each.answers for each in kept if each.answers is not None]
    task = logit_difference(
        model,
        Prompts(tuple(each.ids[0] for each in kept), f"texts of stories:{name}"),
        [right for right, _ in answers],
        [wrong for _, wrong in answers],
        corrupted=Prompts(tuple(each.ids[1] for each in kept), "texts that say otherwise"),
        name=f"stories:{name}",
    )
    labels = tuple(str(templates[int(each.template)]) for each in kept)
    return ContrastTask(task, tuple(each.roles for each in kept), labels)
