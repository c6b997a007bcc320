"""One row of the benchmark of the product: a score between plain forwards, and peers beside."""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.attention import FEW, Times, give_back, rounds, summary
from benchmarks.product_cases import PEERS_AT, SHAPES, Case, Size, build, prompts_of, size_of
from benchmarks.product_memory import growth
from benchmarks.product_peers import PEERS, peers_of, prepare_peer
from benchmarks.product_runs import eleven_metrics, forwards_needed, plain, scored

LOGITS = 2**30  # bytes of all logits up to which the forward that computes them is timed as well


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
