"""Attention between sentences, streamed, and the vertical scores of sentences.

The pattern of queries by keys is never stored: every layer is computed in blocks of rows, each
summed over the tokens of each pair of sentences, so memory grows with the length of the chain and,
for one layer at a time, with the square of the number of sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from jaxtyping import Float

from interp.cache.windows import cached_sites
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.model.calls.call import Call, ComputedCall
from interp.model.calls.sites import Site
from interp.model.model import Model
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain

BLOCK = 2**21
"""Scores of a block of rows."""
APART = 4
"""Sentences between a sentence and the first that counts, in the published analysis of heads."""

SentencePairs = Float[np.ndarray, "head later earlier"]


def visit_sentence_attention(
    model: Model, chain: Chain, use: Callable[[Site, SentencePairs], None], *, beyond: bool = False
) -> None:
    """Compute the mean attention of every pair of sentences, one layer at a time."""
    chain.fits(model, beyond=beyond)
    sites = frozenset(cached_sites(model))
    sizes = np.array([b - a for a, b in chain.spans], dtype=np.float32)

    def visit(site: Site, call: Call, real: torch.Tensor) -> None:
        if site in sites:
            model.require_finite(call, site)
            total = pair_sums(call, chain.labels, len(chain))
            total /= sizes[:, None]
            total /= sizes[None, :]
            use(site, total)

    model.read(Prompts((chain.ids,), "chain"), visit, last=1, streamed=True)


def pair_sums(call: Call, labels: np.ndarray, n: int) -> SentencePairs:
    """Sum the attention of one prompt over the queries of one sentence and the keys of another."""
    heads, queries = call.z.shape[1:3]
    sums = np.zeros((heads, n, n), dtype=np.float32)
    changes = np.flatnonzero(np.diff(labels, prepend=labels[:1] - 1))
    size = max(1, BLOCK // (heads * queries))
    for start in range(0, queries, size):
        end = min(start + size, queries)
        rows = torch.arange(start, end, device=call.z.device)
        part = first_keys(call, end)
        pattern = part.pattern(rows)[0, :, :, :end].cpu().numpy()
        keys = changes[changes < end]
        mass = np.add.reduceat(pattern, keys, axis=2)
        inside = np.unique([start, *changes[(changes > start) & (changes < end)]]) - start
        total = np.add.reduceat(mass, inside, axis=1)
        later, earlier = labels[inside + start], labels[keys]
        block = np.ix_(np.arange(heads), later[later >= 0], earlier[earlier >= 0])
        sums[block] += total[:, later >= 0][:, :, earlier >= 0]
    return sums


def first_keys(call: Call, end: int) -> Call:
    """Return a computed call with its first keys only, and any other as it is.

    Masks and biases are cut where they are read.
    """
    if not isinstance(call, ComputedCall):
        return call
    return replace(call, k=call.k[:, :, :end], v=call.v[:, :, :end])


@takes_model
def sentence_attention(
    model: Model, chain: Chain, heads: Sequence[Head] | None = None, *, beyond: bool = False
) -> Float[np.ndarray, "later earlier"]:
    """Compute the mean attention from the tokens of each sentence to the tokens of each other.

    Averaged over heads. A row is the later sentence, a column the earlier one; the last token of a
    chain counts (the published code drops it).

    Args:
        model: the model.
        chain: the text.
        heads: the heads to average; all by default.
        beyond: allow more tokens than the config states.

    Raises:
        PromptError: the chain does not fit the model.
        OptionError: a head does not exist, or the model has no causal attention over tokens.

    Unit: attention weight per pair of tokens.

    Cost: One forward pass.

    Not for: what a sentence depends on: attention to it is not use of it; see
    `suppression_effects`.

    Null: none; compare with the other sentences.

    Reference: Bogdan et al. 2025, "Thought Anchors: Which LLM Reasoning Steps Matter?".
    """
    chosen: dict[tuple[str, int], list[int]] = {}
    for site in cached_sites(model):
        mine = [
            h.head for h in heads or () if h.layer == site.layer and h.stack in (None, site.stack)
        ]
        chosen[site.stack, site.layer] = list(range(site.n_heads)) if heads is None else mine
        if mine and max(mine) >= site.n_heads:
            raise OptionError(f"{model.name} has {site.n_heads} heads in layer {site.layer}")
    number = sum(map(len, chosen.values()))
    if heads is not None and (number < len(heads) or not heads):
        raise OptionError(f"of {len(heads)} heads {model.name} has {number}; name existing ones")
    total = np.zeros((len(chain), len(chain)))

    def use(site: Site, pairs: SentencePairs) -> None:
        nonlocal total
        total += pairs[chosen[site.stack, site.layer]].sum(0)

    visit_sentence_attention(model, chain, use, beyond=beyond)
    return total / number


def vertical_scores(
    pairs: Float[np.ndarray, "*head later earlier"], apart: int = APART
) -> Float[np.ndarray, "*head earlier"]:
    """Average the attention to each sentence over all sentences at least `apart` later.

    The last `apart` sentences are NaN: no sentence is that far behind them.

    Reference: Bogdan et al. 2025, "Thought Anchors"; the published analysis of heads uses 4.
    """
    n = pairs.shape[-1]
    if apart < 1:
        raise OptionError(f"apart={apart}: a sentence is at least 1 before a later one")
    if n < apart + 2:
        raise PromptError(
            f"{n} sentences, and scores count those at least {apart} later; give at least "
            f"{apart + 2}, or a smaller apart"
        )
    at = np.arange(n)
    far = at[:, None] - at[None, :] >= apart
    counts = far.sum(0)
    total = np.einsum("...ij,ij->...j", pairs, far, dtype=np.float64)
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
