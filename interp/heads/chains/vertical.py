"""Attention between sentences, streamed, and the vertical scores of sentences.

The pattern of queries by keys is never stored: every layer is summed over the tokens of each pair
of sentences while it is computed, so memory grows with the length of the chain and the square of
the number of sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float

from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.heads.chains.chain import Chain
from interp.heads.engine import attention_statistics_of
from interp.heads.kv_cache.windows import cached_sites
from interp.model.given import takes_model
from interp.model.hooks.calls import Call
from interp.model.hooks.kernel_call import to_attention
from interp.model.locate.sites import Site
from interp.model.model import Model
from interp_kernels.reductions import SegmentToSegment

APART = 4
"""Sentences between a sentence and the first that counts, in the published analysis of heads."""

SentencePairs = Float[np.ndarray, "head later earlier"]


def read_sentence_pairs(
    model: Model, chain: Chain, use: Callable[[Site, SentencePairs], None], *, beyond: bool = False
) -> None:
    """Compute the mean attention of every pair of sentences, one layer at a time.

    Args:
        model: the model.
        chain: the text.
        use: function called with each attention site and its `[head, later, earlier]` means over
            the tokens of both sentences.
        beyond: allow more tokens than the config states.

    Raises:
        PromptError: the chain does not fit the model.
        OptionError: the model has no causal attention over tokens.
    """
    chain.fits(model, beyond=beyond)
    sites = frozenset(cached_sites(model))
    labels = torch.as_tensor(chain.labels)[None]
    sizes = np.array([b - a for a, b in chain.spans], dtype=np.float64)
    n = len(chain)

    def visit(site: Site, call: Call, real: torch.Tensor) -> None:
        if site not in sites:
            return
        model.require_finite(call, site)
        at = labels.to(call.z.device)
        asked = SegmentToSegment(at, at, n, n)
        attention = to_attention(call, real, None)
        total = attention_statistics_of(call, attention, [asked], "streamed")[asked.name]
        use(site, total[0].double().cpu().numpy() / (sizes[:, None] * sizes[None, :]))

    model.read(Prompts((chain.ids,), "chain"), visit, last=1, streamed=True)


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

    read_sentence_pairs(model, chain, use, beyond=beyond)
    return total / number


def vertical_scores(
    pairs: Float[np.ndarray, "*head later earlier"], apart: int = APART
) -> Float[np.ndarray, "*head earlier"]:
    """Average the attention to each sentence over all sentences at least `apart` later.

    The last `apart` sentences are NaN: no sentence is that far behind them.

    Raises:
        PromptError: there are not enough sentences.

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
    total = (pairs * far).sum(-2)
    return np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
