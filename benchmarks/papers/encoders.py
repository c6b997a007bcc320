"""Claims on small encoders: topics, [CLS] and [MASK], embeddings of sentences, tokens of code."""

from __future__ import annotations

import ast
import io
import random
import sysconfig
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import BertConfig, BertForSequenceClassification, BertModel

import interp
from interp.bundled.special_tokens import BOS, SPECIAL, UNKNOWN
from interp.core.rank_statistics import paired_spearman
from interp.heads.geometry.projection_ranks import centred_rank
from interp.syntax.topic_embeddings import by_topic
from papers.finding import SEEDS, Numbers, Worded, claim
from papers.fitting import step_down
from training import alike
from training.text import EVENTS, Story, paragraphs
from training.train import own_torch

MASK, WIDTH, HIDE = UNKNOWN, 64, 5  # tokens that are hidden in each row


class Masked(nn.Module):
    """An encoder that learns from masked tokens, with one more layer that only training uses.

    "plain": the layer reads the encoder's output; "late_mask": the encoder does not see hidden
    tokens, which enter before the layer; "condenser": the layer reads the states of the middle of
    the encoder, and of its end the first token's alone.
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
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        if self.kind == "condenser":  # the encoder's own prediction too, as in the paper
            own = self.out(found.last_hidden_state[rows, gone])
            loss = loss + F.cross_entropy(own.flatten(0, 1), wanted.flatten())
        return loss


def hidden(rng: np.random.Generator, ids: Tensor, number: int = HIDE) -> Tensor:
    """Return some places of each row, never the first."""
    order = rng.random((len(ids), ids.shape[1] - 1)).argsort(1)
    return torch.from_numpy(1 + order[:, :number])


def pretrained(kind: str, seed: int, *, layers: int, length: int, steps: int = 400) -> Masked:
    """Train on text with hidden tokens; within a seed every kind sees the same rows."""
    with own_torch(seed, 1):
        model, rng = Masked(kind, layers), np.random.default_rng(seed)
        adam = torch.optim.AdamW(model.parameters(), lr=2e-3)
        corpus = alike.corpora()[0]
        for _ in range(steps):
            ids = torch.from_numpy(corpus.rows(rng, 24, length))
            step_down(adam, model(ids, hidden(rng, ids)), clip=True)
    return model.eval()


@claim("Representation Deficiency")
def mask_deficiency() -> Numbers:
    """Rank of the states of real tokens after both trainings, and directions of [MASK] alone."""
    more, apart = [], []
    ids = torch.from_numpy(alike.corpora()[1].rows(np.random.default_rng(9), 64, 32))
    rows, gone = torch.arange(64)[:, None], hidden(np.random.default_rng(8), ids, 2 * HIDE)
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
    return more, apart


def outside(x: Tensor, real: Tensor) -> float:
    """Return the share of the variance of x outside the directions with 90 % of that of others."""
    centre = real.mean(0)
    _, s, v = torch.linalg.svd(real - centre, full_matrices=False)
    kept = int((s.square().cumsum(0) / s.square().sum() < 0.9).sum()) + 1
    off = x.flatten(0, -2) - centre
    return 1 - float((off @ v[:kept].T).square().sum() / off.square().sum())


@claim("Condenser")
def condenser() -> Numbers:
    """Fine-tune [CLS] briefly to match halves of paragraphs, and rank held-out halves."""
    better, rest = [], []
    for seed in SEEDS:
        ranks, rests = [], []
        for kind in ("plain", "condenser"):
            model = pretrained(kind, seed, layers=4, length=32)
            ids = alike.corpora()[1].rows(np.random.default_rng(7), 64, 32).tolist()
            cache = interp.load(model.encoder, name=kind).capture(ids, ["pattern"])
            on_itself = [cache["pattern", i][:, :, 0, 0] for i in (2, 3)]
            rests.append(float(torch.stack(on_itself).mean()))
            ranks.append(matched(model.encoder, seed))
        better.append(ranks[1] - ranks[0])
        rest.append(rests[1] - rests[0])
    return better, rest


def matched(encoder: Any, seed: int, steps: int = 60) -> float:
    """Fine-tune [CLS] to match the halves of rows; the mean reciprocal rank on held-out rows."""
    corpora, rng = alike.corpora(), np.random.default_rng(seed)
    adam = torch.optim.AdamW(encoder.parameters(), lr=5e-4)

    def products(rows: np.ndarray) -> Tensor:
        ids = torch.from_numpy(rows)
        halves = ids[:, :32], torch.cat([ids[:, :1], ids[:, 32:]], 1)
        a, b = (F.normalize(encoder(x).last_hidden_state[:, 0], dim=-1) for x in halves)
        return a @ b.T / 0.05

    with own_torch(seed, 1):
        for _ in range(steps):
            scores = products(corpora[0].rows(rng, 24, 63))
            loss = F.cross_entropy(scores, torch.arange(len(scores)))
            step_down(adam, loss)
        starts = corpora[1].starts[corpora[1].starts <= len(corpora[1].ids) - 63][:200]
        held = np.stack([np.r_[BOS, corpora[1].ids[s : s + 62]] for s in starts])
        with torch.no_grad():
            scores = products(held)
    right = scores.diagonal()[:, None]
    return float((1 / (1 + (scores > right).sum(1)).double()).mean())


TOPICS, WORDS = 8, 10  # of the generated language, and words of each


@claim("How Do Transformers Learn Topic Structure")
def topics() -> Numbers:
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
            model = Masked("plain", 1, vocab=TOPICS * WORDS + len(SPECIAL))
            adam = torch.optim.AdamW(model.parameters(), lr=2e-3)
            for step in range(501):
                if step in (0, 500):
                    found.append(by_topics(model.eval(), *documents(64)))
                    model.train()
                ids, _ = documents(32)
                step_down(adam, model(ids, hidden(rng, ids)))
        products.append(found[1][0] - found[0][0])
        masses.append(found[1][1] - found[0][1])
    return products, masses


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


SETS, PAIRS = 12, 60  # sets of pairs of sentences; the first half chooses the head


def _pairs() -> list[tuple[str, str, float]]:
    """Return pairs of sentences, and the share of their rarer words that both have."""
    rng, found = random.Random(0), []
    number = Counter(w for p in paragraphs(300, 3) for w in p.strip(".").split())
    common = {word for word, _ in number.most_common(40)}
    while len(found) < SETS * PAIRS:
        one = Story(rng)
        other = one if rng.random() < 0.7 else Story(rng)
        a, b = (EVENTS[rng.randrange(len(EVENTS))][0](s) for s in (one, other))
        words = [{w.strip('.,?"') for w in text.split()} - common for text in (a, b)]
        if a != b:
            found.append((a, b, len(words[0] & words[1]) / len(words[0] | words[1])))
    return found


@claim("Ditto")
def ditto() -> Numbers:
    """Rank pairs by cosine, words weighted by the diagonal of a head chosen on others, or alike."""
    pairs, gains, tokenizer = _pairs(), [], alike.tokenizer()
    truth = np.array([p[2] for p in pairs]).reshape(SETS, PAIRS)
    for seed in alike.SEEDS:
        model = alike.loaded("both_ways", seed)
        left, right = (  # [pair, weighting, d]
            np.stack([_embeddings(model, tokenizer(p[side])["input_ids"][:64]) for p in pairs])
            for side in (0, 1)
        )
        norms = [np.linalg.norm(x, axis=-1) for x in (left, right)]
        cosine = (left * right).sum(-1) / norms[0] / norms[1]
        rank = paired_spearman(cosine.reshape(SETS, PAIRS, -1).swapaxes(1, 2), truth[:, None])
        head = 1 + rank[: SETS // 2, 1:].mean(0).argmax()
        gains.append(rank[SETS // 2 :, head] - rank[SETS // 2 :, 0])
    return np.mean(gains, 0)


@torch.no_grad()
def _embeddings(model: Any, ids: list[int]) -> np.ndarray:
    """Return means of the first and last states over words: alike, and by each diagonal."""
    cache = model.capture([ids], ["map", "resid_pre", "resid_post"])
    states = (cache["resid_pre", 0][0] + cache["resid_post", 1][0]) / 2
    weights = [torch.ones(len(ids))]
    for layer in range(2):
        weights += list(cache["map", layer][0].diagonal(dim1=-2, dim2=-1))
    return torch.stack([(w / w.sum()) @ states for w in weights]).numpy()


STEPS, LENGTH, TOKENS, NAMES = 250, 48, 600, 16
PRUNED = 0.4  # share of the tokens of a function


@cache
def _functions() -> tuple[list[list[int]], np.ndarray]:
    """Return tokens of functions of the standard library, and the first word of their names."""
    found: list[tuple[list[str], str]] = []
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "test", "tests", "lib2to3"} & set(path.relative_to(root).parts):
            continue
        source = path.read_text(encoding="utf-8", errors="ignore")
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                text = "".join(lines[node.lineno - 1 : node.end_lineno])
                word = next((w for w in node.name.lower().split("_") if w), "")
                tokens = [t for t in _tokens(text) if word and word not in t.lower()]
                found.append((tokens[:LENGTH], word))
    names = [w for w, _ in Counter(w for t, w in found if len(t) >= 24).most_common(NAMES)]
    kept = [(t, w) for t, w in found if len(t) >= 24 and w in names]
    number = Counter(t for tokens, _ in kept for t in tokens)
    ids = {t: i + 2 for i, (t, _) in enumerate(number.most_common(TOKENS - 2))}
    order = np.random.default_rng(0).permutation(len(kept))
    rows = [[ids.get(t, 1) for t in kept[i][0]] for i in order]
    return rows, np.array([names.index(kept[i][1]) for i in order])


def _tokens(text: str) -> list[str]:
    try:
        read = tokenize.generate_tokens(io.StringIO(text.lstrip()).readline)
        return [t.string for t in read if t.string.strip() and t.type != tokenize.COMMENT]
    except (tokenize.TokenError, IndentationError):
        return []


def _batch(rows: list[list[int]]) -> dict[str, Tensor]:
    ids = torch.zeros(len(rows), LENGTH, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def _trained(rows: list[list[int]], labels: np.ndarray, seed: int) -> Any:
    torch.manual_seed(seed)
    sizes: Any = {"vocab_size": TOKENS, "max_position_embeddings": LENGTH, "num_labels": NAMES}
    sizes |= {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = BertConfig(**sizes, intermediate_size=96, attn_implementation="eager")
    model: Any = BertForSequenceClassification(config)
    optimizer, rng = torch.optim.AdamW(model.parameters(), 3e-3), np.random.default_rng(seed)
    for step in range(STEPS):
        some = rng.integers(len(rows), size=48)
        given = _batch([rows[i] for i in some])
        loss = model(**given, labels=torch.tensor(labels[some])).loss
        step_down(optimizer, loss, 3e-3 * min(1, (step + 1) / 30) * (1 - step / STEPS))
    return model.eval()


@torch.no_grad()
def _accuracy(model: Any, rows: list[list[int]], labels: np.ndarray) -> float:
    return float((model(**_batch(rows)).logits.argmax(-1).numpy() == labels).mean())


@torch.no_grad()
def _importance(model: Any, rows: list[list[int]]) -> np.ndarray:
    """Return the mean attention that each token of the vocabulary receives, over the even share."""
    total, number = np.zeros(TOKENS), np.full(TOKENS, 1e-9)
    given = _batch(rows)
    maps = torch.stack(model(**given, output_attentions=True).attentions).mean((0, 2))
    for row, pattern in zip(rows, maps.numpy(), strict=True):
        received = pattern[: len(row), : len(row)].sum(0)
        np.add.at(total, row, received)
        np.add.at(number, row, 1)
    return total / number


def _pruned(rows: list[list[int]], score: Any) -> list[list[int]]:
    found = []
    for row in rows:
        kept = np.sort(np.argsort(-score(row))[: round(len(row) * (1 - PRUNED))])
        found.append([row[i] for i in kept])
    return found


@claim("Diet Code")
def diet() -> Numbers:
    """Name functions from all tokens, from 60 % by mean attention, or from 60 % at random."""
    rows, labels = _functions()
    size = len(rows) * 3 // 4
    losses, gains = [], []
    for seed in range(3):
        whole = _trained(rows[:size], labels[:size], seed)
        importance = _importance(whole, rows[: min(size, 600)])
        rng = np.random.default_rng(seed)
        found = []
        for score in (lambda row, x=importance: x[row], lambda row, r=rng: r.random(len(row))):
            some = _pruned(rows, score)
            model = _trained(some[:size], labels[:size], seed)
            found.append(_accuracy(model, some[size:], labels[size:]))
        losses.append(_accuracy(whole, rows[size:], labels[size:]) - found[0])
        gains.append(found[0] - found[1])
    words = {"samples": f"3 seeds, {len(rows) - size} functions"}
    return Worded(losses, words), Worded(gains, words)
