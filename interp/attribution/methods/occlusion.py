"""Interventions on one token at a time: its removal, or zeros for its values."""

from __future__ import annotations

import torch
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.evaluation.removal import one_by_one, values_without
from interp.attribution.example import Example
from interp.core.errors import OptionError
from interp.model.calls.call import Call
from interp.model.calls.sites import Site


@attribution(unit="target", signed=True, needs="forward")
def occlusion(example: Example, *, how: str = "delete", batch_size: int = 16) -> Scores:
    """Measure the fall of the target when each token is removed, the reference for other methods.

    It is an intervention, so it measures the behaviour of the model on the changed input, which may
    be unusual. Two tokens with the same information hide each other's effect.

    Cost: One forward pass per token.

    Not for: inputs in which two tokens carry the same information: each hides the effect of the
    other. A text without one of its tokens may be unlike any training text; try another `how`.

    Args:
        example: the input and its target.
        how: delete, mask (the tokenizer's mask token), mean (the mean of the prompt's token
            embeddings), or the id of a token that replaces it.
        batch_size: variants per forward pass.

    Reference: Zeiler and Fergus 2014, "Visualizing and Understanding Convolutional Networks";
    Li et al. 2016, "Understanding Neural Networks through Representation Erasure".
    """
    gone = one_by_one(range(len(example)), len(example))
    changed = values_without(example, gone, how, batch_size)
    return Scores(example.value - changed, notes={"how": how})


@attribution(unit="share", signed=False, needs="forward", softmax_only=True)
def value_zeroing(
    example: Example, *, aggregate: str = "rollout", stack: str = "", batch_size: int = 16
) -> Scores:
    """Measure the cosine distance of each layer's output to that with one token's value at zero.

    The value is zero in all heads of that layer only; the layer's input and its attention pattern
    are those of the unchanged run. Rows are normalised to sum 1. It is a score of single layers,
    and combining them by rollout loses much of its information.

    Cost: One run for each layer, with as many variants as there are tokens.

    Not for: one score per token through all layers, which loses much information. Read it layer by
    layer.

    Args:
        example: the input and its target.
        aggregate: "rollout" without an added identity, "mean" of the layers, or "last".
        stack: name of the stack, if the model has several.
        batch_size: variants per forward pass.

    Reference: Mohebbi et al. 2023, "Quantifying Context Mixing in Transformers".
    """
    from interp.attribution.decomposition import one_stack, scored

    if batch_size < 1:
        raise OptionError(f"batch_size={batch_size} is too small; it must be at least 1")
    sites = one_stack(example, stack)
    clean = example.capture(("resid_post",), stack=sites[0].stack)
    mixings = [
        _mixing(example, s, clean["resid_post", s.layer, s.stack].double(), batch_size)
        for s in sites
    ]
    return scored(example, mixings, aggregate)


def _mixing(example: Example, site: Site, before: Tensor, batch_size: int) -> Tensor:
    """Compute the matrix `[query, source]` of one layer, before rows are normalised."""
    from interp.attribution.rules import mixed

    columns = []
    for low in range(0, len(example), batch_size):
        sources = torch.arange(low, min(low + batch_size, len(example)))

        def visit(at: Site, call: Call, real: Tensor, sources: Tensor = sources) -> None:
            if at != site:
                return
            v = call.v.clone()
            v[torch.arange(len(sources)), :, sources] = 0
            call.z = mixed(call, call.pattern(), v)

        inputs = {k: x.expand(len(sources), *x.shape[1:]) for k, x in example.inputs.items()}
        with example.model.visited(visit, stage="mix"):
            cache = example.model.capture(
                inputs, ("resid_post",), layers=site.layer, stack=site.stack
            )
        after = cache["resid_post", site.layer, site.stack].double()
        columns.append((1 - torch.cosine_similarity(after, before, dim=-1)).clamp_min(0))
    return torch.cat(columns).T
