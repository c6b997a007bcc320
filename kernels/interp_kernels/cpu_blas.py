"""Matrix products in compiled code, by the address of a BLAS that is already loaded in the process.

The address is passed as a number, so compiled code stays valid between processes. torch's own BLAS
(MKL in the x86 wheels) is used where the wheel exports it, since it computes our small products 1.3
to 1.5 times as fast as scipy's OpenBLAS, which is always available. MKL can also pack a matrix once
that many products read, which saves an eighth of the time of each.
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

# compiled code calls its functions without their first argument
intrinsic: Any = extending.intrinsic
TRANSPOSED, PLAIN, PACKED, FIRST = ord("T"), ord("N"), ord("P"), ord("A")


class Packing(NamedTuple):
    """Addresses of the functions that pack a matrix once for many products."""

    pack: int
    compute: int
    size: Callable[[int, int, int], int]  # bytes for m, n, k; most of them are never written


class Blas(NamedTuple):
    """Address of sgemm, and a way to keep its own threads out of ours."""

    name: str
    address: int
    one_thread: Callable[[], Any]
    packing: Packing | None = None


@cache
def blas() -> Blas:
    """Return the fastest available sgemm that multiplies correctly."""
    return torch_blas() or scipy_blas()


@cache
def torch_blas() -> Blas | None:
    """Return MKL inside torch, tested, if this wheel exports it; torch does not guarantee it."""
    library = torch_library()
    shown = [hasattr(library, name) for name in ("sgemm_", "MKL_Set_Num_Threads_Local")]
    if library is None or not all(shown):
        return None
    address = address_of(library.sgemm_)
    # Calls through a CDLL would release the GIL and let another thread run first.
    set_threads = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int)(
        address_of(library.MKL_Set_Num_Threads_Local)
    )

    @contextmanager
    def one_thread() -> Iterator[None]:
        before = set_threads(1)
        try:
            yield
        finally:
            set_threads(before)

    if not multiplies(address):
        return None
    return Blas("MKL in torch", address, one_thread, mkl_packing(library))


def mkl_packing(library: ctypes.CDLL) -> Packing | None:
    """Return MKL's packing functions, if the library exports them."""
    names = [f"sgemm_{part}_" for part in ("pack", "compute", "pack_get_size")]
    if not all(hasattr(library, name) for name in names):
        return None
    pack, compute, get_size = (getattr(library, name) for name in names)
    get_size.restype = ctypes.c_size_t

    def size(m: int, n: int, k: int) -> int:
        return get_size(ctypes.c_char_p(b"A"), *(ctypes.byref(ctypes.c_int(x)) for x in (m, n, k)))

    return Packing(address_of(pack), address_of(compute), size)


def address_of(function: Any) -> int:
    """Return the address of a function of a library."""
    address = ctypes.cast(function, ctypes.c_void_p).value
    assert address is not None, "the symbol is there"
    return address


@cache
def scipy_blas() -> Blas:
    """Return the BLAS that scipy exports to compiled code."""
    from threadpoolctl import ThreadpoolController

    controller = ThreadpoolController()
    address = extending.get_cython_function_address("scipy.linalg.cython_blas", "sgemm")
    assert multiplies(address), "scipy's sgemm takes 32-bit sizes"
    return Blas("scipy", address, lambda: controller.limit(limits=1, user_api="blas"))


def multiplies(address: int) -> bool:
    """Return True if the function at this address is an sgemm with 32-bit sizes."""
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    b = np.arange(12, dtype=np.float32).reshape(4, 3)
    found = np.full((2, 4), -1, np.float32)
    # the second word is 0, so a function that reads 64 bits is correct and harmless too
    pair = ctypes.c_int * 2
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


def fortran(kinds: str) -> tuple[Any, Callable[..., Any]]:
    """Make an intrinsic call by address, with one letter per argument.

    Flags "c", 32-bit sizes "i", floats "r" by reference, pointers "p". In compiled code all
    arguments but floats are integers.
    """
    numbers = [types.float32 if kind == "r" else types.int64 for kind in kinds]
    signature = types.void(types.int64, *numbers)

    def build(context, builder, _, given):
        byte = ir.IntType(8)
        pointer, narrow = ir.PointerType(byte), {"c": byte, "i": ir.IntType(32)}
        address, *values = given
        arguments = []
        for kind, value in zip(kinds, values, strict=True):
            if kind == "p":
                arguments.append(builder.inttoptr(value, pointer))
                continue
            small = value if kind == "r" else builder.trunc(value, narrow[kind])
            place = cgutils.alloca_once(builder, small.type)
            builder.store(small, place)
            arguments.append(builder.bitcast(place, pointer))
        function = ir.FunctionType(ir.VoidType(), [pointer] * len(kinds))
        builder.call(builder.inttoptr(address, function.as_pointer()), arguments)
        return context.get_dummy_value()

    return signature, build


@intrinsic
def sgemm(typing, address, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc):
    """Compute c = alpha op(a) op(b) + beta c, column-major as in BLAS."""
    return fortran("cciiirpipirpi")


@intrinsic
def sgemm_pack(typing, address, which, trans, m, n, k, alpha, a, lda, into):
    """Pack alpha op(a) for products of these sizes."""
    return fortran("cciiirpip")


@intrinsic
def sgemm_compute(typing, address, ta, tb, m, n, k, a, lda, b, ldb, beta, c, ldc):
    """Compute c = op(a) op(b) + beta c, where a is packed (flag PACKED)."""
    return fortran("cciiipipirpi")
