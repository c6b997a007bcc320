"""Claim on scores that are sums of content and position terms: DeBERTa against absolute places."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

import interp
from papers.finding import Finding, above, below, claim
from papers.fitting import step_down
from training.alike import LENGTH, SEEDS, VOCAB, mean_loss, rows

STEPS, BATCH = 500, 24


def _rows(rng: np.random.Generator, number: int, *, held_out: bool) -> Any:
    return rows("text", number, rng, causal=False, held_out=held_out)


def _trained(relative: bool, seed: int) -> tuple[Any, float]:
    """Train a DeBERTa of two layers on hidden words of text; return it and its held-out loss."""
    from transformers import DebertaV2Config, DebertaV2ForMaskedLM

    config = DebertaV2Config(
        vocab_size=VOCAB,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=256,
        max_position_embeddings=64,
        relative_attention=relative,
        position_biased_input=not relative,
        max_relative_positions=LENGTH,
        type_vocab_size=0,
        pos_att_type=["p2c", "c2p"] if relative else [],
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model: Any = DebertaV2ForMaskedLM(config)
    rng, adam = np.random.default_rng(seed), torch.optim.AdamW(model.parameters())
    for step in range(STEPS):
        asked = _rows(rng, BATCH, held_out=False)
        step_down(
            adam,
            mean_loss(model(input_ids=asked.given).logits, asked),
            2e-3 * min(1, (step + 1) / 50) * (1 - 0.9 * step / STEPS),
            clip=True,
        )
    return model.eval(), _loss(model)


def _loss(model: Any) -> float:
    asked = _rows(np.random.default_rng(99), 300, held_out=True)
    with torch.no_grad():
        return float(mean_loss(model(input_ids=asked.given).logits, asked))


def _of_places(model: Any) -> float:
    """Return the share of terms with positions in the variance of scores, mean over heads."""
    asked = _rows(np.random.default_rng(98), 16, held_out=True).given.tolist()
    found = interp.score(interp.load(model), "content_term", asked, null="none")
    return 1 - float(found.to_pandas()["score"].mean())


@claim("DeBERTa", "DeBERTa-v2 of two layers, with and without disentangled attention, 3 seeds")
def disentangled() -> list[Finding]:
    """Train on hidden words of text, with relative terms in scores or absolute places in inputs."""
    better, shares, needed = [], [], []
    for seed in SEEDS:
        (model, loss), (_, plain) = (_trained(x, seed) for x in (True, False))
        better.append(loss - plain)
        shares.append(_of_places(model))
        model.deberta.encoder.rel_embeddings.weight.data.zero_()
        needed.append(_loss(model) - loss)
    rows_ = "3 trainings each, 300 held-out texts"
    return [
        below("loss with disentangled attention minus absolute places", better, rows_),
        above(
            "share of the variance of scores that is of positions",
            shares,
            "3 models, 8 heads each, 16 texts",
            0.1,
            "share",
        ),
        above("loss without position terms minus with them", needed, rows_),
    ]
