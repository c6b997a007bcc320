"""Effects of single nodes and single paths, measured by forward passes with patched edges."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import torch

from interp.circuits.contrast_batch import BatchValue
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.methods._gradients import Value
from interp.circuits.steps import advance, step

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float
    from torch import Tensor

MOST_TOKENS = 4096  # most positions in one forward pass, over all copies of the batch


def effects_of_masks(
    edges: EdgeForward,
    value: Value,
    masks: Float[Tensor, "mask reader writer"],
    *,
    norm: str = "exact",
    denoise: bool = False,
) -> Float[Tensor, "mask batch"]:
    """Measure the effect of patching the edges at 0: v(all) - v(mask), negated for `denoise`.

    Either way a positive number says that the edges help. Masks that leave the first layers
    unchanged cost less: those layers are restored from the unpatched run.
    """
    base = value(edges.base.logits).double().cpu()
    if norm == "freeze":
        edges.hold_norms()  # counted once, whether the masks are run or read back
    batch, pos = (edges if edges.later is None else edges.later).base.out.shape[:2]
    most = max(1, MOST_TOKENS // (batch * pos))
    by_start: dict[int, list[int]] = defaultdict(list)
    orders = torch.tensor([r.order for r in edges.graph.readers])
    full = edges.graph.full()
    for i, mask in enumerate(masks):
        changed = (mask.to(full) < full).any(1)
        by_start[int(orders[changed].min()) if bool(changed.any()) else -1].append(i)
    effects = torch.zeros(len(masks), batch, dtype=torch.double)
    for start, rows in sorted(by_start.items()):
        if start < 0:
            continue  # nothing is patched
        for first in range(0, len(rows), most):
            some = rows[first : first + most]
            before = edges.forwards
            values = torch.from_numpy(
                step("masks", partial(_values, edges, value, masks[some], norm))
            )
            edges.forwards = before + len(some)  # also if they were read back
            effects[some] = values - base if denoise else base - values
            advance(len(some))
    return effects


def _values(
    edges: EdgeForward, value: Value, masks: Float[Tensor, "mask reader writer"], norm: str
) -> Float[np.ndarray, "mask batch"]:
    rows = edges.rows(masks, norm=norm) if isinstance(value, BatchValue) else None
    if rows is not None:
        values = value.of_rows(rows.flatten(0, 1), len(masks))
        return values.double().reshape(len(masks), -1).cpu().numpy()
    logits = edges.run(masks, norm=norm)
    return value(logits.flatten(0, 1)).double().reshape(len(masks), -1).cpu().numpy()


def path_effects(
    edges: EdgeForward,
    value: Value,
    paths: Sequence[tuple[str, str]],
    *,
    norm: str = "exact",
    denoise: bool = False,
) -> Float[Tensor, "path batch"]:
    """Measure the effect of each path alone: the edge into a reader, and all that follows."""
    effects = torch.zeros(len(paths), edges.base.out.shape[0], dtype=torch.double)
    full = edges.graph.full()
    for first in range(0, len(paths), 512):  # masks are as large as the graph
        some = paths[first : first + 512]
        masks = torch.stack([full - edges.graph.mask([path]) for path in some])
        effects[first : first + len(some)] = effects_of_masks(
            edges, value, masks, norm=norm, denoise=denoise
        )
    return effects


def node_effects(
    edges: EdgeForward, value: Value, nodes: Sequence[str], *, denoise: bool = False
) -> Float[Tensor, "node batch"]:
    """Measure the effect of each node: all edges that leave it carry the other run's value."""
    full = edges.graph.full()
    masks = []
    for name in nodes:
        mask = full.clone()
        mask[:, edges.graph.writer(name)] = 0
        masks.append(mask)
    return effects_of_masks(edges, value, torch.stack(masks), denoise=denoise)
