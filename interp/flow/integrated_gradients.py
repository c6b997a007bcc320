"""Gradients along the way from a baseline."""

from __future__ import annotations

import torch

from interp.attribution.declare import Scores, attribution
from interp.attribution.example import Example
from interp.errors import OptionError


@attribution(unit="target", signed=True, needs="gradients")
def integrated_gradients(
    example: Example, *, baseline: str = "pad", steps: int = 32, batch_size: int = 8
) -> Scores:
    """Mean gradient on the straight way from a baseline to the embeddings, times the difference.

    The total is the target's value less its value on the baseline; the scores reach it as the
    number of steps grows, and the residual says how far they are. Every token is replaced, the
    special ones too; positions stay. Gradients are the model's own at the midpoints of the steps.
    From "zero" in a model with RMS norms and no positions the way starts where the model jumps, and
    the residual stays large: take "mean" there.

    Args:
        baseline: "pad" or "mask" (the tokenizer's token), "zero", or "mean" (of the vocabulary).
        steps: forward and backward passes.
        batch_size: how many steps run at once.

    Reference: Sundararajan et al. 2017, "Axiomatic Attribution for Deep Networks".
    """
    from interp.attribution.gradients import gradient

    if steps < 1 or batch_size < 1:
        raise OptionError(f"steps={steps}, batch_size={batch_size}; both are at least 1")
    start = _baseline(example, baseline)
    first = gradient(example, at=start)
    end = gradient(example)
    way = end.embeddings - start.to(end.embeddings)
    mean = torch.zeros_like(way)
    for low in range(0, steps, batch_size):
        at = torch.arange(low, min(low + batch_size, steps), device=way.device).to(way) + 0.5
        mean = mean + gradient(example, at=start + at[:, None, None] / steps * way).gradients.sum(
            0, keepdim=True
        )
    scores = (mean.double() * way.double()).sum(-1)[0] / steps
    value, before = float(end.values[0]), float(first.values[0])
    notes = {
        "completeness": "as steps grow; the residual is the error of the sum",
        "baseline_value": before,
    }
    return Scores(scores.cpu().numpy(), total=value - before, notes=notes)


def _baseline(example: Example, kind: str) -> torch.Tensor:
    """Embeddings of the baseline, as many as the sources.

    Raises:
        OptionError: an unknown kind, or a token that the model does not have.
    """
    from interp.attribution.gradients import embedded

    model, n = example.model, len(example)
    if kind in ("zero", "mean"):
        every = embedded(model, torch.arange(model.d_vocab, device=model.device)[None])
        return (every.mean(1, keepdim=True) * (kind == "mean")).expand(1, n, -1)
    if kind not in ("pad", "mask"):
        raise OptionError(f"baseline {kind!r}; known: pad, mask, zero, mean")
    token = getattr(model.tokenizer, f"{kind}_token_id", None)
    if token is None:
        token = getattr(model.config, f"{kind}_token_id", None)
    if token is None:
        raise OptionError(f"{model.name} has no {kind} token; take baseline=zero or mean")
    return embedded(model, torch.full((1, n), int(token), device=model.device))
