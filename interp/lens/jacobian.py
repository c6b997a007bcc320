"""Mean Jacobian of the last stream by the outputs of heads, along some directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import NonFiniteError
from interp.core.prompts import Prompts
from interp.core.protocols import Progress, silent
from interp.lens.finish import predicting_stack
from interp.model.hooks.inference import inference
from interp.model.layer_tensors import watched_places
from interp.model.locate.stream_layers import stream_layers

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site
    from interp.model.model import Model


def jacobian_directions(
    model: Model,
    ids: Sequence[Sequence[int]],
    directions: Float[Tensor, "n d_model"],
    *,
    progress: Progress = silent,
) -> dict[Site, Float[Tensor, "n head d_v"]]:
    """Pull directions of the last stream back to every head's output, through the mean Jacobian.

    The Jacobian is that of the sum of the last stream over the output's own and all later positions
    by the output at one position, averaged over positions and prompts. It holds what the head adds
    to the stream directly and what all later layers make of it on average; for a head of the last
    layer of a model without MLPs it is the output matrix alone.
    """
    stack = predicting_stack(model)
    sites = [s for s in model.sites if s.stack == stack]
    last = stream_layers(model, stack)[-1]
    total = {s: torch.zeros(len(directions), s.n_heads, s.d_v).double() for s in sites}
    positions, done = 0, 0
    for batch in Prompts(tuple(map(tuple, ids))).batches(8, padded=False):
        added: dict[Site, Tensor] = {}
        final: list[Tensor] = []

        def visit(site: Site, call: Call, real: Tensor, added: dict[Site, Tensor] = added) -> None:
            if site in total:
                added[site] = torch.zeros_like(call.z, requires_grad=True)
                call.z = call.z + added[site]

        def see(x: Tensor, final: list[Tensor] = final) -> None:
            final[:] = [x]

        watched = watched_places(model, last, {"resid_post": see})
        with torch.enable_grad(), inference(model.module), model.visited(visit), watched:
            model.run(batch)
        summed = final[0].sum((0, 1))
        for i, direction in enumerate(directions):
            value = summed @ direction.to(summed)
            gradients = torch.autograd.grad(
                value, [added[s] for s in sites], retain_graph=i + 1 < len(directions)
            )
            for site, g in zip(sites, gradients, strict=True):
                if not bool(torch.isfinite(g).all()):
                    raise NonFiniteError(
                        f"{model.name}: a derivative of the last stream by the heads of "
                        f"{site.name} is NaN or infinite; try float32"
                    )
                total[site][i] += g.double().sum((0, 2)).cpu()
        positions += final[0].shape[0] * final[0].shape[1]
        done += len(batch)
        progress("jacobian", done, len(ids))
    return {site: x / positions for site, x in total.items()}
