"""Ten entries of the literature drawn at random, each followed from the paper to a number.

    python benchmarks/literature.py       writes literature.json and literature.md

The first call of each drawn entry is evaluated as it stands, on a model of the package.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import torch

import interp
import interp.heads.outliers
import interp.lens
import interp.probes
import interp.safety
from interp import causal
from interp.attribution import Attribution
from interp.core.files import write_atomically
from interp.core.literature import Paper, papers
from interp.core.table import HeadTable

HERE = Path(__file__).parent
SEED, NUMBER = 0, 10
FORMS = 3  # of them forms of attention, which are loaded
MODEL = "bundled:induction"


def drawn(names: Collection[str], seed: int = SEED) -> list[Paper]:
    """Return entries at random, of those whose first call needs nothing but these names."""
    eligible = [p for p in papers() if p.call and not p.pending and needs(p.call[0]) <= set(names)]
    order = [eligible[i] for i in np.random.default_rng(seed).permutation(len(eligible))]
    forms = [p for p in order if p.call[0].startswith("interp.load")][:FORMS]
    others = [p for p in order if not p.call[0].startswith("interp.load")][: NUMBER - FORMS]
    return [p for p in order if p in forms or p in others]


def needs(call: str) -> set[str]:
    """Return the names that a call uses."""
    return {node.id for node in ast.walk(ast.parse(call)) if isinstance(node, ast.Name)}


def given() -> dict[str, Any]:
    """Return what the calls name: a model, prompts, a task, a text and heads."""
    model = interp.load(MODEL)
    prompts = interp.repeats(model, n=8, seed=0)
    table = interp.score(model, "induction", prompts, null="none")
    return {
        "interp": interp,
        "model": model,
        "prompts": prompts,
        "task": causal.repeats_task(model, n=16, seed=0),
        "text": list(prompts.ids[0]),
        "heads": table.top(2).heads(),
        "ranking": table,
    }


def number(value: Any) -> tuple[str, str]:
    """Return the first number of a result, and what it says."""
    match value:
        case HeadTable():
            row = value.top(1).to_pandas().iloc[0]
            null = "" if np.isnan(row["null"]) else f", null {row['null']:.3g}"
            error = "exact" if np.isnan(row["sem"]) else f"± {row['sem']:.1g}"
            return (
                f"{row['score']:.3g} {error}{null} ({row['unit']})",
                f"the first head for `{row['metric']}` of {MODEL} is L{row['layer']}H{row['head']}",
            )
        case interp.Model():
            worst = max(
                max(s.pattern_error, s.result_error or 0.0)
                for s in interp.model.check_model(value).sites
            )
            ids = torch.randint(4, 60, (4, 24), generator=torch.Generator().manual_seed(SEED))
            found = interp.score(value, "previous_token", ids.tolist(), null="none").top(1)
            row = found.to_pandas().iloc[0]
            return (
                f"{worst:.0e} (largest relative error)",
                f"maps of {value.name} times values are what the layers compute; its first head for"
                f" `previous_token` scores {row['score']:.2f}",
            )
        case Attribution():
            row = value.top(1).to_pandas().iloc[0]
            return f"{row['score']:.3g}", f"the first token is number {row['position']} of a prompt"
        case _:
            said = " ".join(repr(value).split())
            first = re.search(r"(?<![\w.:])[-+]?\d[\d.e+-]*( \w+)?", said)
            return (first[0] if first else "none"), said[:160]


def main() -> None:
    """Follow the drawn entries and write them."""
    names, rows = given(), []
    for paper in drawn(names):
        call = paper.call[0]
        told, says = number(eval(call, dict(names)))
        rows.append({"paper": paper.title, "run": call, "number": told, "says": says})
        print(rows[-1])
    kept = {"seed": SEED, "model": MODEL, "rows": rows}
    write_atomically(HERE / "literature.json", (json.dumps(kept, indent=1) + "\n").encode())
    write_atomically(HERE / "literature.md", page(kept).encode())


def page(kept: dict[str, Any]) -> str:
    """Format the entries as a table."""
    lines = [
        "# Ten papers followed to a number", "",
        f"Drawn at random (seed {kept['seed']}), {FORMS} forms of attention and {NUMBER - FORMS}"
        " others, from the entries of the literature whose first call needs a model, prompts, a"
        f" task or a text only; it is evaluated as it stands, with `model` {kept['model']}. Made by"
        " `python benchmarks/literature.py`.", "",
        "| paper | run | number | what it says |", "|---|---|---|---|",
    ]  # fmt: skip
    for row in kept["rows"]:
        cells = (row["paper"], f"`{row['run']}`", row["number"], row["says"])
        lines.append("| " + " | ".join(x.replace("|", "\\|") for x in cells) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
