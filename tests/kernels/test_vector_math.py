"""The vector functions of MKL are settled by one thread before several call them."""

from __future__ import annotations

import subprocess
import sys

import pytest

from interp_kernels.vector_math import FUNCTIONS

# The race itself shows in one process of hundreds, so its cause is watched: the first calls.
WATCH = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode

class Watch(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if args and isinstance(args[0], torch.Tensor):
            dtype = str(args[0].dtype).removeprefix("torch.")
            print(function.overloadpacket.__name__, dtype, args[0].numel())
        return function(*args, **(kwargs or {}))

with Watch():
    import MODULE
"""


@pytest.mark.slow
@pytest.mark.parametrize("module", ["interp_kernels.problem", "interp.model.model"])
def test_each_is_called_on_one_number_before_anything_else_is_computed(module):
    run = [sys.executable, "-c", WATCH.replace("MODULE", module)]
    done = subprocess.run(run, capture_output=True, text=True, check=True)
    calls = done.stdout.splitlines()
    dtypes = ("float32", "float64")
    assert set(calls) >= {f"{name} {dtype} 1" for name in FUNCTIONS for dtype in dtypes}
    assert all(call.endswith(" 1") for call in calls)
