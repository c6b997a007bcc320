"""Compilation of the compiled pass: optimised once, as a whole.

By default numba compiles every function to machine code alone, and again inside its callers. Here
the parts only ever run as parts of the whole.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

from numba import njit
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
