"""Circuit methods on models whose circuit is known: planted, compiled and trained ones.

    python -m benchmarks.ground_truth [--only trained,compiled] [--methods NAME,...] [--pairs 16]
    python -m benchmarks.ground_truth --null      # only how often there is a false circuit
    python -m benchmarks.ground_truth --roles     # only the roles of heads
    python -m benchmarks.ground_truth --sets      # only the smallest sets, and what matters
    python -m benchmarks.ground_truth --sets --model MODEL --tasks ioi  # of an unknown circuit
    python -m benchmarks.ground_truth --peers FOLDER   # only other packages (ground_truth_peers)
    python -m benchmarks.ground_truth --page      # only write the page from the stored rows

Every method ranks nodes and edges on pairs of two seeds; the ranking is compared with the known
circuit. Rows are stored after each measurement in ground_truth.json, and a run goes on where the
last one stopped. Writes ground_truth.md.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import rankdata

import interp
from benchmarks.ground_truth_null import null_rows
from benchmarks.ground_truth_page import CLASSES, UNKNOWN, ground_truth_page
from benchmarks.ground_truth_peers import peer_results
from benchmarks.ground_truth_roles import NAMES, role_row
from benchmarks.ground_truth_sets import (
    OF_TRAINED,
    OF_UNKNOWN,
    PAIRS,
    PAIRS_OF,
    Known,
    set_row,
    unknown_row,
)
from benchmarks.ground_truth_sets import SEEDS as SET_SEEDS
from benchmarks.rounded import rounded
from interp.circuits.contrast import ContrastTask
from interp.circuits.declaration import Found
from interp.circuits.edge_evaluation import comparable, evaluate_edges
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.find import score_nodes
from interp.circuits.node_outputs import paired_outputs
from interp.circuits.nodes import node_of
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.result import Circuit
from interp.circuits.tasks import TASKS, make_contrast
from interp.core.errors import InterpError
from interp.core.files import write_atomically
from interp.core.registry import CIRCUIT_METHODS
from interp.core.statistics import percentile_interval
from interp.planted.programs import JOINS

HERE = Path(__file__).parent
SEEDS = (0, 1)
DRAWN = 500  # bootstrap draws of pairs, and permutations of the circuit
KEYS = ("model", "task", "method", "seed")
NOTHING = 1e-6  # scores below this share of the largest are ties at 0
SLOW = "edge_masks"  # minutes per task: only if it is asked for
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "verified_edges": ({}, {"faithful": 0.99}),
    "attribution_patching": ({}, {"qk_fix": True}, {"qk_fix": True, "grad_drop": True}),
    "integrated_patching": ({}, {"path": "activations"}),
    "edge_masks": ({"metric": "task", "target": 0.3},),
}


def cases() -> list[tuple[str, str]]:
    """Name every model and task: trained, single programs, planted, joined; the slow ones last."""
    own = [(about.model, task) for task, about in TASKS.items() if about.model]
    joins = [(f"compiled:{name}", f"compiled:{part}") for name in JOINS for part in name.split("+")]
    every = sorted([*own, *joins], key=lambda case: CLASSES.index(class_of(case[0])))
    return sorted(every, key=lambda case: case[0].count("shuffle"))


def class_of(model: str) -> str:
    """Return the class of a model."""
    if "+" in model:
        return "joined programs"
    return {"compiled": "programs", "planted": "planted", "trained": "trained"}[
        model.partition(":")[0]
    ]


def labels(chosen: list[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Label, name and options of every method."""
    for name in chosen or [name for name in CIRCUIT_METHODS if name != SLOW]:
        for options in OPTIONS.get(name, ({},)):
            told = ", ".join(f"{k}={v}" for k, v in options.items())
            yield f"{name} {told}".rstrip(), name, options


class Truth:
    """Nodes and edges that count, and which of them are the circuit's."""

    def __init__(self, model: interp.Model, task: ContrastTask) -> None:
        graph = ResidualGraph.of(model)
        known = set(task.truth_edges)
        true = {h for heads in task.truth.values() for h in heads}
        true |= {node_of(x) for edge in known for x in edge} - {"embed", "logits"}
        varying = _varying(graph, task)
        self.nodes = [w for w in graph.writers if w != "embed" and (w in varying or w in true)]
        self.true = np.array([w in true for w in self.nodes])
        self.inputs = not model.name.startswith("trained:")
        edges = comparable(graph.edges, task.truth_edges)
        kept = [e for e in edges if e[0] in varying or e in known]
        named = [self.named(e) for e in kept]
        self.edges = list(dict.fromkeys(named))
        known = {self.named(e) for e in known}
        self.true_edges = np.array([e in known for e in self.edges])

    def known(self) -> Known:
        """Return what counts, and what of it is the circuit's."""
        true = {name for name, x in zip(self.nodes, self.true, strict=True) if x}
        edges = {edge for edge, x in zip(self.edges, self.true_edges, strict=True) if x}
        return Known({*self.nodes}, true, {*self.edges}, edges)

    def named(self, edge: tuple[str, str]) -> tuple[str, str]:
        """Where inputs are not known apart, an edge is a pair of nodes."""
        return edge if self.inputs else (edge[0], node_of(edge[1]))

    def node_scores(self, found: Found) -> np.ndarray:
        """`[node, column]`: a node's score, or its effect behind another head if that is larger."""
        values = np.nan_to_num(found.per_prompt)
        if found.conditional is not None:
            other = np.nan_to_num(found.conditional)
            larger = np.abs(other.mean(1)) > np.abs(values.mean(1))
            values = np.where(larger[:, None], other, values)
        at = {name: i for i, name in enumerate(found.nodes)}
        none = np.zeros(values.shape[1])
        return np.array([values[at[n]] if n in at else none for n in self.nodes])

    def edge_scores(self, found: Found) -> np.ndarray | None:
        """`[edge, column]`; None where the method scores other pairs than edges of the graph."""
        if found.edges_per_prompt is None or not found.edges:
            return None
        if not any("." in b or b == "logits" for _, b in found.edges):
            return None
        values = np.nan_to_num(found.edges_per_prompt)
        largest: dict[tuple[str, str], np.ndarray] = {}
        for edge, row in zip(found.edges, values, strict=True):
            name = self.named(edge)
            if name not in largest or abs(row.mean()) > abs(largest[name].mean()):
                largest[name] = row
        none = np.zeros(values.shape[1])
        return np.array([largest.get(e, none) for e in self.edges])


def _varying(graph: ResidualGraph, task: ContrastTask) -> set[str]:
    """Nodes whose output differs between the two sides of some pair."""
    found: set[str] = set()
    for batch in task.batches():
        clean, corrupted = paired_outputs(graph, batch.clean, batch.corrupted)
        moved = (clean.out - corrupted.out).abs().amax((0, 1, 3)).tolist()
        found |= {name for name, x in zip(graph.writers, moved, strict=True) if x > 1e-5}
    return found


def areas(scores: np.ndarray, true: np.ndarray) -> np.ndarray:
    """Exact AUROC of the sizes of each row of scores; ties, also near 0, count half."""
    size = np.abs(scores)
    size = np.where(size < NOTHING * size.max(1, keepdims=True), 0.0, size)
    k = int(true.sum())
    above = rankdata(size, axis=1)[:, true].sum(1) - k * (k + 1) / 2
    return above / (k * (len(true) - k))


def against(values: np.ndarray, true: np.ndarray, seed: int) -> dict[str, Any]:
    """AUROC of the sizes of mean scores, with an interval over pairs and a permutation test."""
    row: dict[str, Any] = {"auroc": None, "of": len(true), "true": int(true.sum())}
    if not 0 < true.sum() < len(true):
        return row
    rng = np.random.default_rng([seed, 46])
    mean, n = values.mean(1)[None], values.shape[1]
    found = float(areas(mean, true)[0])
    row["auroc"] = found
    if n > 1:
        drawn = np.stack([values[:, rng.integers(0, n, n)].mean(1) for _ in range(DRAWN)])
        row["low"], row["high"] = (float(x) for x in percentile_interval(areas(drawn, true)))
    shuffled = np.concatenate([mean[:, rng.permutation(len(true))] for _ in range(DRAWN)])
    row["p"] = (1 + int((areas(shuffled, true) >= found - 1e-12).sum())) / (1 + DRAWN)
    return row


def measured(
    model: interp.Model,
    task: ContrastTask,
    truth: Truth,
    name: str,
    options: dict[str, Any],
    seed: int,
    held_out: ContrastTask | None = None,
) -> dict[str, Any]:
    """What one method finds: AUROC of nodes and edges, and its cost; or why there is none.

    With held-out pairs also CPR and CMD of its rankings on them.
    """
    row: dict[str, Any] = {}
    way = CIRCUIT_METHODS.load(name)
    given: dict[str, Any] = options | ({"seed": seed} if "seed" in way.options else {})
    try:
        for level in ("head",) if "grad_drop" in options else way.levels:
            start = time.perf_counter()
            found = score_nodes(model, task, name, level, **given)
            seconds = time.perf_counter() - start
            row |= compared(found, truth, seed, row, level, {"seconds": seconds})
            if held_out is not None:
                row |= {"curves": row.get("curves", {}) | curves(model, task, found, held_out)}
    except InterpError as error:
        row["note"] = str(error)
    return row


def compared(
    found: Found, truth: Truth, seed: int, before: dict[str, Any], level: str, cost: dict[str, Any]
) -> dict[str, Any]:
    """Return the AUROC of the nodes and edges that a method found; nodes at their own level."""
    cost = {"forwards": found.forwards, "backwards": found.backwards} | cost
    row: dict[str, Any] = {}
    if "head" not in before or level == "head":
        row["head"] = against(truth.node_scores(found), truth.true, seed) | cost
    if level == "edge" and (values := truth.edge_scores(found)) is not None:
        row["edge"] = against(values, truth.true_edges, seed) | cost
    return row


def curves(
    model: interp.Model, task: ContrastTask, found: Found, held_out: ContrastTask
) -> dict[str, list[float]]:
    """Return CPR and CMD, of heads by size and of edges by MIB's code, on held-out pairs."""
    level = "edge" if found.edges else "head"
    circuit = Circuit.of(model, task, "ground truth", level, {}, found)
    heads = evaluate_circuit(model, circuit, held_out, n_random=1)
    share, kept = np.array([0, *heads.sizes]) / heads.total, np.array([0.0, *heads.faithfulness])
    row = {"head": [float(np.trapezoid(x, share)) for x in (kept, np.abs(1 - kept))]}
    if {*found.edges} & {*ResidualGraph.of(model).edges}:
        edges = evaluate_edges(model, circuit, held_out, n_random=1).as_mib()
        row["edge"] = [edges["CPR"], edges["CMD"]]
    return row


class Case:
    """One task of one model, on the pairs of one seed; the model is loaded when it is needed."""

    def __init__(self, source: str, name: str, seed: int, pairs: int) -> None:
        self.source, self.name, self.seed, self.pairs = source, name, seed, pairs

    def _made(self) -> tuple[interp.Model, ContrastTask, Truth, ContrastTask | None]:
        model = interp.load(self.source)
        task = make_contrast(model, self.name, n=self.pairs, seed=self.seed)
        held_out = None
        if class_of(self.source) == "trained":
            held_out = make_contrast(model, self.name, n=self.pairs, seed=100 + self.seed)
        return model, task, Truth(model, task), held_out

    def _row(self, method: str) -> dict[str, Any]:
        return {
            "class": class_of(self.source),
            "model": self.source,
            "task": self.name,
            "method": method,
            "seed": self.seed,
            "pairs": self.pairs,
        }

    def rows(self, methods: list[str], done: set[tuple]) -> Iterator[dict[str, Any]]:
        """Measure the methods here that are not done."""
        left = [
            way
            for way in labels(methods)
            if (self.source, self.name, way[0], self.seed) not in done
        ]
        if left:
            model, task, truth, held_out = self._made()
            for label, method, options in left:
                found = measured(model, task, truth, method, options, self.seed, held_out)
                yield self._row(label) | found

    def peer_rows(self, environments: Path) -> Iterator[dict[str, Any]]:
        """Measure the methods of other packages."""
        model, task, truth, held_out = self._made()
        for label, found, more in peer_results(model, task, environments):
            row = self._row(label) | {"peer": True} | more
            if found is not None:
                level = "edge" if found.edges else "head"
                row |= compared(found, truth, self.seed, {}, level, more)
                if held_out is not None:
                    row["curves"] = curves(model, task, found, held_out)
            yield row

    def set_row(self) -> dict[str, Any]:
        """Compare the set of the default, and what matters, with the circuit."""
        _, _, truth, _ = self._made()
        row = self._row("sets") | {"class": "sets", "of": class_of(self.source), "pairs": PAIRS}
        try:
            return row | set_row(self.source, self.name, self.seed, truth.known(), truth.named)
        except InterpError as error:
            return row | {"note": str(error)}


def unknown_rows(
    model: str, tasks: Sequence[str], done: Collection[tuple]
) -> Iterator[dict[str, Any]]:
    """Measure the sets of a model of which no circuit is known, but for rows that are there."""
    for seed, name in itertools.product(range(OF_UNKNOWN), tasks):
        row = {"class": "sets", "of": UNKNOWN, "model": Path(model).name, "task": name}
        row |= {"method": "sets", "seed": seed, "pairs": PAIRS_OF.get(name, PAIRS)}
        if tuple(row[key] for key in KEYS) in done:
            continue
        try:
            yield row | unknown_row(model, name, seed)
        except InterpError as error:
            yield row | {"note": str(error)}


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", help="kinds or names of models, separated by commas")
    parser.add_argument("--methods", default="", help="names of methods, separated by commas")
    parser.add_argument("--pairs", type=int, default=16)
    parser.add_argument("--out", type=Path, default=HERE)
    parser.add_argument("--null", action="store_true", help="measure only false circuits")
    parser.add_argument("--roles", action="store_true", help="measure only roles of heads")
    parser.add_argument("--sets", action="store_true", help="measure only sets")
    parser.add_argument("--model", help="with --sets: measure only this model, as unknown")
    parser.add_argument("--tasks", default="ioi", help="its tasks, separated by commas")
    parser.add_argument("--peers", type=Path, help="folder of environments of other packages")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    return parser.parse_args()


def main() -> None:
    """Measure what is missing, and write both files."""
    given = arguments()
    file = given.out / "ground_truth.json"
    rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.is_file() else []

    def write() -> None:
        lines = ",\n".join(json.dumps(rounded(row)) for row in rows)
        write_atomically(file, f"[\n{lines}\n]\n".encode())
        page = ground_truth_page(rows, [f"{m} {t}" for m, t in cases()])
        write_atomically(given.out / "ground_truth.md", page.encode())

    wanted = tuple(x for x in given.only.split(",") if x)
    if given.null:
        rows[:] = [row for row in rows if row["class"] != "null"]
        for row in null_rows(given.pairs):
            rows.append(row)
            write()
    done = {tuple(row[key] for key in KEYS) for row in rows}
    methods = [x for x in given.methods.split(",") if x]
    for source in NAMES if given.roles else ():
        if (source, "", "roles", 0) not in done:
            rows.append(role_row(source))
            write()
            print(source, "roles", flush=True)
    for row in unknown_rows(given.model, given.tasks.split(","), done) if given.model else ():
        rows.append(row)
        write()
    nothing = given.page or given.null or given.roles or given.model
    for source, name in () if nothing else cases():
        trained = class_of(source) == "trained"
        if (wanted and not source.startswith(wanted)) or (given.peers and not trained):
            continue
        of_sets = range(OF_TRAINED if trained else SET_SEEDS)
        for seed in SEEDS[:1] if given.peers else of_sets if given.sets else SEEDS:
            at = Case(source, name, seed, given.pairs)
            if given.sets:
                if (source, name, "sets", seed) not in done:
                    rows.append(at.set_row())
                    write()
                continue
            for row in at.peer_rows(given.peers) if given.peers else at.rows(methods, done):
                same = [row[key] for key in KEYS]
                rows[:] = [r for r in rows if [r[key] for key in KEYS] != same]
                rows.append(row)
                write()
        print(source, name, flush=True)
    write()


if __name__ == "__main__":
    main()
