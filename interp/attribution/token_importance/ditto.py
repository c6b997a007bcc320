"""Ditto: the attention of a token to itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.evaluation.removal import default_removal, one_by_one, values_without
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers
from interp.core.errors import OptionError
from interp.core.rank_statistics import spearman

if TYPE_CHECKING:
    from interp.model.calls.sites import Site


@attribution(unit="attention mass", signed=False, needs="patterns")
def ditto(example: Example, *, head: str = "", stack: str = "") -> Scores:
    """Attention that a token gives to itself: the diagonal of the pattern, of one chosen head.

    The paper weights words by the diagonal of one head, chosen once for a model. Without a head,
    the mean over all heads and layers. `interp attribute tokens --set n_selection` chooses the head
    on some texts and judges it on the others. Under a causal mask the first token's diagonal is 1
    for every head, and diagonals fall with the position: the paper is about bidirectional encoders.

    Not for: causal models, where the diagonal mostly tells the position; explaining a target.

    Args:
        example: the input and its target.
        head: a head such as L0H9; empty for the mean over all.
        stack: name of the stack, if the model has several.

    Reference: Chen et al. 2023, "Ditto: A Simple and Efficient Approach to Improve Sentence
    Embeddings" (arXiv 2305.10786).
    """
    from interp.core.head import Head

    by_site = diagonals(example, stack)
    if not head:
        return Scores(torch.cat([*by_site.values()]).mean(0).numpy())
    wanted = Head.parse(head)
    for site, rows in by_site.items():
        if site.layer == wanted.layer and wanted.head < len(rows):
            return Scores(rows[wanted.head].numpy())
    raise OptionError(
        f"head={head!r} does not exist; {example.model.name} has layers 0 to {len(by_site) - 1} "
        f"with {len(next(iter(by_site.values())))} heads"
    )


def diagonals(example: Example, stack: str) -> dict[Site, Float[Tensor, "head token"]]:
    """Return the attention of every token to itself, per layer and head."""
    from interp.attribution.graph.streamed_patterns import is_streamed, streamed
    from interp.attribution.token_importance._layers import token_sites
    from interp_kernels.reductions import Mass

    sites = token_sites(example, stack)
    if not is_streamed(example, stack):
        patterns = stored_layers(example, stack)[1]
        rows = [p.double().diagonal(dim1=-2, dim2=-1).cpu() for p in patterns]
        return dict(zip(sites, rows, strict=True))
    diagonal = Mass("own", lambda query, key, tokens=None: query == key)
    rows = streamed(
        example,
        stack,
        lambda device: [diagonal],
        lambda site, call, values: values["own"][0].double().cpu(),
    )
    return dict(zip(sites, rows, strict=True))


def best_diagonal(examples: Sequence[Example], how: str = "", stack: str = "") -> str:
    """Choose the head whose diagonal ranks tokens most like the effect of removing them.

    The mean rank correlation over the examples decides. Judge the head on other texts.
    """
    if not examples:
        raise OptionError("no texts to choose a head from; give at least one")
    sums: dict[str, list[float]] = {}
    for example in examples:
        where = np.flatnonzero(~example.special)
        gone = one_by_one(where.tolist(), len(example))
        removed = values_without(example, gone, how or default_removal(example))
        effect = np.abs(example.value - removed)
        for site, rows in diagonals(example, stack).items():
            for head, row in enumerate(rows.numpy()):
                correlation = float(spearman(np.stack([row[where], effect]))[0, 1])
                sums.setdefault(f"L{site.layer}H{head}", []).append(correlation)
    means = {head: float(np.mean(x)) for head, x in sums.items() if not np.isnan(x).any()}
    if not means:
        raise OptionError("no head has a rank correlation on these texts; give longer texts")
    return max(means, key=lambda head: means[head])
