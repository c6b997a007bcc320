"""Rows of the benchmark of the product: time, peers, memory, loading and a wrong argument."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.attention import FEW, Times, give_back, peak_of, rounds, summary
from benchmarks.product_cases import (
    PEERS,
    PEERS_AT,
    SHAPES,
    Case,
    Size,
    build,
    cases,
    eleven_metrics,
    forwards_needed,
    peers_of,
    plain,
    prepare_peer,
    prompts_of,
    scored,
    size_of,
)
from benchmarks.product_parts import as_installed, children

WEIGHTS, LOADING, WRONG = 2.0, 2.0, 1.0  # bounds: forwards, plain loads, seconds of a processor
LOGITS = 2**30  # bytes of all logits up to which the forward that computes them is timed as well
PEAKS = 3  # processes whose peak memory is taken
SHORT = 64  # tokens of the run that loads everything before memory is taken


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
            runs = {"plain": plain(module, ids)}
            if 4 * case.prompts * size.tokens * module.config.vocab_size <= LOGITS:
                runs["all logits"] = plain(module, ids, last=0)
            found = _timed(case, runs, run, drawing, given, row)
    except Exception as error:  # one family that fails leaves the others their numbers
        return row | {"failed": _line(error)}
    row |= summary(found["score"])
    row["plain_seconds"] = statistics.median(here.clock for here, _ in found["plain"])
    row["met"] = max(row["clock"][0], row["processor"][0]) <= case.bound
    if "all logits" in found:
        row["over_all_logits"] = _over_all_logits(found, row["forwards"])
        row["met_over_all_logits"] = max(row["over_all_logits"].values()) <= case.bound
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
    runs: dict[str, Callable[[], object]],
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
    for forward in runs.values():
        forward()
    found = rounds({**runs, "score": counted}, given.rounds, given.enough)
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


def _over_all_logits(
    found: dict[str, list[tuple[Times, Times]]], forwards: int
) -> dict[str, float]:
    """Median seconds over those of the forward that computes the logits of all tokens."""
    ratios = {}
    for kind in Times._fields:
        ours, whole = (
            statistics.median(getattr(here, kind) for here, _ in found[name])
            for name in ("score", "all logits")
        )
        ratios[kind] = ours / (forwards * whole)
    return ratios


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


def beside_all(repeats: int, *, quick: bool) -> list[dict[str, Any]]:
    """Every row: what was asked, over what, and the ratio or the seconds with the bound."""
    return [*_weights(repeats, quick), *_loading(repeats, quick), _wrong_argument(repeats)]


def _weights(repeats: int, quick: bool) -> list[dict[str, Any]]:
    """Each weights metric without nulls over one forward of 1,024 tokens, on GPT-2 small."""
    import interp
    from interp.core.registry import METRICS

    case = next(c for c in cases(long=False) if c.name == "gpt2 score 1024")
    size = size_of(case, None, quick=quick)
    module = build(case.shape, size, quick=quick)
    model = interp.load(module, name=case.shape)
    runs = {"plain": plain(module, prompts_of(case, size))}
    for name in (name for name, entry in METRICS.items() if entry.group == "weights"):
        runs[name] = lambda name=name: interp.score(model, name, null="none")
    found = _rounds(runs, repeats)
    return [
        _ratio(f"`{name}` of all heads", f"one forward of {size.tokens:,} tokens", found[name])
        for name in runs
        if name != "plain"
    ]


def _loading(repeats: int, quick: bool) -> list[dict[str, Any]]:
    """Loading a folder with the self-check over plain loading by transformers.

    The bound is for a small model. Plain loading maps a large file without reading it, and a
    self-check runs the model, which reads it; that row has no bound.
    """
    from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel

    import interp

    case = cases(long=False)[0]
    config = GPT2Config(
        n_layer=4,
        n_head=4,
        n_embd=128,
        vocab_size=1000,
        n_positions=128,
        bos_token_id=0,
        eos_token_id=1,
    )
    models = {
        "4 layers of width 128": lambda: GPT2LMHeadModel(config),
        "GPT-2 small's shape": lambda: build(
            case.shape, size_of(case, None, quick=quick), quick=quick
        ),
    }
    rows = []
    for title, make in models.items():
        with tempfile.TemporaryDirectory() as folder:
            make().save_pretrained(folder)
            runs = {
                "plain": lambda folder=folder: AutoModelForCausalLM.from_pretrained(folder),
                "load": lambda folder=folder: interp.load(folder),
            }
            found = _rounds(runs, max(FEW, repeats))
        row = _ratio(f"`interp.load(FOLDER)`, {title}", "`from_pretrained`", found["load"], LOADING)
        rows.append(row if not rows else row | {"bound": None})
    return rows


def _rounds(
    runs: dict[str, Callable[[], object]], repeats: int
) -> dict[str, list[tuple[Times, Times]]]:
    for run in runs.values():
        run()
    with torch.no_grad():
        return rounds(runs, repeats, 0)


def _ratio(
    what: str, over: str, runs: list[tuple[Times, Times]], bound: float = WEIGHTS
) -> dict[str, Any]:
    row = {"what": what, "over": over, "bound": bound} | summary(runs)
    return row | {"met": max(row["clock"][0], row["processor"][0]) <= bound}


def _wrong_argument(repeats: int) -> dict[str, Any]:
    """Processor seconds until a metric that does not exist is told."""
    command = [sys.executable, "-m", "interp", "score", "bundled:induction", "-m", "no_such_metric"]
    root, seconds = Path(__file__).parents[1], []
    with tempfile.TemporaryDirectory() as compiled:
        options = {"env": as_installed(compiled), "cwd": root, "capture_output": True}
        for _ in range(1 + min(FEW, repeats)):
            before = children()
            done = subprocess.run(command, text=True, check=False, **options)
            if done.returncode != 2:
                raise RuntimeError(f"exit code {done.returncode} instead of 2: {done.stderr}")
            seconds.append(children() - before)
    del seconds[0]  # the first one compiled every module
    middle = statistics.median(seconds)
    row = {"what": "`interp score MODEL -m no_such_metric`", "over": None, "bound": WRONG}
    return row | {"rounds": len(seconds), "seconds": middle, "met": middle <= WRONG}
