"""Time by part of one command as a process: `python -m benchmarks.product_parts FILE COMMAND...`.

Runs `interp COMMAND...` in this process with timers around public functions, and writes the seconds
of each part to FILE. A part does not count what another part takes inside it; a null counts all of
its work but imports and drawing weights. What no timer sees is "other".
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Part, module, and the name in it. `Timers.part` tells the run of the model from those of its null.
TARGETS = (
    ("load", "interp.model.loading", "Loading.load"),
    ("check", "interp.model.check", "check_model"),
    ("forward", "interp.heads.engine", "reduce_patterns"),
    ("weights metrics", "interp.heads.declaration", "BoundAnalysis.from_weights"),
    ("drawing random weights", "interp.model.random_weights", "random_init"),
    ("hash", "interp.model.content", "content_hash"),
    ("tables", "interp.heads.score_rows", "table_of_rows"),
    ("tables", "interp.core.table", "HeadTable.concat"),
    ("tables", "interp.core.table", "HeadTable.to_parquet"),
    ("tables", "interp.core.table", "HeadTable.to_csv"),
    ("tables", "interp.core.store", "Store.find"),
    ("tables", "interp.core.store", "Store.read"),
    ("tables", "interp.core.store", "Store.write"),
    ("tables", "interp.report.printed.scores", "top_heads"),
    ("pages", "interp.report.atlas.build", "build_atlas"),
    ("pages", "interp.report.atlas.page", "atlas_page"),
)
NULL, OTHER, OUTSIDE = "null", "other", "start and end of the process"
PARTS = (
    *("import", "load", "check", "hash", "forward", NULL, "drawing random weights"),
    *("weights metrics", "tables", "pages", OTHER, OUTSIDE),
)
LARGE = ("forward", "load")  # the parts that may be above a tenth of the whole
MOST = 0.1


class Timers:
    """Seconds of wall and processor time per part, each without the parts inside it."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
        self.calls: dict[str, int] = defaultdict(int)
        self.missing: list[str] = []
        self._stack = [OTHER]
        self._at = self._now()
        self._random: set[int] = set()
        self._prompts: Any = None

    def _now(self) -> tuple[float, float]:
        return time.perf_counter(), time.process_time()

    def _turn(self) -> None:
        """Give the time since the last turn to the part that ran."""
        now = self._now()
        for i in range(2):
            self.seconds[self._stack[-1]][i] += now[i] - self._at[i]
        self._at = now

    def wrap(self, function: Callable, part: str) -> Callable:
        """The function, timed."""

        @functools.wraps(function)
        def timed(*args: Any, **options: Any) -> Any:
            self._turn()
            here = self.part(part, args)
            self._stack.append(here)
            self.calls[here] += 1
            try:
                made = function(*args, **options)
            finally:
                self._turn()
                self._stack.pop()
            if part == "drawing random weights":
                self._random.add(id(made))
            return made

        return timed

    def part(self, part: str, args: tuple) -> str:
        """The part that a call belongs to: null if it runs random weights or other prompts."""
        if part in ("import", "drawing random weights"):
            return part
        if NULL in self._stack:
            return NULL
        if part == "forward":
            first = self._prompts is None
            self._prompts = args[1] if first else self._prompts
            return NULL if id(args[0]) in self._random or args[1] is not self._prompts else part
        if part == "weights metrics":
            return NULL if id(args[1]) in self._random else part
        return part

    def time_imports(self) -> None:
        """Time every import from here on, where Python looks for a module not yet loaded."""
        bootstrap: Any = sys.modules["_frozen_importlib"]
        bootstrap._find_and_load = self.wrap(bootstrap._find_and_load, "import")

    def time(self, part: str, module: str, name: str) -> None:
        """Time a function or method; one that is not there is named in `missing`."""
        owner: Any = importlib.import_module(module)
        *classes, last = name.split(".")
        for each in classes:
            owner = getattr(owner, each, None)
        found = vars(owner).get(last) if owner is not None else None
        if found is None:
            self.missing.append(f"{module}.{name}")
            return
        if classes:
            plain = getattr(found, "__func__", found)
            timed = self.wrap(plain, part)
            setattr(owner, last, type(found)(timed) if plain is not found else timed)
            return
        timed = self.wrap(found, part)
        for key, held in list(sys.modules.items()):  # also where it was imported by name
            if (
                key.partition(".")[0] == "interp"
                and getattr(held, "__dict__", {}).get(last) is found
            ):
                setattr(held, last, timed)

    def total(self) -> None:
        """Close the account."""
        self._turn()


def run_here(out: Path, command: list[str]) -> None:
    """Run the command in this process and write its parts, however it ends."""
    timers = Timers()
    timers.time_imports()
    importlib.import_module("interp.heads.sweep.scored_models")
    for target in TARGETS:
        timers.time(*target)
    from interp.cli.main import main

    sys.argv = ["interp", *command]
    try:
        main(prog_name="interp")
    finally:
        timers.total()
        found = {"seconds": timers.seconds, "calls": timers.calls, "missing": timers.missing}
        out.write_text(json.dumps(found))


def parts_of(command: list[str], rounds: int, threads: int | None = None) -> dict[str, Any]:
    """Medians per part over processes of the command; `{out}` in it is an empty folder.

    Every process has an empty cache of nulls, so that each computes its own.
    """
    runs: list[dict[str, Any]] = []
    compiled = tempfile.TemporaryDirectory()
    environment = as_installed(compiled.name, threads)
    for _ in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "parts.json"
            asked = [text.replace("{out}", str(Path(folder) / "results")) for text in command]
            begin, used = time.perf_counter(), children()
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.product_parts", str(out), *asked],
                capture_output=True,
                text=True,
                check=False,
                env=environment | {"XDG_CACHE_HOME": str(Path(folder) / "cache")},
            )
            whole = [time.perf_counter() - begin, children() - used]
            if done.returncode or not out.exists():
                return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1]}
            run = json.loads(out.read_text())
        seconds = run["seconds"]
        inside = [sum(pair[i] for pair in seconds.values()) for i in range(2)]
        seconds[OUTSIDE] = [max(0.0, whole[i] - inside[i]) for i in range(2)]
        runs.append(run | {"whole": whole})
    compiled.cleanup()
    runs = runs[1:]  # the first one compiled every module
    whole = [statistics.median(run["whole"][i] for run in runs) for i in range(2)]
    parts = {}
    for part in PARTS:
        pairs = [run["seconds"].get(part, [0.0, 0.0]) for run in runs]
        clock, processor = (statistics.median(pair[i] for pair in pairs) for i in range(2))
        share = statistics.median(
            pair[0] / run["whole"][0] for pair, run in zip(pairs, runs, strict=True)
        )
        parts[part] = {
            "clock": clock,
            "processor": processor,
            "share": share,
            "calls": runs[0]["calls"].get(part, 0),
            "met": part in LARGE or share <= MOST,
        }
    return {
        "rounds": rounds,
        "clock": whole[0],
        "processor": whole[1],
        "parts": parts,
        "missing": runs[0]["missing"],
    }


def as_installed(compiled: str, threads: int | None = None) -> dict[str, str]:
    """The environment of a process that reads compiled modules, as an installed package does.

    The first process that is given it compiles them into the folder.
    """
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS") if threads else ()
    found = {**os.environ, **dict.fromkeys(names, str(threads)), "PYTHONPYCACHEPREFIX": compiled}
    found.pop("PYTHONDONTWRITEBYTECODE", None)
    return found


def children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    run_here(Path(sys.argv[1]), sys.argv[2:])
