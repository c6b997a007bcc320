"""Statistics of attention patterns that are never stored.

    from interp_kernels import Attention, Entropy, Received, attention_statistics

    call = Attention(q=q, k=k, v=v, causal=True)
    found = attention_statistics(call, [Entropy(), Received()])
    found["entropy"]        # [batch, head, query], nats
    found.backend           # which implementation computed it

`reference.py` is the definition that the other backends match; `interp` imports this package, never
the reverse. Importing it loads neither torch nor a compiler: names are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp_kernels.api import Statistics, attention_statistics, estimate_memory
    from interp_kernels.backends import BACKENDS
    from interp_kernels.bias_rows import BiasRows
    from interp_kernels.errors import (
        BackendUnavailable,
        InvalidAttention,
        InvalidReduction,
        KernelError,
        PredicateError,
        TooLittleMemory,
    )
    from interp_kernels.problem import Attention, AttentionShape
    from interp_kernels.reductions import (
        Chosen,
        Diagonal,
        Distance,
        Entropy,
        KeySetMass,
        Largest,
        LeftProduct,
        LogSumExp,
        Mass,
        Moments,
        Output,
        PairMass,
        PooledMap,
        Received,
        ReceivedValueWeighted,
        Reduction,
        ResultNorm,
        RightProduct,
        Rows,
        ScoreMoments,
        SegmentMass,
        SegmentToSegment,
        Targets,
        Tile,
        TopK,
    )
    from interp_kernels.segments import Segments

_HOMES = {
    "api": "Statistics attention_statistics estimate_memory",
    "backends": "BACKENDS",
    "bias_rows": "BiasRows",
    "errors": "BackendUnavailable InvalidAttention InvalidReduction KernelError PredicateError "
    "TooLittleMemory",
    "problem": "Attention AttentionShape",
    "reductions": "Chosen Diagonal Distance Entropy KeySetMass Largest LeftProduct LogSumExp Mass "
    "Moments Output PairMass PooledMap Received ReceivedValueWeighted Reduction ResultNorm "
    "RightProduct Rows ScoreMoments SegmentMass SegmentToSegment Targets Tile TopK",
    "segments": "Segments",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

__all__ = [  # noqa: RUF022 - in reading order: the call, what is asked, what goes wrong
    "Attention",
    "AttentionShape",
    "BiasRows",
    "Segments",
    "attention_statistics",
    "estimate_memory",
    "Statistics",
    "BACKENDS",
    "Reduction",
    "Output",
    "LogSumExp",
    "Entropy",
    "Largest",
    "TopK",
    "Mass",
    "Targets",
    "PairMass",
    "KeySetMass",
    "SegmentMass",
    "SegmentToSegment",
    "Distance",
    "Moments",
    "ResultNorm",
    "Received",
    "ReceivedValueWeighted",
    "PooledMap",
    "Rows",
    "Tile",
    "Diagonal",
    "LeftProduct",
    "RightProduct",
    "Chosen",
    "ScoreMoments",
    "KernelError",
    "InvalidAttention",
    "InvalidReduction",
    "PredicateError",
    "BackendUnavailable",
    "TooLittleMemory",
]


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
