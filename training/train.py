"""Trains a bundled model from nothing: data, tokenizer, weights, record and card from one seed.

    python -m training.train --out interp/bundled/induction --model induction --seed 0

takes a few minutes on two cores. The same seed on the same machine, with the same versions and
number of threads, gives the same weights bit for bit; elsewhere the sums of floats may be taken in
another order and the weights differ slightly.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from interp.bundled.special_tokens import BOS, PAD
from interp_kernels.vector_math import settle
from training import card, measure
from training.batches import Corpus, build_tokenizer, repeats, two_copies
from training.recording import save_rounded, told, versions
from training.text import paragraphs


@dataclass(frozen=True)
class Recipe:
    """Sizes of a model and of its training.

    Every step sees `rows` rows of `length` tokens, `text_rows` of them text and the others repeats.
    `surprise` is the weight in the loss of a token of the repeats that nothing before it tells:
    noise that nobody can learn would drown what can be learned. After `long_after` steps every
    second step has a quarter of the rows, four times as long.
    """

    layers: int
    d_model: int
    heads: int
    kv_heads: int
    d_head: int
    d_mlp: int
    steps: int = 3000
    rows: int = 32
    text_rows: int = 8
    length: int = 64
    long_after: int = 1200
    vocab: int = 256
    context: int = 256
    paragraphs: int = 20_000
    rope_theta: float = 10_000.0
    learning_rate: float = 3e-3
    warmup: int = 100
    weight_decay: float = 0.05
    surprise: float = 0.1


RECIPES = {
    "induction": Recipe(layers=2, d_model=128, heads=8, kv_heads=4, d_head=16, d_mlp=256),
    "one-layer": Recipe(layers=1, d_model=64, heads=8, kv_heads=4, d_head=8, d_mlp=128, steps=2000),
}
# Where heads are looked at while they form; the last step is added.
CHECKPOINTS = (0, 200, 400, 600, 700, 800, 900, 1000, 1500, 2000)
PERIODS = (10, 25, 100)
ABLATED = 2


@contextmanager
def own_torch(seed: int, threads: int) -> Iterator[None]:
    """A seeded, deterministic torch inside; whatever the caller had, again outside."""
    settle()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    had_threads = torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]), torch.device("cpu"):
            torch.manual_seed(seed)
            yield
    finally:
        torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
        torch.set_num_threads(had_threads)


def build_model(
    recipe: Any, vocab: int, *, std: float = 0.06, end: int | None = None
) -> LlamaForCausalLM:
    """The untrained model of a recipe's sizes, from torch's current random state.

    Args:
        std: standard deviation of the weights.
        end: token that ends a text.
    """
    config = LlamaConfig(
        vocab_size=vocab,
        hidden_size=recipe.d_model,
        intermediate_size=recipe.d_mlp,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.kv_heads,
        head_dim=recipe.d_head,
        max_position_embeddings=recipe.context,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.rope_theta},
        tie_word_embeddings=False,
        initializer_range=std,
        bos_token_id=BOS,
        eos_token_id=end,
        pad_token_id=PAD,
        dtype="float32",
    )
    return LlamaForCausalLM(config)


def train(name: str, recipe: Recipe, seed: int, threads: int, out: Path, log=print) -> dict:
    """Trains by the recipe, writes everything into `out`, returns the training record."""
    with own_torch(seed, threads):
        return _train(name, recipe, seed, threads, out, log)


def _train(name: str, recipe: Recipe, seed: int, threads: int, out: Path, log) -> dict[str, Any]:
    began = time.monotonic()
    texts = paragraphs(recipe.paragraphs, seed)
    tokenizer = build_tokenizer(texts, recipe.vocab, recipe.context)
    vocab = len(tokenizer)
    corpus = Corpus(texts, tokenizer)
    # Text that was not trained on, and repeats of fixed periods.
    held_out = Corpus(paragraphs(1000, seed + 1), tokenizer)
    exam = np.random.default_rng([seed, 1])
    text = torch.from_numpy(held_out.rows(exam, 64, recipe.length))
    copies = {p: torch.from_numpy(two_copies(exam, 64, p, vocab)) for p in PERIODS}

    model = build_model(recipe, vocab)
    optimizer = torch.optim.AdamW(
        model.parameters(),
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
        weight_decay=recipe.weight_decay,
    )
    hashed = hashlib.sha256()
    curve, emergence = [], []
    for step, (rows, weight) in enumerate(_batches(recipe, corpus, vocab, seed)):
        if step in CHECKPOINTS:
            emergence.append(_look(model, step, text, copies))
            log(_line(emergence[-1], time.monotonic() - began))
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * _schedule(step, recipe)
        hashed.update(rows.tobytes())
        loss = _step(model, optimizer, torch.from_numpy(rows), torch.from_numpy(weight))
        if step % 50 == 0:
            curve.append([step, round(loss, 4)])
    emergence.append(_look(model, recipe.steps, text, copies))
    log(_line(emergence[-1], time.monotonic() - began))

    model.eval()
    trained = save_rounded(model, out)
    tokenizer.save_pretrained(out)
    record = {
        "model": name,
        "seed": seed,
        "recipe": asdict(recipe),
        "vocab": vocab,
        "parameters": sum(p.numel() for p in model.parameters()),
        "seconds": round(time.monotonic() - began, 1),
        "threads": threads,
        "versions": versions(),
        "text_sha256": corpus.sha256,
        "batches_sha256": hashed.hexdigest(),
        **trained,
        "loss_curve": curve,
        "emergence": emergence,
        "scores": _examine(model, text, copies),
    }
    told(record, card.text(record), out)
    return record


def _batches(
    recipe: Recipe, corpus: Corpus, vocab: int, seed: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Token ids and the weight of each token's loss, both [row, pos], step by step."""
    rng = np.random.default_rng([seed, 0])
    for step in range(recipe.steps):
        times = 4 if step >= recipe.long_after and step % 2 else 1
        rows, text_rows = recipe.rows // times, recipe.text_rows // times
        length = recipe.length * times
        text = corpus.rows(rng, text_rows, length)
        copies, known = repeats(rng, rows - text_rows, length, vocab)
        weight = np.ones((rows, length), dtype=np.float32)
        weight[text_rows:][~known] = recipe.surprise
        yield np.concatenate([text, copies]), weight


def _step(model, optimizer, ids: torch.Tensor, weight: torch.Tensor) -> float:
    logits = model(ids).logits[:, :-1]
    losses = torch.nn.functional.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
    loss = (losses * weight[:, 1:]).sum() / weight[:, 1:].sum()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return float(loss.detach())


def _schedule(step: int, recipe: Recipe) -> float:
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    done = (step - recipe.warmup) / max(recipe.steps - recipe.warmup, 1)
    return 0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * done))


def _look(model, step: int, text, copies: dict) -> dict[str, Any]:
    """One line of the emergence record: losses, and two scores of every head."""
    model.eval()
    period = PERIODS[0]
    losses = measure.token_losses(model, copies[period])
    scores = measure.stripes(model, copies[period], period)
    model.train()
    return {
        "step": step,
        "text_loss": round(float(measure.token_losses(model, text).mean()), 4),
        "first_copy_loss": round(float(losses[:, :period].mean()), 4),
        "second_copy_loss": round(float(losses[:, period + 1 :].mean()), 4),
        **{score: np.round(values, 4).tolist() for score, values in scores.items()},
    }


def _line(look: dict[str, Any], seconds: float) -> str:
    best = {score: np.max(look[score]) for score in ("previous_token", "induction")}
    return (
        f"step {look['step']:5d}  text {look['text_loss']:.3f}  copies "
        f"{look['first_copy_loss']:.3f} -> {look['second_copy_loss']:.3f} nats  "
        f"previous token {best['previous_token']:.2f}  induction {best['induction']:.2f}  "
        f"{seconds:.0f} s"
    )


def _examine(model: LlamaForCausalLM, text, copies: dict) -> dict[str, Any]:
    """The final scores, with standard errors over rows, and the effect of the top heads."""
    period = PERIODS[1]
    induction = measure.stripes(model, copies[period], period)["induction"]
    order = np.argsort(-induction, axis=None)[:ABLATED]
    top = [
        (int(i) // model.config.num_attention_heads, int(i) % model.config.num_attention_heads)
        for i in order
    ]
    scores: dict[str, Any] = {
        "rows": len(text),
        "uniform_loss": math.log(model.config.vocab_size),
        "text_loss": measure.mean_and_error(measure.token_losses(model, text).mean(-1).numpy()),
        "top_induction_heads": [[*head, round(float(induction[head]), 4)] for head in top],
        "copies": {},
    }
    for length, ids in copies.items():
        first = measure.token_losses(model, ids)[:, :length].mean(-1).numpy()
        second = measure.copied_loss(model, ids, length)
        with measure.zeroed(model, top):
            ablated = measure.copied_loss(model, ids, length)
        scores["copies"][str(length)] = {
            "first_copy_loss": measure.mean_and_error(first),
            "second_copy_loss": measure.mean_and_error(second),
            "second_copy_loss_without_top_heads": measure.mean_and_error(ablated),
            "factor": float(ablated.mean() / second.mean()),
            "factor_interval": measure.ratio_interval(ablated, second),
        }
    return scores


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a bundled model from nothing.")
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--model", choices=sorted(RECIPES), default="induction")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    train(chosen.model, RECIPES[chosen.model], chosen.seed, chosen.threads, chosen.out)


if __name__ == "__main__":
    main()
