"""Python files of the caller's own, which declare a metric, make a task or hold a model's class."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from interp.core.errors import InterpError, OptionError


def run_file(path: Path, kind: str) -> ModuleType:
    """The module that a file makes, kept as `interp_{kind}_{its name}`.

    Raises:
        OptionError: the file does not parse, or its code raises; names the line.
    """
    spec = importlib.util.spec_from_file_location(f"interp_{kind}_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise OptionError(f"{path} is not a Python file; give one whose name ends in .py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    with own_code(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def own_code(path: Path) -> Iterator[None]:
    """Leaves no `__pycache__` beside the file, and says in one line where it raised.

    Raises:
        OptionError: the code raised something that was not meant for the caller.
    """
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    except InterpError:
        raise
    except Exception as error:
        here = str(path.resolve())
        lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == here]
        if isinstance(error, SyntaxError) and error.filename == here:
            lines.append(error.lineno)
        where = f"{path}, line {lines[-1]}" if lines else str(path)
        said = error.msg if isinstance(error, SyntaxError) else " ".join(str(error).split())
        raise OptionError(f"{where}: {type(error).__name__}: {said[:300]}") from error
    finally:
        sys.dont_write_bytecode = writes
