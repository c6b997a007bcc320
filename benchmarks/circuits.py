"""Ways to find circuits on models whose circuit is known: one table, method by task.

    python benchmarks/circuits.py [--pairs N] [--model FOLDER] [--out DIR] [--keep]

Every method of `interp.circuits.methods`, and some of their options. FOLDER is a model of stories,
whose circuits are not known; greater-than and docstring are measured on a small model that is
trained here. Writes circuits.md and circuits.json, the latter after every model and task; `--keep`
measures only what it lacks.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from circuits_report import NOTHING, SMALLER, TRAINED_TASKS, TRAINING_STEPS, report
from rounded import as_json

import interp
from interp import planted
from interp.circuits.contrast import ContrastTask
from interp.circuits.find import score_nodes
from interp.circuits.head_evaluation import marked
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast
from interp.circuits.tasks.named import split_templates
from interp.circuits.tasks.planted_pairs import contrast
from interp.core.errors import InterpError
from interp.core.files import write_atomically
from interp.core.rank_statistics import auroc
from interp.core.registry import CIRCUIT_METHODS
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
TOO_SLOW = {
    "edge_masks": "edge_masks reruns each layer for each of its readers at every step of training"
    " (minutes): measured on known edges only"
}
OF_PROGRAMS = {"edge_masks": {"metric": "task", "target": 0.3}}  # few edges, and one logit
STORY_PAIRS = 64  # fewer do not show that a small model does a task at all
STORY_TASKS = ("ioi", "subject_verb", "next_items", "greater_than")
PLANTED: dict[str, dict[str, int]] = {
    "bystander": {"layers": 3, "heads": 8, "kv_heads": 4, "vocab": 48, "context": 64},
    "backup": {"layers": 3, "heads": 8, "kv_heads": 4, "vocab": 48, "context": 64},
    "zoo": {"vocab": 48, "context": 64},
}


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
    have: list[dict[str, Any]],
    *,
    large: bool = False,
) -> Iterator[dict[str, Any]]:
    """One row per method that `have` lacks: what it found on `pairs`."""
    truth = {h for heads in pairs.truth.values() for h in heads}
    done, plain = {row["method"] for row in have}, _forward(model, pairs)
    changed = SMALLER if large else {}
    for label, method, options in methods(slow=not large):
        if label in done:
            continue
        row: dict[str, Any] = {
            "model": model.name,
            "task": pairs.name,
            "method": label,
            "pairs": len(pairs),
        }
        if method in TOO_SLOW:
            yield row | {"note": TOO_SLOW[method]}
            continue
        begin = time.perf_counter()
        try:
            chosen = changed.get(method, {}) | options
            found = score_nodes(model, pairs, method, "head", **chosen)
            took = time.perf_counter() - begin
            circuit = Circuit.of(model, pairs, method, "head", chosen, found)
        except InterpError as error:
            yield row | {"note": str(error)}
            continue
        at = [circuit.nodes.index(h) for h in circuit.head_names]
        size = np.abs(circuit.largest[at])
        yield row | {
            "auroc": auroc(size, marked(circuit.head_names, truth)) if truth else None,
            "forwards": found.forwards,
            "backwards": found.backwards,
            "seconds": took,
            "times_a_forward": took / plain,
        }


def _forward(model: Model, pairs: ContrastTask) -> float:
    took = []
    for _ in range(3):
        begin = time.perf_counter()
        for batch in pairs.batches():
            model.run(batch.clean)
        took.append(time.perf_counter() - begin)
    return sorted(took)[1]


def _find_tests() -> None:
    """Let `circuits` be the folder of the tests, and not this file."""
    here = Path(__file__).parent
    others = [x for x in sys.path if Path(x or ".").resolve() != here]
    sys.path[:] = [str(here.parent / "tests"), *others]


def trained() -> Model:
    """Train a small GPT-2 on the answers of some tasks; its tokenizer knows all their words."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    _find_tests()
    from circuits.speller import speller

    tokenizer = speller()
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_positions=64,
        n_embd=96,
        n_layer=3,
        n_head=4,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    module = GPT2LMHeadModel(config).eval()
    model = interp.load(module, name="trained on four tasks", tokenizer=tokenizer)
    tasks = [make_contrast(model, name, n=512, seed=100) for name in TRAINED_TASKS]
    years = [tokenizer(f"{y:02d}")["input_ids"][-1] for y in range(100)]
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-3)
    for step in range(TRAINING_STEPS):
        task = tasks[step % len(tasks)]
        first = step // len(tasks) * 64 % len(task)
        for batch in task.some(range(first, first + 64)).batches(64):
            logits = module(torch.tensor(batch.clean.ids)).logits
            if task.name == "greater_than":  # any later year is as right as another
                begins = torch.tensor(json.loads(task.task.detail))[
                    first + torch.tensor(batch.which)
                ]
                later = torch.arange(100) > begins[:, None]
                p = logits[:, -1].log_softmax(-1)[:, years]
                loss = -(p * later).sum(-1).div(later.sum(-1)).mean()
            else:
                loss = -batch.value(logits).sigmoid().clamp_min(1e-6).log().mean()
            (loss * len(batch.which) / 64).backward()
        optimiser.step()
        optimiser.zero_grad()
    return interp.load(module, name="trained on four tasks", tokenizer=tokenizer)


def edge_sets() -> list[dict[str, Any]]:
    """AUROC and exact sets of every method's edges, on models whose edges are known."""
    _find_tests()
    from circuits.test_tracr import COMPLETE, pairs_of, program_of, setting
    from circuits.test_verified_edges import BUILT_IN

    known = [
        (name, pairs_of(name), setting(name)[0], program_of(name).edges)
        for name in (*COMPLETE, "reverse")
    ]
    model = interp.load("planted:bystander")
    pairs = make_contrast(model, "planted:bystander", n=24)
    known.insert(0, ("planted:bystander", pairs, ResidualGraph.of(model), BUILT_IN["bystander"]))
    rows = []
    for name, task, graph, edges in known:
        for label, method, options in methods():
            row: dict[str, Any] = {"program": name, "method": label, "pairs": len(task)}
            rows.append(row)
            try:
                special = {} if name == "planted:bystander" else OF_PROGRAMS.get(method, {})
                row |= _edges_found(graph, task, edges, method, special | options)
            except InterpError as error:
                row["note"] = str(error)
        print(name, flush=True)
    return rows


def _edges_found(
    graph: ResidualGraph, task: ContrastTask, edges: Any, method: str, options: dict[str, Any]
) -> dict[str, Any]:
    from circuits.test_tracr import auroc as of_edges

    if "edge" not in CIRCUIT_METHODS.load(method).levels:
        return {"note": f"{method} scores no edges"}
    begin = time.perf_counter()
    found = score_nodes(graph.model, task, method, "edge", **options)
    took = time.perf_counter() - begin
    at = [i for i, (_, b) in enumerate(found.edges) if b in graph.reader_index]
    if not at:
        return {"note": f"{method} scores pairs of heads, which are no edges of the graph"}
    scores = _matrix(graph, found, at)
    if "smallest_edges" in found.tables:
        chosen = {(row["from"], row["to"]) for row in found.tables["smallest_edges"]}
    else:
        size = {found.edges[i]: float(abs(found.edges_per_prompt[i]).mean()) for i in at}
        order = sorted(size, key=lambda e: -size[e])[: len(edges)]
        chosen = {e for e in order if size[e] >= NOTHING * max(size.values())}
    return {
        "auroc": of_edges(graph, edges, scores),
        "of": len(graph.edges),
        "true": len(edges),
        "hit": len(chosen & set(edges)),
        "extra": len(chosen - set(edges)),
        "own_set": "smallest_edges" in found.tables,
        "forwards": found.forwards,
        "backwards": found.backwards,
        "seconds": took,
    }


def _matrix(graph: ResidualGraph, found: Any, known: list[int]) -> Any:
    import torch

    out = torch.zeros(1, len(graph.readers), len(graph.writers))
    mean = np.abs(found.edges_per_prompt).mean(1)  # programs do different things on pairs
    mean = np.where(np.abs(mean) < NOTHING * np.abs(mean).max(), 0.0, mean)
    for i in known:
        a, b = found.edges[i]
        out[0, graph.reader_index[b], graph.index[a]] = float(mean[i])
    return out


Measure = Callable[[list[dict]], Iterator[dict]]


def cases(pairs: int, folder: Path | None) -> Iterator[tuple[str, Measure]]:
    """Name every model and task, with the function that measures it."""
    for name, sizes in PLANTED.items():

        def of_planted(
            have: list[dict], name: str = name, sizes: dict[str, int] = sizes
        ) -> Iterator[dict]:
            built = planted.build(name, **sizes)
            model = probe(built.model, f"planted:{name}")
            return measured(model, contrast(model, built, n=pairs), have)

        yield f"planted:{name}", of_planted

    def of_bundled(have: list[dict]) -> Iterator[dict]:
        model = interp.load("bundled:induction")
        return measured(model, make_contrast(model, "induction", n=pairs), have)

    yield "bundled:induction", of_bundled
    small: list[Model] = []
    for task in TRAINED_TASKS:

        def of_trained(have: list[dict], task: str = task) -> Iterator[dict]:
            small[:] = small or [trained()]
            return measured(small[0], make_contrast(small[0], task, n=pairs), have)

        yield f"trained {task}", of_trained
    for task in STORY_TASKS if folder else ():

        def of_stories(have: list[dict], task: str = task) -> Iterator[dict]:
            model = interp.load(folder)
            first, held = split_templates(task)
            try:
                chosen = make_contrast(
                    model, task, n=STORY_PAIRS, templates=first if held else None
                )
                chosen.gap(model)
            except InterpError as error:
                row = {"model": model.name, "task": task, "method": "all", "note": str(error)}
                return iter([] if have else [row | {"pairs": STORY_PAIRS}])
            return measured(model, chosen, have, large=True)

        yield f"stories {task}", of_stories


def main() -> None:
    """Measure, and write both files."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("--keep", action="store_true", help="measure only what circuits.json lacks")
    given = parser.parse_args()
    file = given.out / "circuits.json"
    whole: dict[str, Any] = json.loads(file.read_text()) if given.keep else {}
    whole.setdefault("heads", {})

    def write() -> None:
        write_atomically(file, as_json(whole).encode())
        if "edges" in whole:
            rows = [row for name in whole["heads"].values() for row in name]
            page = report(rows, whole["edges"])
            write_atomically(given.out / "circuits.md", page.encode())

    if "edges" not in whole:
        whole["edges"] = edge_sets()
        write()
    for name, measure in cases(given.pairs, given.model):
        rows = whole["heads"].setdefault(name, [])
        for row in measure(rows):
            rows.append(row)
            write()
            print(name, row["method"], flush=True)


if __name__ == "__main__":
    main()
