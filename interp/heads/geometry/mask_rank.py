"""Rank of what heads write at real tokens beside mask or padding tokens."""

from interp.heads.declaration import experiment
from interp.heads.trials import Trials


@experiment(
    unit="directions",
    requires=("tokens",),
    chance="value of the null: the same with an ordinary token",
    end="both",
    task="none: the effect of a mask token on ranks is not a behaviour",
)
def mask_rank(
    model,
    lab,
    *,
    n: int = 16,
    max_length: int = 48,
    share: float = 0.15,
    token: str = "auto",
    variance: float = 0.9,
):
    """Rank of a head's outputs at real tokens if others are [MASK], minus if none is.

    The number of principal directions with 90 % of the variance of z at the same positions, in
    prompts in which 15 % of the other tokens are replaced and in the same prompts as they were.
    Below 0 where the presence of mask tokens leaves fewer directions to the real ones. The null
    replaces the same tokens by one ordinary token. Padding that the attention mask hides changes
    nothing; token=pad measures padding that is seen.

    Not for: models without a mask or padding token, where an ordinary token stands in and the
    difference from the null means nothing (the result says so).

    Options:
        n: number of prompts of random tokens.
        max_length: tokens per prompt.
        share: share of the tokens that are replaced.
        token: mask, pad, a token id, or auto: the mask token, else the padding token.
        variance: share of the variance that counts as the rank.

    Reference: Meng et al. 2024, "Representation Deficiency in Masked Language Modeling" (arXiv
    2302.02060; there the rank of whole layers' representations).
    """
    import torch

    from interp.core.prompts import random_tokens
    from interp.heads.geometry._replaced import ordinary, rank_at_real, replacing, standing_in

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    places = replacing(len(prompts.ids[0]), share, lab.seed)
    used, what = standing_in(model, token, prompts)
    before = rank_at_real(model, prompts, places, None, variance)
    after = rank_at_real(model, prompts, places, used, variance)
    plain = rank_at_real(model, prompts, places, ordinary(model, prompts, used), variance)
    lab.progress("mask_rank", n, n)
    changed = {site: after[site] - before[site] for site in before}
    null: dict[object, torch.Tensor] = {site: plain[site] - before[site] for site in before}
    return Trials(
        changed,
        null,  # type: ignore[arg-type]
        "an ordinary token in the same places",
        {"token": what, "replaced": len(places)},
        headline="" if what in ("mask", "pad") or token not in ("auto",) else f"token: {what}",
    )
