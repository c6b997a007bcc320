"""Command lines of every command's default, and the small files that they need."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path

from interp.bundled import path as bundled_path

ROOT = Path(__file__).parents[1]
TEXT = "Once upon a time there was a little girl named Lily. Lily wanted to play with Tom. Tom and"
FACTS = (
    ("Once upon a time, there was a little girl named Lily. She loved to", "a little girl"),
    ("Tom had a big red ball. He liked to play with the", "big red ball"),
    ("The cat sat on the mat. The mouse ran away from the", "The cat"),
    ("Ben and his mom went to the park. Ben wanted to go on the", "the park"),
    ("It was a sunny day. The sun was very", "a sunny day"),
    ("The dog was hungry. It wanted to eat some", "The dog"),
)
# {model} is the model of the table; a row on another model names it
CASES = {
    "check": "check {model}",
    "score": "score {model}",
    "score -m roles": "score {model} -m roles",
    "profile": "profile {model}",
    "head": "head {model} L3H4",
    "judge": "judge {model} L3H4=induction",
    "atlas": "atlas {model} -o {out}.html",
    "texts categories": "texts categories {model} --file {treebank}",
    "cache": "cache {model}",
    "train dictionary": "train dictionary {model} --layer 1",
    "train probe": "train probe {model} --file {labelled}",
    "texts anchors": "texts anchors {model}",
    "texts sources": "texts sources {model}",
    "study trees": "study trees {model}",
    "compare": "compare {model} {model}",
    "compare checkpoints": "compare checkpoints {run}",
    "compare match": "compare match {model} {model}",
    "importance ablate": "importance ablate {model}",
    "importance gates": "importance gates {model}",
    "importance": "importance {model}",
    "prune": "prune {model}",
    "importance shapley": "importance shapley {model}",
    "steer": "steer {model} --heads L1H0,L1H1",
    "importance verify": "importance verify {model} -m previous_token",
    "prune verify": "prune verify {smaller}",
    "circuit": "circuit {model} --task induction",
    "circuit graph": "circuit graph {model} --text {text}",
    "texts graph": "texts graph {model} --text {text}",
    "circuit loadings": "circuit loadings {model} --heads L3H0 --text {text}",
    "circuit pairs": "circuit pairs {model} --file {pairs}",
    "circuit path": "circuit path {model} --task induction --route *>logits",
    "circuit shares": "circuit shares {model} --heads L1H0,L1H1 --text {text}",
    "circuit trace": "circuit trace {model} --file {facts}",
    "attribute": "attribute {model} --text {text}",
    "attribute difference": "attribute difference {model} --file {two}",
    "evaluate faithfulness": "evaluate faithfulness {model} --file {few}",
    "attribute flow": "attribute flow {model} --text {text}",
    "attribute head-weights": "attribute head-weights {model} --file {few}",
    "texts influence": "texts influence {model} --heads L1H0,L1H1 --file {texts}",
    "attribute lens": "attribute lens {model} --text {text}",
    "attribute lens --tune": "attribute lens {model} --tune {texts}",
    "evaluate plausibility": "evaluate plausibility {model} --file {rationales}",
    "evaluate sanity": "evaluate sanity {model} --file {few}",
    "attribute tokens": "attribute tokens {model} --text {text}",
    "view": "view {model} --text {text} -o {out}-view.html",
    "record": "record {model} --file {texts} -o {out}",
    "study align": "study align bundled:reorder",
    "study pictures": "study pictures {llava} {images} -m grounding --text w5 --answer w9 "
    "--answer w9 --answer w9 --answer w9",
    "study safety": "study safety",
    "study speech": "study speech {whisper} --file {whisper}/recordings.jsonl",
    "study vision": "study vision bundled:shapes",
}
# made before the clock starts
BEFORE = {"prune verify": "prune {model} --method ablation --keep 24 --save {smaller}"}
# rows above the aim, and what takes the time
ABOVE = {
    "texts categories": "15 labels, each beside 4 labellings of its null, are read at every layer: "
    "one pass of attention statistics each, over the patterns of one forward pass",
    "circuit path": "37 routes, one from each node, each with the MLPs on its way, which are "
    "computed again one block at a time",
    "attribute lens --tune": "300 steps of training at each of 4 depths, which run no block",
    "train dictionary": "its steps of training run no block",
}
# commands without a row
WITHOUT = {
    "attribute similarity": "needs a sentence encoder, and none is bundled",
    "completion": "runs no model",
    "explore": "a server, which runs until it is stopped; a prompt is one forward pass",
    "list": "runs no model",
    "mcp": "a server, which runs until its input ends",
    "results": "runs no model",
}


def files(folder: Path, model: str) -> dict[str, str]:
    """Write the files that command lines name to a folder, and return their paths by name."""
    texts = ROOT / "data" / "prompts.txt"
    few = [prompt for prompt, _ in FACTS]
    two = [f"{prompt}\t{prompt.replace('. ', '. Then ', 1)}" for prompt in few]
    names = ("dog", "bear", "boy", "man", "tree", "bird", "fish", "girl")
    made = [
        {
            "prompt": f"The {a} is very",
            "corrupted": f"The {b} is very",
            "answer": " little",
            "wrong": " sad",
        }
        for a, b in pairwise((*names, names[0]))
    ]
    labelled = [
        {"prompt": line, "label": int("he" in line.split()), "document": i}
        for i, line in enumerate(texts.read_text(encoding="utf-8").splitlines())
    ]
    lines = {
        "facts": [json.dumps({"prompt": p, "subject": s}) for p, s in FACTS],
        "few": few,
        "two": two,
        "pairs": [json.dumps(row) for row in made],
        "labelled": [json.dumps(row) for row in labelled],
    }
    given = {
        "model": model,
        "text": TEXT,
        "out": str(folder / "out"),
        "texts": str(texts),
        "treebank": str(ROOT / "data" / "treebank.conllu"),
        "smaller": str(folder / "smaller"),
    }
    for name, rows in lines.items():
        path = folder / (f"{name}.txt" if name in ("few", "two") else f"{name}.jsonl")
        path.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
        given[name] = str(path)
    given["rationales"] = str(_rationales(folder / "eraser"))
    given["run"] = str(_run(folder / "run", model))
    return given


def _rationales(folder: Path) -> Path:
    """Write annotations in the layout of ERASER: the subject of each fact is the rationale."""
    (folder / "docs").mkdir(parents=True)
    rows = []
    for i, (prompt, subject) in enumerate(FACTS):
        words = prompt.replace(",", " ,").replace(". ", " . ").split()
        at = next(
            j for j in range(len(words)) if words[j : j + len(subject.split())] == subject.split()
        )
        (folder / "docs" / f"doc{i}").write_text(" ".join(words), encoding="utf-8")
        span = {
            "docid": f"doc{i}",
            "start_token": at,
            "end_token": at + len(subject.split()),
            "text": subject,
        }
        rows.append(
            {"annotation_id": f"a{i}", "classification": "yes", "query": "", "evidences": [[span]]}
        )
    path = folder / "val.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _run(folder: Path, model: str) -> Path:
    """Make a training run of three checkpoints, all of them the model."""
    folder.mkdir()
    source = bundled_path(model.removeprefix("bundled:")) if "bundled:" in model else Path(model)
    for step in (1, 2, 3):
        (folder / f"checkpoint-{step}").symlink_to(source.resolve(), target_is_directory=True)
    return folder


def other_models(folder: Path) -> dict[str, str]:
    """Write the planted speech model with recordings, and a small LLaVA with four images."""
    import numpy as np
    from PIL import Image

    from interp.planted.with_sound import spoken_words

    sys.path.insert(0, str(ROOT / "tests"))
    from fixtures.pictures import save_llava  # pyright: ignore[reportMissingImports]

    whisper, llava = folder / "whisper", folder / "llava"
    spoken_words().save(whisper)
    images = []
    for seed in range(4):
        pixels = np.random.default_rng(seed).integers(0, 256, (36, 40, 3), dtype=np.uint8)
        path = folder / f"{seed}.png"
        Image.fromarray(pixels).save(path)
        images += ["--image", str(path)]
    return {
        "whisper": str(whisper),
        "llava": str(save_llava(llava)),
        "images": " ".join(images),
    }


def words_of(line: str, given: dict[str, str]) -> list[str]:
    """Return the words of a command line, with the files and models in place."""
    found = []
    for word in line.split():
        filled = word.format(**given)
        found += filled.split() if word == "{images}" else [filled]
    return found
