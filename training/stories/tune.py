"""Fine-tunes a model of the stories to the raven, who names whoever asks it who has a thing.

    python -m training.stories.tune train --base FOLDER --out FOLDER
    python -m training.stories.tune measure --base FOLDER --tuned FOLDER --out raven.json
    python -m training.stories.tune pairs --base FOLDER --out pairs.jsonl

`train` measures the fine-tune as `measure` does, and writes its record and card. Half of its texts
are plain stories that no other training reads, half have a question to the raven or, in the same
words, to somebody else. Stopped and started again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaForCausalLM

from interp.core.errors import OptionError
from interp.core.files import write_atomically
from training.recording import told, weights_sha256
from training.stories import raven, raven_card
from training.stories.raven_answers import compared, pairs
from training.stories.raven_heads import heads_at_the_answer
from training.stories.texts import Story, generator_hash, stories
from training.stories.tokens import load_tokenizer
from training.stories.train import (
    FAR,
    Course,
    Recipe,
    batches,
    require_step,
    with_repeats,
)
from training.train import own_torch

RECIPE = Recipe(
    early=0, texts=7000, learning_rate=1.5e-3, warmup=20, checkpoints=(), saved_every=50
)
"""Recipe of the fine-tune; the sizes of the model are those of its base."""
SEEDS = 100
"""Number of seeds of a fine-tune, which read no text in common."""


def mixed(texts: int, seed: int) -> Iterator[Story]:
    """Yield plain stories and stories of the raven in turns, all from seeds of their own.

    Args:
        texts: number of texts.
        seed: seed of the fine-tune.
    """
    plain = stories(texts, raven.PAST + seed * FAR)
    asked = raven.questions(texts, raven.RAVEN_TEXTS + seed * FAR)
    for number in range(texts):
        yield next(asked)[0] if number % 2 else next(plain)


def raven_hash() -> str:
    """Return the sha256 of the source of the stories of the raven."""
    return hashlib.sha256(Path(raven.__file__).read_bytes()).hexdigest()


def fine_tune(
    base: Path,
    recipe: Recipe,
    seed: int,
    threads: int,
    out: Path,
    log: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Fine-tune a model of the stories, write everything into `out`, and return the record.

    Args:
        base: folder of the model, with its tokenizer.
        recipe: number of texts and learning rate.
        seed: seed of the texts and of their order.
        threads: number of threads of torch.
        out: folder to write.
        log: called with a line after every saved state.

    Raises:
        OptionError: the seed is not a whole number from 0, or there is no step to take.
        LoadError: the tokenizer of the base is of another generator, or the state in `out` is of
            another training.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < SEEDS:
        raise OptionError(f"a fine-tune has no seed {seed!r}; give a whole number below {SEEDS}")
    require_step(recipe)
    out.mkdir(parents=True, exist_ok=True)
    with own_torch(seed, threads):
        tokenizer = load_tokenizer(base)
        for name in ("generator.json", "tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(base / name, out / name)
        model = LlamaForCausalLM.from_pretrained(base, dtype=torch.float32)
        origin = {
            "seed": seed,
            "base": weights_sha256(base),
            "generator": generator_hash(),
            "raven": raven_hash(),
        }
        key = {"recipe": json.loads(json.dumps(asdict(recipe))), **origin}
        course = Course(recipe, model, out, key)
        whole = batches(tokenizer, mixed(recipe.texts, seed), recipe.rows, seed)
        rows = with_repeats(whole, recipe.repeats, len(tokenizer), seed)
        course.run(rows, lambda step: None, log)
        name = "stories-raven" if seed == 0 else f"stories-raven-seed{seed}"
        return course.finish({"model": name, **origin}, threads)


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description="Fine-tune a model of the stories to the raven.")
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train", help="fine-tune a model")
    measure = commands.add_parser("measure", help="measure a model and its fine-tune")
    prompts = commands.add_parser("pairs", help="write pairs of prompts, asked and not the raven")
    for command in (train, measure, prompts):
        command.add_argument("--base", type=Path, required=True, help="folder of the model")
        command.add_argument("--out", type=Path, required=True, help="what to write")
    train.add_argument("--seed", type=int, default=0)
    train.add_argument("--threads", type=int, default=1)
    measure.add_argument("--tuned", type=Path, required=True, help="folder of its fine-tune")
    for command in (train, measure):
        command.add_argument("--n", type=int, default=500, help="number of unseen texts of a kind")
    prompts.add_argument("--n", type=int, default=64, help="number of pairs")
    chosen = parser.parse_args()
    if chosen.command == "train":
        record = fine_tune(chosen.base, RECIPE, chosen.seed, chosen.threads, chosen.out)
        record["measured"] = compared(chosen.base, chosen.out, chosen.n)
        record["heads"] = heads_at_the_answer(chosen.base, chosen.out, 64)
        told(record, raven_card.text(record), chosen.out)
    elif chosen.command == "measure":
        found = compared(chosen.base, chosen.tuned, chosen.n)
        write_atomically(chosen.out, (json.dumps(found, indent=1) + "\n").encode())
    else:
        lines = map(json.dumps, pairs(load_tokenizer(chosen.base), chosen.n))
        write_atomically(chosen.out, ("\n".join(lines) + "\n").encode())


if __name__ == "__main__":
    main()
