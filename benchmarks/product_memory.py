"""Peak memory of the benchmark of the product, each run in a process of its own."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

from benchmarks.attention import peak_of
from benchmarks.product_cases import PEERS_AT, Case, build, cases, prompts_of, size_of
from benchmarks.product_peers import PEERS, peers_of, prepare_peer
from benchmarks.product_runs import eleven_metrics, plain

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
