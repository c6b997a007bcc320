"""Writes the checkpoints of a bundled model that come with the package, for its emergence curves.

    python -m training.checkpoints --out interp/bundled/induction/checkpoints

trains the model again up to the last of the steps and saves each in float16, with its tokenizer,
in folders `checkpoint-STEP` that any transformers model loader reads. `checkpoints.json` holds the
seed, the versions, and the largest difference of a head's scores from those of the training record
in the same step.

    python -m training.checkpoints --curves interp/bundled/induction/checkpoints/emergence.json

scores the checkpoints that are there. The wheel leaves out their weights and holds these curves.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

import interp
from interp import bundled
from training import measure
from training.batches import Corpus, two_copies
from training.emergence import checkpoints
from training.recording import save_rounded, versions
from training.text import paragraphs
from training.train import PERIODS, RECIPES

STEPS = (600, 700, 750, 800)  # before the heads form, and three moments while they do
CURVES = ("induction", "previous_token")


def write(name: str, steps: tuple[int, ...], out: Path) -> dict[str, Any]:
    """Train up to the last step, save a folder per step, and return the record."""
    record = json.loads((bundled.path(name) / "training.json").read_text(encoding="utf-8"))
    seed = record["seed"]
    tokenizer = AutoTokenizer.from_pretrained(bundled.path(name))
    exam = np.random.default_rng([seed, 1])  # the prompts of the training record
    Corpus(paragraphs(1000, seed + 1), tokenizer).rows(exam, 64, record["recipe"]["length"])
    ids = torch.from_numpy(two_copies(exam, 64, PERIODS[0], record["vocab"]))
    told = {look["step"]: look for look in record["emergence"]}
    found = []
    for step, model in checkpoints(RECIPES[name], seed, steps):
        folder = out / f"checkpoint-{step}"
        small: Any = copy.deepcopy(model).half()
        stored = save_rounded(model, folder)
        tokenizer.save_pretrained(folder)
        about: dict[str, Any] = {"step": step, "weights_sha256": stored["weights_sha256"]}
        if step in told:
            for dtype, which in (("float32", model), ("float16", small.float())):
                scores = measure.stripes(which, ids, PERIODS[0])
                gaps = [np.abs(np.asarray(x) - np.array(told[step][k])) for k, x in scores.items()]
                about[f"largest_difference_{dtype}"] = round(float(np.max(gaps)), 5)
        found.append(about)
        print(about, flush=True)
    made = {"model": name, "seed": seed, "dtype": "float16", "versions": versions()}
    made |= {"checkpoints": found}
    (out / "checkpoints.json").write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    return made


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Write the checkpoints of a bundled model.")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="folder of the checkpoints to write")
    what.add_argument("--curves", type=Path, help="file of their curves to write")
    parser.add_argument("--model", choices=sorted(RECIPES), default="induction")
    chosen = parser.parse_args()
    if chosen.out is not None:
        write(chosen.model, STEPS, chosen.out)
    else:
        interp.heads.emergence(f"bundled:{chosen.model}", CURVES).save(chosen.curves)


if __name__ == "__main__":
    main()
