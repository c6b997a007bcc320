"""Attention between tokens of natural text, beside that on other tokens of the same text."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from interp.bundled import plain_texts
from interp.causal.text_tasks import next_token_task
from interp.circuits.named._task import LEAST, without_scores
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.standard_errors import standard_error
from interp.heads.trials import Lab, Trials

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

FEWEST = 8  # tokens of a text that can be read
_Ids = tuple[int, ...]
Keys = tuple[list[int], list[int]]
Choose = Callable[[_Ids, int, np.random.Generator], Keys | None]
"""From a text and a row: the keys that count and as many others, or None if the row has none."""


def on_text(
    model: Model, lab: Lab, name: str, texts: int, max_length: int, choose: Choose, null: str
) -> Trials:
    """Score every head by its attention to some keys, with that to other keys as the null."""
    if texts < 2 or max_length < FEWEST:
        raise OptionError(
            f"texts={texts}, max_length={max_length}: at least 2 texts of at least {FEWEST} tokens"
        )
    given = natural_texts(model, texts, max_length, lab.seed)
    why = why_no_text(model, given)
    if lab.notes and why:
        return without_scores(model, why)
    rng = np.random.default_rng([lab.seed, 42])
    rows = [
        [(row, keys) for row in range(1, len(ids)) if (keys := choose(ids, row, rng))]
        for ids in given.ids
    ]
    if not any(rows):
        return without_scores(model, "no row of the texts has a token that counts and another one")
    sites = [site for site in model.sites if site.stack != "cross"]
    values: dict[Site, Tensor] = {}
    beside: dict[Site, Tensor] = {}
    for out in (values, beside):
        for site in sites:
            out[site] = torch.full((len(given), site.n_heads), torch.nan, dtype=torch.double)
    for i, (ids, mine) in enumerate(zip(given.ids, rows, strict=True)):
        if mine:
            cache = model.capture([ids], ("pattern",))
            for site in sites:
                pattern = cache["pattern", site.layer, site.stack][0].double().cpu()
                for side, out in enumerate((values, beside)):
                    each = [pattern[:, row, list(keys[side])].sum(-1) for row, keys in mine]
                    out[site][i] = torch.stack(each).mean(0)
        lab.progress(name, i + 1, len(given))
    notes = {"texts": given.design, "rows": f"{sum(map(len, rows))} of {len(given)} texts"}
    return Trials(values, beside, null, notes)


def natural_texts(model: Model, n: int, max_length: int, seed: int) -> Prompts:
    """Return n lines of text in random order, cut to a length."""
    max_length = min(x for x in (max_length, model.limit, model.context) if x)
    whole = Prompts.of(plain_texts(model), model)
    order = np.random.default_rng([seed, 33]).permutation(len(whole))
    kept = tuple(tuple(whole.ids[i][:max_length]) for i in order if len(whole.ids[i]) >= FEWEST)[:n]
    if not kept:
        raise PromptError(f"no text has {FEWEST} tokens with the tokenizer of {model.name}")
    return Prompts(kept, f"lines of text, at most {max_length} tokens")


def why_no_text(model: Model, given: Prompts) -> str:
    """Return why heads cannot be judged on text: the model predicts it no better than at random.

    The loss must be below that of uniform guessing by more than 2 standard errors over texts.
    """
    task = next_token_task(model, given)
    values = np.zeros(len(task))
    with torch.no_grad():
        for i, ids in enumerate(given.ids):
            logits = model.run([ids])[0, list(task.positions[i])]
            values[i] = float(task.values(logits, [i])[0])
    chance = math.log(model.d_vocab)
    error = float(standard_error(values[None], None)[0]) if len(values) > 1 else 0.0
    if chance - values.mean() > LEAST * error:
        return ""
    return (
        f"the model cannot do the task text: its loss is {values.mean():.3g} nats per token, no "
        f"better than uniform guessing ({chance:.3g})"
    )


def equal_tokens(ids: _Ids, row: int, rng: np.random.Generator) -> Keys | None:
    """Return all earlier copies of a row's token, and as many copies of others for the null.

    The others are tokens with nearly as many earlier copies, whose copies are at the nearest mean
    position: one token if it has as many or more, the last of which are taken, and further ones
    until there are as many. None for a row whose token has no earlier copy or is the first of the
    text, on which many heads rest, and where the other tokens are too few.
    """
    seen: dict[int, list[int]] = {}
    for at in range(1, row):
        seen.setdefault(ids[at], []).append(at)
    mine = seen.pop(ids[row], [])
    if not mine or ids[row] == ids[0]:
        return None
    middle = float(np.mean(mine))
    nearest = sorted(
        seen.values(), key=lambda at: (abs(len(at) - len(mine)), abs(float(np.mean(at)) - middle))
    )
    others: list[int] = []
    for copies in nearest:
        others += copies[-(len(mine) - len(others)) :]
        if len(others) == len(mine):
            return mine, others
    return None


def token_before(ids: _Ids, row: int, rng: np.random.Generator) -> Keys | None:
    """Return the token before a row, and another earlier one, drawn among the 8 before it."""
    others = list(range(max(1, row - 9), row - 1))
    return ([row - 1], [int(rng.choice(others))]) if others else None
