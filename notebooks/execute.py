"""Run the notebooks and store their outputs, without traces of the machine that ran them.

    python notebooks/execute.py              runs all and writes the outputs into the files
    python notebooks/execute.py 3 9          runs those whose names begin so
    python notebooks/execute.py --check      writes nothing; fails if stored outputs differ in kind

Each notebook runs in an empty folder. Standard error is dropped (progress, compilation), and names
of temporary folders are replaced. Outputs of cells with the tag `varies` (times, memory) are
compared in kind only; in all others the words must be the same and the numbers within a tolerance.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).parent
TIMEOUT = 600  # seconds that a cell may take
RELATIVE, ABSOLUTE = 0.02, 2e-3  # how far a number may be from the stored one
VARIES = "varies"
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d[\d,]*\.?\d*(?:e[-+]?\d+)?|nan|inf)(?!\w)")
# Size of a written page: it depends on which null draws were in the cache of the machine.
_SIZE = re.compile(r"\b[\d.]+ MB\b")
_VERSION = re.compile(r"\b\d+\.\d+\.\d[\w.+]*")  # of Python and packages, in provenance
_TEMPORARY = re.compile(r"\btmp[a-z0-9_]{8}\b")


def paths(names: list[str] | None = None) -> list[Path]:
    """Return the notebooks in reading order.

    Args:
        names: the beginnings of their names; all by default.

    Raises:
        SystemExit: no notebook's name begins so.
    """
    known = sorted(FOLDER.glob("*.ipynb"))
    for name in names or []:
        if not any(path.name.startswith(name) for path in known):
            listed = ", ".join(path.stem for path in known)
            sys.exit(f"no notebook begins with {name!r}; there are {listed}")
    return [p for p in known if not names or any(p.name.startswith(n) for n in names)]


def executed(path: Path) -> Any:
    """Run a notebook from top to bottom in an empty folder and return it with cleaned outputs."""
    book = nbformat.read(path, as_version=4)
    # tqdm warns where no ipywidgets are installed: about this machine, not about the notebook
    quiet = {**os.environ, "PYTHONWARNINGS": "ignore:IProgress not found"}
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            book,
            timeout=TIMEOUT,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": folder}},
        ).execute(env={**quiet, "TMPDIR": folder})
        return cleaned(book, folder)


def cleaned(book: Any, folder: str) -> Any:
    """Return a notebook without standard error, names of temporary folders, and versions."""
    book.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for cell in book.cells:
        if cell.cell_type == "code":
            kept = [o for o in cell.outputs if o.get("name") != "stderr"]
            cell.outputs = [nbformat.from_dict(_without(o, folder)) for o in kept]
    return book


def _without(value: Any, folder: str) -> Any:
    """Replace the folder, and names that `tempfile` makes, in all texts of an output."""
    if isinstance(value, str):
        return _TEMPORARY.sub("tmp", value.replace(folder, "/tmp"))
    if isinstance(value, Mapping):
        return {k: _without(v, folder) for k, v in value.items()}
    return [_without(v, folder) for v in value] if isinstance(value, list) else value


def differences(stored: Any, run: Any) -> Iterator[str]:
    """Yield how the outputs of a run differ from the stored ones, cell by cell."""
    for at, (old, new) in enumerate(zip(stored.cells, run.cells, strict=True)):
        if old.cell_type != "code":
            continue
        kinds = _kinds(old), _kinds(new)
        if kinds[0] != kinds[1]:
            yield f"cell {at}: kinds of output {kinds[0]}, now {kinds[1]}"
        elif VARIES not in old.metadata.get("tags", ()):
            yield from (f"cell {at}: {said}" for said in _changed(_text(old), _text(new)))


def _kinds(cell: Any) -> list[Any]:
    """Return the kinds of the outputs; text that a kernel sends in several pieces is one output."""
    every = [(o.output_type, o.get("name") or sorted(o.get("data", ()))) for o in cell.outputs]
    return [x for i, x in enumerate(every) if x[0] != "stream" or every[i - 1 : i] != [x]]


def _text(cell: Any) -> str:
    parts = (o.get("text") or o.get("data", {}).get("text/plain", "") for o in cell.outputs)
    text = _SIZE.sub("some MB", " ".join(" ".join(parts).split()))
    return _VERSION.sub("a version", text)


def _changed(old: str, new: str) -> Iterator[str]:
    before, now = (re.sub("[-─]+", "-", _NUMBER.sub("#", text)).split() for text in (old, new))
    if before != now:
        pairs = enumerate(zip(before, now, strict=False))
        at = next((i for i, (a, b) in pairs if a != b), min(len(before), len(now)))
        stored, run = (" ".join(words[max(0, at - 3) : at + 4]) for words in (before, now))
        yield f"stored '{stored}', now '{run}'"
        return
    for stored, run in zip(_NUMBER.findall(old), _NUMBER.findall(new), strict=True):
        a, b = (float(x.replace(",", "")) for x in (stored, run))
        same = a == b or (math.isnan(a) and math.isnan(b))
        if not same and not math.isclose(a, b, rel_tol=RELATIVE, abs_tol=ABSOLUTE):
            yield f"stored {stored}, now {run}"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Run the notebooks and store their outputs.")
    parser.add_argument("names", nargs="*", help="beginnings of names; all by default")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    given = parser.parse_args()
    failed = False
    for path in paths(given.names):
        print(path.name, flush=True)
        run = executed(path)
        if given.check:
            found = list(differences(nbformat.read(path, as_version=4), run))
            failed = failed or bool(found)
            print(*(f"  {line}" for line in found), sep="\n", end="\n" if found else "")
        else:
            nbformat.write(run, path)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
