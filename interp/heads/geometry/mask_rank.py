"""Rank of what heads write at real tokens beside mask or padding tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.errors import OptionError
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


def replacing(tokens: int, share: float, seed: int) -> list[int]:
    """Return the places that are replaced, never the first."""
    import numpy as np

    number = round(share * tokens)
    if not 1 <= number <= tokens - 3:
        raise OptionError(
            f"share={share} replaces {number} of {tokens} tokens; at least one must be "
            "replaced and three must stay"
        )
    chosen = np.random.default_rng([seed, 3]).choice(np.arange(1, tokens), number, replace=False)
    return sorted(chosen.tolist())


def standing_in(model: Model, token: str, prompts: Prompts) -> tuple[int, str]:
    """Return the id of the token that replaces others, and what it is."""
    if token.isdecimal():
        if int(token) >= model.d_vocab:
            raise OptionError(f"token={token} lies outside the vocabulary of {model.d_vocab} ids")
        return int(token), f"id {token}"
    known = {
        "mask": getattr(model.tokenizer, "mask_token_id", None),
        "pad": getattr(model.tokenizer, "pad_token_id", None),
    }
    if known["pad"] is None:
        known["pad"] = getattr(model.config, "pad_token_id", None)
    if token == "auto":
        for name, token_id in known.items():
            if token_id is not None and 0 <= token_id < model.d_vocab:
                return int(token_id), name
        return ordinary(
            model, prompts, None
        ), "an ordinary token: there is no mask or padding token"
    if token not in known:
        raise OptionError(f"unknown token={token!r}; known: auto, mask, pad, or a token id")
    token_id = known[token]
    if token_id is None:
        raise OptionError(f"{model.name} has no {token} token; give token=auto or a token id")
    return int(token_id), token


def ordinary(model: Model, prompts: Prompts, other: int | None) -> int:
    """Return an ordinary token, rare in the prompts, that is not the other one."""
    import numpy as np

    from interp.core.prompts import ordinary_ids

    counts = np.bincount(np.concatenate([np.array(ids) for ids in prompts.ids]))
    ids = [int(i) for i in ordinary_ids(model) if i != other]
    return min(ids, key=lambda i: counts[i] if i < len(counts) else 0)


def rank_at_real(
    model: Model, prompts: Prompts, places: list[int], token: int | None, variance: float
) -> dict[Site, Float[Tensor, "prompt head"]]:
    """Return the rank of z at the places that are not replaced.

    Layers whose queries are not the tokens of the prompts are left out.
    """
    import torch

    from interp.core.prompts import Prompts
    from interp.heads.geometry.projection_ranks import centred_rank
    from interp.heads.outliers.passes import each_call

    rows = [list(ids) for ids in prompts.ids]
    if token is not None:
        for row in rows:
            for place in places:
                row[place] = token
    replaced = Prompts(tuple(tuple(row) for row in rows))
    real = [i for i in range(len(rows[0])) if i not in set(places)]

    def measure(site: Site, call: Call, engine: str) -> tuple[Tensor, ...] | None:
        if call.z.shape[2] != len(rows[0]):
            return None
        return (centred_rank(call.z[:, :, torch.tensor(real)].double(), variance),)

    return {site: x[0] for site, x in each_call(model, replaced, measure).items()}
