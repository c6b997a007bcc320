"""Count the files of interp in which code runs during a load and during a warm score.

    python benchmarks/files_touched.py

A file counts when a function, method or comprehension of it runs; importing a module for the
first time does not count, because nothing of it need be read to follow the call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType

import interp

HOUSE = Path(interp.__file__).parent
"""The folder of the package."""


def files_touched(call: Callable[[], object]) -> list[str]:
    """List the files of `interp` in which a function body runs while `call` runs.

    Args:
        call: a function without arguments.

    Returns:
        paths relative to the package, sorted.
    """
    seen: set[CodeType] = set()

    def note(frame: object, event: str, _argument: object) -> None:
        if event == "call":
            seen.add(frame.f_code)  # pyright: ignore[reportAttributeAccessIssue]

    assert interp.__version__  # modules read it when they are imported, which does not count
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(before)
    files = {
        Path(code.co_filename)
        for code in seen
        if code.co_name != "<module>" and not _is_class_body(code)
    }
    return sorted(str(path.relative_to(HOUSE)) for path in files if path.is_relative_to(HOUSE))


def _is_class_body(code: CodeType) -> bool:
    """Tell whether the code is the body of a class, which runs once, at import."""
    return "__module__" in code.co_names and "__qualname__" in code.co_names


def touched_by_load(source: str = "bundled:induction") -> list[str]:
    """List the files that the first load of a model touches."""
    return files_touched(lambda: interp.load(source))


def touched_by_score(source: str = "bundled:induction", metric: str = "induction") -> list[str]:
    """List the files that a second identical score of a loaded model touches."""
    model = interp.load(source)
    interp.score(model, metric)
    return files_touched(lambda: interp.score(model, metric))


def main() -> None:
    """Print both lists with their lengths."""
    for name, files in (("load", touched_by_load()), ("warm score", touched_by_score())):
        print(f"{name}: {len(files)} files of interp")
        for file in files:
            print(f"    {file}")


if __name__ == "__main__":
    main()
