"""Ways to find circuits on models whose circuit is known: one table, method by task.

    python benchmarks/circuits.py [--pairs N] [--model FOLDER] [--out DIR]

Every method of the room `interp.circuits.methods`, and some of their options. Scores are from one
set of pairs, CMD from another. Programs compiled by Tracr are there if it is installed
(`pip install 'interp[tracr]'`). FOLDER is a model to try indirect object identification on, where
no circuit is known. Writes circuits.md and circuits.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import interp
from interp import planted
from interp.causal.task import Task
from interp.circuits.bootstrap import ranking_stability
from interp.circuits.contrast import ContrastTask
from interp.circuits.declaration import Found
from interp.circuits.evaluation import evaluate
from interp.circuits.find import score_nodes
from interp.circuits.methods._ranking import marked
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast, split_templates
from interp.circuits.tasks.planted_pairs import contrast
from interp.core.errors import InterpError
from interp.core.files import write_atomically
from interp.core.prompts import Prompts
from interp.core.registry import CIRCUIT_METHODS
from interp.core.statistics import auroc
from interp.model.locate.probe import probe
from interp.model.model import Model

VARIANTS: dict[str, tuple[dict[str, Any], ...]] = {
    "attribution_patching": ({"qk_fix": True}, {"qk_fix": True, "grad_drop": True}),
    "integrated_patching": ({"path": "activations"},),
    "codes": ({"position": "last"},),
}
SLOW: tuple[dict[str, Any], ...] = (
    {"path": "activations"},
    {"qk_fix": True, "grad_drop": True},
)  # a minute each on a model of 128 heads
NOTHING = 1e-3  # of the largest score: below it an edge of a compiled program counts as not found
IOI_PAIRS = 64  # fewer do not show that a small model does it at all
SMALLER = {"screen_verify": {"candidates": 10, "primaries": 2}, "codes": {"repeats": 2}}
PLANTED: dict[str, dict[str, int]] = {
    "bystander": {"layers": 3, "heads": 8, "kv_heads": 4, "vocab": 48, "context": 64},
    "backup": {"layers": 3, "heads": 8, "kv_heads": 4, "vocab": 48, "context": 64},
    "zoo": {"vocab": 48, "context": 64},
}
WITHOUT_TRACR = (
    "Tracr is not installed (`pip install 'interp[tracr]'`), so its programs are left out."
)


def methods(*, slow: bool = True) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Label, name and options of every method there is, and of variants; some of them slow."""
    for name in CIRCUIT_METHODS:
        for options in ({}, *VARIANTS.get(name, ())):
            if slow or options not in SLOW:
                told = ", ".join(f"{k}={v}" for k, v in options.items())
                yield f"{name} {told}".rstrip(), name, options


def measured(
    model: Model,
    pairs: ContrastTask,
    fresh: ContrastTask,
    *,
    large: bool = False,
) -> list[dict[str, Any]]:
    """One row per method: what it found on `pairs`, measured on `fresh`."""
    truth = {h for heads in pairs.truth.values() for h in heads}
    rows, plain = [], _forward(model, pairs)
    changed, n_random = (SMALLER, 5) if large else ({}, 20)
    for label, method, options in methods(slow=not large):
        row: dict[str, Any] = {
            "model": model.name, "task": pairs.name, "method": label, "pairs": len(pairs),
        }  # fmt: skip
        rows.append(row)
        begin = time.perf_counter()
        try:
            chosen = changed.get(method, {}) | options
            found = score_nodes(model, pairs, method, "head", **chosen)
            took = time.perf_counter() - begin
            circuit = Circuit.of(model, pairs, method, "head", chosen, found)
            result = evaluate(model, circuit, fresh, n_random=n_random)
        except InterpError as error:
            row["note"] = str(error)
            continue
        at = [circuit.nodes.index(h) for h in circuit.head_names]
        size = np.abs(circuit.largest[at])
        low, high = result.area_interval()
        row |= {
            "auroc": auroc(size, marked(circuit.head_names, truth)) if truth else None,
            "cmd": result.cmd, "cmd_low": low, "cmd_high": high,
            "random_cmd": float(result.random_cmd.mean()), "cpr": result.cpr,
            "jaccard": _jaccard(found, at, max(2, len(truth))),
            "forwards": found.forwards, "backwards": found.backwards,
            "seconds": took, "times_a_forward": took / plain,
        }  # fmt: skip
    return rows


def _jaccard(found: Found, at: list[int], k: int) -> float | None:
    if found.per_prompt.shape[1] < 2:
        return None
    other = None if found.conditional is None else found.conditional[at]
    return ranking_stability(found.per_prompt[at], k, conditional=other)[0]


def _forward(model: Model, pairs: ContrastTask) -> float:
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        for batch in pairs.batches():
            model.run(batch.clean)
        took.append(time.perf_counter() - begin)
    return sorted(took)[1]


def programs() -> list[dict[str, Any]]:
    """AUROC of every method's edges against those of the weights, on compiled programs."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of jax and haiku, while they are imported
        from circuits.test_tracr import NAMES, compiled_program, setting
        from circuits.test_tracr import auroc as of_edges

        ready = {name: (setting(name), compiled_program(name)[1].edges) for name in NAMES}
    rows = []
    for name, ((graph, clean, corrupted, _), edges) in ready.items():
        task = _whole_output(graph.model, clean, corrupted, name)
        for label, method, options in methods():
            row: dict[str, Any] = {"program": name, "method": label, "pairs": len(task)}
            rows.append(row)
            if "edge" not in CIRCUIT_METHODS.load(method).levels:
                row["note"] = f"{method} scores no edges"
                continue
            try:
                found = score_nodes(graph.model, task, method, "edge", **options)
            except InterpError as error:
                row["note"] = str(error)
                continue
            known = [i for i, (_, b) in enumerate(found.edges) if b in graph.reader_index]
            if not known:
                row["note"] = f"{method} scores pairs of heads, which are no edges of the graph"
                continue
            scores = _matrix(graph, found, known)
            row |= {"auroc": of_edges(graph, edges, scores), "of": len(graph.edges),
                    "true": len(edges)}  # fmt: skip
    return rows


def _matrix(graph: ResidualGraph, found: Any, known: list[int]) -> Any:
    import torch

    out = torch.zeros(1, len(graph.readers), len(graph.writers))
    mean = np.abs(found.edges_per_prompt).mean(1)  # programs do different things on pairs
    mean = np.where(np.abs(mean) < NOTHING * np.abs(mean).max(), 0.0, mean)
    for i in known:
        a, b = found.edges[i]
        out[0, graph.reader_index[b], graph.index[a]] = float(mean[i])
    return out


def _whole_output(model: Model, clean: Any, corrupted: Any, name: str) -> ContrastTask:
    """How far the output lies from the corrupted one (0) to the clean one (1)."""
    import torch

    with torch.no_grad():
        towards = (model.run(clean) - model.run(corrupted))[:, 1:]
    towards = towards / towards.square().sum((1, 2), keepdim=True)

    def read(logits: Any, prompt: int) -> Any:
        return (logits * towards[prompt]).sum()

    sides = (Prompts(tuple(tuple(row) for row in ids.tolist())) for ids in (clean, corrupted))
    prompts, other = sides
    positions = (tuple(range(1, clean.shape[1])),) * len(clean)
    return ContrastTask(
        Task(name, prompts, positions, "share", True, read_prompt=read, corrupted=other)
    )


def report(rows: list[dict[str, Any]], compiled: list[dict[str, Any]] | None) -> str:
    """The page."""
    lines = [
        "# Ways to find circuits",
        "",
        "AUROC of the sizes of scores against the known circuit; CMD on other pairs, heads outside"
        " replaced by their corrupted values (0 is best), with its 95 % interval over pairs, and"
        " that of random orders; Jaccard of the first heads when pairs are drawn anew (of"
        " autoencoders, for codes); passes over all pairs; time as a multiple of one forward pass"
        f" over them. {' and '.join(map(str, sorted({r['pairs'] for r in rows})))} pairs. Shares of"
        " heads, so CMD does not compare with figures over edges elsewhere. Two CPU cores shared"
        " with other work. Made by `benchmarks/circuits.py`.",
        "",
        "Planted models of 3 or 4 layers of 8 heads: a previous-token and an induction head among"
        " random ones; *bystander* has a head with the induction head's attention that nobody"
        " reads, *backup* one that works only when the induction head does not, *zoo* both, and a"
        " head that takes half of the prediction back. ioi: templates that were held out, fewer"
        f" candidates ({SMALLER['screen_verify']['candidates']}) and autoencoders"
        f" ({SMALLER['codes']['repeats']}); no circuit of that model is known.",
        "",
        "| model, task | method | AUROC | CMD | random | Jaccard | forwards | backwards | time |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    notes = []
    for row in rows:
        start = f"| {row['model']}, {row['task']} | {row['method']} |"
        if "note" in row:
            lines.append(f"{start} note {_noted(row['note'], notes)} | | | | | | |")
            continue
        truth, again = (_number(row[k], d) for k, d in (("auroc", 3), ("jaccard", 2)))
        lines.append(
            f"{start} {truth} | {row['cmd']:.3f} [{row['cmd_low']:.3f}, {row['cmd_high']:.3f}] |"
            f" {row['random_cmd']:.3f} | {again} | {row['forwards']:.0f} | {row['backwards']:.0f} |"
            f" {row['times_a_forward']:.0f}x |"
        )
    lines += ["", "## Compiled programs", ""]
    lines += [WITHOUT_TRACR] if compiled is None else _programs(compiled, notes)
    if notes:
        lines += ["", "Notes:", *(f"{i + 1}. {note}" for i, note in enumerate(notes))]
    return "\n".join(lines) + "\n"


def _noted(note: str, notes: list[str]) -> int:
    """The number of a note below the tables, the same for the same words."""
    if note not in notes:
        notes.append(note)
    return notes.index(note) + 1


def _number(x: float | None, digits: int) -> str:
    return "" if x is None else f"{x:.{digits}f}"


def _programs(rows: list[dict[str, Any]], notes: list[str]) -> list[str]:
    names = list(dict.fromkeys(r["program"] for r in rows))
    by_method: dict[str, dict[str, dict]] = {}
    for row in rows:
        by_method.setdefault(row["method"], {})[row["program"]] = row
    lines = [
        "AUROC of all edges of the residual graph against those through which the weights carry"
        f" something of the words to the output; {rows[0]['pairs']} pairs, and the share of the"
        f" clean output that is left. Scores below {NOTHING:g} of the largest count as nothing."
        " Attention in these programs is all or nothing, so one gradient"
        " by its scores is nothing. `reverse` needs lengths, which both sides share: nothing shows"
        " those edges.",
        "",
        "| method | " + " | ".join(names) + " |",
        "|---|" + "---|" * len(names),
    ]
    for method, found in by_method.items():
        cells = []
        for name in names:
            row = found[name]
            cells.append(
                f"note {_noted(row['note'], notes)}" if "note" in row else f"{row['auroc']:.3f}"
            )
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, sizes in PLANTED.items():
        built = planted.build(name, **sizes)
        model = probe(built.model, f"planted:{name}")
        rows += measured(model, *(contrast(model, built, n=given.pairs, seed=s) for s in (0, 1)))
    model = interp.load("bundled:induction")
    pairs, fresh = (make_contrast(model, "induction", n=given.pairs, seed=s) for s in (0, 1))
    rows += measured(model, pairs, fresh)
    if given.model:
        model = interp.load(given.model)
        pairs, fresh = (
            make_contrast(model, "ioi", n=IOI_PAIRS, seed=s, templates=t)
            for s, t in enumerate(split_templates("ioi"))
        )
        rows += measured(model, pairs, fresh, large=True)
    compiled = programs() if importlib.util.find_spec("tracr") else None
    if compiled is None:
        print(WITHOUT_TRACR)
    whole = {"heads": rows, "programs": compiled}
    write_atomically(given.out / "circuits.md", report(rows, compiled).encode())
    write_atomically(given.out / "circuits.json", (json.dumps(whole, indent=1) + "\n").encode())


if __name__ == "__main__":
    main()
