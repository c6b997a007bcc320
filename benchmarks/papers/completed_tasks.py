"""Claims on forms of attention that need tasks of their own: images, pairs, passages, segments."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from torch import Tensor, nn

from benchmarks.paper_findings import Finding
from papers.beside import ALIKE, COMPARABLE, better
from papers.finding import SEEDS, TRAINED, above, below, claim
from papers.fitting import SMALL, attentions, distinct, fit, host
from training import alike, forms
from training.forms.rule import Projected, Rule, RuleShape

Draw = Callable[[np.random.Generator, int], alike.Rows]
TASK = f"{TRAINED}, 128 held-out rows"


def learn(
    model: nn.Module, draw: Draw, seed: int, *, steps: int = 400, few: int | None = None
) -> nn.Module:
    """Train on rows of a task: drawn anew, or from as few as given."""
    kept = draw(np.random.default_rng(1000 + seed), few) if few else None

    def loss(rng: np.random.Generator) -> Tensor:
        if kept is None:
            rows = draw(rng, 32)
        else:
            some = torch.tensor(rng.integers(len(kept.given), size=32))
            rows = alike.Rows(*(part[some] for part in kept))
        return alike.mean_loss(model(rows.given).logits, rows)

    fit(model, loss, steps=steps, seed=seed)
    return model


@torch.no_grad()
def task_loss(model: nn.Module, draw: Draw) -> float:
    """Return the loss on 128 held-out rows of a task."""
    rows = draw(np.random.default_rng(99), 128)
    return float(alike.mean_loss(model(rows.given).logits, rows))


def learned_loss(
    rules: Sequence[str | type[Rule]],
    draw: Draw,
    seed: int,
    vocab: int,
    steps: int = 400,
    few: int | None = None,
    **sizes: Any,
) -> float:
    """Return the held-out loss of layers with these rules after training on a task."""
    model = host(rules, seed, vocab_size=vocab, **SMALL | sizes)
    return task_loss(learn(model, draw, seed, steps=steps, few=few), draw)


def apart(
    rules: Sequence[Any], base: Sequence[Any], draw: Draw, vocab: int, **more: Any
) -> list[float]:
    """Return the loss of some rules minus that of others on a task, with each seed."""
    return [
        learned_loss(rules, draw, s, vocab, **more) - learned_loss(base, draw, s, vocab, **more)
        for s in SEEDS
    ]


SIDE, GREYS, HIDDEN = 6, 8, 8  # of an image, its levels, and the id of a hidden patch


def images(rng: np.random.Generator, number: int) -> alike.Rows:
    """Return smooth images of 6 x 6 patches, of which a quarter are hidden and to be said."""
    noise = rng.normal(size=(number, SIDE, SIDE))
    smooth = np.stack([gaussian_filter(x, 1.0, mode="wrap") for x in noise]).reshape(number, -1)
    smooth /= smooth.std(1, keepdims=True)
    ids = np.clip(np.round(1.5 * smooth + 3.5), 0, GREYS - 1).astype(int)
    hidden = rng.random(ids.shape) < 0.25
    given = np.where(hidden, HIDDEN, ids)
    return alike.Rows(*map(torch.tensor, (given, ids, hidden.astype("float32"))))


def wide(form: str) -> type[Rule]:
    """Return a form for images of 6 patches a side."""
    kind = forms.rule_class(form)
    return type(f"Wide{kind.__name__}", (kind,), {"width": SIDE})


IMAGES = "beside both_ways, trained on 1,000 smooth images of 6 x 6 patches, a quarter hidden"


@claim("MaiT", f"variant masked_heads {IMAGES}")
def masked_heads() -> Finding:
    """Loss on hidden patches with local and global heads, minus with global heads alone."""
    return _on_images("masked_heads")


@claim("RetNet Viewed through", f"variant gaussian_mask {IMAGES}")
def gaussian_mask() -> Finding:
    """Loss on hidden patches with weighted scores, minus without."""
    return _on_images("gaussian_mask")


def _on_images(form: str) -> Finding:
    found = apart(
        [wide(form)] * 2, ["both_ways"] * 2, images, GREYS + 1, few=1000, num_attention_heads=4
    )
    what = f"loss on hidden patches: {form} minus both_ways"
    return below(what, found, TASK, unit="nats per patch")


NAMES = 8


def by_two(rng: np.random.Generator, number: int) -> alike.Rows:
    """Return rows of triples of two names and a value, then pairs of names whose value is asked.

    Each name stands in several triples: only both together find the value. It is to be said at
    the second name.
    """
    rows = []
    for _ in range(number):
        pairs = rng.permutation(NAMES**2)[:8]
        triples = np.stack(
            [pairs // NAMES, NAMES + pairs % NAMES, 2 * NAMES + rng.integers(NAMES, size=8)], 1
        )
        asked = triples[rng.permutation(8)[:4]]
        rows.append(np.concatenate([triples.flatten(), asked.flatten()]))
    ids = np.stack(rows)
    counts = np.zeros(ids.shape, "float32")
    counts[:, 25::3] = 1
    return alike.Rows(*map(torch.tensor, (ids, np.roll(ids, -1, 1), counts)))


@claim("Multi-Token Attention", f"variant score_convolution, {ALIKE}; one layer on a task")
def multi_token() -> list[Finding]:
    """Loss beside softmax on all rows, and of one layer where two tokens name a third."""
    found = apart(["score_convolution"], ["plain_softmax"], by_two, 3 * NAMES, steps=600)
    what = "loss of one layer on values that two names find: score_convolution minus softmax"
    return [better("score_convolution"), below(what, found, TASK, unit="nats per answer")]


OBJECTS = 24


def seen_before(rng: np.random.Generator, number: int) -> alike.Rows:
    """Return rows of 12 objects, and at each how often the same object stood before (0, 1, more).

    A row has 5 objects of 24; which they are does not matter.
    """
    objects = distinct(rng, number, OBJECTS)[:, :5]
    ids = np.take_along_axis(objects, rng.integers(5, size=(number, 12)), 1)
    earlier = np.tril(ids[:, :, None] == ids[:, None], -1).sum(2)
    counts = np.ones(ids.shape, "float32")
    wanted = OBJECTS + np.minimum(earlier, 2)
    return alike.Rows(*map(torch.tensor, (ids, wanted, counts)))


@claim("Relational and Sensory", "variant relational beside softmax, 2,000 examples of a relation")
def relational() -> Finding:
    """Held-out loss on how often an object stood before, learned from 2,000 rows."""
    found = apart(["relational"] * 2, ["plain_softmax"] * 2, seen_before, OBJECTS + 3, few=2000)
    what = "held-out loss on a relation: relational and sensory heads minus sensory heads alone"
    return below(what, found, TASK, unit="nats per answer")


WORDS = 24


def sentences(rng: np.random.Generator, number: int) -> alike.Rows:
    """Return two sentences of 6 words and, at each word of the second, whether it matches so far.

    The same words in another order match; one word that is replaced does not.
    """
    words = distinct(rng, number, WORDS)
    first, other = words[:, :6], words[:, 6]
    second = first.copy()
    replaced = rng.random(number) < 0.5
    second[replaced, rng.integers(6, size=replaced.sum())] = other[replaced]
    second = rng.permuted(second, axis=1)
    known = (second[:, :, None] == first[:, None]).any(2)
    stop = np.full((number, 1), WORDS)
    ids = np.concatenate([first, stop, second], 1)
    wanted, counts = np.zeros_like(ids), np.zeros(ids.shape, "float32")
    wanted[:, 7:], counts[:, 7:] = WORDS + 1 + known.cumprod(1), 1
    return alike.Rows(*map(torch.tensor, (ids, wanted, counts)))


@claim("Comateformer", "variant quasi beside softmax, trained on pairs of sentences of 6 words")
def comateformer() -> Finding:
    """Loss on whether a sentence is another in new order or has one word replaced."""
    found = apart(["quasi"] * 2, ["plain_softmax"] * 2, sentences, WORDS + 3, steps=600)
    what = "loss on whether two sentences match: quasi minus softmax"
    return below(what, found, TASK, unit="nats per answer")


PIXELS, LABELS, WIDTH, CLICKS = 64, 4, 8, 16


@claim("Probabilistic Attention", "rule of variant probabilistic on planted images with segments")
def probabilistic() -> list[Finding]:
    """Wrong labels of pixels with keys adapted or not, and with corrections spread or not."""
    errors = np.array([_segmented(seed) for seed in range(30)])
    what = "wrong labels with adapted keys minus fixed keys, nothing corrected"
    spread = f"wrong labels elsewhere after {CLICKS} corrections: spread minus kept in place"
    return [
        below(what, errors[:, 0], "30 images of 64 pixels", unit="share of pixels"),
        below(spread, errors[:, 1], "30 images of 64 pixels", unit="share of pixels"),
    ]


def _segmented(seed: int) -> np.ndarray:
    """Return both differences in the wrong labels of one image.

    A pixel's query is the centre of its segment with noise; its key is as noisy and off by an
    amount that is the same for a whole image; a third of the labels in the values are wrong.
    """
    rng = np.random.default_rng(seed)
    truth = rng.integers(LABELS, size=PIXELS)
    centres = 1.5 * rng.normal(size=(LABELS, WIDTH))
    noisy = centres[truth] + rng.normal(size=(2, PIXELS, WIDTH))
    noisy[1] += 0.7
    q, k = torch.tensor(noisy).float()[:, None, None]
    told = np.where(rng.random(PIXELS) < 1 / 3, rng.integers(LABELS, size=PIXELS), truth)
    v = torch.eye(LABELS)[told][None, None]
    rule: Any = forms.rule_class("probabilistic")(RuleShape(WIDTH, 1, WIDTH, PIXELS))
    rule.precision.data.zero_()
    given = Projected(q[0], q, k, v, {"prior": torch.zeros(1, 1, PIXELS)})

    def wrong(state: Projected, where: np.ndarray) -> float:
        said = rule.mix(state)[0, 0].argmax(-1).numpy()
        return float((said != truth)[where].mean())

    with torch.no_grad():
        fixed, adapted = given, rule.adapted(given)
        every = np.ones(PIXELS, bool)
        known = rng.permutation(PIXELS) < CLICKS
        right = torch.eye(LABELS)[truth][None, None]
        kept = torch.where(torch.tensor(known)[:, None], right, v)
        in_place = Projected(adapted.x, adapted.q, adapted.k, kept, adapted.more)
        spread = rule.propagate(adapted, right, torch.tensor(known))
        return np.array(
            [
                wrong(adapted, every) - wrong(fixed, every),
                wrong(spread, ~known) - wrong(in_place, ~known),
            ]
        )


PASSAGES, SIZE = 4, 8


def passages(rng: np.random.Generator, number: int) -> alike.Rows:
    """Return four passages of four facts each, then eight questions and their answers.

    A fact is a key and a value; keys are of a passage's own, so a question is about one passage.
    """
    each = np.arange(number)[:, None]
    key = distinct(rng, number, 32)[:, :16]
    value = 32 + rng.integers(16, size=key.shape)
    facts = np.stack([key, value], 2).reshape(number, -1)
    asked = distinct(rng, number, 16)[:, :8]
    questions = np.stack([key[each, asked], value[each, asked]], 2).reshape(number, -1)
    ids = np.concatenate([facts, questions], 1)
    counts = np.zeros(ids.shape, "float32")
    counts[:, PASSAGES * SIZE :: 2] = 1
    return alike.Rows(*map(torch.tensor, (ids, np.roll(ids, -1, 1), counts)))


@claim("Block-Attention", "variant independent_blocks on recall from 4 passages, tuned and not")
def block_attention() -> list[Finding]:
    """Loss of a model that read passages together, when it reads them apart, before and after."""
    losses = np.array([_apart_and_together(s) for s in SEEDS])
    before, after = (losses[:, 1:] - losses[:, :1]).T
    what = "loss with passages apart minus together"
    return [
        above(f"{what}, not tuned", before, TASK, unit="nats per answer"),
        below(f"{what}, both tuned", after, TASK, COMPARABLE, "nats per answer"),
    ]


def _apart_and_together(seed: int) -> list[float]:
    """Return the losses together after tuning, apart without tuning, and apart after tuning."""
    form = "independent_blocks"
    model = host([form] * 2, seed, variant=form, vocab_size=48, hidden_size=64)
    _read(model, False)
    learn(model, passages, seed, steps=600)
    found = []
    for apart, steps in ((False, 150), (True, 0), (True, 150)):
        one = copy.deepcopy(model)
        _read(one, apart)
        if steps:
            learn(one, passages, seed + 10, steps=steps)
        found.append(task_loss(one, passages))
    return found


def _read(model: Any, apart: bool) -> None:
    """Let a model read its passages apart, or all positions as one."""
    for attention in attentions(model):
        attention.rule.passages = PASSAGES * SIZE if apart else 0


SEGMENT, TOPICS, NOISE = 16, 8, 8


def segments(rng: np.random.Generator, number: int) -> alike.Rows:
    """Return two global tokens and two segments of 16, whose last 4 tokens ask for their topic.

    A topic stands among the first 8 tokens of its segment, the rest is noise.
    """
    ids = TOPICS + rng.integers(NOISE, size=(number, 2 + 2 * SEGMENT))
    ids[:, :2] = TOPICS + NOISE
    wanted, counts = np.zeros_like(ids), np.zeros(ids.shape, "float32")
    for start in (2, 2 + SEGMENT):
        topic = rng.integers(TOPICS, size=number)
        ids[np.arange(number), start + rng.integers(8, size=number)] = topic
        last = slice(start + SEGMENT - 4, start + SEGMENT)
        ids[:, last] = TOPICS + NOISE + 1
        wanted[:, last], counts[:, last] = topic[:, None], 1
    return alike.Rows(*map(torch.tensor, (ids, wanted, counts)))


@claim("ETC: Encoding Long", "variant global_local on segments, beside a window and no labels")
def global_local() -> list[Finding]:
    """Loss on the topic of a token's own segment, beside a window alone, and beside no labels."""
    kind: Any = forms.rule_class("global_local")
    whole = type("Segments", (kind,), {"segment": SEGMENT})
    near = type("Near", (whole,), {"shared": 0})
    plain = type("Plain", (whole,), {"scores": Rule.scores})
    what = "loss on topics: global tokens with labels minus"
    return [
        below(
            f"{what} {said}",
            apart([whole] * 2, [base] * 2, segments, TOPICS + NOISE + 2),
            TASK,
            unit="nats per answer",
        )
        for said, base in (("a window alone", near), ("global tokens without", plain))
    ]
