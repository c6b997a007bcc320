"""Queries and keys of one prompt, from which every part of every pattern is computed on demand.

One forward pass keeps exact sums over coarse blocks of all heads and the log-sum-exp of every row.
Queries and keys are kept per layer while they fit the memory limit; a layer that was dropped is
captured again. No pattern of the whole prompt is ever stored.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError, StatisticsError
from interp.core.head import Head
from interp.heads.engine import fused_is_faster
from interp.heads.patterns.capturing import sequences_of, stack_tokens
from interp.heads.patterns.stack import Stack
from interp.model.calls.call import Call, RecordedCall
from interp.model.calls.sites import Site
from interp.model.hooks.kernel_call import to_attention
from interp.report.explore.requests import GoingOn
from interp_kernels import attention_statistics
from interp_kernels.errors import KernelError
from interp_kernels.pooled_tile import pooled_tile
from interp_kernels.problem import Attention
from interp_kernels.reductions import LogSumExp, Output, PooledMap, Reduction

if TYPE_CHECKING:
    from interp.model.model import Model

TILE = 64  # rows and columns of a tile
SIDE = 256  # blocks down and across of the coarsest map
TILES = 2_000  # kept
LayerKey = tuple[str, int]  # stack and layer
Texts = tuple[tuple[str, ...], tuple[str, ...]]
Shares = Float[np.ndarray, "query_block key_block"]


class _Enough(Exception):
    """Signal that ends a forward pass."""


@dataclass(frozen=True, eq=False)
class KeptLayer:
    """Queries, keys and masks of one attention call, or its pattern where the model stores it."""

    attention: Attention | None
    pattern: Float[Tensor, "head query_pos key_pos"] | None
    lse: Float[Tensor, "1 head query_pos"] | None

    @property
    def bytes(self) -> int:
        """Memory of the tensors."""
        if self.attention is None:
            return 0 if self.pattern is None else self.pattern.nbytes
        tensors = (self.attention.q, self.attention.k, self.attention.bias, self.attention.ranges)
        return sum(x.nbytes for x in tensors if isinstance(x, Tensor))


def coarsest(n: int, n_heads: int, memory: int) -> int:
    """Return the block of the coarsest map: at most 256 blocks a side, and a quarter of memory."""
    side = SIDE
    while side > 16 and 4 * n_heads * side * side > memory // 4:
        side //= 2
    return max(2, 1 << max(0, (n - 1) // side).bit_length())


class KeptPrompt:
    """Maps of all heads over one prompt, from the whole prompt down to single tokens.

    Args:
        model: The model.
        inputs: Its input tensors, a batch of one.
        n: The tokens of the prompt.
        memory: The largest number of bytes of kept queries, keys and maps.
        going_on: Called before each layer and within it; what it raises ends the pass.
        advance: Called after each layer with the layers done and their number.

    Raises:
        PromptError: The maps, or queries and keys of one layer, exceed `memory`.
        StatisticsError: The kernels do not support a layer.
    """

    def __init__(
        self,
        model: Model,
        inputs: Mapping[str, Any],
        n: int,
        memory: int,
        going_on: GoingOn,
        advance: Callable[[int, int], None] = lambda done, of: None,
    ):
        self.model, self.inputs, self.memory = model, inputs, memory
        self.block = coarsest(n, sum(site.n_heads for site in model.sites), memory)
        self._require_room(n)
        self.texts: dict[str, Texts] = {}
        self.means: dict[tuple[str, Head], Shares] = {}
        self._lse: dict[LayerKey, Tensor] = {}
        self._layers: OrderedDict[LayerKey, KeptLayer] = OrderedDict()
        self._tiles: OrderedDict[tuple, Shares] = OrderedDict()
        sequences = sequences_of(model, inputs)
        self.fused = fused_is_faster(model, [n])

        def visit(site: Site, call: Call, real: Tensor) -> None:
            going_on()
            shape = call.z.shape[2], call.v.shape[2]
            self.texts.setdefault(site.stack, stack_tokens(site.stack, sequences, shape))
            self._hold(site, self._captured(site, call, real, self._maps(site), going_on))
            advance(len(self._lse), len(model.sites))

        # the log-sum-exp of a layer that is captured again is that of the same activations
        self.out = model.read(inputs, visit, last=1, fused=self.fused, streamed=not self.fused)

    @property
    def blocks(self) -> list[int]:
        """Blocks of the levels, the coarsest first."""
        return [self.block >> step for step in range(self.block.bit_length())]

    @property
    def bytes(self) -> int:
        """Memory of all that is kept."""
        small = sum(x.nbytes for x in (*self.means.values(), *self._tiles.values()))
        rows = sum(x.nbytes for x in self._lse.values())
        return small + rows + sum(layer.bytes for layer in self._layers.values())

    def stacks(self) -> tuple[Stack, ...]:
        """Return the coarsest maps of all heads, with the first tokens of each block."""
        stacks = []
        for name, texts in self.texts.items():
            sides = (tuple(side[:: self.block]) for side in texts)
            maps = {head: map for (stack, head), map in self.means.items() if stack == name}
            queries, keys = sides
            stacks.append(
                Stack(
                    name,
                    maps,
                    queries,
                    keys,
                    block=self.block,
                    n_queries=len(texts[0]),
                    n_keys=len(texts[1]),
                )
            )
        return tuple(stacks)

    def _require_room(self, n: int) -> None:
        size = self.model.dtype.itemsize
        one = max(n * (s.n_heads + s.n_kv_heads) * s.d_head * size for s in self.model.sites)
        side = -(-n // self.block)
        maps = sum(4 * s.n_heads * (side * side + n) for s in self.model.sites)
        if one + maps > self.memory:
            raise PromptError(
                f"the prompt has {n:,} tokens: queries and keys of one layer and the maps of all "
                f"heads take {(one + maps) / 1e9:.2f} GB, more than the limit of "
                f"{self.memory / 1e9:.2f} GB; shorten it, or start with a larger --set max_gb"
            )

    def _maps(self, site: Site) -> Callable[[np.ndarray], None]:
        def keep(sums: np.ndarray) -> None:
            rows = len(self.texts[site.stack][0])
            size = np.minimum(self.block, rows - np.arange(0, rows, self.block))[:, None]
            for head, of_head in enumerate(sums):
                self.means[site.stack, Head(site.layer, head)] = of_head / size

        return keep

    def _captured(
        self,
        site: Site,
        call: Call,
        real: Tensor,
        keep: Callable[[np.ndarray], None] | None,
        going_on: GoingOn,
    ) -> KeptLayer:
        """Return a layer, and pass its sums over the coarsest blocks to `keep`."""
        place = site.stack, site.layer
        if not self.fused:
            self.model.require_finite(call, site)
        if isinstance(call, RecordedCall):  # such code stores its pattern itself
            pattern = call.pattern()[0].float()
            if pattern.nbytes > self.memory:
                raise PromptError(
                    f"{site.name} computes its own pattern of {pattern.shape[-1]:,} keys, which "
                    f"takes more than {self.memory / 1e9:.2f} GB; shorten the prompt"
                )
            if keep is not None:
                keep(np.stack([_pooled(p.cpu().numpy(), self.block) for p in pattern]))
            return KeptLayer(None, pattern.clone(), None)
        try:
            attention = to_attention(call, real, None)
            asked: list[Reduction] = [Output()] if self.fused else []
            asked += [] if keep is None else [PooledMap(self.block), LogSumExp()]
            values: Any = {}
            if asked:
                values = attention_statistics(attention, asked, backend="auto", going_on=going_on)
            if self.fused:
                call.z = values["output"]
                self.model.require_finite(call, site)
            if keep is not None:
                keep(values["pooled_map"][0].float().cpu().numpy())
                self._lse[place] = values["lse"].clone()
            # copies: a view would keep the activations of all heads, and values are not needed
            compact = replace(
                attention,
                q=attention.q.detach().clone(),
                k=attention.k.detach().clone(),
                v=attention.k.new_zeros(*attention.k.shape[:3], 1),
            )
        except KernelError as error:
            raise StatisticsError(f"{self.model.name}, {site.name}: {error}") from error
        return KeptLayer(compact, None, self._lse[place])

    def _hold(self, site: Site, layer: KeptLayer) -> None:
        self._layers[site.stack, site.layer] = layer
        held = sum(layer.bytes for layer in self._layers.values())
        small = sum(x.nbytes for x in (*self.means.values(), *self._lse.values()))
        while held + small > self.memory and len(self._layers) > 1:
            _, dropped = self._layers.popitem(last=False)
            held -= dropped.bytes

    def _layer(self, stack: str, layer: int, going_on: GoingOn) -> KeptLayer:
        """Return a layer, captured again if it was dropped."""
        if (stack, layer) not in self._layers:

            def visit(site: Site, call: Call, real: Tensor) -> None:
                going_on()
                asked = (site.stack, site.layer) == (stack, layer)
                if not asked and not self.fused:
                    return
                captured = self._captured(site, call, real, None, going_on)
                if asked:
                    self._hold(site, captured)
                    raise _Enough

            with suppress(_Enough):
                self.model.read(
                    self.inputs, visit, last=1, fused=self.fused, streamed=not self.fused
                )
        self._layers.move_to_end((stack, layer))
        return self._layers[stack, layer]

    def tile(
        self, stack: str, head: Head, block: int, row: int, column: int, going_on: GoingOn
    ) -> Shares:
        """Return one tile of 64 by 64 blocks: the largest weight in each."""
        if (stack, head) not in self.means:
            known = [name for name in self.means if name[0] == stack]
            raise OptionError(
                f"{stack} has no head {head}; it has {known[0][1]} to {known[-1][1]}"
                if known
                else f"no stack {stack!r}; {self.model.name} has {', '.join(self.texts)}"
            )
        if block not in self.blocks:
            raise OptionError(
                f"block {block}; this prompt is shown in blocks of "
                f"{', '.join(map(str, self.blocks))}"
            )
        queries, keys = (
            _part(at, TILE * block, len(texts), what)
            for at, texts, what in zip(
                (row, column), self.texts[stack], ("row", "column"), strict=True
            )
        )
        name = stack, head, block, row, column
        if name not in self._tiles:
            self._tiles[name] = self._computed(stack, head, block, queries, keys, going_on)
            if len(self._tiles) > TILES:
                self._tiles.popitem(last=False)
        self._tiles.move_to_end(name)
        return self._tiles[name]

    def _computed(
        self, stack: str, head: Head, block: int, queries: range, keys: range, going_on: GoingOn
    ) -> Shares:
        layer = self._layer(stack, head.layer, going_on)
        if layer.attention is None:
            assert layer.pattern is not None, "a layer has queries and keys, or its pattern"
            part = layer.pattern[head.head, queries.start : queries.stop, keys.start : keys.stop]
            return _pooled(part.cpu().numpy(), block, np.maximum)
        assert layer.lse is not None, "a softmax has a log-sum-exp"
        return (
            pooled_tile(
                layer.attention,
                layer.lse,
                head.head,
                queries,
                keys,
                block,
                largest=True,
                going_on=going_on,
            )
            .float()
            .cpu()
            .numpy()
        )


def _pooled(pattern: Shares, block: int, how: np.ufunc = np.add) -> Shares:
    rows = how.reduceat(pattern, np.arange(0, pattern.shape[0], block), 0)
    return how.reduceat(rows, np.arange(0, pattern.shape[1], block), 1)


def _part(at: int, size: int, n: int, what: str) -> range:
    tiles = -(-n // size)
    if not 0 <= at < tiles:
        raise OptionError(
            f"{what} {at} of the tiles; with this block there are {tiles}, counted from 0"
        )
    return range(at * size, min((at + 1) * size, n))
