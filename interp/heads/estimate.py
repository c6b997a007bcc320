"""What a run will take before it starts: which engine, how much memory beside the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torch import Tensor, nn

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.heads.declaration import BoundAnalysis
from interp.heads.engine import ENGINES, engine_used, require_engine
from interp_kernels import estimate_memory
from interp_kernels.problem import AttentionShape
from interp_kernels.reductions import Entropy, Reduction, Targets

if TYPE_CHECKING:
    from interp.model.model import Model

STORED_BYTES = 2**24  # of patterns per layer, up to which "auto" stores them


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes beside the weights at the peak of one forward pass, to within a factor of about two."""

    engine: str
    batch: int
    length: int
    forward_bytes: int
    statistics_bytes: int

    @property
    def total_bytes(self) -> int:
        """Activations of the forward pass and what the statistics of one layer take."""
        return self.forward_bytes + self.statistics_bytes

    def __str__(self) -> str:
        return (
            f"{self.batch} x {self.length:,} tokens, {self.engine}: about "
            f"{readable(self.total_bytes)} beside the weights "
            f"({readable(self.statistics_bytes)} of it for the statistics)"
        )


def readable(size: int) -> str:
    """Bytes for people."""
    value = float(size)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


def choose_engine(
    model: Model, prompts: Prompts | Mapping[str, Tensor], batch_size: int, engine: str
) -> str:
    """The engine asked for; for "auto", streamed once a layer's patterns would pass 16 MiB.

    "auto" stores patterns that the model's own code forms anyway.

    Raises:
        OptionError: an engine that the model does not have. Where it runs elsewhere, rows are
            formed in blocks and reduced; code of its own forms whole patterns.
    """
    if model.elsewhere is not None:
        if engine in ("auto", "stored"):
            return "stored"
        raise OptionError(
            f"engine={engine!r}: {model.name} runs at {model.elsewhere}, where patterns are formed "
            "in blocks of rows; use engine='auto'"
        )
    if engine != "auto":
        require_engine(model, engine)
        return engine
    if not isinstance(prompts, Prompts) or all(site.recorded for site in model.sites):
        return "stored"
    batch, length = _largest(prompts, batch_size)
    return "streamed" if 4 * batch * model.n_heads * length**2 > STORED_BYTES else "stored"


def estimate_score(
    model: Model,
    prompts: Prompts,
    bounds: Sequence[BoundAnalysis],
    batch_size: int,
    engine: str = "auto",
) -> MemoryEstimate:
    """What scoring the prompts will take; see `Estimate`."""
    chosen = choose_engine(model, prompts, batch_size, engine)
    batch, length = _largest(prompts, batch_size)
    site = model.sites[0]
    itemsize = model.dtype.itemsize
    shape = AttentionShape(
        batch, site.n_heads, site.n_kv_heads, length, length, site.d_head, site.d_v, itemsize
    )
    asked: list[Reduction] = [
        r for b in bounds for r in b.reductions() if not isinstance(r, Targets)
    ]
    statistics = estimate_memory(shape, asked or [Entropy()], ENGINES[chosen])
    widths = [m.out_features for m in model.module.modules() if isinstance(m, nn.Linear)]
    widest = max((w for w in widths if w != model.d_vocab), default=4 * model.d_model)
    # the stream, its norm, q, k, v, z and the branch's output; the MLP's gate and its product
    forward = batch * length * itemsize * (7 * model.d_model + 3 * widest)
    return MemoryEstimate(engine_used(model, chosen), batch, length, forward, statistics)


def _largest(prompts: Prompts, batch_size: int) -> tuple[int, int]:
    return min(batch_size, len(prompts)), max(map(len, prompts.ids))
