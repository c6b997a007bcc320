"""Circuit methods of other packages, on the trained models, in environments of their own.

    python -m venv FOLDER/circuitkit && FOLDER/circuitkit/bin/pip install -r \\
        benchmarks/peers/circuitkit.txt                 # the same for the other files there
    python -m benchmarks.ground_truth --peers FOLDER

A script of `benchmarks/peers` reads the saved model and the token ids of the pairs, and writes its
scores. An environment that is missing, a script that fails and a method that fails are rows with
their error.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import interp
from interp.circuits.contrast import ContrastTask
from interp.circuits.declaration import Found
from interp.planted.trained.cases import CASES

HERE = Path(__file__).parent / "peers"
LIMIT = 300  # seconds for all methods of a script on one task
SCRIPTS = {  # script: its environment and its name in the table
    "transformer_lens_patching": ("circuitkit", "TransformerLens 3.8.0"),
    "gim_explain_nodes": ("gim_explain", "gim-explain 0.1.4"),
    "auto_circuit_edges": ("auto_circuit", "auto-circuit 1.0.1"),
    "circuitkit_methods": ("circuitkit", "CircuitKIT 0.2.0"),
}


def pairs_of(task: ContrastTask, name: str) -> dict[str, Any]:
    """Return the token ids of the pairs of a trained model's task, up to where it is read."""
    _, base, *rest = name.split(":")
    case, which = CASES[base], (rest or [base])[0]
    end = case.ends[which]
    clean, corrupted = (np.array(side.ids) for side in (task.clean, task.corrupted))
    right, wrong = (case.run(ids)[0][which].tolist() for ids in (clean, corrupted))
    sides = {"clean": clean, "corrupted": corrupted}
    return {side: ids[:, : end + 1].tolist() for side, ids in sides.items()} | {
        "answers": right,
        "wrong": wrong,
    }


def peer_results(
    model: interp.Model, task: ContrastTask, environments: Path
) -> Iterator[tuple[str, Found | None, dict[str, Any]]]:
    """Run every script on one task.

    Yields:
        The label of a method; what it found, or None; and the seconds, or a note why there is none.
    """
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        module: Any = model.module
        module.save_pretrained(at / "model")
        (at / "pairs.json").write_text(json.dumps(pairs_of(task, task.name)))
        for script, (environment, label) in SCRIPTS.items():
            out = at / f"{script}.json"
            note = _run(environments / environment, script, at, out)
            written = json.loads(out.read_text()) if out.is_file() else {}
            if note or not written:
                yield label, None, {"note": note or "it wrote nothing"}
            for method, row in written.items():
                if "error" in row:
                    yield f"{label} {method}", None, {"note": row["error"]}
                else:
                    yield f"{label} {method}", _found(row), {"seconds": row["seconds"]}


def _run(environment: Path, script: str, at: Path, out: Path) -> str:
    """Run one script; return why it failed, or nothing."""
    python = environment / "bin" / "python"
    if not python.is_file():
        return f"there is no environment {environment.name}"
    command = [python, "-W", "ignore", HERE / f"{script}.py", at / "model", at / "pairs.json", out]
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    try:
        done = subprocess.run(
            command, check=False, cwd=at, env=clean, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return f"it took more than {LIMIT} s"
    return done.stderr.strip().splitlines()[-1][:300] if done.returncode else ""


def _found(row: dict[str, Any]) -> Found:
    """Return a peer's scores as a method here returns them, for one mean over the pairs."""
    edges = tuple((a, b) for a, b, _ in row["edges"])
    return Found(
        tuple(row["nodes"]),
        np.array([[x] for x in row["nodes"].values()]),
        "logits",
        forwards=row["forwards"],
        backwards=row["backwards"],
        edges=edges,
        edges_per_prompt=np.array([[x] for *_, x in row["edges"]]) if edges else None,
    )
