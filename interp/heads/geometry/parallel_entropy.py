"""Entropy of attention over contexts that were encoded apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.heads.declaration import experiment
from interp.heads.trials import Trials

if TYPE_CHECKING:
    from jaxtyping import Bool, Float
    from torch import Tensor

    from interp.core.prompts import Prompts
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model


@experiment(
    unit="nats",
    requires=("tokens", "causal"),
    chance="0 in the first layer, and for heads that do not read what the context wrote",
    end="both",
    task="none: the entropy of attention over parallel contexts decides no answer",
)
def parallel_entropy(
    model,
    lab,
    *,
    n: int = 16,
    max_length: int = 48,
    pieces: int = 4,
    queries: int = 8,
    shared: int = 0,
):
    """Entropy of the last queries' attention if the context is encoded in pieces, minus if whole.

    All tokens but the last few are cut into pieces, and each piece attends to itself only, in every
    layer; the last queries see everything, as in parallel context encoding. Positions stay those of
    the whole prompt. Above 0 where attention gets more diffuse over contexts that were encoded
    apart. Random tokens, unless the notes say otherwise.

    Not for: the cost of reused positions, which parallel encoding may also have.

    Options:
        n: number of prompts of random tokens.
        max_length: tokens per prompt.
        pieces: number of pieces of the context; 1 gives 0 everywhere.
        queries: number of last tokens, which see every piece.
        shared: number of first tokens that all pieces see (a shared sink, the paper's remedy).

    Reference: Zhang et al. 2025, "Attention Entropy is a Key Factor: An Analysis of Parallel
    Context Encoding with Full-attention-based Pre-trained Language Models" (arXiv 2412.16545).
    """
    from interp.core.prompts import random_tokens

    prompts = random_tokens(model, n=n, max_length=max_length, seed=lab.seed)
    apart = entropies(model, prompts, pieces, queries, shared)
    whole = entropies(model, prompts, 1, queries, shared)
    lab.progress("parallel_entropy", n, n)
    return Trials(
        {site: apart[site] - whole[site] for site in apart},
        notes={"pieces": pieces, "queries": queries, "shared first tokens": shared},
    )


def entropies(
    model: Model, prompts: Prompts, pieces: int, queries: int, shared: int
) -> dict[Site, Float[Tensor, "prompt head"]]:
    """Return the entropy of the last queries' attention, in nats, with the context in pieces."""
    import torch

    from interp.attribution.evaluation.hiding import pattern_without
    from interp.heads.outliers.passes import each_call

    length = min(len(ids) for ids in prompts.ids)
    if pieces < 1 or queries < 1 or shared < 0 or length - queries < pieces:
        raise OptionError(
            f"pieces={pieces}, queries={queries}, shared={shared} do not fit into prompts of "
            f"{length} tokens: each piece and the queries need at least one token"
        )

    def measure(site: Site, call: Call, engine: str) -> tuple[Tensor, ...]:
        tokens = call.z.shape[2]
        rows = call.pattern(slice(tokens - queries, tokens)).double()
        entropy = torch.special.entr(rows.clamp_min(0)).sum(-1).mean(-1)
        if pieces > 1:
            apart = in_other_piece(tokens, pieces, queries, shared).to(call.z.device)
            call.z = call.mix(pattern_without(call, site, apart[None, None])).to(call.z.dtype)
        return (entropy,)

    return {site: x[0] for site, x in each_call(model, prompts, measure, engine="stored").items()}


def in_other_piece(
    tokens: int, pieces: int, queries: int, shared: int
) -> Bool[Tensor, "query key"]:
    """Return the pairs of context tokens in different pieces, without keys that all may see."""
    import torch

    context = tokens - queries
    at = torch.arange(tokens)
    piece = at * pieces // context
    apart = piece[:, None] != piece[None]
    inside = (at[:, None] < context) & (at[None] < context)
    return apart & inside & (at[None] >= shared)
