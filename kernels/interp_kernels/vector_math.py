"""First calls of the vector functions of torch's MKL, before several threads can make them.

MKL chooses its implementation of exp, log and the like at a function's first call in a process. If
two threads make that call at once, one of them occasionally uses a version with 12 correct bits,
for its share of the tensor and for that call only
(https://github.com/pytorch/pytorch/issues/188792; observed here in `Tensor.exp` of torch 2.13, in 4
of 80 fresh processes). A first call by one thread prevents it.
"""

from __future__ import annotations

from functools import cache

import torch

# Functions that torch passes to MKL, except rounding functions, which are always exact.
FUNCTIONS = (
    *("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "asin", "acos"),
    *("atan", "sinh", "cosh", "tanh", "erf", "erfc", "erfinv", "lgamma"),
)


@cache
def settle() -> None:
    """Call each function on one number of either precision, which one thread does."""
    for dtype in (torch.float32, torch.float64):
        number = torch.full((1,), 0.5, dtype=dtype, device="cpu")
        for name in FUNCTIONS:
            getattr(torch, name)(number)
