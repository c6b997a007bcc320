"""Trains bundled:stories from nothing: a small language model of the texts of this folder.

    python -m training.stories train --out FOLDER

takes about 40 minutes on one core and writes the model, its tokenizer, eight checkpoints, the
record of the training and the model card. Stopped and started again, it goes on where it was. The
same seed with the same versions on the same machine gives the same weights bit for bit; elsewhere
floats are summed in another order and the weights differ slightly.

The first steps read pieces of texts and blocks of random tokens that repeat, until heads copy. On
texts alone a model of this size did not learn names in 12 million tokens: it had he or she right in
67 of 112 pronouns of unseen texts (by chance 56).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Int
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch.nn.functional import cross_entropy
from transformers import LlamaForCausalLM

from interp.bundled.special_tokens import BOS, PAD
from interp.core.errors import LoadError, OptionError
from interp.core.files import write_atomically
from training.batches import repeats
from training.recording import pace, save_rounded, versions
from training.stories.texts import Story, generator_hash, stories, story
from training.stories.tokens import save_tokenizer, train_tokenizer
from training.train import build_model, own_torch

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast

STORED = "bfloat16"
Batch = tuple[Int[np.ndarray, "row pos"], Int[np.ndarray, "row pos"]]
"""Token ids, and the ids that are to be predicted; padding stands where none is."""
CHUNK = 1024
"""Texts that are sorted by length together, so that the texts of a batch are about as long."""
FAR = 10_000_000
"""Distance of the first texts of two seeds of a training; half of it is that of their pieces."""


@dataclass(frozen=True)
class Recipe:
    """Sizes of the model and of its training; every step sees texts that no other saw.

    The first `early` steps see pieces of `piece` tokens, of which a share `repeated` is random
    tokens said again; each of the others sees `rows` whole texts and `repeats` such rows.
    """

    layers: int = 4
    d_model: int = 128
    heads: int = 8
    kv_heads: int = 4
    d_head: int = 16
    d_mlp: int = 512
    context: int = 512
    rope_theta: float = 10_000.0
    texts: int = 57_344
    rows: int = 14
    repeats: int = 2
    early: int = 500
    pieces: int = 93
    piece: int = 40
    repeated: float = 0.6
    embedding_std: float = 0.3
    learning_rate: float = 3e-3
    warmup: int = 100
    weight_decay: float = 0.05
    checkpoints: tuple[int, ...] = (0, 250, 500, 750, 1000, 1500, 2000, 3000)
    saved_every: int = 250

    @property
    def steps(self) -> int:
        """Number of steps of the training."""
        return self.early + self.texts // self.rows


def build(recipe: Recipe, vocabulary: int) -> LlamaForCausalLM:
    """The untrained model, from torch's current random state."""
    model = build_model(recipe, vocabulary, std=0.04, end=BOS)
    torch.nn.init.normal_(model.model.embed_tokens.weight, std=recipe.embedding_std)
    return model


def batches(
    tokenizer: PreTrainedTokenizerFast, texts: Iterator[Story], rows: int, seed: int
) -> Iterator[Int[np.ndarray, "row pos"]]:
    """Token ids of texts of about the same length, each from `<s>` to `<s>`, then padding."""
    rng = np.random.default_rng([seed, 0])
    while chunk := list(islice(texts, CHUNK)):
        ids = tokenizer([each.text for each in chunk])["input_ids"]
        ids = sorted(([*each, BOS] for each in ids), key=len)
        groups = [ids[i : i + rows] for i in range(0, len(ids), rows)]
        for group in rng.permutation(len(groups)):
            longest = len(groups[group][-1])
            yield np.array([[*each, *[PAD] * (longest - len(each))] for each in groups[group]])


def pieces(
    tokenizer: PreTrainedTokenizerFast, texts: Iterator[Story], recipe: Recipe, seed: int
) -> Iterator[Int[np.ndarray, "row pos"]]:
    """Token ids of pieces of texts, shuffled, each after `<s>`."""
    rng = np.random.default_rng([seed, 1])
    long, rows = recipe.piece - 1, round(recipe.pieces * (1 - recipe.repeated))
    held: list[list[int]] = []
    for text in texts:
        ids = [*tokenizer(text.text)["input_ids"][1:], BOS]
        held += [[BOS, *ids[i : i + long]] for i in range(0, len(ids) - long + 1, long)]
        if len(held) >= CHUNK + rows:
            rng.shuffle(held)
            while len(held) >= rows:
                yield np.array(held[:rows])
                held = held[rows:]


def with_repeats(
    rows: Iterable[Int[np.ndarray, "row pos"]], number: int, vocabulary: int, seed: int
) -> Iterator[Batch]:
    """Token ids with rows of repeated random tokens added, and what of them is to be predicted."""
    for step, ids in enumerate(rows):
        rng = np.random.default_rng([seed, 2, step])
        said, known = repeats(rng, number, ids.shape[1], vocabulary)
        labels = np.concatenate([ids, np.where(known, said, PAD)])
        yield np.concatenate([ids, said]), labels


def lessons(tokenizer: PreTrainedTokenizerFast, recipe: Recipe, seed: int) -> Iterator[Batch]:
    """The batches of a whole training: pieces and repeats, then whole texts."""
    vocabulary, first = len(tokenizer), seed * FAR
    early = pieces(tokenizer, map(story, count(first + FAR // 2)), recipe, seed)
    said = round(recipe.pieces * recipe.repeated)
    yield from islice(with_repeats(early, said, vocabulary, seed), recipe.early)
    whole = batches(tokenizer, stories(recipe.texts, first), recipe.rows, seed)
    yield from with_repeats(whole, recipe.repeats, vocabulary, seed)


def loss_of(model: LlamaForCausalLM, ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """The mean loss in nats of the tokens that are to be predicted, which are no padding."""
    logits = model(ids).logits[:, :-1]
    return cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=PAD)


class Course:
    """A training that can be stopped at any moment and goes on from its last saved state.

    Args:
        folder: where the state is kept.
        key: what a saved state must agree with: recipe, seed and generator of the texts.
    """

    def __init__(self, recipe: Recipe, model: LlamaForCausalLM, folder: Path, key: dict[str, Any]):
        self.recipe, self.model, self.folder, self.key = recipe, model, folder, key
        self.parameters = dict(model.named_parameters())
        words = {id(model.model.embed_tokens.weight), id(model.lm_head.weight)}
        decayed = [p for p in self.parameters.values() if p.dim() > 1 and id(p) not in words]
        others = [p for p in self.parameters.values() if p.dim() == 1 or id(p) in words]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": recipe.weight_decay}, {"params": others}],
            lr=recipe.learning_rate,
            betas=(0.9, 0.98),
            weight_decay=0.0,
        )
        self.step, self.seconds, self.tokens = 0, 0.0, 0
        self.curve: list[list[float]] = []

    def run(
        self,
        rows: Iterator[Batch],
        look: Callable[[int], None],
        log: Callable[[str], None] = print,
    ) -> None:
        """Take the steps that are left, from a saved state if the folder has one.

        Args:
            rows: the batches of the whole training.
            look: called with the step before the steps of the recipe's checkpoints.
        """
        self.resume()
        began, before = time.monotonic(), self.seconds
        self.model.train()
        for ids, labels in islice(rows, self.step, None):
            if self.step in self.recipe.checkpoints:
                look(self.step)
            for group in self.optimizer.param_groups:
                share = pace(self.step, self.recipe.steps, self.recipe.warmup)
                group["lr"] = self.recipe.learning_rate * share
            loss = loss_of(self.model, torch.from_numpy(ids), torch.from_numpy(labels))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.tokens += int((labels[:, 1:] != PAD).sum())
            if self.step % 50 == 0:
                self.curve.append([self.step, round(float(loss.detach()), 4)])
            self.step += 1
            self.seconds = before + time.monotonic() - began
            if self.step % self.recipe.saved_every == 0:
                self.save()
                log(f"step {self.step:5d}  {self.curve[-1][1]:.3f} nats  {self.seconds:.0f} s")
        self.model.eval()

    @property
    def state(self) -> Path:
        """The file of the state from which the training goes on."""
        return self.folder / "training-state.safetensors"

    def save(self) -> None:
        """Write weights, the optimizer's moments and the curve, in one file that is whole."""
        tensors = {f"weight {n}": p.detach() for n, p in self.parameters.items()}
        for name, parameter in self.parameters.items():
            for moment, value in self.optimizer.state[parameter].items():
                tensors[f"{moment} {name}"] = value
        told = {"step": self.step, "seconds": self.seconds, "tokens": self.tokens}
        told |= {"curve": self.curve, "key": self.key}
        part = self.state.with_suffix(".part")
        save_file(tensors, part, metadata={"told": json.dumps(told)})
        part.replace(self.state)

    def resume(self) -> None:
        """Read the state that the folder holds.

        Raises:
            LoadError: the state is of another recipe, seed or generator.
        """
        if not self.state.is_file():
            return
        with safe_open(self.state, "pt") as file:
            told = json.loads(file.metadata()["told"])
        if told["key"] != self.key:
            raise LoadError(
                f"{self.state} is of another training, with another recipe, seed or generator of "
                "the texts; delete it to begin anew, or give another folder"
            )
        tensors = load_file(self.state)
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(tensors[f"weight {name}"])
                moments = ("step", "exp_avg", "exp_avg_sq")
                self.optimizer.state[parameter] = {m: tensors[f"{m} {name}"] for m in moments}
        self.step, self.seconds, self.tokens = told["step"], told["seconds"], told["tokens"]
        self.curve = told["curve"]

    def finish(self, about: dict[str, Any], threads: int) -> dict[str, Any]:
        """Write the model and the record of its training, and return the record."""
        recipe, model = self.recipe, self.model
        record = {
            **about,
            "recipe": asdict(recipe) | {"steps": recipe.steps},
            "vocab": model.config.vocab_size,
            "parameters": sum(p.numel() for p in model.parameters()),
            "tokens": self.tokens,
            "seconds": round(self.seconds, 1),
            "threads": threads,
            "versions": versions(),
            **save_rounded(model, self.folder, STORED),
            "loss_curve": self.curve,
        }
        written = json.dumps(record, indent=1) + "\n"
        write_atomically(self.folder / "training.json", written.encode())
        self.state.unlink()
        return record


def require_step(recipe: Recipe) -> None:
    """Raise OptionError if there are too few texts for a step."""
    if recipe.texts < recipe.rows:
        raise OptionError(
            f"{recipe.texts} texts at {recipe.rows} a step make no step; give {recipe.rows} or more"
        )


def train(
    recipe: Recipe, seed: int, threads: int, out: Path, log: Callable[[str], None] = print
) -> dict[str, Any]:
    """Train a model of the stories, write everything into `out`, and return the record.

    Raises:
        OptionError: the seed is not a whole number from 0, or there is no step to take.
        LoadError: the folder holds the state of another training.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise OptionError(f"a training has no seed {seed!r}; give a whole number from 0")
    require_step(recipe)
    out.mkdir(parents=True, exist_ok=True)
    with own_torch(seed, threads):
        tokenizer = train_tokenizer()
        save_tokenizer(tokenizer, out)
        model = build(recipe, len(tokenizer))
        key = {"recipe": json.loads(json.dumps(asdict(recipe))), "seed": seed}
        course = Course(recipe, model, out, key | {"generator": generator_hash()})

        def look(step: int) -> None:
            folder = out / "checkpoints" / f"checkpoint-{step}"
            save_rounded(model, folder, STORED)
            tokenizer.save_pretrained(folder)

        course.run(lessons(tokenizer, recipe, seed), look, log)
        name = "stories" if seed == 0 else f"stories-seed{seed}"
        about = {"model": name, "seed": seed, "generator": generator_hash()}
        return course.finish(about, threads)
