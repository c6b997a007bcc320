"""How the compiled pass is compiled: optimised once, as a whole.

numba by itself takes every function down to machine code alone, and once more inside whatever
calls it. Here the parts are only ever run as parts of the whole.
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
    """Code that is optimised, and turned into machine code, with what it is linked into.

    The steps left out are numba's own: a version that names them otherwise takes them, and time.
    """

    # Writes the address of a Python object into the machine code, of which there is none.
    codegen: Any = SimpleNamespace(set_env=lambda name, environment: None)

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True


class PartCompiler(Compiler):
    """numba's compiler, into such a library."""

    def define_pipelines(self) -> Any:
        """numba's own passes."""
        state: Any = self.state
        if state.library is None:
            name = state.func_id.func_qualname
            state.library = PartLibrary(state.targetctx.codegen(), name)
        return super().define_pipelines()


# Only ever called from compiled code, so no wrappers for Python are built: a seventh of the time.
# Memory is all the caller's, so nothing counts references: a tenth of the running time.
_OPTIONS: Any = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True, "_nrt": False}
inner: Any = partial(njit, error_model="numpy", pipeline_class=PartCompiler, **_OPTIONS)


@contextmanager
def uncollected() -> Iterator[None]:
    """No search for cycles while objects come to be by the million: an eighth of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()
