"""Seeds of a trace: the heads that act on the task, and their effects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from interp.causal.gate_derivatives import frozen
from interp.circuits.linear_scores import LinearScores
from interp.circuits.stream_hooks import replace_first
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.interrupts import held
from interp.model.calls.call import precise
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.locate.find_sites import first_tensor

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from jaxtyping import Float
    from torch import Tensor, nn

    from interp.circuits.contrast_batch import ContrastBatch
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model

Place = tuple[str, int]  # a head and the position where it writes


def seeds(
    model: Model,
    batch: ContrastBatch,
    value: Any,
    scores: LinearScores,
    reach: float,
    only: set[str],
) -> tuple[list[dict[Place, float]], bool]:
    """Find, by prompt, the heads and positions with the largest effects, and their shares of these.

    The effect is direct: the task's gradient by the last stream, times the difference of the head's
    output there between the clean and the corrupted prompt. If no head (of those named) has a
    direct effect, for example because MLPs read everything that heads write, the gradient by the
    head's output through all later components is used; the second result is False then. The
    smallest set that holds `reach` of all positive effects is taken.
    """
    other = LinearScores(model, batch.corrupted, turned=scores.turns)
    heads = [i for i, n in enumerate(scores.writers) if n in only or (not only and n[0] == "L")]
    slope = _slope_at_end(model, batch, value)
    effect = torch.einsum("bpwm,bpm->bpw", scores.written - other.written, slope)
    shares = _largest(effect.double().cpu().numpy(), scores, heads, reach)
    if any(shares):
        return shares, True
    effect = _through_all(model, batch, value, scores, other)
    shares = _largest(effect.double().cpu().numpy(), scores, heads, reach)
    if any(shares):
        return shares, False
    raise OptionError(
        f"{model.name}: none of {', '.join(sorted(only)) or 'its heads'} acts on the task, directly"
        " or through what follows, so there is nowhere to start; give other seeds"
    )


def _largest(
    effect: Float[np.ndarray, "batch pos writer"],
    scores: LinearScores,
    heads: list[int],
    reach: float,
) -> list[dict[Place, float]]:
    shares = []
    for row in effect:
        helping = [(row[p, i], i, p) for p in range(len(row)) for i in heads if row[p, i] > 0]
        helping.sort(key=lambda x: (-x[0], x[1], x[2]))
        whole, kept = sum(x for x, _, _ in helping), {}
        so_far = 0.0
        for x, i, p in helping:
            if so_far >= reach * whole:
                break
            so_far += x
            kept[scores.writers[i], p] = x
        shares.append({place: float(x / so_far) for place, x in kept.items()})
    return shares


@held()
def _slope_at_end(
    model: Model, batch: ContrastBatch, value: Callable[[Tensor], Tensor]
) -> Float[Tensor, "batch pos d_model"]:
    """Compute the gradient of the task by the stream that leaves the last block."""
    kept: list[Tensor] = []

    def hook(module: nn.Module, args: tuple, output: Any) -> Any:
        x = first_tensor(output)
        assert x is not None
        kept.append(x.detach().clone().requires_grad_(True))
        return replace_first(output, x, kept[-1])

    where = model.sites[-1].streams.get("resid_post")
    if where is None:
        raise UnreadableAttention(
            f"{model.name}: the stream that leaves its last block was not found, so there are no "
            "direct effects; use another method"
        )
    handle = model.module.get_submodule(where.module).register_forward_hook(in_this_thread(hook))
    try:
        with torch.enable_grad(), frozen(model.module), inference(model.module):
            logits = model.run(model.inputs(batch.clean))
            (slope,) = torch.autograd.grad(value(logits).sum(), kept[-1])
    finally:
        handle.remove()
    return precise(slope)


def _through_all(
    model: Model,
    batch: ContrastBatch,
    value: Callable[[Tensor], Tensor],
    scores: LinearScores,
    other: LinearScores,
) -> Float[Tensor, "batch pos writer"]:
    """Estimate first-order effects of head outputs on everything that reads them; 0 for others."""
    kept: dict[Site, Tensor] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        # added, not replaced, so that earlier heads keep their gradients
        kept[site] = torch.zeros_like(call.z).requires_grad_(True)
        call.z = call.z + kept[site]

    with torch.enable_grad(), frozen(model.module), inference(model.module):
        with model.visited(visit):
            logits = model.run(model.inputs(batch.clean))
        slopes = torch.autograd.grad(value(logits).sum(), list(kept.values()), allow_unused=True)
    effects = torch.zeros_like(scores.written[..., 0])
    for site, slope in zip(kept, slopes, strict=True):
        if slope is not None:
            delta = scores.cache["z", site.layer] - other.cache["z", site.layer]
            first = scores.index[f"L{site.layer}H0"]
            effect = (precise(delta) * precise(slope)).sum(-1)
            effects[..., first : first + site.n_heads] = effect.transpose(1, 2)
    return effects
