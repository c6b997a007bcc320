"""Command lines of every command's default, and the small files that they need."""

from __future__ import annotations

import json
import sys
from pathlib import Path

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
    "atlas": "atlas {model} -o {out}.html",
    "categories": "categories {treebank} {model}",
    "cache": "cache {model}",
    "dictionary": "dictionary {model} --layer 1",
    "probe": "probe {labelled} {model}",
    "anchors": "anchors {model}",
    "sources": "sources {model}",
    "trees": "trees {model}",
    "compare": "compare {model} {model}",
    "emergence": "emergence {run}",
    "match": "match {model} {model}",
    "ablate": "ablate {model}",
    "gates": "gates {model}",
    "importance": "importance {model}",
    "prune": "prune {model}",
    "shapley": "shapley {model}",
    "steer": "steer {model} --heads L1H0,L1H1",
    "verify": "verify {model} -m previous_token",
    "verify-certificate": "verify-certificate {smaller}",
    "circuit": "circuit induction {model}",
    "graph": "graph {model} {text}",
    "attention-graph": "attention-graph {model} {text}",
    "loadings": "loadings {model} L7H0 {text}",
    "pairs": "pairs {model} {pairs}",
    "path": "path induction {model} --route *>logits",
    "qk-shares": "qk-shares {model} L1H0,L1H1 {text}",
    "trace": "trace {model} {facts}",
    "attribute": "attribute {text} --model {model}",
    "difference": "difference {two} --model {model}",
    "faithfulness": "faithfulness {few} --model {model}",
    "flow": "flow {text} --model {model}",
    "head-weights": "head-weights {few} --model {model}",
    "influence": "influence {model} {texts}",
    "lens": "lens {text} --model {model}",
    "lens --tune": "lens --model {model} --tune {texts}",
    "plausibility": "plausibility {rationales} --model {model}",
    "sanity": "sanity {few} --model {model}",
    "similarity": "similarity {text} {other} --model {model}",
    "tokens": "tokens {text} --model {model}",
    "view": "view {model} --text {text} -o {out}.html",
    "record": "record {model} --prompt-file {texts} -o {out}",
    "align": "align bundled:reorder",
    "pictures": "pictures {llava} -m grounding {images} --text w5 --answer w9",
    "safety": "safety",
    "speech": "speech {whisper} {whisper}/recordings.jsonl",
    "vision": "vision bundled:shapes",
}
# made before the clock starts
BEFORE = {"verify-certificate": "prune {model} --keep 120 --by ablation --save {smaller}"}
# commands without a row
WITHOUT = {
    "completion": "runs no model",
    "explore": "a server, which runs until it is stopped; a prompt is one forward pass",
    "methods": "runs no model",
    "metrics": "runs no model",
    "models": "runs no model",
    "results": "runs no model",
}


def files(folder: Path, model: str) -> dict[str, str]:
    """Write the files that command lines name to a folder, and return their paths by name."""
    texts = ROOT / "data" / "prompts.txt"
    few = [prompt for prompt, _ in FACTS]
    two = [f"{prompt}\t{prompt.replace('. ', '. Then ', 1)}" for prompt in few]
    pair = {"prompt": "The cat is very", "corrupted": "The dog is very", "answer": " happy",
            "wrong": " sad"}  # fmt: skip
    labelled = [
        {"prompt": line, "label": int("he" in line.split()), "document": i}
        for i, line in enumerate(texts.read_text(encoding="utf-8").splitlines())
    ]
    lines = {
        "facts": [json.dumps({"prompt": p, "subject": s}) for p, s in FACTS],
        "few": few,
        "two": two,
        "pairs": [json.dumps(pair)],
        "labelled": [json.dumps(row) for row in labelled],
    }
    given = {
        "model": model, "text": TEXT, "other": FACTS[0][0], "out": str(folder / "out"),
        "texts": str(texts), "treebank": str(ROOT / "data" / "treebank.conllu"),
        "smaller": str(folder / "smaller"),
    }  # fmt: skip
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
        span = {"docid": f"doc{i}", "start_token": at, "end_token": at + len(subject.split()),
                "text": subject}  # fmt: skip
        rows.append({"annotation_id": f"a{i}", "classification": "yes", "query": "",
                     "evidences": [[span]]})  # fmt: skip
    path = folder / "val.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _run(folder: Path, model: str) -> Path:
    """Make a training run of three checkpoints, all of them the model."""
    folder.mkdir()
    source = Path(model)
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
        "whisper": str(whisper), "llava": str(save_llava(llava)), "images": " ".join(images),
    }  # fmt: skip


def words_of(line: str, given: dict[str, str]) -> list[str]:
    """Return the words of a command line, with the files and models in place."""
    found = []
    for word in line.split():
        filled = word.format(**given)
        found += filled.split() if word == "{images}" else [filled]
    return found
