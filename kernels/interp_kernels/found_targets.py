"""Targets of predicates in one batch, found once for all attention calls of all layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from interp_kernels.api import attention_statistics
from interp_kernels.backends import choose
from interp_kernels.masks import narrow
from interp_kernels.predicate_runs import KeyRuns
from interp_kernels.reductions import Mass, PairMass, Reduction, Targets
from interp_kernels.targets import target_pairs

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.problem import Attention

    Found = tuple[dict[str, Reduction], dict[str, Tensor]]

# Maximum number of pairs per query that are looked up; with more, tiles of the pattern are formed.
PAIRS_PER_QUERY = 16


@dataclass(eq=False)
class FoundTargets:
    """Cache of the targets found in one batch; dropped with the batch.

    Args:
        streamed: patterns are computed in tiles, so single weights may be looked up instead.
    """

    streamed: bool
    _kept: dict[tuple, tuple[object, Found]] = field(default_factory=dict)
    _runs: dict[tuple, tuple[object, tuple[KeyRuns, list[int]]]] = field(default_factory=dict)

    def of(
        self, attention: Attention, asked: Sequence[tuple[Mass, Targets]], mask: Tensor | None
    ) -> Found:
        """Return, per mass by name, the reduction to ask for and the number of targets per row.

        Args:
            attention: the attention call.
            asked: the mass of each predicate and its number of targets.
            mask: the model's own mask if `attention.bias` is that mask; None if it was built for
                this layer, in which case only what no mask changes is cached.
        """
        if not asked:
            return {}, {}
        row = None  # one row of bias per head, such as ALiBi, mostly serves all layers
        bias = attention.bias
        if mask is None and isinstance(bias, torch.Tensor) and bias.shape[-2] == 1:
            row = bias
        same = (attention.bias is None) or (mask is not None) or (row is not None)
        shape = attention.shape
        key = (
            shape.batch,
            shape.query,
            shape.key,
            attention.causal,
            attention.window,
            attention.offset,
            attention.start,
            id(mask),
            id(attention.ranges),
            None if row is None else (row.data_ptr(), row.shape, row.stride()),
            id(attention.tokens),
            id(attention.segments),
            tuple(m.name for m, _ in asked),
        )
        if same and key in self._kept:
            return self._kept[key][1]
        found = self._find(attention, asked)
        if same:
            # references to what the key names by its identity keep that unique
            held = (mask, attention.ranges, row, attention.tokens, attention.segments)
            self._kept[key] = (held, found)
        return found

    def _find(self, attention: Attention, asked: Sequence[tuple[Mass, Targets]]) -> Found:
        runs, listed = self._key_runs(attention, [targets for _, targets in asked])
        counted = runs.counts(attention)
        compiled = choose("auto", attention) == "cpu"
        most = PAIRS_PER_QUERY * attention.shape.batch * attention.shape.query
        masses: dict[str, Reduction] = {}
        counts: dict[str, Tensor] = {}
        rest: dict[str, Targets] = {}
        for i, (mass, targets) in enumerate(asked):
            column = listed.index(i) if i in listed else None
            masses[mass.name] = mass
            if column is not None:
                masses[mass.name] = Mass(mass.name, mass.predicate, runs, column)
            few = narrow(attention) and not attention.q.is_cuda
            if self.streamed and not few and not (compiled and column is not None):
                pairs = target_pairs(attention, mass, most=most)
                if pairs is not None:
                    masses[mass.name] = PairMass(mass.name, pairs)
            if column is not None and counted is not None:
                counts[mass.name] = counted[column]
            else:
                rest[mass.name] = targets
        if rest:
            found = attention_statistics(attention, [*rest.values()], backend="chunked")
            for name, targets in rest.items():
                count: Any = found[targets.name]
                counts[name] = count
        return masses, counts

    def _key_runs(
        self, attention: Attention, asked: Sequence[Targets]
    ) -> tuple[KeyRuns, list[int]]:
        """Return the runs of keys of the predicates that have them; no mask changes these."""
        shape = attention.shape
        key = (
            shape.batch,
            shape.query,
            shape.key,
            attention.offset,
            attention.start,
            id(attention.tokens),
            id(attention.segments),
            tuple(targets.name for targets in asked),
        )
        if key not in self._runs:
            held = (attention.tokens, attention.segments)
            self._runs[key] = (held, KeyRuns.of(attention, asked))
        return self._runs[key][1]
