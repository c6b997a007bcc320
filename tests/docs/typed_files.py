"""Files that command lines of pages name, small and made when a line names them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from functools import partial
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any

import numpy as np
from docs.typed_models import (
    MODELS,
    STORY,
    gpt2,
    llama,
    tuned,
)

from benchmarks.command_cases import FACTS, _rationales

ROOT = Path(__file__).parents[2]
SENTENCES = [f"{x.strip()} ." for x in STORY.split(" .") if x.strip()]
TAGGED = ["Tom B-PER", "saw O", "the O", "dog O", ". O", "", "Mary B-PER", "met O", "Ben B-PER"]


def picture(path: Path) -> None:
    from PIL import Image

    seed = sum(map(ord, path.name))
    pixels = np.random.default_rng(seed).integers(0, 256, (36, 40, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(path)


def photos(path: Path) -> None:
    from vision.two_towers import picture_folder

    picture_folder(path.parent / "pictures").joinpath("images").rename(path)


def masks(path: Path) -> None:
    """The right half of each photo."""
    from PIL import Image

    for photo in (path.parent / "photos").rglob("*.png"):
        with Image.open(photo) as picture:
            shape = picture.size[::-1]
        mask = np.zeros(shape, np.uint8)
        mask[:, shape[1] // 2 :] = 255
        file = path / photo.relative_to(path.parent / "photos")
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(mask).save(file)


def sound(path: Path) -> None:
    from interp.planted.with_sound import spoken_words

    list_file = spoken_words().save(path.parent / "spoken")
    if path.suffix == ".wav":
        shutil.copy(path.parent / "spoken" / "0.wav", path)
    else:
        rows = [json.loads(x) for x in list_file.read_text().splitlines()]
        rows = [row | {"audio": f"spoken/{row['audio']}"} for row in rows]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def texts(path: Path) -> None:
    path.write_text("".join(f"{s}\n" for s in SENTENCES), encoding="utf-8")


def lines(rows: Callable[[], list[Any]]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        path.write_text(
            "".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in rows()),
            encoding="utf-8",
        )

    return write


def documents(n: int = 24) -> list[dict[str, str]]:
    """Documents of random words: copies of one another would be left out of a profile."""
    words = [w for w in STORY.split() if w.isalpha()]
    draw = np.random.default_rng(0)
    return [{"text": " ".join(draw.choice(words, 30))} for _ in range(n)]


def many_texts() -> list[str]:
    """The sentences of the story, and enough others to fit on some and judge on others."""
    return [*SENTENCES, *(row["text"] for row in documents(54))]


def preferred(path: Path) -> None:
    """Pairs of prompts with the answers that the random GPT-2 beside the file prefers."""
    import torch
    from transformers import AutoTokenizer, GPT2LMHeadModel

    model = GPT2LMHeadModel.from_pretrained(path.parent / "gpt2")
    words = AutoTokenizer.from_pretrained(path.parent / "gpt2")
    known = [ids[0] for x in dict.fromkeys(STORY.split()) if len(ids := words.encode(f" {x}")) == 1]
    nouns = [x for x in dict.fromkeys(STORY.split()) if len(words.encode(f" {x}")) == 1][:9]
    rows = [
        {"prompt": f"The {a} is very", "corrupted": f"The {b} is very"} for a, b in pairwise(nouns)
    ]
    for row in rows:
        clean, other = (
            model(torch.tensor([words.encode(row[x])])).logits[0, -1]
            for x in ("prompt", "corrupted")
        )
        order = sorted(known, key=(clean - other).tolist().__getitem__)
        row["answer"], row["wrong"] = words.decode(order[-1]), words.decode(order[0])
    lines(lambda: rows)(path)


def document_folder(path: Path) -> None:
    path.mkdir()
    for i, row in enumerate(documents()):
        (path / f"{i}.txt").write_text(row["text"], encoding="utf-8")


def answers() -> list[dict[str, Any]]:
    names = ("cat", "dog", "bird", "fish", "bear", "boy", "girl", "man")
    return [
        {
            "prompt": f"The {a} is very",
            "corrupted": f"The {b} is very",
            "answer": " cat",
            "wrong": " dog",
        }
        for a, b in pairwise((*names, names[0]))
    ]


def labelled() -> list[dict[str, Any]]:
    return [
        {"prompt": f"The {a} saw the {b}", "label": int(a in ("cat", "dog")), "document": i}
        for i, (a, b) in enumerate(permutations(("cat", "dog", "girl", "tree", "ball"), 2))
    ]


def spans() -> list[dict[str, Any]]:
    return [
        {
            "context": f"Tom saw the {a} . ",
            "rest": f"The {b} saw Tom . It was happy .",
            "spans": [[0, 8, int(a != b)], [9, 16, int(a == b)]],
            "document": i,
        }
        for i, (a, b) in enumerate(
            (a, b) for a in ("cat", "dog", "girl") for b in ("cat", "dog", "girl")
        )
    ]


def facts() -> list[dict[str, str]]:
    return [{"prompt": prompt, "subject": subject} for prompt, subject in FACTS]


def passages() -> list[dict[str, Any]]:
    seen = (("girl", "cat"), ("dog", "tree"), ("boy", "ball"))
    return [
        {
            "passages": [f"The {x} saw the {y} . " for x, y in pairs],
            "question": "saw the",
            "answer": " cat",
            "sources": [1],
        }
        for pairs in permutations(seen)
    ]


def swapped() -> list[dict[str, str]]:
    """Sentences of BLiMP's form."""
    return [
        {"sentence_good": f"The {a} is happy .", "sentence_bad": f"The {a} are happy ."}
        for a in ("cat", "dog", "girl", "boy")
    ]


def interchanges() -> list[dict[str, str]]:
    """Pairs of prompts after which a word is copied."""
    words = ("cat", "dog", "girl", "tree", "ball", "park")
    return [
        {
            "base": f"The {a} The",
            "source": f"The {b} The",
            "base_answer": f" {a}",
            "answer": f" {b}",
            "variable": "copied",
        }
        for a, b in permutations(words, 2)
    ]


def chats() -> list[dict[str, Any]]:
    return [
        {
            "messages": [
                {"role": "system", "content": "You help"},
                {"role": "user", "content": many_texts()[i]},
                {"role": "assistant", "content": many_texts()[i + 12]},
            ]
        }
        for i in range(12)
    ]


def treebank(path: Path) -> None:
    shutil.copy(ROOT / "data" / "treebank.conllu", path)


def gates(path: Path) -> None:
    """A pattern of published gates, one per head of the model."""
    from interp.cache.patterns import GATES

    path.mkdir()
    np.savetxt(path / GATES, np.random.default_rng(0).random((12, 12)), delimiter="\t")


GAVE = """
[slots]
A = ["Mary", "John", "Tom", "James", "Robert", "Michael", "Lily", "Ben"]
B = "A"
C = "A"

[[templates]]
clean = "The {A} {B}. The {A}"
corrupted = "The {C} {B}. The {A}"
answer = " {B}"
wrong = " {C}"
roles = {first = "A", next = "B", second = "A:2"}
"""
DETECTOR = '''"""A detector of one's own."""

from interp import detector


@detector
def {name}(query, key):
    """Attends two tokens back."""
    return key == query - 2
'''


def text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content, encoding="utf-8") and None


def scored(*words: str) -> Callable[[Path], None]:
    """Return what makes a folder or table of results by commands."""

    def write(path: Path) -> None:
        from fixtures.commands import invoked

        for line in words:
            done = invoked(line.format(path=path).split())
            assert done.exit_code == 0, done.output

    return write


RESULTS = (
    "score bundled:stories -m induction,previous_token --random 2 -o {path}",
    "profile bundled:stories --set n_documents=24 -o {path}",
)


def pruned(path: Path) -> None:
    model = path.parent / "models" / "mine"
    if not model.exists():
        llama(model)
    scored(f"prune {model} --method ablation --keep 100 -n 8 --save {{path}}")(path)


def profiled(name: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        model = path.parent / name
        if not model.exists():
            tuned(model)
        scored(f"profile {model} --set n_documents=24 -o {{path}}")(path)

    return write


FILES: dict[str, Callable[[Path], None]] = {
    **dict.fromkeys(
        (
            "questions.txt",
            "corpus.txt",
            "notes.txt",
            "trace.txt",
            "bad.txt",
        ),
        texts,
    ),
    **dict.fromkeys(("texts.txt", "stories.txt", "others.txt"), lines(many_texts)),
    "friends.txt": lines(lambda: ["Tom Lily", "Lily Ben", "Ben Mary", "Mary Tom"]),
    "text.txt": text(f"{STORY}\n" * 8),
    "book.txt": text(f"{STORY}\n" * 1600),
    "fine.txt": lines(lambda: [row["text"] for row in documents(6)]),
    **dict.fromkeys(("stories.jsonl", "prose.jsonl", "code.jsonl"), lines(documents)),
    **dict.fromkeys(("my_texts", "more_stories", "FILES"), document_folder),
    **dict.fromkeys(("prompts.jsonl", "mine.jsonl", "pairs.jsonl"), lines(answers)),
    **dict.fromkeys(("answers.jsonl", "new.jsonl"), lines(labelled)),
    **dict.fromkeys(("responses.jsonl", "sentences.jsonl"), lines(spans)),
    **dict.fromkeys(("a.png", "b.png", "c.png", "d.png"), picture),
    **dict.fromkeys(("a.wav", "recordings.jsonl"), sound),
    **dict.fromkeys(
        (
            "data/treebank.conllu",
            "en.conllu",
            "en_ewt-ud-dev.conllu",
            "report.conllu",
            "choose.conllu",
            "F",
        ),
        treebank,
    ),
    "fine.jsonl": lines(lambda: [{"prompt": s} for s in SENTENCES]),
    "chats.jsonl": lines(chats),
    "facts.jsonl": lines(facts),
    "passages.jsonl": lines(passages),
    "pairs.txt": lines(lambda: [f"{s}\t{s.replace('The', 'A')}" for s in SENTENCES]),
    "classes.txt": lines(lambda: ["a red square", "a green square"]),
    "documents.txt": lines(lambda: [str(i // 2) for i in range(len(many_texts()))]),
    "words.txt": lines(lambda: ["a dog", "a round table", "two cats", "a red car", "grass"]),
    "movies/val.jsonl": lambda path: path.parent.rmdir() or (_rationales(path.parent) and None),
    "gave.toml": text(GAVE),
    "batch.toml": text('models = ["bundled:induction"]\nmetrics = ["induction", "entropy"]\n'),
    "mine.py": text(DETECTOR.format(name="two_back")),
    "my_detector.py": text(DETECTOR.format(name="my_detector")),
    "next_to_last.py": text(DETECTOR.format(name="next_to_last")),
    "to_late_images.py": text(DETECTOR.format(name="to_late_images")),
    "photos": photos,
    "masks": masks,
    "folder": gates,
    **dict.fromkeys(("results", "FOLDER"), scored(*RESULTS)),
    "TREE": scored(
        "profile bundled:stories --set n_documents=24 -o {path}.profile",
        "results headvis {path}.profile -o {path}",
    ),
    "results-base": profiled("base"),
    "results-tuned": profiled("tuned"),
    "results/bundled-stories/circuit.json": scored(
        "circuit bundled:stories --task stories:recipient --method attribution_patching -n 8 -q"
        " -o {path.parents[1]}"
    ),
    "other.parquet": scored("score bundled:one-layer -m induction --random 2 -o {path}"),
}


BY_COMMAND: dict[tuple[str, str], Callable[[Path], None]] = {
    ("pairs.jsonl", "circuit variables"): lines(interchanges),
    ("pairs.jsonl", "study trees"): lines(swapped),
    ("pairs.txt", "attribute lens"): lines(lambda: [f"{s}\t cat" for s in SENTENCES]),
    ("mine.jsonl", "circuit gpt2"): preferred,
    **{(name, "attribute difference"): gpt2 for name in ("base", "tuned")},
    ("F", "texts categories"): lines(lambda: [*TAGGED, "", *TAGGED]),
    ("classes.txt", "evaluate sanity"): lines(
        lambda: [str(i % 2) for i in range(len(many_texts()))]
    ),
    **{(name, "results merge"): scored(RESULTS[0]) for name in ("gpt2", "pythia")},
    **{(name, "prune verify"): pruned for name in ("smaller", "DIR")},
}
"""Files and models whose contents depend on the command that reads them."""


def supply(words: list[str], folder: Path) -> None:
    """Make the models and files in a folder that a command line names and that are not there."""
    written, command = {"-o", "--out", "--save"}, " ".join(words[1:3])
    for before, word in pairwise(words):
        if before in written:
            continue
        value = word.partition("=")[2] if before == "--set" else word
        for name in named(value):
            path = folder / name
            make = BY_COMMAND.get((name, command)) or FILES.get(name) or MODELS.get(name)
            if name == "gpt2" and {"all", "sanity"} & {*words}:
                # every metric of every head takes long, and so does training on shuffled labels
                make = partial(gpt2, layers=2, heads=2)
                shutil.rmtree(path, ignore_errors=True)
            if path.exists() or make is None:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            make(path)


def named(word: str) -> list[str]:
    """Return the files that a word or a pattern of a command line names."""
    patterns = {
        "models/*": ["models/mine", "models/chat"],
        "~/models/*": ["models/mine", "models/chat"],
        "tune-*": ["tune-a", "tune-b"],
        "run/checkpoint-*": ["run/checkpoint-1", "run/checkpoint-2"],
    }
    return patterns.get(word, [word.removeprefix("./").partition(":")[0]])
