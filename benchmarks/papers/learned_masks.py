"""Claims about masks that are learned: token types, predictors of keys, sentinels, routing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from papers import fitting
from papers.finding import SEEDS, Numbers, claim, over_seeds
from training import alike
from training.forms.rule import Chosen, MapBlock, Projected, Rule, masked_softmax
from training.forms.rules import chosen_keys
from training.forms.rules.masks import WindowAttention


def near(span: int) -> type[Rule]:
    """Return attention to the last positions, so many."""
    return type("Near", (WindowAttention,), {"width": span})


def go_on(model: Any, seed: int, price: float = 0.0) -> None:
    """Train a layer to recall for 400 steps more, with a price on the keys that stay visible."""

    def loss(rng: np.random.Generator) -> Tensor:
        asked = fitting.recall(rng, 32)
        found = alike.mean_loss(model(asked.given).logits, asked)
        return found + price * fitting.rules(model)[0].kept if price else found

    fitting.fit(model, loss, steps=400, seed=seed)


class Searched(chosen_keys.TokenTypesAttention):
    """Token types with the gradient of their probabilities, drawn while they are trained."""

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Multiply exponentials by the mask of the types; the mean of the mask is kept."""
        logits = given.x @ self.types.mT
        if self.training:
            kind = F.gumbel_softmax(logits, hard=True)
        else:
            kind = F.one_hot(logits.argmax(-1), 3).to(logits)
        lasting, local, brief = (k[:, None] for k in kind.unbind(-1))  # [row, 1, key]
        gap = given.every[:, None] - given.every
        ended = torch.where(gap > 0, lasting.mT, 0.0)  # [pos, key]: a new start after the key
        alive = (1 - ended).cumprod(1)
        mask = lasting + local * alive + brief * (gap < self.width)
        mask = torch.where(gap == 0, 1.0, mask) * (gap >= 0)
        self.kept = mask.sum((-1, -2)).mean() / (gap >= 0).sum()
        scores = self.scores(given, given.every).masked_fill(gap < 0, -torch.inf)
        found = (scores - scores.amax(-1, keepdim=True)).exp() * mask[:, None]
        return (found / found.sum(-1, keepdim=True))[:, :, rows]


def recall_of(rule: Any, seed: int) -> float:
    """Train a layer to recall pairs among noise; return its loss on held-out rows."""
    return fitting.task_loss(fitting.recalled([rule], seed))


@claim("Neural Attention Search")
def attention_search() -> Numbers:
    """Search types with a price on visible keys; compare with all keys, and with as many nearby."""
    kept, over, under = [], [], []
    for seed in SEEDS:
        dense = fitting.recalled(["plain_softmax"], seed)
        # From nothing, a price hides all keys before any is of use: so the heads learn first.
        model = fitting.started([Searched], dense, seed, vocab_size=fitting.WORDS, **fitting.SMALL)
        go_on(dense, seed)  # for as long as the search
        [rule] = fitting.rules(model)
        rule.types.requires_grad_(True)
        go_on(model, seed, price=0.3)
        found = fitting.task_loss(model)
        kept.append(float(rule.kept))
        width = int(np.ceil(kept[-1] * 41 / 2))  # rows of 40 tokens see 20.5 keys on average
        over.append(found - fitting.task_loss(dense))
        under.append(found - recall_of(near(width), seed))
    return kept, over, under


class SelectedAndNear(chosen_keys.SparseKAttention):
    """SparseK of eight keys beside the last two positions."""

    k = 8

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        seen, gap = self.seen(given, rows), rows[:, None] - given.every
        u = given.more["u"][:, :, None].expand(-1, -1, len(rows), -1)
        chosen = chosen_keys.sparse_k(u.masked_fill(~seen, -torch.inf), self.k)
        weight = torch.where((gap >= 0) & (gap < 2), 1.0, chosen)
        return masked_softmax(self.scores(given, rows), weight > 0) * weight


class DrawnAndNear(SelectedAndNear):
    """The same with scores of the tokens that are drawn, not learned."""

    def prepare(self, x: Tensor) -> Projected:
        given = super().prepare(x)
        given.more["u"] = given.more["u"].detach()
        return given


@claim("Sparser is Faster and Less is More")
def sparse_k_attention() -> Numbers:
    """Compare the loss of recall with that of other masks of ten keys or more a row."""
    own, window, drawn = over_seeds(recall_of, SelectedAndNear, near(10), DrawnAndNear)
    return own - window, own - drawn


class Mixed(chosen_keys.ExpertChoiceAttention):
    """Two dense heads, and heads that see a quarter of the tokens: chosen, or at fixed places."""

    dense = 2
    fixed = False

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Return dense rows, and the rows of the heads' own tokens, both causal."""
        chosen, route = given.more["chosen"].clone(), given.more["route"]
        route = torch.cat([torch.ones_like(route[:, : self.dense]), route[:, self.dense :]], 1)
        if self.fixed:
            heads = torch.arange(self.shape.n_heads)[:, None]
            chosen[:] = given.every % self.share == heads % self.share
        chosen[:, : self.dense] = True
        kept = chosen[:, :, None] & (given.every <= rows[:, None])
        kept = kept | (given.every == rows[:, None])
        found = masked_softmax(self.scores(given, rows), kept)
        return found * (route * chosen)[:, :, rows, None]


def of_text(rule: Any, seed: int, heads: int, marked: int = 0) -> float:
    """Train two layers of so many heads on text of 64 tokens; return the held-out loss.

    Every `marked` positions, a token of its own stands in the text.
    """
    sizes = {"vocab_size": 129, "hidden_size": 64, "num_attention_heads": heads, "head_dim": 16}
    model = fitting.host([rule] * 2, seed, **sizes)

    def rows(rng: np.random.Generator, number: int, held_out: bool) -> tuple[Tensor, Tensor]:
        ids = fitting.text(rng, number, 64, held_out=held_out)
        counts = torch.ones(ids.shape, dtype=torch.bool)
        if marked:
            parts = ids[:, : 64 - 64 // marked].unflatten(1, (-1, marked - 1))
            ids = F.pad(parts, (0, 1), value=128).flatten(1)
            counts = ids != 128
        return ids, counts

    def loss(rng: np.random.Generator) -> Tensor:
        ids, counts = rows(rng, 12, False)
        return fitting.next_token(model(ids).logits, ids, counts)

    fitting.fit(model, loss, steps=400, seed=seed)
    return fitting.held_out_loss(model, *rows(np.random.default_rng(99), 64, True))


@claim("Mixture of Sparse Attention")
def expert_choice() -> Numbers:
    """Trade two dense heads for eight sparse ones, whose projections cost as much; compare."""
    placed = type("Placed", (Mixed,), {"fixed": True})
    [dense] = over_seeds(partial(of_text, heads=4), "plain_softmax")
    own, fixed = over_seeds(partial(of_text, heads=10), Mixed, placed)
    return own - dense, own - fixed


@claim("Sentinel Tokens")
def sentinels() -> Numbers:
    """Compare the loss on the text's own tokens with sparse masks of the same mean size."""
    stride = type("Stride", (Rule,), {"seen": fourth_and_eighth})
    own, window, strides = over_seeds(
        partial(of_text, heads=4, marked=8), "sentinel_tokens", near(8), stride
    )
    return own - window, own - strides


def fourth_and_eighth(self: Rule, given: Projected, rows: Chosen) -> Tensor:
    """See the last four positions, and each eighth before them."""
    gap = rows[:, None] - given.every
    return (gap >= 0) & ((gap < 4) | (gap % 8 == 0))


class Decoded(chosen_keys.EstimatedMaskAttention):
    """An estimated mask whose estimate goes through a learned decoder of two convolutions."""

    def __init__(self, shape: Any):
        super().__init__(shape)
        heads = shape.n_heads
        self.first, self.last = nn.Conv2d(heads, 16, 3), nn.Conv2d(16, heads, 3)

    def decoded(self, given: Projected) -> Tensor:
        """Return logits per row and key from rows at or before it."""
        past = given.every <= given.every[:, None]
        rows = self.estimate(given, given.every) * past
        x = logits = (rows / rows.sum(-1, keepdim=True) + 1e-6).log().detach()
        for layer in (self.first, self.last):
            x = layer(F.pad(x, (1, 1, 2, 0)))
            x = F.gelu(x) if layer is self.first else x
        return (logits + x).masked_fill(~past, -torch.inf)

    def seen(self, given: Projected, rows: Chosen) -> Tensor:
        past = given.every <= rows[:, None]
        best = chosen_keys.among_largest(self.decoded(given)[:, :, rows], self.kept)
        return (best | (given.every == rows[:, None])) & past


def distilled(rule: Any, seed: int, asked: alike.Rows) -> tuple[float, float]:
    """Distil softmax heads that copy into a rule; return its loss, and the teacher's mass it sees.

    All weights learn the teacher's outputs, and a decoder the teacher's rows.
    """
    teacher = alike.trained("plain_softmax", seed)
    student = fitting.started([rule] * 2, teacher, seed, **alike.SIZES)
    given: dict[Any, Projected] = {}
    for model in (teacher, student):
        for at, attention in enumerate(fitting.attentions(model)):
            attention.projected.register_forward_hook(
                lambda m, a, out, key=(model, at): given.__setitem__(key, out)
            )

    def masses(every: bool) -> tuple[Tensor, Tensor]:
        lost, seen = torch.zeros(()), []
        for at, (a, b) in enumerate(
            zip(fitting.attentions(teacher), fitting.attentions(student), strict=True)
        ):
            of, to = given[teacher, at], given[student, at]
            rows = a.rule.rows(of, of.every).detach()
            if isinstance(b.rule, Decoded):
                log = b.rule.decoded(to).log_softmax(-1)
                lost = lost - (rows * log.masked_fill(log == -torch.inf, 0)).sum(-1).mean()
            if every:
                seen.append((rows * b.rule.seen(to, to.every)).sum(-1).mean())
        return lost, torch.stack(seen).mean() if every else lost

    def loss(rng: np.random.Generator) -> Tensor:
        ids = alike.rows("copies", 16, rng, causal=True, held_out=False).given
        return fitting.divergence(student, teacher, ids) + masses(False)[0]

    fitting.fit(student, loss, steps=300, seed=seed, rate=2e-3)
    with torch.no_grad():
        teacher(asked.given)
        found = float(alike.mean_loss(student(asked.given).logits, asked))
        return found, float(masses(True)[1])


@claim("SEA: Sparse Linear Attention")
def estimated_mask() -> Numbers:
    """Distil 300 steps on copies of random tokens; compare losses, and the mass in the masks."""
    asked = alike.asked_rows("plain_softmax", "copies", 64)
    over, under, more = [], [], []
    for seed in alike.SEEDS:
        teacher = alike.trained("plain_softmax", seed)
        with torch.no_grad():
            full = float(alike.mean_loss(teacher(asked.given).logits, asked))
        own, mass = distilled(Decoded, seed, asked)
        over.append(own - full)
        more.append(mass - distilled(chosen_keys.EstimatedMaskAttention, seed, asked)[1])
        under.append(own - distilled("random_features", seed, asked)[0])
    return over, under, more
