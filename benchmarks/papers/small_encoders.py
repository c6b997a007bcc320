"""Claims about small encoders: candidates, long documents, digits, pooled sentences, positions."""

from __future__ import annotations

import time
from functools import cache
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from interp.core.random_state import drawn_with
from papers.finding import Numbers, claim, over_seeds
from papers.fitting import distinct, fit, rules, set_rules
from training.forms import rule_class
from training.forms.language_model import VariantBlock, VariantConfig
from training.forms.rule import Chosen, MapBlock, Projected, Rule, RuleShape
from training.forms.rules.chosen_keys import LowRankMaskAttention


class Encoder(nn.Module):
    """Two layers with a rule over any vectors, with learned positions; width 32, four heads."""

    def __init__(self, rule: type[Rule], seed: int, *, given: nn.Module, length: int):
        super().__init__()
        sizes: Any = {"hidden_size": 32, "max_position_embeddings": length}
        config = VariantConfig(num_attention_heads=4, **sizes)
        with drawn_with(seed):
            self.embed, self.blocks = given, nn.ModuleList(VariantBlock(config, i) for i in (0, 1))
            self.places = nn.Parameter(0.3 * torch.randn(length, 32))
            set_rules(self, [rule, rule])

    def forward(self, x: Tensor, places: Tensor | None = None) -> Tensor:
        x = self.embed(x)
        x = x + self.places[torch.arange(x.shape[1]) if places is None else places]
        for block in self.blocks:
            x = block(x)
        return x


def every(rule: type[Rule] = Rule) -> type[Rule]:
    """Return a rule that also sees later positions."""
    return type("Every", (rule,), {"causal": False})


def candidates(rng: np.random.Generator, number: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return contexts of eight tokens, eight candidates of four, and which of them is right.

    A candidate names a key and a value; the right one has the value of its key in the context.
    """
    each = np.arange(number)[:, None]
    key = distinct(rng, number, 8)
    value = rng.integers(4, size=key.shape)
    context = 8 + key * 4 + value
    asked = distinct(rng, number, 8)
    right = rng.integers(8, size=number)
    shift = rng.integers(1, 4, size=key.shape)
    shift[each[:, 0], right] = 0
    named = 8 + key[each, asked] * 4 + (value[each, asked] + shift) % 4
    replies = rng.integers(8, size=(number, 8, 4))
    np.put_along_axis(replies, rng.integers(4, size=(number, 8, 1)), named[..., None], 2)
    return torch.tensor(context), torch.tensor(replies), torch.tensor(right)


def selected(form: str, seed: int) -> tuple[float, float]:
    """Train to select replies; return the accuracy and the processor time of judging."""
    rule = rule_class("candidate_blocks") if form == "together" else every()
    model = Encoder(rule, seed, given=nn.Embedding(72, 32), length=12)
    with drawn_with(seed):
        score = nn.Linear(32, 1)
    both = nn.ModuleList([model, score])
    again = torch.cat([torch.arange(8), torch.arange(8, 12).repeat(8)])

    def scores(context: Tensor, replies: Tensor) -> Tensor:
        if form == "together":
            found = model(torch.cat([context, replies.flatten(1)], 1), again)[:, 8:]
            return score(found.unflatten(1, (8, 4)).mean(2))[..., 0]
        flat = replies.flatten(0, 1)
        if form == "one by one":
            found = model(torch.cat([context.repeat_interleave(8, 0), flat], 1))[:, 8:]
            return score(found.mean(1)).unflatten(0, (-1, 8))[..., 0]
        reply = model(flat, torch.arange(8, 12)).mean(1).unflatten(0, (-1, 8))
        return (reply @ model(context).mean(1)[..., None])[..., 0]

    def loss(rng: np.random.Generator) -> Tensor:
        context, replies, right = candidates(rng, 32)
        return F.cross_entropy(scores(context, replies), right)

    fit(both, loss, steps=600, seed=seed)
    context, replies, right = candidates(np.random.default_rng(99), 256)
    with torch.no_grad():
        start = time.process_time()
        found = scores(context, replies)
        spent = time.process_time() - start
    return float((found.argmax(-1) == right).float().mean()), spent


@claim("Uni-Encoder")
def uni_encoder() -> Numbers:
    """Train the three alike; compare their accuracies, and the time of judging 256 contexts."""
    one, cross, apart = over_seeds(selected, "together", "one by one", "apart")
    faster = np.log(one[:, 1] / cross[:, 1])
    return cross[:, 0] - one[:, 0], one[:, 0] - apart[:, 0], faster


WORDS, LENGTH, FIRST = 24, 64, 16


def documents(rng: np.random.Generator, number: int) -> tuple[Tensor, Tensor]:
    """Return queries of a word and six documents each, of which the first is relevant.

    All have the word three times and four marks, of which the first document alone has one within
    the three tokens before the word.
    """
    query = rng.integers(2, WORDS, size=number)
    found = rng.integers(2, WORDS, size=(number, 6, LENGTH))
    found[found == query[:, None, None]] = 0
    for word, texts in zip(query, found, strict=True):
        for at, text in enumerate(texts):
            blocks = rng.permutation(LENGTH // 4)[:7] * 4
            text[blocks[:3] + 3] = word
            marked = np.append(blocks[3:6], blocks[0 if at == 0 else 6])
            text[marked + rng.integers(3, size=4)] = 1
    return torch.tensor(query), torch.tensor(found)


def ranked(read: tuple[type[Rule], int], seed: int) -> float:
    """Train a rule to rank documents by so many first tokens; return the mean reciprocal rank."""
    rule, length = read
    model = Encoder(rule, seed, given=nn.Embedding(WORDS, 32), length=LENGTH)
    with drawn_with(seed):
        ask = nn.Linear(32, 32)

    def scores(query: Tensor, texts: Tensor) -> Tensor:
        found = model(texts[..., :length].flatten(0, 1)).unflatten(0, (-1, 6))
        wanted = ask(model.embed(query))
        return torch.einsum("bdtc,bc->bdt", found, wanted).logsumexp(-1)

    def loss(rng: np.random.Generator) -> Tensor:
        query, texts = documents(rng, 6)
        return F.cross_entropy(scores(query, texts), torch.zeros(6, dtype=torch.long))

    fit(nn.ModuleList([model, ask]), loss, steps=400, seed=seed)
    query, texts = documents(np.random.default_rng(99), 100)
    with torch.no_grad():
        found = scores(query, texts)
    return float((1 / (1 + (found[:, 1:] >= found[:, :1]).sum(1))).mean())


@claim("Local Self-Attention over Long Text")
def local_attention() -> Numbers:
    """Train the three alike; compare their mean reciprocal ranks, and count scores."""
    window = rule_class("window")
    local, first, full = over_seeds(ranked, (window, LENGTH), (Rule, FIRST), (Rule, LENGTH))
    scores = 4 * LENGTH / (LENGTH * (LENGTH + 1) / 2)
    return local - first, full - local, scores


class Predicted(LowRankMaskAttention):
    """A mask whose narrow predictor learns the rows of full attention."""

    causal = False

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.narrow.requires_grad_(True)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Note how far the predictor's softmax is from that of the full scores, and its mass."""
        full = self.scores(given, rows).softmax(-1)
        narrow = given.more["of_row"][:, :, rows] @ given.more["of_key"].mT
        self.wrong = (narrow.softmax(-1) - full.detach()).square().sum(-1).mean()
        self.mass = (full * self.seen(given, rows)).sum(-1).mean()
        return super().rows(given, rows)


class Neighbours(Predicted):
    """The five patches at most one step to the side, up or down."""

    def seen(self, given: Projected, rows: Chosen) -> Tensor:
        down = (rows[:, None] // 4 - given.every // 4).abs()
        return down + (rows[:, None] % 4 - given.every % 4).abs() <= 1


@cache
def digits() -> tuple[Tensor, Tensor]:
    """Return patches of all digits, and their classes."""
    data: Any = load_digits()
    x = torch.tensor(data.images, dtype=torch.float32) / 8 - 1
    return x.unfold(1, 2, 2).unfold(2, 2, 2).reshape(-1, 16, 4), torch.tensor(data.target)


def read_digits(rule: type[Rule], seed: int) -> tuple[float, float]:
    """Train on 1200 digits; return the accuracy on the other 597, and the mass in the mask."""
    (x, y), model = digits(), Encoder(rule, seed, given=nn.Linear(4, 32), length=16)
    order = np.random.default_rng(seed).permutation(len(x))
    with drawn_with(seed):
        head = nn.Linear(32, 10)

    def loss(rng: np.random.Generator) -> Tensor:
        chosen = torch.tensor(order[rng.integers(1200, size=64)])
        found = F.cross_entropy(head(model(x[chosen]).mean(1)), y[chosen])
        return found + sum((getattr(r, "wrong", 0.0) for r in rules(model)), torch.zeros(()))

    fit(nn.ModuleList([model, head]), loss, steps=400, seed=seed, rate=3e-3)
    test = torch.tensor(order[1200:])
    with torch.no_grad():
        right = float((head(model(x[test]).mean(1)).argmax(-1) == y[test]).float().mean())
    return right, float(np.mean([float(getattr(r, "mass", 1.0)) for r in rules(model)]))


@claim("Sparsifiner")
def sparsifiner() -> Numbers:
    """Keep at most five of sixteen patches a row; compare the accuracy and the mass in the mask."""
    full, own, fixed = over_seeds(read_digits, every(), Predicted, Neighbours)
    return (full - own)[:, 0], *(own - fixed).T


def opinions(rng: np.random.Generator, number: int) -> tuple[Tensor, Tensor]:
    """Return sentences of 16 words on two things, and the opinion on the one that is the subject.

    The subject is the thing that more words are about; opinions on the other thing do not count.
    """
    subject, liked = rng.integers(2, size=(2, number))
    sentences = np.empty((number, 16), int)
    for row, of, good in zip(sentences, subject, liked, strict=True):
        about = 20 + of * 5 + rng.integers(5, size=4)
        views = of * 10 + good * 5 + rng.integers(5, size=2)
        others = (1 - of) * 10 + rng.integers(2) * 5 + rng.integers(5, size=2)
        words = np.concatenate([about, views, others, 30 + rng.integers(10, size=8)])
        row[:] = rng.permutation(words)
    return torch.tensor(sentences), torch.tensor(liked)


class Static(rule_class("dynamic_routing")):  # type: ignore[misc]
    """Scores of words by one learned vector per head, the same for every sentence."""

    def __init__(self, shape: RuleShape):
        super().__init__(shape)
        self.wanted = nn.Parameter(torch.randn(shape.n_heads, shape.d_head) * shape.d_head**-0.5)

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        scores = torch.einsum("bhtc,hc->bht", given.v, self.wanted)[:, :, None]
        return self.weights(scores.expand(-1, -1, len(rows), -1), self.seen(given, rows))


def read_opinions(rule: type[Rule], seed: int) -> float:
    """Train a convolution, one pooling by a rule and a classifier; return the accuracy.

    One narrow head and a hundred sentences: with more, every pooling is always right.
    """
    with drawn_with(seed):
        embed, conv = nn.Embedding(40, 16), nn.Conv1d(16, 16, 3, padding=1)
        pool = rule(RuleShape(16, 1, 16, 16))
        head = nn.Sequential(nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 2))
    model = nn.ModuleList([embed, conv, pool, head])

    def answer(ids: Tensor) -> Tensor:
        x = embed(ids)
        given = pool.prepare(x + F.leaky_relu(conv(x.mT)).mT)
        z = pool.rows(given, torch.tensor([15])) @ given.v  # the last row sees the sentence
        return head(torch.tanh(z).flatten(1))

    known = opinions(np.random.default_rng(seed), 100)

    def loss(rng: np.random.Generator) -> Tensor:
        chosen = torch.tensor(rng.integers(100, size=64))
        return F.cross_entropy(answer(known[0][chosen]), known[1][chosen])

    fit(model, loss, steps=200, seed=seed)
    ids, liked = opinions(np.random.default_rng(99), 1000)
    with torch.no_grad():
        return float((answer(ids).argmax(-1) == liked).float().mean())


@claim("Dynamic Self-Attention")
def dynamic_self_attention() -> Numbers:
    """Train both poolings and an even mean alike; compare the accuracies."""
    even = type("Even", (rule_class("dynamic_routing"),), {"rounds": 0})
    own, static, flat = over_seeds(read_opinions, rule_class("dynamic_routing"), Static, even)
    return own - static, own - flat
