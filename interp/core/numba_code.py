"""Functions that numba compiles, which says what to install where it is missing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

from interp.core.installed import package_error


def compiled_by_numba(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator that compiles a function on its first call, kept in numba's cache.

    Without numba the function raises OptionError when it is called, with the command that installs
    it: in plain Python it would take hundreds of times as long.
    """
    try:
        from numba import njit
    except ImportError as error:
        return partial(_refused, error)
    return njit(cache=True, **options)


def _refused(error: ImportError, function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def missing(*args: Any, **kwargs: Any) -> Any:
        purpose = f"{function.__module__}, which computes in compiled code,"
        raise package_error(error, purpose, "numba", "pip install 'interp[kernels]'") from error

    return missing
