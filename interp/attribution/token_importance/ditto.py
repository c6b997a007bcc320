"""Ditto: the attention of a token to itself."""

from __future__ import annotations

import torch

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError


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
    from interp.attribution.token_importance._diagonal import diagonals
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
