"""Command lines of every command, small enough for a test, and the files that they name.

In braces: a file or a model that `files_of` makes.
"""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path
from typing import Any

from syntax.commanded import BANK
from syntax.small_bert import save_bert

import interp
from benchmarks.command_cases import files, other_models

MODEL = "bundled:induction"
GAME = "-n 8 --max-length 16"
LINES = f"""
atlas {MODEL} -m entropy,induction -o {{out}}/atlas.html
attribute difference {MODEL} --file {{two}}
attribute flow {MODEL} --text {{text}}
attribute head-weights {MODEL} --file {{few}}
attribute lens {MODEL} --text {{text}}
attribute lens {MODEL} --text {{text}} --direct {{lines}} --target ed
attribute lens {MODEL} --tune {{few}}
attribute output {MODEL} --text {{text}}
attribute similarity {{bert}} --text {{text}} --text {{text}} --set steps=4
attribute tokens {MODEL} --text {{text}} -o {{out}}/tokens.csv
cache bundled:one-layer --max-length 24
check {MODEL} --set kernels=false
circuit find {MODEL} --task induction -n 8 --method attribution_patching --random 2
circuit graph {MODEL} --text {{text}}
circuit loadings {MODEL} --heads L1H0 --text {{text}}
circuit pairs {MODEL} --file {{answers}}
circuit path {MODEL} --task induction -n 8 --route L0H1>L1H0 --route *>logits
circuit shares {MODEL} --heads L1H0,L1H1 --text {{text}}
circuit trace {MODEL} --file {{subjects}} -n 12
circuit variables {MODEL} --method mask --set steps=2 --set nodes=L1H0,stream0
compare checkpoints {{run}} -m entropy,induction
compare corpora {MODEL} --corpus {{documents}} --set alter=packed --set n_documents=16 --heads L1H0
compare heads {MODEL} {MODEL} -m entropy,induction
compare match {MODEL} bundled:one-layer --set within=model --random 2
compare quantised {MODEL} --random 2
compare profiles {MODEL} bundled:one-layer --corpus {{documents}} --set n_documents=8
evaluate faithfulness {MODEL} --file {{few}} -m rollout,gradient_x_input
evaluate plausibility {MODEL} --file {{rationales}} -m rollout,gradient_x_input
evaluate sanity {MODEL} --file {{few}} -m rollout,gradient_x_input
head {MODEL} L1H0 --corpus {{documents}}
importance ablate {MODEL} {GAME}
importance gates {MODEL} {GAME} --set steps=4 --random 2
importance rank {MODEL} {GAME}
importance shapley {MODEL} {GAME} --max-evaluations 40
importance verify {MODEL} {GAME} -m induction --random 2
profile {MODEL} --set n_documents=8
prune heads {MODEL} {GAME} --method ablation --random 2
record {MODEL} --file {{few}} -o {{out}}
score {MODEL} --random 2 -o {{out}}
steer {MODEL} {GAME} --heads L1H0,L1H1 --random 2
study align bundled:reorder -n 4
study pictures {{llava}} {{images}} -m grounding --text w5
study safety bundled:refusal -n 4
study speech {{whisper}} --file {{whisper}}/recordings.jsonl
study trees {MODEL} -n 12
study vision bundled:shapes -n 16
texts anchors {MODEL} --file {{chain}} --answer the
texts categories {MODEL} --file {{parsed}} --random 2
texts graph {MODEL} --text {{text}}
texts influence {MODEL} --heads L1H0,L1H1 --file {{few}} --random 2
texts order {MODEL} --file {{passages}}
texts sources {MODEL} --set n_documents=2
train dictionary {MODEL} --layer 1 -n 20 --set steps=4 --set n_features=32
train probe {MODEL} --file {{labelled}} --random 2
view {MODEL} --text {{text}} -o {{out}}/view.html
""".strip().splitlines()
WITHOUT = {
    "completion": "runs no model",
    "judge": "a second question is judged on other documents",
    "evaluate harness": "its tasks are of another package; tests/causal/harness",
    "explore": "a server, which runs until it is stopped; tests/report/test_explore_api.py",
    "list methods": "runs no model",
    "list metrics": "runs no model",
    "list models": "runs no model",
    "mcp": "a server, which runs until its input ends; tests/cli/test_mcp.py",
    "prune verify": "reads a folder that states no device",
    **dict.fromkeys(
        (
            f"results {name}"
            for name in ("export", "headvis", "list", "merge", "query", "repair", "show", "verify")
        ),
        "reads tables",
    ),
}
"""Commands without a line, and why."""
IN_FLOAT32 = (
    "attribute lens --direct",
    "circuit find",
    "circuit graph",
    "circuit loadings",
    "circuit path",
    "circuit shares",
    "circuit variables",
    "study vision",
)
"""Commands that split what a model computed into exact parts, which half precision rounds."""
WORDS = (
    "one day a girl found her red ball in the old park and a dog ran to the tree .".split()  # noqa: SIM905
)


def files_of(folder: Path) -> dict[str, str]:
    """Write the files and the models that the lines name, and return their paths by name."""
    given = files(folder, str(interp.bundled.path("induction"))) | other_models(folder)
    bank = sorted({word for one in BANK for word in one.words})
    sentences = Path(given["treebank"]).read_text(encoding="utf-8").strip().split("\n\n")
    documents = [
        {"text": " ".join(WORDS[(i * j + j // 7) % len(WORDS)] for j in range(30))}
        for i in range(1, 17)
    ]
    answers = [
        {"prompt": f"the {a} and", "corrupted": f"the {b} and", "answer": " the", "wrong": " a"}
        for a, b in permutations(WORDS[:10], 2)
    ]
    seen = tuple(zip(WORDS[:3], WORDS[4:7], strict=True))
    asked = {"question": "saw a", "answer": " dog", "sources": [1]}
    passages = [
        {"passages": [f"the {x} saw a {y} . " for x, y in pairs]} | asked
        for pairs in permutations(seen)
    ]
    subjects = [
        {"prompt": f"the {a} {b} saw it. Then the {a}", "subject": f"{a} {b}"}
        for a, b in permutations(("red", "day", "park", "ball"), 2)
    ]
    given |= {
        name: _written(folder / f"{name}.jsonl", rows)
        for name, rows in (
            ("documents", documents),
            ("answers", answers),
            ("subjects", subjects),
            ("passages", passages),
        )
    }
    return given | {
        "bert": str(save_bert(folder / "bert", bank)),
        "images": given["images"] + " --answer w9" * 4,
        "chain": _text(folder / "chain.txt", "It ran. She saw. " * 3 + "So it was the"),
        "lines": given["texts"],
        "parsed": _text(folder / "parsed.conllu", "\n\n".join(sentences[:12]) + "\n\n"),
    }


def _written(path: Path, rows: list[dict[str, Any]]) -> str:
    return _text(path, "".join(json.dumps(row) + "\n" for row in rows))


def _text(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)
