"""Every form of attention trained alike: text, copies of random tokens, and recall of pairs.

Two layers of four heads, width 64; with one seed, all causal forms see the same rows in the same
order, and so do all others. Causal forms predict the next token; the others predict hidden tokens.
Trained weights are kept in the folder `results/trained_alike` of the repository, under a name that
changes with the settings and with the form's own code.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import time
import types
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from jaxtyping import Float, Int
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from interp.bundled.special_tokens import BOS, SPECIAL, UNKNOWN
from training.batches import Corpus, build_tokenizer, repeats
from training.forms import build, rule_class, variant_names
from training.forms.language_model import VariantForCausalLM
from training.text import paragraphs

SEEDS = (0, 1, 2)
RATE = 4e-3  # of learning
STEPS, LENGTH, VOCAB = 600, 32, 128
ROWS = {"text": 4, "copies": 12, "recall": 8}  # of each kind per step
PAIRS = 7  # of a row of recall
HIDDEN = {"text": 0.15, "copies": 0.3, "recall": 1.0}  # share that forms without direction predict
SIZES = {"vocab_size": VOCAB, "hidden_size": 64, "max_position_embeddings": 64}
KEPT = Path(__file__).parents[1] / "results" / "trained_alike"
TRAINING: dict[str, float] = {}  # processor seconds of the training of weights that were read
NOW: dict[str, float] = {}  # of these, what this process trained

Ids: TypeAlias = Int[Tensor, "row pos"]


class Rows(NamedTuple):
    """Rows of one kind: what the model reads, what it should predict, and where that counts.

    Args:
        given: token ids that the model reads.
        wanted: token ids that its logits should predict, at the same position.
        counts: 1 where the prediction counts, else 0.
    """

    given: Ids
    wanted: Ids
    counts: Float[Tensor, "row pos"]


def forms() -> tuple[str, ...]:
    """Return the variants that live in a language model, softmax first."""
    return tuple(sorted(variant_names("text"), key=lambda n: (n != "plain_softmax", n)))


@cache
def tokenizer() -> Any:
    """Return the tokenizer of the text to train on."""
    return build_tokenizer(paragraphs(1500, 1), VOCAB, 10_000)


@cache
def corpora() -> tuple[Corpus, Corpus]:
    """Return the text to train on and the held-out text."""
    return Corpus(paragraphs(1500, 1), tokenizer()), Corpus(paragraphs(200, 2), tokenizer())


def recall(rng: np.random.Generator, number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of pairs of a key and a value, then the same pairs in another order.

    Also returned: which tokens are the values of the second part, which can be predicted. Keys of a
    row are distinct; values are any tokens.
    """
    tokens = rng.permuted(np.tile(np.arange(len(SPECIAL), VOCAB), (number, 1)), axis=1)
    keys = tokens[:, :PAIRS]
    values = rng.integers(len(SPECIAL), VOCAB, size=(number, PAIRS))
    order = rng.permuted(np.tile(np.arange(PAIRS), (number, 1)), axis=1)
    pairs = np.stack([keys, values], 2)
    asked = np.take_along_axis(pairs, order[:, :, None], 1)
    ids = np.concatenate(
        [np.full((number, 1), BOS), pairs.reshape(number, -1), asked.reshape(number, -1)], 1
    )
    answers = np.zeros(ids.shape, bool)
    answers[:, 2 * PAIRS + 2 :: 2] = True
    rest = LENGTH - ids.shape[1]
    ends = ((0, 0), (0, rest))
    return np.pad(ids, ends, constant_values=BOS), np.pad(answers, ends)


def rows(kind: str, number: int, rng: np.random.Generator, *, causal: bool, held_out: bool) -> Rows:
    """Return rows of one kind.

    Args:
        kind: "text", "copies" or "recall".
        number: number of rows.
        rng: source of the rows.
        causal: whether the next token is predicted; else hidden tokens are.
        held_out: whether rows of text come from the held-out text.
    """
    if kind == "text":
        ids = corpora()[held_out].rows(rng, number, LENGTH)
        known = np.ones(ids.shape, bool)
        known[:, 0] = False
    elif kind == "copies":
        ids, known = repeats(rng, number, LENGTH, VOCAB)
    else:
        ids, known = recall(rng, number)
    wanted, counts = torch.tensor(ids), torch.tensor(known)
    if causal:
        return Rows(wanted, wanted.roll(-1, 1), counts.roll(-1, 1).float())
    hidden = counts & torch.tensor(rng.random(ids.shape) < HIDDEN[kind])
    return Rows(wanted.masked_fill(hidden, UNKNOWN), wanted, hidden.float())


def losses(logits: Float[Tensor, "row pos d_vocab"], asked: Rows) -> Float[Tensor, "row pos"]:
    """Return the loss of each prediction, in nats."""
    return F.cross_entropy(logits.mT, asked.wanted, reduction="none")


def mean_loss(logits: Float[Tensor, "row pos d_vocab"], asked: Rows) -> Tensor:
    """Return the mean loss of the predictions that count, in nats."""
    return (losses(logits, asked) * asked.counts).sum() / asked.counts.sum()


def accuracy(logits: Float[Tensor, "row pos d_vocab"], asked: Rows) -> float:
    """Return the share of the predictions that count whose most likely token is right."""
    right = (logits.argmax(-1) == asked.wanted).float() * asked.counts
    return float(right.sum() / asked.counts.sum())


def asked_rows(form: str, kind: str, number: int = 32, seed: int = 99) -> Rows:
    """Return held-out rows of one kind, with the predictions that a form was trained to make."""
    causal = rule_class(form).causal
    return rows(kind, number, np.random.default_rng(seed), causal=causal, held_out=True)


def trained(form: str, seed: int, **sizes: Any) -> VariantForCausalLM:
    """Return a trained form of attention; weights that were kept are read, not trained again.

    Args:
        form: a name of `training.forms.variant_names()`.
        seed: seed of the weights and of the order of the rows.
        sizes: fields of `VariantConfig` other than those of `SIZES`, such as `num_attention_heads`.
    """
    path = KEPT / f"{form}-{seed}-{settings(form, **sizes)}.safetensors"
    model = build(form, seed=seed, gain=1.0, **SIZES | sizes)
    return kept(path, model, lambda: train(model, seed))


def kept(path: Path, module: Any, train: Callable[[], object]) -> Any:
    """Return a module in evaluation mode with the weights kept in a file, or trained and kept.

    `TRAINING` gets the processor time of their training, and `NOW` if they are trained now.
    """
    if path.exists():
        with safe_open(path, "pt") as weights:
            TRAINING[path.stem] = float((weights.metadata() or {}).get("seconds", "nan"))
        module.load_state_dict(load_file(path))
        return module.eval()
    start = time.process_time()
    train()
    TRAINING[path.stem] = NOW[path.stem] = round(time.process_time() - start, 2)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(f".{np.random.default_rng().integers(10**9)}")
    state = {k: v.contiguous() for k, v in module.state_dict().items()}
    save_file(state, part, {"seconds": str(TRAINING[path.stem])})
    part.replace(path)
    return module


def train(model: VariantForCausalLM, seed: int) -> VariantForCausalLM:
    """Train a model in place; recurrent forms in their parallel form, which has the same output."""
    rules: list[Any] = [block.attention.rule for block in model.blocks]  # type: ignore[union-attr]
    for rule in rules:
        rule.mix = types.MethodType(in_parallel, rule)
    rng = np.random.default_rng(seed)
    descend(model, lambda step: step_loss(model, rng), STEPS)
    for rule in rules:
        del rule.mix  # the recurrence again
    return model


def mixture(rng: np.random.Generator, causal: bool = True) -> Rows:
    """Return the rows of one step of training."""
    parts = [rows(kind, n, rng, causal=causal, held_out=False) for kind, n in ROWS.items()]
    return Rows(*(torch.cat(part) for part in zip(*parts, strict=True)))


def step_loss(model: Any, rng: np.random.Generator) -> Tensor:
    """Return the loss of a model on the rows of one step of training."""
    asked = mixture(rng, model.blocks[0].attention.rule.causal)
    return mean_loss(model(asked.given).logits, asked)


@torch.enable_grad()
def descend(module: nn.Module, loss_at: Callable[[int], Tensor], steps: int) -> None:
    """Minimise the loss of each step: 50 steps of warming up, then a linear fall of the rate."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, betas=(0.9, 0.98))
    module.train()
    for step in range(steps):
        loss = loss_at(step)
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 50) * (1 - 0.9 * step / steps)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
    module.eval()


def in_parallel(rule: Any, given: Any) -> Tensor:
    """Return z by the map, in place of a recurrence, with what it holds of no token."""
    z, rest = rule.rows(given, given.every) @ given.v, rule.rest(given)
    return z if rest is None else z + rest


def loaded(form: str, seed: int) -> interp.Model:
    """Return a trained form as a model whose heads are read."""
    return interp.load(trained(form, seed), name=f"{form} trained alike, seed {seed}")


def settings(form: str, **sizes: Any) -> str:
    """Return a short hash of the settings and of the form's own code."""
    classes = rule_class(form).__mro__
    code = [inspect.getsource(c) for c in classes if c.__module__.startswith("training.forms")]
    held = json.dumps([RATE, STEPS, LENGTH, ROWS, PAIRS, HIDDEN, SIZES | sizes, code])
    return hashlib.sha256(held.encode()).hexdigest()[:10]
