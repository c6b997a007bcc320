"""Show stories, train their tokenizer or model, or write docs/stories.md.

python -m training.stories show --seed 7 --n 3
python -m training.stories tokenizer --out FOLDER
python -m training.stories train --out FOLDER
python -m training.stories page
"""

from __future__ import annotations

import argparse
from pathlib import Path

from interp.core.files import write_atomically
from training.stories.measure import measured, page, shown
from training.stories.texts import stories
from training.stories.tokens import TEXTS, VOCABULARY, save_tokenizer, train_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "stories.md"


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
    else:
        write_atomically(chosen.out, page(measured()).encode())


if __name__ == "__main__":
    main()
