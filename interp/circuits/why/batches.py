"""Decomposed runs of prompts, grouped by length, and heads of a model by any spelling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.circuits.linear_scores import LinearScores
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.model.inputs import takes

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

MOST_TOKENS = 2048  # of one decomposed run


def asked_prompts(model: Model, prompts: Any) -> Prompts:
    """Return prompts of any form as `Prompts`, checked against the model."""
    if "input_ids" not in takes(model.module):
        raise UnreadableAttention(
            f"{model.name} reads no tokens; what its heads read can only be traced to tokens"
        )
    if isinstance(prompts, dict):
        mask = prompts.get("attention_mask")
        if "input_ids" not in prompts:
            raise PromptError("the inputs hold no input_ids; scores are traced to tokens")
        if isinstance(mask, Tensor) and not bool(mask.all()):
            raise PromptError("the inputs are padded; give the prompts as lists of token ids")
        prompts = prompts["input_ids"]
    parsed = Prompts.of(prompts, model)
    parsed.check(model)
    return parsed


def decomposed(model: Model, prompts: Prompts) -> Iterator[tuple[list[int], LinearScores]]:
    """Yield the numbers of prompts of one length with their decomposed run."""
    lengths: dict[int, list[int]] = {}
    for i, ids in enumerate(prompts.ids):
        lengths.setdefault(len(ids), []).append(i)
    for n, which in lengths.items():
        turned, size = None, max(1, MOST_TOKENS // n)
        for first in range(0, len(which), size):
            some = which[first : first + size]
            ids = torch.tensor([prompts.ids[i] for i in some], device=model.device)
            run = LinearScores(model, {"input_ids": ids}, turned=turned)
            turned = run.turns
            yield some, run


def asked_heads(model: Model, heads: Any) -> list[tuple[Site, int]]:
    """Return attention layer and number of one head, or of several, in any spelling."""
    given: Any
    if hasattr(heads, "heads") and callable(heads.heads):  # a result whose rows are heads
        given = heads.heads()
    elif isinstance(heads, str):
        given = heads.split(",")
    elif isinstance(heads, Head) or (
        isinstance(heads, tuple) and len(heads) == 2 and all(isinstance(x, int) for x in heads)
    ):
        given = [heads]
    else:
        given = list(heads)
    if not given:
        raise OptionError("no heads given; name at least one, such as L1H0")
    chosen = []
    for one in dict.fromkeys(Head.parse(x) for x in given):
        sites = [s for s in model.sites if s.layer == one.layer and one.stack in (None, s.stack)]
        if not sites or one.head >= sites[0].n_heads:
            least = (
                f"{sites[0].n_heads} heads in layer {one.layer}"
                if sites
                else (f"attention in layers {', '.join(str(s.layer) for s in model.sites)}")
            )
            raise OptionError(f"{model.name} has no head {one}; it has {least}")
        chosen.append((sites[0], one.head))
    return chosen
