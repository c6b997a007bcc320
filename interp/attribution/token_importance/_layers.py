"""Inputs of published token measures from each layer: received attention, keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.graph.mixing import stored_layers
from interp.attribution.graph.streamed_patterns import is_streamed, received
from interp.core.errors import OptionError, UnreadableAttention

if TYPE_CHECKING:
    from interp.attribution.example import Example
    from interp.model.calls.sites import Site


def token_sites(example: Example, stack: str) -> list[Site]:
    """Return the layers of one stack whose queries and keys are the tokens of the input."""
    sites = example.sites(stack or None)
    one = sites[0].stack
    if one == "cross" or (one == "decoder" and "cross" in example.model.stacks):
        raise OptionError(
            f"stack {one!r} of an encoder-decoder does not attend from and to the input's tokens: "
            "its attention is not a score of these tokens; use stack='encoder'"
        )
    return sites


def received_by_layer(
    example: Example, stack: str
) -> list[tuple[Site, Float[Tensor, "head token"]]]:
    """Return the attention that each token receives from all queries, per layer and head."""
    sites = token_sites(example, stack)
    if is_streamed(example, stack):
        return list(zip(sites, received(example, stack), strict=True))
    patterns = stored_layers(example, stack)[1]
    return [(site, p.double().sum(1).cpu()) for site, p in zip(sites, patterns, strict=True)]


def queries_that_see(site: Site, tokens: int) -> Float[Tensor, " token"]:
    """Count the queries that see each token: all, or the later ones and itself if causal."""
    if not site.causal:
        return torch.full((tokens,), float(tokens), dtype=torch.double)
    return torch.arange(tokens, 0, -1, dtype=torch.double)


def reformulated_keys(
    example: Example, stack: str
) -> list[tuple[Site, Float[Tensor, "head token d_model"]]]:
    """Return the keys as TRAMS reads them: mapped through the query matrix to the stream's width.

    The score of a query and a key is the product of the query's input and this vector. Keys are
    taken before rotary embedding.
    """
    from interp.model.calls.call import repeat_kv
    from interp.model.locate.turning import turns

    sites = token_sites(example, stack)
    if len(example.model.stacks) > 1:
        raise OptionError(
            f"{example.model.name} has stacks {', '.join(example.model.stacks)}; TRAMS is defined "
            "for a single stack of tokens"
        )
    for site in sites:
        if not site.has_qk:
            raise UnreadableAttention(f"{site.name} has no keys that alone give its scores")
    turned = turns(example.model, example.inputs)
    held = example.capture(("k",), stack=sites[0].stack)
    keys_of_layers = []
    for site in sites:
        keys = held["k", site.layer, site.stack].double()
        turn = turned.get((site, "k"))
        if turn is not None:
            back = torch.linalg.inv(turn.double().to(keys))
            whole = "ptd,tde->pte" if len(back) == 1 else "ptd,ptde->pte"
            keys = torch.einsum(whole, keys[0], back[0] if len(back) == 1 else back)[None]
        query = example.model.weights_of(site).W_Q.double().to(keys)
        keys_of_layers.append((site, repeat_kv(keys, site.n_heads)[0] @ query.transpose(-1, -2)))
    return keys_of_layers
