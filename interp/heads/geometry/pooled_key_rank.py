"""Rank of keys pooled over the prompts of several data sets."""

from interp.heads.declaration import experiment
from interp.heads.trials import Trials


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

    from interp.heads.geometry._pooled import datasets, pooled_ranks

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
