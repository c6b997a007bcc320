"""Estimate of engine and memory before a scoring run starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import nn

from interp.core.errors import PromptError
from interp.core.prompts import Prompts
from interp.heads.declaration import BoundAnalysis
from interp.heads.engine import ENGINES
from interp.heads.score_rows import engine_used
from interp.heads.scoring import choose_engine, largest_batch
from interp.model.inputs import output_embedding
from interp_kernels import estimate_memory
from interp_kernels.api import free_memory
from interp_kernels.problem import AttentionShape
from interp_kernels.reductions import Entropy, Reduction, Targets

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model


@dataclass(frozen=True)
class MemoryEstimate:
    """Estimated bytes beside the weights at the peak of a forward pass, within a factor of two."""

    engine: str
    batch: int
    length: int
    forward_bytes: int
    statistics_bytes: int

    @property
    def total_bytes(self) -> int:
        """Bytes of the activations of the forward pass and of the statistics of one layer."""
        return self.forward_bytes + self.statistics_bytes

    def __str__(self) -> str:
        return (
            f"{self.batch} x {self.length:,} tokens, {self.engine}: about "
            f"{readable(self.total_bytes)} beside the weights "
            f"({readable(self.statistics_bytes)} of it for the statistics)"
        )


def readable(size: int) -> str:
    """Format bytes for display."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def estimate_score(
    model: Model,
    prompts: Prompts,
    bounds: Sequence[BoundAnalysis],
    batch_size: int,
    engine: str = "auto",
) -> MemoryEstimate:
    """Estimate the memory for scoring the prompts; see `MemoryEstimate`."""
    chosen = choose_engine(model, prompts, batch_size, engine, may_fuse=True)
    batch, length = largest_batch(prompts, batch_size)
    size = model.dtype.itemsize
    statistics = statistics_bytes(model.sites[0], size, batch, length, bounds, chosen)
    forward = forward_bytes(model.module, model.d_model, batch, length, size)
    return MemoryEstimate(engine_used(model, chosen), batch, length, forward, statistics)


def forward_bytes(module: Any, width: int, batch: int, length: int, size: int) -> int:
    """Return the bytes of the activations of one block, for numbers of `size` bytes.

    They are the residual stream, its norm, q, k, v, z and the attention output, the MLP's gate and
    product, and the float32 copies that norms and rotary embeddings make.
    """
    last = output_embedding(module)
    linear = [m for m in module.modules() if isinstance(m, nn.Linear) and m is not last]
    widest = max((m.out_features for m in linear), default=4 * width)
    return batch * length * (size * (7 * width + 3 * widest) + 4 * 5 * width)


def statistics_bytes(
    site: Site, size: int, batch: int, length: int, bounds: Sequence[BoundAnalysis], engine: str
) -> int:
    """Return the bytes of the statistics of one layer, for activations of `size` bytes."""
    shape = _shape(site, size, batch, length)
    return estimate_memory(shape, _asked(bounds), ENGINES[engine])


def require_memory(
    model: Model, prompts: Prompts, bounds: Sequence[BoundAnalysis], engine: str = "auto"
) -> None:
    """Check that the statistics of one prompt fit into memory, before the model runs."""
    free = free_memory(model.device)
    if free is None:
        return
    chosen, length = choose_engine(model, prompts, 1, engine), largest_batch(prompts, 1)[1]
    shape = _shape(model.sites[0], model.dtype.itemsize, 1, length)
    least = estimate_memory(shape, _asked(bounds), ENGINES[chosen], block=1)
    if least > free:
        raise PromptError(
            f"{model.name}: the statistics of one prompt of {length:,} tokens need at least "
            f"{readable(least)} per layer ({chosen}), and {readable(free)} are free; score fewer "
            "metrics at a time, shorten the prompts (--max-length), or free memory"
        )


def _shape(site: Site, size: int, batch: int, length: int) -> AttentionShape:
    return AttentionShape(
        batch, site.n_heads, site.n_kv_heads, length, length, site.d_head, site.d_v, size
    )


def _asked(bounds: Sequence[BoundAnalysis]) -> list[Reduction]:
    reductions: list[Reduction] = [
        r
        for b in bounds
        if b.analysis.kind != "measurement"  # these work on blocks of rows of a fixed size
        for r in b.reductions()
        if not isinstance(r, Targets)
    ]
    return reductions or [Entropy()]
