"""Answers on rules: where each fires on a prompt, and what a profile explains of a row."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.report.atlas.profiles import shown_example

if TYPE_CHECKING:
    from interp.heads.patterns.result import View
    from interp.profiles.on_prompt import PromptRules

EXAMPLES = 3  # of a head, below its row


def rules_answer(found: PromptRules, shown: View) -> dict[str, Any]:
    """Return the rules of a prompt with the pairs on which they fire; see `Session.rules`."""
    many = len(shown.stacks) > 1
    patterns = {
        (stack.name, head.layer, head.head): weights
        for stack in shown.stacks
        for head, weights in stack.weights.items()
    }
    scores = found.own_scores(patterns)
    for one in scores:
        one["heads"] = [
            [f"{stack}." * many + f"L{layer}H{head}", mass, guess]
            for (stack, layer, head), mass, guess in one["heads"]
        ]
    bits = [base64.b64encode(np.packbits(mask).tobytes()).decode() for mask in found.masks]
    rules = [{"name": one.name, "phrase": one.phrase} for one in found.rules]
    return {"rules": rules, "masks": bits, "own": scores}


def row_answer(
    found: PromptRules, shown: View, stack: str, head: Any, query: int, key: int
) -> dict[str, Any]:
    """Return what explains one row; see `Session.explain`."""
    of = shown.stack(stack)
    one = of.head(head)
    place = (stack, one.layer, one.head)
    answer = found.explain(place, of.weights[one], query, key)
    at, profile = found.places.get(place), found.profile
    if at is None or profile is None:
        return answer
    about = profile.descriptions[at]
    examples = profile.examples_of(about["name"], "surprise")[:EXAMPLES]
    return answer | {
        "sentence": about["sentence"],
        "examples": [shown_example(x) for x in examples],
    }
