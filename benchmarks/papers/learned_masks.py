"""Claims about masks that are learned: token types, predictors of keys, sentinels, routing."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.paper_findings import Finding
from papers.finding import SEEDS, TRAINED, above, below, claim, over_seeds
from papers.fitting import (
    SMALL,
    WORDS,
    attentions,
    fit,
    host,
    next_token,
    recall,
    recall_loss,
    recalled,
    text,
)
from training import alike
from training.forms.rule import Chosen, MapBlock, Projected, Rule, masked_softmax
from training.forms.rules.chosen_keys import (
    EstimatedMaskAttention,
    ExpertChoiceAttention,
    SparseKAttention,
    TokenTypesAttention,
    among_largest,
    sparse_k,
)
from training.forms.rules.masks import WindowAttention

LONG = {"vocab_size": 129, "hidden_size": 64, "num_attention_heads": 4}


def near(span: int) -> type[Rule]:
    """Return attention to the last positions, so many."""
    return type("Near", (WindowAttention,), {"width": span})


def go_on(model: Any, seed: int, price: float = 0.0) -> None:
    """Train a layer to recall for 400 steps more, with a price on the keys that stay visible."""

    def loss(rng: np.random.Generator) -> Tensor:
        asked = recall(rng, 32)
        found = alike.mean_loss(model(asked.given).logits, asked)
        return found + price * attentions(model)[0].rule.kept if price else found

    fit(model, loss, steps=400, seed=seed)


class Searched(TokenTypesAttention):
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
    return recall_loss(recalled([rule], seed))


@claim(
    "Neural Attention Search",
    "a layer of softmax heads that recalls pairs among noise tokens, trained on with the rule of "
    "variant:token_types, its types searched by gradient; windows trained alike",
)
def attention_search() -> list[Finding]:
    """Search types with a price on visible keys; compare with all keys, and with as many nearby."""
    kept, over, under = [], [], []
    for seed in SEEDS:
        model = host([Searched], seed, vocab_size=WORDS, **SMALL)
        dense = recalled(["plain_softmax"], seed)
        # From nothing, a price hides all keys before any is of use: so the heads learn first.
        model.load_state_dict(dense.state_dict(), strict=False)
        go_on(dense, seed)  # for as long as the search
        [attention] = attentions(model)
        attention.rule.types.requires_grad_(True)

        go_on(model, seed, price=0.3)
        found = recall_loss(model)
        kept.append(float(attention.rule.kept))
        width = int(np.ceil(kept[-1] * 41 / 2))  # rows of 40 tokens see 20.5 keys on average
        over.append(found - recall_loss(dense))
        under.append(found - recall_of(near(width), seed))
    n = f"{TRAINED}, 128 held-out rows each"
    return [
        below("share of the keys that stay visible", kept, n, 0.5, "share"),
        below("loss of recall with searched types minus with all keys", over, n, 0.05),
        below("loss of recall with searched types minus windows of as many keys", under, n),
    ]


class SelectedAndNear(SparseKAttention):
    """SparseK of eight keys beside the last two positions."""

    k = 8

    def rows(self, given: Projected, rows: Chosen) -> MapBlock:
        """Attend to selected keys, weighted by their selection, and to near ones."""
        seen, gap = self.seen(given, rows), rows[:, None] - given.every
        u = given.more["u"][:, :, None].expand(-1, -1, len(rows), -1)
        chosen = sparse_k(u.masked_fill(~seen, -torch.inf), self.k)
        weight = torch.where((gap >= 0) & (gap < 2), 1.0, chosen)
        return masked_softmax(self.scores(given, rows), weight > 0) * weight


class DrawnAndNear(SelectedAndNear):
    """The same with scores of the tokens that are drawn, not learned."""

    def prepare(self, x: Tensor) -> Projected:
        """Let no gradient reach the scores."""
        given = super().prepare(x)
        given.more["u"] = given.more["u"].detach()
        return given


@claim(
    "Sparser is Faster and Less is More",
    "a layer with the rule of variant:sparse_k, eight selected keys and two near ones, trained "
    "to recall pairs among noise; a window and drawn scores of as many keys trained alike",
)
def sparse_k_attention() -> list[Finding]:
    """Compare the loss of recall with that of other masks of ten keys or more a row."""
    own, window, drawn = over_seeds(recall_of, SelectedAndNear, near(10), DrawnAndNear)
    n = f"{TRAINED}, 128 held-out rows each"
    return [
        below(f"loss of recall with learned scores minus {name}", own - x, n)
        for name, x in (("a window of ten", window), ("drawn scores", drawn))
    ]


class Mixed(ExpertChoiceAttention):
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
    """Train two layers on text of 64 tokens; return the held-out loss.

    Args:
        rule: the rule of both layers.
        seed: seed of the weights and rows.
        heads: number of heads of width 16.
        marked: every so many positions, a token of its own stands in the text.
    """
    model = host([rule] * 2, seed, **LONG | {"num_attention_heads": heads, "head_dim": 16})

    def rows(rng: np.random.Generator, number: int, held_out: bool) -> tuple[Tensor, Tensor]:
        ids = text(rng, number, 64, held_out=held_out)
        counts = torch.ones(ids.shape, dtype=torch.bool)
        if marked:
            parts = ids[:, : 64 - 64 // marked].unflatten(1, (-1, marked - 1))
            ids = F.pad(parts, (0, 1), value=128).flatten(1)
            counts = ids != 128
        return ids, counts

    def loss(rng: np.random.Generator) -> Tensor:
        ids, counts = rows(rng, 12, False)
        return next_token(model(ids).logits, ids, counts)

    fit(model, loss, steps=400, seed=seed)
    with torch.no_grad():
        ids, counts = rows(np.random.default_rng(99), 64, True)
        return float(next_token(model(ids).logits, ids, counts))


@claim(
    "Mixture of Sparse Attention",
    "two layers with two dense heads and eight of the rule of variant:expert_choice, causal, "
    "trained on text; four dense heads, and fixed sparse heads of the same cost, trained alike",
)
def expert_choice() -> list[Finding]:
    """Trade two dense heads for eight sparse ones, whose projections cost as much; compare."""
    placed = type("Placed", (Mixed,), {"fixed": True})
    [dense] = over_seeds(partial(of_text, heads=4), "plain_softmax")
    own, fixed = over_seeds(partial(of_text, heads=10), Mixed, placed)
    n = f"{TRAINED}, 64 held-out rows each"
    return [
        below(f"loss on text of chosen tokens minus {name}", own - x, n)
        for name, x in (("dense heads", dense), ("fixed sparse heads", fixed))
    ]


@claim(
    "Sentinel Tokens",
    "two layers with the rule of variant:sentinel_tokens, trained on text with a sentinel after "
    "every seven tokens; a window and strides of as many keys trained alike on the same rows",
)
def sentinels() -> list[Finding]:
    """Compare the loss on the text's own tokens with sparse masks of the same mean size."""
    stride = type("Stride", (Rule,), {"seen": fourth_and_eighth})
    own, window, strides = over_seeds(
        partial(of_text, heads=4, marked=8), "sentinel_tokens", near(8), stride
    )
    n = f"{TRAINED}, 64 held-out rows each"
    return [
        below(f"loss on text with sentinels minus {name}", own - x, n)
        for name, x in (("a window of eight", window), ("strides of eight", strides))
    ]


def fourth_and_eighth(self: Rule, given: Projected, rows: Chosen) -> Tensor:
    """See the last four positions, and each eighth before them."""
    gap = rows[:, None] - given.every
    return (gap >= 0) & ((gap < 4) | (gap % 8 == 0))


class Decoded(EstimatedMaskAttention):
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
        """Keep keys of the largest decoded logits."""
        past = given.every <= rows[:, None]
        best = among_largest(self.decoded(given)[:, :, rows], self.kept)
        return (best | (given.every == rows[:, None])) & past


def distilled(rule: Any, seed: int, asked: alike.Rows) -> tuple[float, float]:
    """Distil softmax heads that copy into a rule; return its loss, and the teacher's mass it sees.

    All weights learn the teacher's outputs, and a decoder the teacher's rows.
    """
    teacher = alike.trained("plain_softmax", seed)
    student = host([rule] * 2, seed, **alike.SIZES)
    student.load_state_dict(teacher.state_dict(), strict=False)
    given: dict[Any, Projected] = {}
    for model in (teacher, student):
        for at, attention in enumerate(attentions(model)):
            attention.projected.register_forward_hook(
                lambda m, a, out, key=(model, at): given.__setitem__(key, out)
            )

    def masses(every: bool) -> tuple[Tensor, Tensor]:
        lost, seen = torch.zeros(()), []
        for at, (a, b) in enumerate(zip(attentions(teacher), attentions(student), strict=True)):
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
        with torch.no_grad():
            wanted = teacher(ids).logits.log_softmax(-1)
        own = student(ids).logits.log_softmax(-1)
        return (
            F.kl_div(own, wanted, log_target=True, reduction="none").sum(-1).mean()
            + masses(False)[0]
        )

    fit(student, loss, steps=300, seed=seed, rate=2e-3)
    with torch.no_grad():
        teacher(asked.given)
        found = float(alike.mean_loss(student(asked.given).logits, asked))
        return found, float(masses(True)[1])


@claim(
    "SEA: Sparse Linear Attention",
    "softmax models trained alike, distilled into the rule of variant:estimated_mask with a "
    "learned decoder of its estimate, and into random features of linear attention",
)
def estimated_mask() -> list[Finding]:
    """Distil 300 steps on copies of random tokens; compare losses, and the mass in the masks."""
    asked = alike.asked_rows("plain_softmax", "copies", 64)
    over, under, more = [], [], []
    for seed in alike.SEEDS:
        teacher = alike.trained("plain_softmax", seed)
        with torch.no_grad():
            full = float(alike.mean_loss(teacher(asked.given).logits, asked))
        own, mass = distilled(Decoded, seed, asked)
        over.append(own - full)
        more.append(mass - distilled(EstimatedMaskAttention, seed, asked)[1])
        under.append(own - distilled("random_features", seed, asked)[0])
    n = "3 seeds, 64 held-out rows each"
    return [
        below("loss on copies with a decoded mask minus full softmax", over, n, 0.05),
        below("loss on copies with a decoded mask minus linear attention", under, n),
        above("softmax mass in the mask, decoded minus not decoded", more, n, unit="share"),
    ]
