"""What the user types, over the plain forward of the same model: `python -m benchmarks.product`.

    python -m benchmarks.product --memory --peers --parts
    python -m benchmarks.product --case 'gpt2 score' --rounds 9
    python -m benchmarks.product --case nulls --keep -o benchmarks

`interp.score(model, eleven attention metrics, prompts)` without nulls and with them, on models with
random weights whose shapes are those of well-known families. Each run stands between two plain
forwards of the same module in the same process (logits of the last token alone, the least that a
forward may do), and its ratio is taken to their mean; tables show the median ratio by wall time and
by processor time with the middle half of all. With nulls, it is over as many plain forwards as the
nulls need, each round with a new seed; drawing random weights is timed apart and taken off. Peers
(`--peers`) are run beside in the same process. Peak memory (`--memory`) is that of processes of
their own. `--parts` times `interp score FOLDER -o DIR` as a process, part by part. Writes
product.md and product.json, anew after each case; `--keep` replaces only what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.attention import FEW, Times, give_back, peak_of, rounds, summary
from benchmarks.product_cases import (
    PEERS_AT,
    SHAPES,
    Case,
    Size,
    build,
    cases,
    prompts_of,
    size_of,
)
from benchmarks.product_parts import parts_of
from benchmarks.product_peers import PEERS, peers_of, prepare_peer
from benchmarks.product_report import report

ENOUGH = 30.0  # seconds up to which quick rounds are repeated more often than asked
PEAKS = 3  # processes whose peak memory is taken
SHORT = 64  # tokens of the run that loads everything before memory is taken


def eleven_metrics() -> list[str]:
    """The detectors and statistics of attention."""
    from interp.core.registry import METRICS

    return [name for name, entry in METRICS.items() if entry.group == "detectors"]


def forwards_needed(metrics: list[str], draws: int) -> int:
    """Plain forwards that scores with nulls need: the model, shuffled tokens, random weights."""
    from interp.core.registry import METRICS

    kinds = {METRICS.parse(name).analysis.default_null for name in metrics}
    return 1 + ("shuffled-tokens" in kinds) + draws * bool(kinds - {"none"})


class Drawing:
    """Seconds that drawing random weights takes, of each run."""

    def __init__(self) -> None:
        from interp.model import random_weights

        self.runs: list[Times] = []
        self._module: Any = random_weights
        self._plain = random_weights.random_init

    def __enter__(self) -> Drawing:
        self._module.random_init = self._timed
        return self

    def __exit__(self, *_: object) -> None:
        self._module.random_init = self._plain

    def _timed(self, *args: Any, **options: Any) -> Any:
        begin, used = time.perf_counter(), time.process_time()
        made = self._plain(*args, **options)
        last = self.runs[-1]
        clock = last.clock + time.perf_counter() - begin
        self.runs[-1] = Times(clock, last.processor + time.process_time() - used)
        return made


def plain(module: Any, ids: list[list[int]]) -> Callable[[], object]:
    """The plain forward of the module."""
    given = torch.tensor(ids)

    @torch.no_grad()
    def run() -> object:
        return module(input_ids=given, use_cache=False, logits_to_keep=1).logits

    return run


def scored(case: Case, module: Any, ids: list[list[int]], engine: str) -> Callable[[], Any]:
    """What the user types; with nulls, each call has a seed of its own."""
    import interp

    model, metrics, seed = (
        interp.load(module, name=case.shape),
        eleven_metrics(),
        iter(range(10**6)),
    )
    if case.asked == "score":
        return lambda: interp.score(model, metrics, ids, null="none", engine=engine)
    return lambda: interp.score(model, metrics, ids, seed=next(seed), engine=engine)


def measure(case: Case, given: argparse.Namespace) -> dict[str, Any]:
    """One row."""
    size, shape = size_of(case, given.layers, quick=given.quick), SHAPES[case.shape]
    row: dict[str, Any] = {"case": case.name} | case._asdict() | size._asdict()
    row |= {"title": shape.title, "beside": shape.beside, "engine_asked": given.engine}
    row |= {"threads": threads()}
    try:
        module, ids = build(case.shape, size, quick=given.quick), prompts_of(case, size)
        run = scored(case, module, ids, given.engine)
        with Drawing() as drawing:
            found = _timed(case, plain(module, ids), run, drawing, given, row)
    except Exception as error:  # one family that fails leaves the others their numbers
        return row | {"failed": _line(error)}
    row |= summary(found["score"])
    row["plain_seconds"] = statistics.median(here.clock for here, _ in found["plain"])
    if case.bound is not None:
        row["met"] = max(row["clock"][0], row["processor"][0]) <= case.bound
    if given.peers and case.tokens <= PEERS_AT:
        row["peers"] = {p: beside(p, case, size, module, ids, given) for p in peers_of(case)}
    if given.memory and case.asked == "score":
        del module, run, found
        row["growth"] = growth(case, given)
        ours, own = row["growth"].get("score"), row["growth"].get("plain")
        row["growth_ratio"] = ours / own if ours and own else None
    return row


def _timed(
    case: Case,
    forward: Callable[[], object],
    run: Callable[[], Any],
    drawing: Drawing,
    given: argparse.Namespace,
    row: dict[str, Any],
) -> dict[str, list[tuple[Times, Times]]]:
    """The rounds; of nulls over all forwards they need and without drawing weights."""

    def counted() -> Any:
        drawing.runs.append(Times(0.0, 0.0))
        return run()

    begin = time.perf_counter()
    table = counted()
    row["first_call_seconds"] = time.perf_counter() - begin
    engines = {str(made["engine"]) for made in table.provenance.values()}
    row["engine"] = ", ".join(sorted(engines))
    forward()
    found = rounds({"plain": forward, "score": counted}, given.rounds, given.enough)
    row["forwards"] = 1
    if case.asked == "nulls":
        from interp.model.random_weights import DRAWS

        number = row["forwards"] = forwards_needed(eleven_metrics(), DRAWS)
        drawn = drawing.runs[1:]
        row["drawing_seconds"] = statistics.median(each.clock for each in drawn)
        found["score"] = [
            (
                Times(*(a - b for a, b in zip(here, off, strict=True))),
                Times(*(number * x for x in mean)),
            )
            for (here, mean), off in zip(found["score"], drawn, strict=True)
        ]
    return found


def beside(
    peer: str, case: Case, size: Size, module: Any, ids: list[list[int]], given: argparse.Namespace
) -> dict[str, Any]:
    """Another tool between the same plain forwards."""
    try:
        run = prepare_peer(peer, case, size, quick=given.quick)
        run(ids)
        repeats = min(FEW, given.rounds)
        runs = {"plain": plain(module, ids), peer: lambda: run(ids)}
        return {"title": PEERS[peer]} | summary(rounds(runs, repeats, 0, give_back)[peer])
    except Exception as error:  # a peer that does not work here is a line of the table
        return {"title": PEERS[peer], "failed": _line(error)}


def _line(error: Exception) -> str:
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def threads() -> dict[str, int]:
    """Threads of what computes."""
    import numba

    return {"torch": torch.get_num_threads(), "numba": numba.get_num_threads()}


def growth(case: Case, given: argparse.Namespace) -> dict[str, float]:
    """MiB that one run adds to the peak of a process of its own, medians of several."""
    found: dict[str, list[float]] = {}
    if not Path("/proc/self/clear_refs").exists():
        return {}
    peers = peers_of(case) if given.peers and case.tokens <= PEERS_AT else []
    options = ["--quick"] * given.quick + ["--long", "--engine", given.engine]
    options += ["--layers", str(given.layers)] if given.layers else []
    options += ["--threads", str(given.threads)] if given.threads else []
    for method in ("plain", "score", *peers):
        for _ in range(1 if given.quick or method in peers else PEAKS):
            command = [sys.executable, "-m", "benchmarks.product", "--peak", case.name, method]
            done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                found.setdefault(method, []).append(float(done.stdout.split()[-1]))
    return {method: statistics.median(values) for method, values in found.items()}


def peak(name: str, method: str, given: argparse.Namespace) -> float:
    """The same in this process, after a short run has loaded everything."""
    case = next(case for case in cases(long=True) if case.name == name)
    size = size_of(case, given.layers, quick=given.quick)
    ids = prompts_of(case, size)
    short = [ids[0][:SHORT]]
    if method in PEERS:
        run = prepare_peer(method, case, size, quick=given.quick)
        run(short)
        return peak_of(lambda: run(ids))
    module = build(case.shape, size, quick=given.quick)
    if method == "plain":
        plain(module, short)()
        return peak_of(plain(module, ids))
    import interp

    model, metrics = interp.load(module, name=case.shape), eleven_metrics()
    options = {"null": "none", "engine": given.engine}
    interp.score(model, metrics, short, **options)
    return peak_of(lambda: interp.score(model, metrics, ids, **options))


def time_by_part(given: argparse.Namespace) -> dict[str, Any]:
    """`interp score` of a folder with GPT-2 small's shape, all default metrics, as a process."""
    case = cases(long=False)[0]
    size = size_of(case, given.layers, quick=given.quick)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "gpt2-small-shaped"
        build(case.shape, size, quick=given.quick).save_pretrained(source)
        found = parts_of(
            ["score", str(source), "-o", "{out}", "-q"], min(3, given.rounds), given.threads
        )
    return {"layers": size.layers, "threads": threads()} | found


def about(given: argparse.Namespace) -> dict[str, Any]:
    """What the numbers depend on."""
    import transformers

    return {
        "torch": torch.__version__, "transformers": transformers.__version__,
        "python": platform.python_version(), "machine": platform.machine(),
        "processors": os.cpu_count(), "load": os.getloadavg()[0] if os.name == "posix" else None,
        "threads": threads(), "quick": given.quick, "note": given.note,
    }  # fmt: skip


def options(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", default="", metavar="REGEX", help="cases whose name matches")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    parser.add_argument("--rounds", type=int, default=7, help="at least; more where they are quick")
    parser.add_argument("--long", action="store_true", help="16,384 tokens as well")
    parser.add_argument("--peers", action="store_true", help="other tools beside")
    parser.add_argument("--memory", action="store_true", help="peak memory, in own processes")
    parser.add_argument("--parts", action="store_true", help="time by part of `interp score`")
    parser.add_argument("--quick", action="store_true", help="tiny shapes, one round: a test")
    parser.add_argument("--engine", default="auto", help="engine of interp.score")
    parser.add_argument("--layers", type=int, help="of all models; by length unless given")
    parser.add_argument("--threads", type=int, help="as many as torch takes, unless given")
    parser.add_argument("--keep", action="store_true", help="keep rows that are not measured")
    parser.add_argument("--note", default="", help="a sentence about the machine")
    parser.add_argument("-o", "--out", type=Path, default=Path("benchmarks"))
    parser.add_argument("--peak", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error(f"--rounds {given.rounds}: it must be at least 1")
    given.rounds, given.enough = (1, 0.0) if given.quick else (given.rounds, ENOUGH)
    try:
        given.chosen = [c for c in cases(long=given.long) if re.search(given.case, c.name)]
    except re.error as error:
        parser.error(f"--case {given.case}: not a regular expression ({error})")
    if not given.chosen and not given.parts:
        parser.error(f"--case {given.case} matches no case; --list prints their names")
    return given


def main(arguments: list[str] | None = None) -> None:
    """Measures, prints and writes."""
    given = options(arguments)
    warnings.simplefilter("ignore")
    if given.threads:
        import numba

        torch.set_num_threads(given.threads)
        numba.set_num_threads(min(given.threads, numba.get_num_threads()))
    if given.peak:
        name, method = given.peak
        print(peak(name, method, given))
        return
    if given.list:
        print("\n".join(case.name for case in given.chosen))
        return
    given.out.mkdir(parents=True, exist_ok=True)
    figures = given.out / "product.json"
    found: dict[str, Any] = {"rows": [], "parts": None}
    if given.keep and figures.exists():
        found = json.loads(figures.read_text())
    found["about"] = about(given)
    order = [case.name for case in cases(long=True)]

    def write() -> None:
        figures.write_text(json.dumps(found, indent=1) + "\n")
        (given.out / "product.md").write_text(report(found))

    for case in given.chosen:
        row = measure(case, given)
        rows = [other for other in found["rows"] if other["case"] != case.name]
        found["rows"] = sorted([*rows, row], key=lambda each: order.index(each["case"]))
        shown = row.get("failed") or f"{row['clock'][0]:.2f}x, processor {row['processor'][0]:.2f}x"
        print(f"{case.name:22} {shown} (at most {case.bound})", flush=True)
        write()
    if given.parts:
        found["parts"] = time_by_part(given)
        write()
    print((given.out / "product.md").read_text())


if __name__ == "__main__":
    main()
