"""Data sets of prompts, and ranks of keys pooled over the prompts of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.core.prompts import Prompts, ordinary_ids, random_tokens
from interp.heads.geometry._spectra import rank_at
from interp.heads.outliers.passes import each_call
from interp.model.calls.call import Call
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.model.model import Model


def datasets(model: Model, files: str, n: int, max_length: int, seed: int) -> dict[str, Prompts]:
    """Return prompts by the name of their data set: files of texts, or three generated sets."""
    if files:
        from interp.attribution.evaluation.run import read_texts

        return {path: Prompts.of(read_texts(path), model) for path in files.split("+")}
    random = random_tokens(model, n=n, max_length=max_length, seed=seed)
    length = len(random.ids[0])
    half = max(1, (length - 1) // 2)
    repeated = random_tokens(model, n=n, max_length=max_length, period=half, seed=seed)
    ids = np.asarray(ordinary_ids(model))
    rng = np.random.default_rng([seed, 11])
    frequency = 1 / np.arange(1, len(ids) + 1)
    drawn = rng.choice(rng.permutation(ids), (n, length), p=frequency / frequency.sum())
    drawn[:, 0] = random.ids[0][0]
    zipf = Prompts(tuple(tuple(row) for row in drawn.tolist()))
    return {"random": random, "repeated": repeated, "Zipf": zipf}


def pooled_ranks(
    model: Model, prompts: Prompts, share: float
) -> dict[Site, Float[Tensor, " head"]]:
    """Return the rank of each head's keys over all tokens of all prompts, centred.

    Heads that share keys share the rank, 0 for keys that are all equal; layers without keys are
    left out.
    """

    def measure(site: Site, call: Call, engine: str) -> tuple[Tensor, ...] | None:
        if call.k is None:
            return None
        k = call.k.double()
        count = torch.full((len(k),), float(k.shape[2]), dtype=torch.double)
        return count, k.sum(2), k.transpose(-1, -2) @ k

    by_site = {}
    for site, (count, total, square) in each_call(model, prompts, measure).items():
        number = count.sum()
        mean = total.sum(0) / number
        spread = square.sum(0) / number - mean[..., :, None] * mean[..., None, :]
        energy = torch.linalg.eigvalsh(spread).flip(-1).clamp_min(0)
        ranks = rank_at(energy.sqrt(), share).nan_to_num(0.0)
        by_site[site] = ranks.repeat_interleave(site.n_heads // site.n_kv_heads)
    return by_site
