"""Model, prompts, scores and task of the examples of results; made once."""

from __future__ import annotations

from functools import cache

import interp
from interp import causal
from interp.core.prompts import repeats

MADE = {"model_id": "m", "prompts_hash": "p", "made_by": "a test", "versions": {"interp": "0"}}


@cache
def model() -> interp.Model:
    return interp.load("planted:bystander")


@cache
def prompts() -> interp.Prompts:
    return repeats(model(), n=3, seed=0)


@cache
def table() -> interp.HeadTable:
    return interp.score(model(), ["induction", "previous_token"], null="none")


@cache
def task() -> causal.Task:
    return causal.repeats_task(model(), n=4, seed=0)
