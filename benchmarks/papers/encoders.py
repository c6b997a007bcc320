"""Claims of papers on what encoders learn from masked tokens: topics, [CLS], and [MASK]."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

import interp
from benchmarks.paper_findings import Finding
from interp.bundled.special_tokens import BOS, SPECIAL, UNKNOWN
from interp.heads.geometry.projection_ranks import centred_rank
from interp.syntax.topic_embeddings import by_topic
from papers.finding import SEEDS, TRAINED, above, below, claim
from papers.fitting import step_down
from training import alike
from training.train import own_torch

MASK, WIDTH, HIDE = UNKNOWN, 64, 5  # tokens that are hidden in each row


class Masked(nn.Module):
    """An encoder that learns from masked tokens, with one more layer that only training uses.

    Args:
        kind: "plain": the layer reads the encoder's output; "late_mask": the encoder does not see
            hidden tokens, which enter before the layer; "condenser": the layer reads the states of
            the middle of the encoder, and of its end the first token's alone.
        layers: layers of the encoder.
    """

    def __init__(self, kind: str, layers: int, vocab: int = alike.VOCAB, length: int = 64):
        super().__init__()
        config = BertConfig(
            vocab_size=vocab,
            hidden_size=WIDTH,
            num_hidden_layers=layers,
            num_attention_heads=4,
            intermediate_size=2 * WIDTH,
            max_position_embeddings=length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            pad_token_id=0,
        )
        self.kind, self.layers = kind, layers
        self.encoder = BertModel(config, add_pooling_layer=False)
        self.last = nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, 0.0, batch_first=True)
        self.places = nn.Parameter(0.02 * torch.randn(length, WIDTH))
        self.hidden = nn.Parameter(0.02 * torch.randn(WIDTH))
        self.out = nn.Linear(WIDTH, vocab)

    def forward(self, ids: Tensor, gone: Tensor) -> Tensor:
        """Return the loss at the hidden tokens, `[row, HIDE]` places that are never the first."""
        rows = torch.arange(len(ids))[:, None]
        wanted = ids[rows, gone]
        if self.kind == "late_mask":
            kept = torch.ones(ids.shape, dtype=torch.bool)
            kept[rows, gone] = False
            places = kept.nonzero()[:, 1].view(len(ids), -1)
            states = self.encoder(ids[rows, places], position_ids=places).last_hidden_state
            x = self.hidden.expand(*ids.shape, WIDTH).clone()
            x[rows, places] = states
        else:
            given = ids.clone()
            given[rows, gone] = MASK
            found = self.encoder(given, output_hidden_states=True)
            x = found.last_hidden_state
            if self.kind == "condenser":
                x = torch.cat([x[:, :1], found.hidden_states[self.layers // 2][:, 1:]], 1)
        logits = self.out(self.last(x + self.places[: ids.shape[1]])[rows, gone])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        if self.kind == "condenser":  # the encoder's own prediction too, as in the paper
            own = self.out(found.last_hidden_state[rows, gone])
            loss = loss + nn.functional.cross_entropy(own.flatten(0, 1), wanted.flatten())
        return loss


def pretrained(kind: str, seed: int, *, layers: int, length: int, steps: int = 400) -> Masked:
    """Train on text with hidden tokens; within a seed every kind sees the same rows."""
    with own_torch(seed, 1):
        torch.manual_seed(seed)
        model, rng = Masked(kind, layers), np.random.default_rng(seed)
        adam = torch.optim.AdamW(model.parameters(), lr=2e-3)
        corpus = alike.corpora()[0]
        for _ in range(steps):
            ids = torch.from_numpy(corpus.rows(rng, 24, length))
            gone = 1 + rng.random((24, length - 1)).argsort(1)[:, :HIDE]
            loss = model(ids, torch.from_numpy(gone))
            step_down(adam, loss, clip=True)
    return model.eval()


@claim(
    "Representation Deficiency",
    f"small encoders trained on text with and without [MASK] in the encoder, {TRAINED}",
)
def mask_deficiency() -> list[Finding]:
    """Rank of the states of real tokens after both trainings, and directions of [MASK] alone."""
    more, apart = [], []
    ids = torch.from_numpy(alike.corpora()[1].rows(np.random.default_rng(9), 64, 32))
    gone = torch.from_numpy(1 + np.random.default_rng(8).random((64, 31)).argsort(1)[:, : 2 * HIDE])
    rows = torch.arange(64)[:, None]
    for seed in SEEDS:
        ranks = []
        for kind in ("plain", "late_mask"):
            model = pretrained(kind, seed, layers=3, length=32)
            with torch.no_grad():
                states = model.encoder(ids).last_hidden_state[:, 1:].flatten(0, 1)
                ranks.append(float(centred_rank(states.double(), 0.9)))
                if kind == "plain":
                    given = ids.clone()
                    given[rows, gone[:, :HIDE]] = MASK
                    x = model.encoder(given).last_hidden_state.double()
                    masked, real = x[rows, gone[:, :HIDE]], x[rows, gone[:, HIDE:]]
                    apart.append(outside(masked, states.double()) - outside(real, states.double()))
        more.append(ranks[1] - ranks[0])
    return [
        above(
            "rank of the states of real tokens, trained without [MASK] in the encoder minus with"
            " it",
            more,
            f"{TRAINED}, 64 rows",
            unit="directions",
        ),
        above(
            "share of the variance of [MASK] outside the main directions of real tokens, minus"
            " that of real tokens in the same prompts",
            apart,
            f"{TRAINED}, 64 rows",
            unit="share",
        ),
    ]


def outside(x: Tensor, real: Tensor) -> float:
    """Return the share of the variance of x outside the directions with 90 % of that of others."""
    centre = real.mean(0)
    _, s, v = torch.linalg.svd(real - centre, full_matrices=False)
    kept = int((s.square().cumsum(0) / s.square().sum() < 0.9).sum()) + 1
    off = x.flatten(0, -2) - centre
    return 1 - float((off @ v[:kept].T).square().sum() / off.square().sum())


@claim("Condenser", f"small encoders trained on text with and without the changed head, {TRAINED}")
def condenser() -> list[Finding]:
    """Fine-tune [CLS] briefly to match halves of paragraphs, and rank held-out halves."""
    better, rest = [], []
    for seed in SEEDS:
        ranks, rests = [], []
        for kind in ("plain", "condenser"):
            model = pretrained(kind, seed, layers=4, length=32)
            ids = alike.corpora()[1].rows(np.random.default_rng(7), 64, 32).tolist()
            cache = interp.load(model.encoder, name=kind).capture(ids, ["pattern"])
            rests.append(
                float(torch.stack([cache["pattern", i][:, :, 0, 0] for i in (2, 3)]).mean())
            )
            ranks.append(matched(model.encoder, seed))
        better.append(ranks[1] - ranks[0])
        rest.append(rests[1] - rests[0])
    return [
        above(
            "reciprocal rank of the other half of a paragraph by [CLS], Condenser minus plain",
            better,
            f"{TRAINED}, 200 paragraphs",
            unit="reciprocal rank",
        ),
        below(
            "attention of [CLS] on itself in the late layers, Condenser minus plain",
            rest,
            f"{TRAINED}, 64 rows",
            unit="attention mass",
        ),
    ]


def matched(encoder: Any, seed: int, steps: int = 60) -> float:
    """Fine-tune [CLS] to match the halves of rows; the mean reciprocal rank on held-out rows."""
    corpora, rng = alike.corpora(), np.random.default_rng(seed)
    adam = torch.optim.AdamW(encoder.parameters(), lr=5e-4)

    def products(rows: np.ndarray) -> Tensor:
        ids = torch.from_numpy(rows)
        first, second = ids[:, :32], torch.cat([ids[:, :1], ids[:, 32:]], 1)
        a, b = (
            nn.functional.normalize(encoder(x).last_hidden_state[:, 0], dim=-1)
            for x in (first, second)
        )
        return a @ b.T / 0.05

    with own_torch(seed, 1):
        for _ in range(steps):
            scores = products(corpora[0].rows(rng, 24, 63))
            loss = nn.functional.cross_entropy(scores, torch.arange(len(scores)))
            step_down(adam, loss)
        starts = corpora[1].starts[corpora[1].starts <= len(corpora[1].ids) - 63][:200]
        held = np.stack([np.r_[BOS, corpora[1].ids[s : s + 62]] for s in starts])
        with torch.no_grad():
            scores = products(held)
    right = scores.diagonal()[:, None]
    return float((1 / (1 + (scores > right).sum(1)).double()).mean())


TOPICS, WORDS = 8, 10  # of the generated language, and words of each


@claim(
    "How Do Transformers Learn Topic Structure",
    f"one-layer encoders trained on words of latent topics, {TRAINED}",
)
def topics() -> list[Finding]:
    """Train on documents of two topics each; embeddings and attention, minus those at the start."""
    products, masses = [], []
    for seed in SEEDS:
        rng, found = np.random.default_rng(seed), []
        order = rng.permutation(TOPICS * WORDS) + len(SPECIAL)  # a topic is no run of ids

        def documents(n: int, rng: Any = rng, order: Any = order) -> tuple[Tensor, np.ndarray]:
            two = rng.random((n, TOPICS)).argsort(1)[:, :2]
            topic = np.take_along_axis(two, rng.integers(2, size=(n, 31)), 1)
            ids = order[topic * WORDS + rng.integers(WORDS, size=topic.shape)]
            return torch.from_numpy(np.c_[np.full(n, BOS), ids]), topic

        with own_torch(seed, 1):
            torch.manual_seed(seed)
            model = Masked("plain", 1, vocab=TOPICS * WORDS + len(SPECIAL))
            adam = torch.optim.AdamW(model.parameters(), lr=2e-3)
            for step in range(501):
                if step in (0, 500):
                    found.append(by_topics(model.eval(), *documents(64)))
                    model.train()
                ids, _ = documents(32)
                gone = 1 + rng.random((32, 31)).argsort(1)[:, :HIDE]
                loss = model(ids, torch.from_numpy(gone))
                step_down(adam, loss)
        products.append(found[1][0] - found[0][0])
        masses.append(found[1][1] - found[0][1])
    return [
        above(
            "standardised product of embeddings of one topic minus of two, after training"
            " minus before",
            products,
            f"{TRAINED}, 64 documents",
            0.1,
            "standard deviations",
        ),
        above(
            "log of the attention on a word of the same topic over that on another, after"
            " training minus before",
            masses,
            f"{TRAINED}, 64 documents",
            unit="log ratio",
        ),
    ]


def by_topics(model: Masked, ids: Tensor, topic: np.ndarray) -> tuple[float, float]:
    """Return how products of embeddings and how attention depend on the topic of two words."""
    table = model.encoder.get_input_embeddings().weight.detach().double().numpy()
    products = [
        by_topic(table[row], row, t)[2] for row, t in zip(ids[:, 1:].numpy(), topic, strict=True)
    ]
    cache = interp.load(model.encoder, name="topics").capture(ids.tolist(), ["pattern"])
    weights = cache["pattern", 0][:, :, 1:, 1:].mean(1).double().numpy()
    tokens = ids[:, 1:].numpy()
    other_word = tokens[:, :, None] != tokens[:, None]
    same = (topic[:, :, None] == topic[:, None]) & other_word
    ratio = np.log(weights[same].mean() / weights[other_word & ~same].mean())
    return float(np.mean(products)), float(ratio)
