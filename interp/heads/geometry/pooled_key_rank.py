"""Rank of keys pooled over the prompts of several data sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.heads.declaration import experiment
from interp.heads.trials import Trials

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.core.prompts import Prompts
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model


@experiment(
    unit="directions",
    low=0.0,
    requires=("tokens",),
    chance="value of random weights",
    end="low",
    task="none: the rank of keys is not a behaviour",
)
def pooled_key_rank(
    model,
    lab,
    *,
    n: int = 16,
    max_length: int = 48,
    share: float = 0.9,
    files: str = "",
):
    """Rank of a head's keys at 90 % of their variance, pooled over prompts, mean of data sets.

    Loki's measure: principal components of the keys of all prompts of a data set together, where
    `key_rank` takes each prompt for itself. Each data set is one trial, so the standard error is
    over data sets; the notes give the mean rank of every layer on each. Without files the data sets
    are random tokens, repeated random tokens and tokens with Zipf's frequencies.

    Not for: fewer tokens in a data set than d_head; natural text without files=.

    Options:
        n: number of prompts of a generated data set.
        max_length: tokens per prompt.
        share: share of the variance.
        files: paths of text files, one prompt per line, separated by +.

    Reference: Singhania et al. 2024, "Loki: Low-rank Keys for Efficient Sparse Attention" (arXiv
    2406.02542).
    """
    import torch

    values, notes = {}, {}
    prompt_sets = datasets(model, files, n, max_length, lab.seed)
    for at, (name, prompts) in enumerate(prompt_sets.items()):
        ranks = pooled_ranks(model, prompts, share)
        for site, rank in ranks.items():
            values.setdefault(site, []).append(rank)
        layers = {f"{s.stack} {s.layer}": float(x.mean()) for s, x in ranks.items()}
        notes[f"mean rank per layer, {name}"] = layers
        lab.progress("pooled_key_rank", at + 1, len(prompt_sets))
    return Trials({site: torch.stack(x) for site, x in values.items()}, notes=notes)


def datasets(model: Model, files: str, n: int, max_length: int, seed: int) -> dict[str, Prompts]:
    """Return prompts by the name of their data set: files of texts, or three generated sets."""
    import numpy as np

    from interp.core.prompts import Prompts, ordinary_ids, random_tokens

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
    import torch

    from interp.heads.geometry.projection_ranks import rank_at
    from interp.heads.outliers.passes import each_call

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
