"""Effects on the logit of a token through the positions where it stands in the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from interp.bundled import plain_texts
from interp.circuits.named._task import without_scores
from interp.core.errors import OptionError
from interp.core.prompts import Prompts, repeats
from interp.heads.trials import Lab, Trials
from interp.lens.direct_effects import LogitRead, against, direct_effects
from interp.lens.finish import Finish, finish, predicting_stack

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

SHORTEST = 6  # tokens of a prompt that can hold a repeated token and others


@dataclass(frozen=True)
class Seen:
    """A token of a prompt, the positions where it stands before a row, and the row."""

    read: LogitRead
    token: int


def lowered_by_induction(model: Model, lab: Lab, trials: int, max_length: int, rows: int) -> Trials:
    """Score how much heads lower what an induction head would copy."""
    if trials < 2 or rows < 1:
        raise OptionError(f"trials={trials}, rows={rows}: at least 2 trials and 1 row")
    given = repeats(model, n=trials, max_length=max_length, seed=lab.seed)
    assert given.clusters is not None
    rng = np.random.default_rng([lab.seed, 31])
    real, null = [], []
    for i, ids in enumerate(given.ids):
        period = int(given.clusters[i].removeprefix("period "))
        start = len(ids) - 2 * period
        at = rng.permutation(np.arange(start + period, len(ids) - 1))[:rows]
        for row in sorted(at.tolist()):
            source = row + 1 - period
            others = [k for k in range(start, start + period) if ids[k] != ids[source]]
            real.append(Seen(LogitRead(i, row, (source,)), ids[source]))
            other = int(rng.choice(others)) if others else source
            null.append(Seen(LogitRead(i, row, (other,)), ids[other]))
    lab.progress("anti_induction", 0, 1)
    values, beside = (_per_prompt(_lowered(model, given.ids, x), x, trials) for x in (real, null))
    lab.progress("anti_induction", 1, 1)
    return Trials(
        values,
        beside,
        "another token of the first copy",
        {"prompts": given.design},
        clusters=given.clusters,
    )


def lowered_by_copying(
    model: Model, lab: Lab, n: int, max_length: int, rows: int, predicted: int
) -> Trials:
    """Score how much heads lower a token of the prompt that the layers before them predict."""
    if n < 2 or rows < 1 or predicted < 1:
        raise OptionError(
            f"prompts={n}, rows={rows}, predicted={predicted}: at least 2 prompts, 1 row and 1 "
            "predicted token"
        )
    given = _prompts(model, n, max_length, lab.seed)
    rng = np.random.default_rng([lab.seed, 32])
    stack = predicting_stack(model)
    sites = [site for site in model.sites if site.stack == stack]
    lenses = _lenses(model, given, stack)
    pairs = [
        _predicted(given, [lens[site] for lens in lenses], rng, rows, predicted, site.layer)
        for site in sites
    ]
    counts = [len(real) for real, _ in pairs]
    if not any(counts):
        return without_scores(model, "no token of the prompts is predicted again before any layer")
    lab.progress("copy_suppression", 0, 1)
    values, beside = (_of_layers(model, given, sites, [x[side] for x in pairs]) for side in (0, 1))
    lab.progress("copy_suppression", 1, 1)
    notes = {
        "prompts": given.design,
        "rows": f"{min(counts)} to {max(counts)} per layer, of {n * rows} asked for",
    }
    return Trials(values, beside, "another token of the prompt", notes, clusters=given.clusters)


def _of_layers(
    model: Model, given: Prompts, sites: Sequence[Site], seen: Sequence[list[Seen]]
) -> dict[Site, Tensor]:
    """Return the score of each layer's heads on its own rows; every prompt runs once."""
    lowered = _lowered(model, given.ids, [x for mine in seen for x in mine])
    scores, first = {}, 0
    for site, mine in zip(sites, seen, strict=True):
        rows = slice(first, first := first + len(mine))
        empty = torch.full((len(given), site.n_heads), torch.nan, dtype=torch.double)
        of_layer = (
            _per_prompt({site: lowered[site][rows]}, mine, len(given)) if mine else {site: empty}
        )
        scores |= of_layer
    return scores


def _prompts(model: Model, n: int, max_length: int, seed: int) -> Prompts:
    """Return lines of text cut to a length, or repeated random tokens."""
    max_length = min(x for x in (max_length, model.limit, model.context) if x)
    if model.tokenizer is None:
        return repeats(model, n=n, max_length=max_length // 2, seed=seed)
    whole = Prompts.of(plain_texts(model), model)
    rng = np.random.default_rng([seed, 33])
    order = [i for i in rng.permutation(len(whole)) if len(whole.ids[i]) >= SHORTEST][:n]
    cut = tuple(tuple(whole.ids[i][:max_length]) for i in order)
    return Prompts(cut, f"lines of text, at most {max_length} tokens")


def _lenses(model: Model, given: Prompts, stack: str) -> list[dict[Site, Tensor]]:
    """Return per prompt the logit lens before each layer, for the distinct tokens of the prompt.

    The values are `[2, row, token]`: the logits, and the number of tokens of the vocabulary with a
    larger one. Tokens are in the order of their ids.
    """
    sites = [site for site in model.sites if site.stack == stack]
    out = []
    end: Finish | None = None
    for ids in given.ids:
        cache = model.capture([ids], ("resid_pre", "resid_post"), stack=stack)
        end = end or finish(model, cache, stack)
        distinct, lenses = sorted(set(ids)), {}
        for site in sites:
            with torch.no_grad():
                logits = end(cache["resid_pre", site.layer, stack])[0].double()
            chosen = logits[:, distinct]
            larger = [(logits > x[:, None]).sum(-1) for x in chosen.unbind(-1)]
            lenses[site] = torch.stack([chosen, torch.stack(larger, -1).double()]).cpu()
        out.append(lenses)
    return out


def _predicted(
    given: Prompts,
    lenses: Sequence[Tensor],
    rng: np.random.Generator,
    rows: int,
    best: int,
    layer: int,
) -> tuple[list[Seen], list[Seen]]:
    """Return rows with the seen token that the stream before a layer predicts, and with another."""
    real, null = [], []
    for i, (ids, (logits, rank)) in enumerate(zip(given.ids, lenses, strict=True)):
        distinct, pairs = sorted(set(ids)), []
        for row in range(SHORTEST - 2, len(ids)):
            seen = [k for k, token in enumerate(distinct) if token in ids[:row]]
            top = seen[int(logits[row, seen].argmax())]
            others = [k for k in seen if k != top]
            if rank[row, top] < best and others:
                other = int(rng.choice(others))
                pairs.append([_seen(i, row, ids, distinct[k], layer) for k in (top, other)])
        for k in sorted(rng.permutation(len(pairs))[:rows].tolist()):
            real.append(pairs[k][0])
            null.append(pairs[k][1])
    return real, null


def _seen(prompt: int, row: int, ids: Sequence[int], token: int, layer: int) -> Seen:
    at = tuple(k for k in range(row) if ids[k] == token)
    return Seen(LogitRead(prompt, row, at, layer), token)


def _lowered(
    model: Model, ids: Sequence[Sequence[int]], seen: Sequence[Seen]
) -> dict[Site, Tensor]:
    """Return minus the effect on each token against the other tokens of its prompt."""

    def towards(k: int) -> Tensor:
        others = sorted(set(ids[seen[k].read.prompt]) - {seen[k].token})
        return against(seen[k].token, others, model.d_vocab)

    effects = direct_effects(model, ids, [s.read for s in seen], towards)
    return {site: -x for site, x in effects.items()}


def _per_prompt(values: dict[Site, Tensor], seen: Sequence[Seen], n: int) -> dict[Site, Tensor]:
    """Average over the rows of each prompt; NaN for a prompt without rows."""
    owner = torch.tensor([s.read.prompt for s in seen])
    count = torch.bincount(owner, minlength=n).double()
    out = {}
    for site, x in values.items():
        total = torch.zeros(n, x.shape[1], dtype=torch.double).index_add(0, owner, x)
        mean = total / count[:, None]
        mean[count == 0] = torch.nan
        out[site] = mean
    return out
