"""Pages of a model of 144 heads (12 layers of 12), made of results with made-up numbers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
from syntax.found import relation, scores, trees

from interp.attribution.evaluation.result import MEASURES, Faithfulness
from interp.attribution.result import Attribution
from interp.causal.comparison.compare import compare_importances
from interp.causal.game.players import Players
from interp.causal.importance import Importance
from interp.causal.pairs import interaction_rows
from interp.causal.pruning.result import PruningCurve
from interp.circuits.evaluation import Evaluation
from interp.circuits.published import published
from interp.circuits.result import Circuit
from interp.core.table import HeadTable
from interp.heads.patterns import View
from interp.report import checks, write_report
from interp.report.circuit_folder import write_evaluation
from interp.report.pruning_page import save_curves
from interp.report.safety_folder import write_safety
from interp.report.tokens import attribution_page as attributions
from interp.report.trees import trees_page as tree_page
from interp.safety.curves import curve_rows
from interp.syntax.result import Drawn

LAYERS = HEADS = 12
NAMES = tuple(f"L{layer}H{head}" for layer in range(LAYERS) for head in range(HEADS))
MADE = {
    "model_id": "hub/large",
    "content_hash": "c" * 64,
    "dtype": "float32",
    "seed": 0,
    "task": "copy_loss",
    "kind": "zero",
    "players": "heads",
    "model": "large",
    "versions": {"interp": "0.1.0", "torch": "2.11"},
}


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


def table(model: str = "large", metrics: int = 12) -> HeadTable:
    """Scores of every head; a few of them stand out."""
    found = []
    for i in range(metrics):
        score = np.random.default_rng(i).beta(0.4, 6.0, (LAYERS, HEADS)) - 0.3 * (i == 1)
        score[i % LAYERS, 3] = 0.93
        found.append(
            HeadTable.from_scores(
                model=model,
                metric=f"metric_{i}",
                score=score,
                sem=0.02,
                n=16,
                null=0.04,
                null_sem=0.01,
                unit="fraction",
                provenance=MADE,
            )
        )
    return HeadTable.concat(found)


def heads(path: Path) -> None:
    both = HeadTable.concat([table(), table("other", 4)])
    ranges = {f"metric_{i}": (-1.0, 1.0) if i == 1 else (0.0, 1.0) for i in range(12)}
    write_report(both, path, ranges=ranges, title="Attention heads", command="interp atlas large")


def attribution(path: Path) -> None:
    n = 200
    words = ["The", " cat", " sat", " on", "\n", " the", " mat", " and", " looked"]
    found = [
        Attribution(
            method=method,
            target="logit of ' mat'",
            value=7.25,
            unit="logit",
            signed=signed,
            tokens=tuple(words[i % 9] for i in range(n)),
            outputs=(),
            scores=np.abs(rng().normal(size=n)) if not signed else rng().normal(size=n),
            special=np.arange(n) == 0,
            total=7.0,
            provenance=MADE | {"unit": "logit"},
        )
        for method, signed in (("attn_lrp", True), ("rollout", False))
    ]
    path.write_text(attributions(found, command="interp attribute large", warning="A warning."))


def faithfulness(path: Path) -> None:
    methods, texts, draw = [f"method_{i}" for i in range(20)], 24, rng()
    rows = [
        {"method": m, "text": t, "error": "", "tokens": 20, "incomplete": False, "residual": None}
        | {name: float(draw.normal(0.1 * i, 0.3)) for name in MEASURES}
        for i, m in enumerate(methods)
        for t in range(texts)
    ]
    found = Faithfulness(
        tuple(rows),
        tuple(f"text {t}" for t in range(texts)),
        dict.fromkeys(methods, "gradients"),
        provenance=MADE,
    )
    found.save_folder(path.parent)
    path.parent.joinpath("faithfulness.html").replace(path)


def dependency_trees(path: Path) -> None:
    words = (
        "The",
        "quick",
        "brown",
        "fox",
        "jumps",
        "over",
        "the",
        "lazy",
        "dog",
        "and",
        "runs",
        "away",
        ".",
    )
    gold = (3, 3, 3, 4, -1, 8, 8, 8, 4, 10, 4, 10, 4)
    names = (
        "det",
        "amod",
        "amod",
        "nsubj",
        "root",
        "case",
        "det",
        "amod",
        "obl",
        "cc",
        "conj",
        "advmod",
        "punct",
    )
    made = tuple((h, i) for i, h in enumerate(gold) if h >= 0 and i % 3)
    drawn = tuple(Drawn(words, gold, names, (*made, (0, 4)), False, f"s-{i}", 8) for i in range(10))
    found = scores(
        "large",
        relations=tuple(relation(f"rel{i}", p=0.001 * i, n=5 + 10 * i) for i in range(30)),
        trees=(trees(), *(trees(f"way {i}", uuas=0.4 + i / 100) for i in range(12))),
        by_head={"encoder": rng().random((LAYERS, HEADS)).tolist()},
        drawn=drawn,
    )
    path.write_text(tree_page([found], command="interp study trees large", beside=["trees.json"]))


def verification(path: Path) -> None:
    row = {
        "model": "large",
        "heads": "L1H0 L1H5 L1H6",
        "task": "copy_loss",
        "purpose": "own",
        "unit": "nats/token",
        "clean": 0.004,
        "out": 0.307,
        "random": 0.239,
        "random_low": 0.05,
        "random_high": 0.28,
        "ratio": 1.29,
        "ratio_low": 0.929,
        "ratio_high": 1.56,
        "p": 0.38,
        "least_p": 1 / 56,
        "n_random": 55,
        "n_possible": 55,
        "any_random": 0.2,
        "any_p": 0.3,
        "any_least_p": 1 / 56,
        "n_any": 55,
        "n_any_possible": 400,
        "n_prompts": 16,
        "n_clusters": 11,
        "verdict": "redundant",
        "transfers": "L1H0 fails: damage 0.1 with another answer, 0.1 with the same answer",
        "conclusion": "Redundant: other sets do as much damage; together the heads do more.",
    }
    rows = [
        row | {"metric": f"metric_{i}", "out": 0.1 + i / 40, "doubts": "few sets" * (i % 7 == 0)}
        for i in range(40)
    ]
    path.write_text(checks.check_page(pd.DataFrame(rows), [MADE], "interp importance verify large"))


def circuit_found(edges: int = 2_000) -> Circuit:
    nodes = ("embed", *NAMES, *(f"mlp{i}" for i in range(LAYERS)))
    draw = rng()
    pairs = [
        (a, f"{b}.{'qkv'[i % 3]}") for i, a in enumerate(NAMES) for b in NAMES[i + 12 - i % 12 :]
    ]
    chosen = [pairs[i] for i in draw.permutation(len(pairs))[:edges]]
    chosen[:3] = [("L11H3", "logits"), ("embed", "L0H1.v"), ("L3H3", "mlp5")]
    return Circuit(
        "large",
        LAYERS,
        HEADS,
        "ioi",
        "attribution_patching",
        "edge",
        nodes,
        draw.normal(size=len(nodes)) ** 3,
        np.full(len(nodes), 0.1),
        32,
        "logits",
        tuple(chosen),
        draw.normal(size=len(chosen)) ** 3,
        {"mover": NAMES[100:104]},
        notes=("A note.",),
        tables={"controls": [{"control": "untrained", "AUROC": 0.53}]},
        made=MADE,
    )


def evaluation_made() -> Evaluation:
    sizes, draw = (1, 2, 4, 7, 14, 29, 58, 115, 144), rng()
    up = np.linspace(0.1, 1, len(sizes))
    return Evaluation(
        circuit_found(),
        "corrupted",
        sizes,
        up[:, None] + draw.normal(0, 0.05, (9, 32)),
        np.ones(32),
        np.zeros(32),
        up[None] ** 3 + draw.normal(0, 0.05, (20, 9)),
        14,
        np.full(32, 0.7),
        draw.normal(0.2, 0.1, 20),
        made=MADE,
    )


def circuit(path: Path) -> None:
    write_evaluation(
        circuit_found(),
        evaluation_made(),
        path.parent,
        command="interp circuit ioi large",
        held_out="on 32 other pairs",
        against=published("ioi_gpt2_small"),
    )
    path.parent.joinpath("circuit.html").replace(path)


def importance_made(name: str = "ablation", seed: int = 0) -> Importance:
    values = np.random.default_rng(seed).normal(size=(len(NAMES), 16)) + 2.0 * (
        np.arange(len(NAMES)) % 29 == 3
    ).reshape(-1, 1)
    found = HeadTable.from_scores(
        model="large",
        metric=name,
        score=values.mean(1).reshape(LAYERS, HEADS),
        unit="nats",
        n=16,
        provenance=MADE,
    )
    return Importance(found, Players("heads", NAMES, {}), values, "removal", False)


def interactions(path: Path) -> None:
    pairs = np.array([(i, j) for i in range(144) for j in range(i + 1, 144)])
    values = rng().normal(size=(len(pairs), 8))
    sampling = np.full(len(pairs), 0.01), np.inf
    found = interaction_rows("shapley", "sampled", NAMES, pairs, values, sampling, "nats", MADE)
    found.save_html(path)


def curve(name: str, power: float) -> PruningCurve:
    counts, draw = np.arange(0, 145), rng()
    value = 1 - np.linspace(0, 1, 145) ** power
    noise = draw.normal(0, 0.02, (145, 16))
    orders = 1 - np.linspace(0, 1, 145)[None, :, None] + draw.normal(0, 0.04, (20, 145, 16))
    return PruningCurve(
        name,
        counts,
        NAMES,
        value[:, None] + noise,
        orders,
        144,
        "least-first",
        "accuracy",
        True,
        0,
        MADE,
    )


def pruning(path: Path) -> None:
    save_curves([curve(f"ranking {i}", i + 1.5) for i in range(4)], path.parent)
    path.parent.joinpath("pruning.html").replace(path)


def comparison(path: Path) -> None:
    names = ("shapley", "banzhaf", "leave_one_out", "gradient", "activation", "gates")
    tables = {n: table(metrics=12).where(metric=f"metric_{i + 2}") for i, n in enumerate(names)}
    compare_importances(tables, n_boot=20).save(path.parent)
    path.parent.joinpath("comparison.html").replace(path)


def safety(path: Path) -> None:
    curves = curve_rows(curve("safety", 0.5), curve("harmless", 4.0), NAMES[:10])
    directions = pd.DataFrame(
        {"layer": np.arange(12), "position": -1, "effect": rng().normal(size=12), "kept": True}
    )
    found = SimpleNamespace(
        facts={"model": "large"},
        wide=table(metrics=4).to_pandas,
        curves=curves,
        provenance=MADE,
        sahara=(),
        spread={},
        first_line=lambda: "large: refusal is 2 nats lower",
        search=SimpleNamespace(to_pandas=lambda: directions, refused=()),
    )
    write_safety(found, path.parent, "interp study safety large")  # type: ignore[arg-type]
    path.parent.joinpath("safety.html").replace(path)


def view(path: Path, n: int = 32) -> None:
    words = tuple(f"word{i}" for i in range(n))
    weights = rng().dirichlet(np.ones(n), (LAYERS, HEADS, n)) * np.tri(n)
    View.of_patterns(weights / weights.sum(-1, keepdims=True), words, named=("L3H2",)).save_html(
        path
    )


PAGES: dict[str, Callable[[Path], None]] = {
    "heads": heads,
    "attribution": attribution,
    "faithfulness": faithfulness,
    "trees": dependency_trees,
    "verify": verification,
    "circuit": circuit,
    "circuit_alone": lambda path: circuit_found().save_html(path),
    "evaluation": lambda path: evaluation_made().save_html(path),
    "importance": lambda path: importance_made().save_html(path),
    "interactions": interactions,
    "pruning": pruning,
    "comparison": comparison,
    "safety": safety,
    "tree_scores": lambda path: scores("large").save_html(path),
    "view": view,
    "view_long": lambda path: view(path, 256),
}
