"""Show stories, train their tokenizer or model, or write docs/stories.md.

python -m training.stories show --seed 7 --n 3
python -m training.stories tokenizer --out FOLDER
python -m training.stories train --out FOLDER
python -m training.stories examine FOLDER
python -m training.stories texts --out FILE
python -m training.stories page
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from interp.core.documents import parse_json
from interp.core.files import write_atomically
from training.stories.measure import measured, page, shown
from training.stories.texts import UNSEEN_TEXTS, stories
from training.stories.tokens import (
    TEXTS,
    VOCABULARY,
    load_tokenizer,
    save_tokenizer,
    train_tokenizer,
)

OWN_TEXTS = 320
"""Texts that come with a bundled model, which its profiles read."""
OWN_SEED = UNSEEN_TEXTS + 10**6
"""Seed of the first of these texts, far from the texts of the exam."""
PAGE = Path(__file__).parents[2] / "docs" / "stories.md"


def held_out_texts(n: int = OWN_TEXTS) -> str:
    """Return JSON lines of texts that no training reads and no exam asks about."""
    made = stories(n, OWN_SEED)
    return "".join(json.dumps({"text": each.text, "seed": each.seed}) + "\n" for each in made)


def examine(folder: Path) -> None:
    """Write what the model of a folder is able to do into its record and its card."""
    from transformers import AutoModelForCausalLM

    from training.recording import told
    from training.stories import card
    from training.stories.abilities import abilities

    record = parse_json((folder / "training.json").read_bytes())
    model = AutoModelForCausalLM.from_pretrained(folder, use_safetensors=True).eval()
    record["abilities"] = abilities(model, load_tokenizer(folder))
    told(record, card.text(record), folder)


def main() -> None:
    """Read the command line and do what it says."""
    parser = argparse.ArgumentParser(description="Stories of a small world with their truth.")
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="print stories with their annotations")
    show.add_argument("--seed", type=int, default=0)
    show.add_argument("--n", type=int, default=1, help="number of stories")
    tokenizer = commands.add_parser("tokenizer", help="train a tokenizer on stories")
    tokenizer.add_argument("--out", type=Path, required=True, help="folder to write")
    tokenizer.add_argument("--n", type=int, default=TEXTS, help="number of stories")
    tokenizer.add_argument("--vocabulary", type=int, default=VOCABULARY)
    model = commands.add_parser("train", help="train the model, or go on with its training")
    model.add_argument("--out", type=Path, required=True, help="folder to write")
    model.add_argument("--seed", type=int, default=0)
    model.add_argument("--threads", type=int, default=1)
    exam = commands.add_parser("examine", help="examine a trained model, and write its card")
    exam.add_argument("folder", type=Path, help="folder of the model")
    held_out = commands.add_parser("texts", help="write texts that no training reads")
    held_out.add_argument("--out", type=Path, required=True, help="file of JSON lines to write")
    held_out.add_argument("--n", type=int, default=OWN_TEXTS, help="number of texts")
    written = commands.add_parser("page", help="measure the stories and write the page")
    written.add_argument("--out", type=Path, default=PAGE)
    chosen = parser.parse_args()
    if chosen.command == "show":
        for made in stories(chosen.n, chosen.seed):
            print(*shown(made), sep="\n", end="\n\n")
    elif chosen.command == "tokenizer":
        made = train_tokenizer(chosen.n, vocabulary=chosen.vocabulary)
        chosen.out.mkdir(parents=True, exist_ok=True)
        save_tokenizer(made, chosen.out)
    elif chosen.command == "train":
        from training.stories.train import Recipe, train

        train(Recipe(), chosen.seed, chosen.threads, chosen.out)
        examine(chosen.out)
    elif chosen.command == "examine":
        examine(chosen.folder)
    elif chosen.command == "texts":
        write_atomically(chosen.out, held_out_texts(chosen.n).encode())
    else:
        write_atomically(chosen.out, page(measured()).encode())


if __name__ == "__main__":
    main()
