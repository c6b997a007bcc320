"""Where the targets of predicates are, found once per batch and used in every layer.

A predicate reads positions and tokens, and these are the same in all layers that hide the same
keys. Listing its pairs costs one evaluation per (query, key); looking their weights up afterwards
costs a product of two vectors each, whatever the length of the prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from interp.heads.declaration import BoundAnalysis
from interp_kernels import attention_statistics
from interp_kernels.problem import Attention
from interp_kernels.reductions import Mass, PairMass, Reduction, Targets
from interp_kernels.targets import target_pairs

# Pairs per query up to which looking them up is worth it; beyond, tiles of the pattern are formed.
PAIRS_PER_QUERY = 16


@dataclass(eq=False)
class FoundTargets:
    """What one batch has found so far; dropped with the batch."""

    streamed: bool
    _kept: dict[tuple, tuple[object, dict[str, Reduction], dict[str, Tensor]]] = field(
        default_factory=dict
    )

    def of(
        self, attention: Attention, bounds: Sequence[BoundAnalysis], mask: Tensor | None
    ) -> tuple[dict[str, Reduction], dict[str, Tensor]]:
        """For each detector the reduction that gives its mass, and how many targets a row has.

        Args:
            mask: the model's own mask that `attention.bias` is, or None where it was put together
                for this layer: then nothing is remembered.
        """
        same = (attention.bias is None) or (mask is not None)
        shape = attention.shape
        key = (
            shape.batch, shape.query, shape.key, attention.causal, attention.window,
            attention.offset, attention.start, None if mask is None else mask.data_ptr(),
            tuple(b.label for b in bounds),
        )  # fmt: skip
        if same and key in self._kept:
            _, masses, counts = self._kept[key]
            return masses, counts
        masses, counts = self._find(attention, bounds)
        if same:
            self._kept[key] = (mask, masses, counts)  # holding the mask keeps its address its own
        return masses, counts

    def _find(
        self, attention: Attention, bounds: Sequence[BoundAnalysis]
    ) -> tuple[dict[str, Reduction], dict[str, Tensor]]:
        masses: dict[str, Reduction] = {}
        asked: list[Reduction] = []
        most = PAIRS_PER_QUERY * attention.shape.batch * attention.shape.query
        for bound in bounds:
            mass, targets = bound.reductions()
            assert isinstance(mass, Mass)
            assert isinstance(targets, Targets)
            asked.append(targets)
            pairs = target_pairs(attention, mass, most=most) if self.streamed else None
            masses[bound.label] = mass if pairs is None else PairMass(bound.label, pairs)
        if not asked:
            return {}, {}
        found = attention_statistics(attention, asked, backend="chunked")
        counts: dict[str, Tensor] = {}
        for bound, targets in zip(bounds, asked, strict=True):
            count = found[targets.name]
            assert isinstance(count, Tensor)
            counts[bound.label] = count
        return masses, counts
