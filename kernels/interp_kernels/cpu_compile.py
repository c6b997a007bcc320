"""Compilation of the compiled pass: optimised once, as a whole.

By default numba compiles every function to machine code alone, and again inside its callers. Here
the parts only ever run as parts of the whole.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from numba import njit
from numba.core import event
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class PartLibrary(JITCodeLibrary):
    """Code that is optimised and turned into machine code only with the code it is linked into.

    The skipped steps are numba's own: a version that renames them runs them, and takes longer.
    """

    # This step writes addresses of Python objects into the code, which has none.
    codegen: Any = SimpleNamespace(set_env=lambda name, environment: None)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class PartCompiler(Compiler):
    """Compiler of numba that produces such a library."""

    def define_pipelines(self) -> Any:
        """Return numba's own passes."""
        state: Any = self.state
        if state.library is None:
            name = state.func_id.func_qualname
            state.library = PartLibrary(state.targetctx.codegen(), name)
        return super().define_pipelines()


# Called only from compiled code, so no Python wrappers are built: saves a seventh of the time. The
# caller owns all memory, so no references are counted: saves a tenth of the running time.
_OPTIONS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
inner: Any = partial(njit, error_model="numpy", pipeline_class=PartCompiler, **_OPTIONS)


@contextmanager
def uncollected() -> Iterator[None]:
    """Suspend the search for cycles among millions of objects: saves an eighth of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


QUIET = "INTERP_KERNELS_QUIET"  # environment variable that silences the line about a compilation


class Said(event.Listener):
    """Line on stderr before a compilation; a function that is read from the cache starts none."""

    def __init__(self, dispatcher: Any) -> None:
        self.dispatcher, self.done = dispatcher, bool(os.environ.get(QUIET))

    def on_start(self, _event: Any) -> None:
        """Say once that a compilation begins; its parts are compilations of their own."""
        if self.done:
            return
        self.done = True
        folder = self.dispatcher.stats.cache_path
        where = (
            "for this process alone: neither its folder nor the user's cache folder can be "
            "written; set NUMBA_CACHE_DIR to a folder that can"
            if folder is None
            else f"once per machine (stored in {folder})"
        )
        told = f"interp_kernels: compiling the CPU kernel, about 5 s of processor time, {where}"
        print(told, file=sys.stderr, flush=True)

    def on_end(self, _event: Any) -> None:
        """Say nothing."""


def built(function: Callable[..., Any], signature: Any, **options: Any) -> Any:
    """Return a function compiled for one signature, or read from numba's cache.

    The cache is written once per machine: files are replaced whole, so that processes that compile
    at once, or are interrupted, leave either the old or the new one. A damaged cache is written
    anew; where it cannot be written, the function is compiled in every process. A compilation is
    announced in one line on stderr.
    """
    try:
        dispatcher = njit(cache=True, **options)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        dispatcher = njit(**options)(function)  # no folder for a cache is writable
    with uncollected(), event.install_listener("numba:compile", Said(dispatcher)):
        try:
            dispatcher.compile(signature)
        except Exception as error:
            if not dispatcher.overloads:
                _without_damage(dispatcher, signature, error)
    dispatcher.disable_compile()
    return dispatcher


def _without_damage(dispatcher: Any, signature: Any, error: Exception) -> None:
    """Compile again, since the cache may be damaged; with another cause it raises again."""
    cache = dispatcher._cache
    if getattr(cache, "cache_path", None) is None:
        raise error
    with contextlib.suppress(OSError):
        cache.flush()
    try:
        dispatcher.compile(signature)
    except OSError:  # it is compiled and cannot be stored: the disk is full or read-only
        if not dispatcher.overloads:
            raise
