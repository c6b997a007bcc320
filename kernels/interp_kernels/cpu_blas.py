"""Matrix products called from compiled code, by the address of the BLAS already in the process.

The address travels as a number, so compiled code stays valid between processes. torch's own BLAS
(MKL in the x86 wheels) is taken where the wheel shows it, because it does our small products 1.3
to 1.5 times as fast as the OpenBLAS that scipy brings; that one is there always.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import extending, types
from numba.core import cgutils

from interp_kernels.cpu_threads import torch_library

intrinsic: Any = extending.intrinsic  # its results are called without their first argument
TRANSPOSED, PLAIN = ord("T"), ord("N")


class Blas(NamedTuple):
    """Where sgemm is, and what keeps its own threads out of ours."""

    name: str
    address: int
    one_thread: Callable[[], Any]


@cache
def blas() -> Blas:
    """The fastest sgemm at hand that multiplies rightly."""
    return torch_blas() or scipy_blas()


@cache
def torch_blas() -> Blas | None:
    """MKL inside torch, if this wheel shows it: no promise of torch's, hence the trial."""
    library = torch_library()
    shown = [hasattr(library, name) for name in ("sgemm_", "MKL_Set_Num_Threads_Local")]
    if library is None or not all(shown):
        return None
    address = ctypes.cast(library.sgemm_, ctypes.c_void_p).value
    assert address is not None, "the symbol is there"

    @contextmanager
    def one_thread() -> Iterator[None]:
        before = library.MKL_Set_Num_Threads_Local(1)
        try:
            yield
        finally:
            library.MKL_Set_Num_Threads_Local(before)

    return Blas("MKL in torch", address, one_thread) if multiplies(address) else None


@cache
def scipy_blas() -> Blas:
    """What scipy exports to compiled code."""
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController()
    address = extending.get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    assert multiplies(address), "scipy's sgemm takes 32-bit sizes"
    return Blas("scipy", address, lambda: controller.limit(limits=1, user_api="blas"))


def multiplies(address: int) -> bool:
    """Whether the function there is an sgemm with sizes of 32 bits."""
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = np.full((2, 4), -1, np.float32)
    pair = ctypes.c_int * 2  # the second is 0: a reader of 64 bits is right too, and harmless
    sizes = [pair(n, 0) for n in (4, 2, 3, 3, 3, 4)]
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    n, m, k, ldb, lda, ldc = (ctypes.byref(size) for size in sizes)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 13)(address)
    flag = [ctypes.c_char_p(x) for x in (b"T", b"N")]
    left, right, into = (x.ctypes.data_as(ctypes.c_void_p) for x in (a, b, found))
    pointers = [ctypes.cast(x, ctypes.c_void_p) for x in flag]
    numbers = [n, m, k, ctypes.byref(one), right, ldb, left, lda, ctypes.byref(zero), into, ldc]
    call(*pointers, *[ctypes.cast(x, ctypes.c_void_p) for x in numbers])
    return bool(np.array_equal(found, a @ b.T))


_INT, _REAL, _POINTER = types.int64, types.float32, types.int64


@intrinsic
def sgemm(typing, address, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """c = alpha op(a) op(b) + beta c, column-major, pointers as numbers: the BLAS's own order."""
    signature = types.void(
        *(_INT, _INT, _INT, _INT, _INT, _INT, _REAL, _POINTER, _INT, _POINTER, _INT),
        *(_REAL, _POINTER, _INT),
    )

    def build(context, builder, _, given):
        byte, whole, real = ir.IntType(8), ir.IntType(32), ir.FloatType()
        pointer = ir.PointerType(byte)
        address, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc = given

        def by_reference(value, kind):
            place = cgutils.alloca_once(builder, kind)
            narrow = builder.trunc(value, kind) if kind is not real else value
            builder.store(narrow, place)
            return builder.bitcast(place, pointer)

        def at(number):
            return builder.inttoptr(number, pointer)

        function = ir.FunctionType(ir.VoidType(), [pointer] * 13)
        arguments = [
            *(by_reference(x, byte) for x in (ta, tb)),
            *(by_reference(x, whole) for x in (m, n, k)),
            *(by_reference(alpha, real), at(a), by_reference(lda, whole)),
            *(at(b), by_reference(ldb, whole), by_reference(beta, real)),
            *(at(c), by_reference(ldc, whole)),
        ]
        builder.call(builder.inttoptr(address, function.as_pointer()), arguments)
        return context.get_dummy_value()

    return signature, build
