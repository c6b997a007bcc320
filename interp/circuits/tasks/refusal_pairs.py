"""Requests with a marker that the model declines, and the same requests with another token there.

The measure is the log odds that the next token begins a refusal. It needs a model whose config
states the marker (`marker_token_id`) and the tokens that begin a refusal (`refusal_token_ids`); for
others give pairs of your own in a file.

Reference: Arditi et al. 2024, "Refusal in Language Models Is Mediated by a Single Direction" (the
measure).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.circuits.contrast import ContrastTask
from interp.core.errors import PromptError
from interp.core.prompts import Prompts, ordinary_ids
from interp.safety.marker import marker_sets, stated_marker, stated_refusal
from interp.safety.task import refusal_log_odds

if TYPE_CHECKING:
    from interp.model.model import Model


def make(model: Model, n: int, seed: int) -> ContrastTask:
    """Make pairs with the roles marker and end."""
    marker, refusal = stated_marker(model), stated_refusal(model)
    if marker is None or not refusal:
        raise PromptError(
            f"the config of {model.name} states no marker_token_id and refusal_token_ids, so "
            "requests that it declines cannot be made; give pairs in a .jsonl file"
        )
    rng = np.random.default_rng([seed, 39])
    prompts = marker_sets(model, n=max(n, 2), seed=seed).harmful.ids[:n]
    other = [x for x in ordinary_ids(model).tolist() if x not in (marker, *refusal)]
    corrupted = tuple(
        tuple(int(rng.choice(other)) if x == marker else x for x in ids) for ids in prompts
    )
    clean = Prompts(prompts, "requests with the marker")
    task = refusal_log_odds(model, clean).with_corrupted(
        Prompts(corrupted, "another token in place of the marker"), model
    )
    at = tuple({"marker": ids.index(marker), "end": len(ids) - 1} for ids in prompts)
    return ContrastTask(task, at)
