"""Forward pass whose edges carry a mixture of two runs, differentiable by the mixture.

    soft = SoftEdges(EdgeForward(graph, clean, corrupted))
    logits = soft.run(mask)          # mask [reader, writer] with requires_grad

Every reader (queries, keys and values of each head, each MLP, the logits) reads the sum over
writers of mask * (what the writer writes in this run) + (1 - mask) * (what it wrote in the
corrupted run). As in `EdgeForward`, the model's own modules compute everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from interp.causal.gate_derivatives import frozen
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.edge_run import EdgeRun, ReaderGroup
from interp.core.errors import OptionError
from interp.model.hooks.inference import inference

if TYPE_CHECKING:
    from jaxtyping import Float


class SoftEdges:
    """Differentiable counterpart of `EdgeForward`, for one batch.

    Args:
        edges: The pair of runs.

    Attributes:
        forwards: Number of forward passes over the batch.
    """

    def __init__(self, edges: EdgeForward) -> None:
        self.edges, self.graph, self.forwards = edges, edges.graph, 0

    def run(self, mask: Float[Tensor, "reader writer"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits under a mask, with their gradient by it."""
        model, shape = self.graph.model, (len(self.graph.readers), len(self.graph.writers))
        if tuple(mask.shape) != shape:
            raise OptionError(
                f"an edge mask of shape {tuple(mask.shape)}; expected [reader, writer] = {shape}"
            )
        run = _SoftRun(self.edges, mask.to(self.edges.base.out)[None], {})
        with torch.enable_grad(), frozen(model.module), inference(model.module), run.hooked():
            logits = model.run(self.edges.inputs)
        self.forwards += 1
        return logits


class _SoftRun(EdgeRun):
    """Forward pass in which every reader has its own input."""

    def _groups(self) -> dict[int, list[ReaderGroup]]:
        by_order: dict[int, list[ReaderGroup]] = {}
        for i, reader in enumerate(self.graph.readers):
            group = ReaderGroup(self.mask[:, i, : reader.n_before], [reader])
            by_order.setdefault(reader.order, []).append(group)
        return by_order

    def _inputs(
        self, groups: list[ReaderGroup], live: Tensor
    ) -> Iterator[tuple[ReaderGroup, Float[Tensor, "batch pos d_model"]]]:
        """Yield the input of each group, with its gradient by the mask."""
        if not groups:
            return
        other, reader = self.edges.other, groups[0].readers[0]
        delta = [self.live[u][0] - other.out[:, :, u] for u in range(reader.n_before)]
        weights = torch.stack([group.mask[0] for group in groups])
        inputs = other.read(reader) + torch.einsum("ru,ubpd->rbpd", weights, torch.stack(delta))
        yield from zip(groups, inputs, strict=True)
