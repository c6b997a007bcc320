"""User-supplied Python files, which declare a metric, define a task or define a model class."""

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
    """Run a file as the module `interp_{kind}_{its name}` and return the module."""
    spec = importlib.util.spec_from_file_location(f"interp_{kind}_{path.stem}", path.resolve())
    if spec is None or spec.loader is None:
        raise OptionError(f"{path} is not a Python file; give one whose name ends in .py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    with own_code(path):
        spec.loader.exec_module(module)
    return module


@contextmanager
def own_code(path: Path) -> Iterator[None]:
    """Run user-supplied code without writing `__pycache__`; report in one line where it raised."""
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
