"""Documents of the atlas with made-up numbers: models, a comparison, a circuit, curves, trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.report.atlas.document import Atlas, Metric, Model

ROLES = ("induction", "previous_token", "sink", "several", "unclear")
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>"


def metric(name: str, scores: np.ndarray, nulls: bool = True) -> Metric:
    n = len(scores)
    none: list = [None] * n
    found: Any = {
        "name": name,
        "text": f"what {name} measures",
        "unit": "fraction",
        "group": "detectors",
        "low": 0.0,
        "high": 1.0,
        "end": "high",
        "null": "shuffled tokens" if nulls else None,
        "score": [round(float(x), 5) for x in scores],
        "sem": [0.01] * n,
        "n": [16.0] * n,
        "score_low": [round(float(x), 5) - 0.02 for x in scores],
        "score_high": [round(float(x), 5) + 0.02 for x in scores],
        "null_score": [0.05] * n if nulls else none,
        "null_sem": [0.004] * n if nulls else none,
        "p": [1e-6 if x > 0.5 else 0.4 for x in scores] if nulls else none,
    }
    if nulls:
        found["null_values"] = np.linspace(0.03, 0.07, 40).tolist()
    return found


def model(
    id: str,
    layers: int = 2,
    heads: int = 2,
    *,
    metrics: int = 2,
    name: str = "",
    seed: int = 0,
    nulls: bool = True,
) -> Model:
    """L1H1 is the induction head, L0H0 the previous-token head; the others are unclear."""
    draw = np.random.default_rng(seed)
    n = layers * heads
    places = [(y, x) for y in range(layers) for x in range(heads)]
    labels = [f"L{y}H{x}" for y, x in places]
    roles: list[str | None] = ["unclear" if nulls else None] * n
    last = labels[-1]
    if nulls:
        roles[0], roles[-1] = "previous_token", "induction"
    scores = [draw.uniform(0.02, 0.1, n) for _ in range(metrics)]
    scores[0][-1] = 0.9
    names = ["induction", *(f"metric_{i}" for i in range(1, metrics))]
    counts = {role: roles.count(role) for role in ROLES}
    statement: Any = {
        "role": "induction",
        "text": f"1 induction head: {last} 0.900 [0.88, 0.92], null 0.050.",
        "heads": [last],
        "metric": "induction",
        "score": 0.9,
        "low": 0.88,
        "high": 0.92,
        "null": 0.05,
        "found": nulls,
    }
    missing = statement | {
        "role": "sink",
        "text": f"No sink head: best {labels[0]} 0.040, null 0.050.",
        "heads": labels[:1],
        "found": False,
        "score": 0.04,
        "low": 0.02,
        "high": 0.06,
    }
    card: Any = {
        "evidence": [
            {
                "role": "induction",
                "text": "induction 0.900, above its null of 0.050 (p 1e-06).",
                "metric": "induction",
                "score": 0.9,
                "null": 0.05,
                "p": 1e-6,
            }
        ],
        "examples": [
            {
                "metric": "induction",
                "tokens": [" cat", " sat", "\n", " cat", " mat"],
                "query": 3,
                "value": 0.95,
                "weights": [0.02, 0.95, 0.01, 0.02],
            }
        ],
        "writes": {
            "up": [(" sat", 2.5), (" zebra", 1.0)],
            "down": [(" dog", -1.5)],
            "ov": [(" cat", [" cat", " cats"])],
            "qk": [(" on", [" sat"])],
            "how": "by the OV",
        },
        "effects": [
            {
                "task": "copy_loss",
                "intervention": "ablation, zero",
                "value": 0.31,
                "low": 0.22,
                "high": 0.4,
                "unit": "nats",
                "n": 16,
            }
        ],
        "parts": [{"part": f"circuit-{id}", "text": "in the smallest verified set"}],
        "nearest": [{"model": id, "label": labels[0], "similarity": 0.8, "how": "overlap"}],
    }
    return {
        "id": id,
        "name": name or f"hub/{id}",
        "stacks": [{"name": "decoder", "layers": layers, "heads": heads}],
        "heads": [
            {"label": label, "stack": 0, "layer": y, "head": x, "kv_head": None}
            for label, (y, x) in zip(labels, places, strict=True)
        ],
        "roles": roles,
        "legend": [
            {
                "id": r,
                "name": r.replace("_", "-"),
                "text": f"A {r} head.",
                "rule": "above its null",
                "count": counts[r],
            }
            for r in ROLES
        ],
        "statements": [statement, missing],
        "metrics": [metric(k, v, nulls) for k, v in zip(names, scores, strict=True)],
        "cards": {last: card},
        "results": [circuit(id, labels)],
        "provenance": {"seed": 0},
    }


def circuit(id: str, labels: list[str]) -> Any:
    first, last = labels[0], labels[-1]
    names = ["logits", last, first, "embed", labels[1]]
    sizes = [1.0, 2.0, 4.0]
    line = {
        "name": "the first heads",
        "kind": "result",
        "x": sizes,
        "y": [0.1, 0.8, 1.0],
        "low": [],
        "high": [],
    }
    random = {
        "name": "random",
        "kind": "random",
        "x": sizes,
        "y": [0.0, 0.2, 1.0],
        "low": [0.0, 0.1, 1.0],
        "high": [0.1, 0.3, 1.0],
    }
    return {
        "id": f"circuit-{id}",
        "kind": "circuit",
        "title": f"Circuit of {id}",
        "text": f"The smallest verified set is {first}, {last}.",
        "heads": [first, last],
        "columns": ["node", "score", *(f"column_{i}" for i in range(30))],
        "rows": [[name, 1.0 / (i + 1), *[0.12345] * 30] for i, name in enumerate(names)],
        "figure": {
            "draw": "graph",
            "unit": "logit",
            "chosen": [first, last],
            "nodes": [
                {
                    "id": name,
                    "layer": int(name[1]) if name[0] == "L" else None,
                    "head": 0 if name[0] == "L" else None,
                    "score": 1.0,
                    "sem": None,
                    "role": "",
                }
                for name in names
            ],
            "edges": [
                ("embed", f"{first}.v", 0.9),
                (first, f"{last}.k", 0.7),
                (last, "logits", 1.1),
                (labels[1], "logits", -0.1),
            ],
            "curves": {
                "draw": "curves",
                "x": "heads",
                "y": "faithfulness",
                "lines": [line, random],
            },
        },
    }


def difference(a: Model, b: Model) -> Any:
    n = len(a["heads"])
    change = [0.0] * n
    change[-1] = -0.6
    return {
        "id": "change",
        "a": a["id"],
        "b": b["id"],
        "text": "1 of 4 scores differs: L1H1 induction -0.600 [-0.700, -0.500].",
        "metrics": [
            {
                "metric": "induction",
                "unit": "fraction",
                "difference": change,
                "low": [x - 0.1 for x in change],
                "high": [x + 0.1 for x in change],
                "p": [1e-5 if x else 1.0 for x in change],
            }
        ],
    }


def document(*models: Model, comparisons: Any = (), **more: Any) -> Atlas:
    return {
        "version": 1,
        "title": "Attention heads",
        "models": list(models),
        "comparisons": list(comparisons),
        "pages": [],
        "command": "interp atlas results",
        "notes": [],
        **more,
    }  # type: ignore[typeddict-item]


def three() -> Atlas:
    """A model, its fine-tune, and a larger one."""
    base, tuned, wide = model("base"), model("tuned", seed=1), model("wide", 12, 30, seed=2)
    return document(base, tuned, wide, comparisons=[difference(base, tuned)])
