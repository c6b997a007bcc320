"""Claims on forms of attention that need tasks of their own: images, pairs, passages, segments."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from scipy.ndimage import gaussian_filter

from papers.beside import SOFTMAX, behind
from papers.finding import SEEDS, Numbers, claim
from papers.fitting import SMALL, Draw, distinct, host, learn, rules, task_loss
from training import alike, forms
from training.forms.rule import Projected, Rule, RuleShape


def apart(
    rule: Any,
    base: Any,
    draw: Draw,
    vocab: int,
    layers: int = 2,
    steps: int = 400,
    few: int = 0,
    **sizes: Any,
) -> list[float]:
    """Return the loss of layers with a rule minus that of others on a task, with each seed."""

    def loss(rule: Any, seed: int) -> float:
        model = host([rule] * layers, seed, vocab_size=vocab, **SMALL | sizes)
        return task_loss(learn(model, draw, seed, steps=steps, few=few), draw)

    return [loss(rule, seed) - loss(base, seed) for seed in SEEDS]


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


def on_images(title: str, form: str) -> None:
    """Register a claim on the loss on hidden patches minus that of plain heads."""

    @claim(title)
    def hidden_patches() -> Numbers:
        kind = forms.rule_class(form)
        wide = type(f"Wide{kind.__name__}", (kind,), {"width": SIDE})
        return apart(wide, "both_ways", images, GREYS + 1, few=1000, num_attention_heads=4)


on_images("MaiT", "masked_heads")
on_images("RetNet Viewed through", "gaussian_mask")

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


@claim("Multi-Token Attention")
def multi_token() -> Numbers:
    """Loss beside softmax on all rows, and of one layer where two tokens name a third."""
    found = apart("score_convolution", SOFTMAX, by_two, 3 * NAMES, layers=1, steps=600)
    return behind("score_convolution"), found


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


@claim("Relational and Sensory")
def relational() -> Numbers:
    """Held-out loss on how often an object stood before, learned from 2,000 rows."""
    return apart("relational", SOFTMAX, seen_before, OBJECTS + 3, few=2000)


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


@claim("Comateformer")
def comateformer() -> Numbers:
    """Loss on whether a sentence is another in new order or has one word replaced."""
    return apart("quasi", SOFTMAX, sentences, WORDS + 3, steps=600)


PIXELS, LABELS, WIDTH, CLICKS = 64, 4, 8, 16


@claim("Probabilistic Attention")
def probabilistic() -> Numbers:
    """Wrong labels of pixels with keys adapted or not, and with corrections spread or not."""
    return tuple(np.array([_segmented(seed) for seed in range(30)]).T)


def _segmented(seed: int) -> tuple[float, float]:
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
        keys = wrong(adapted, every) - wrong(fixed, every)
        return keys, wrong(spread, ~known) - wrong(in_place, ~known)


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


@claim("Block-Attention")
def block_attention() -> Numbers:
    """Loss of a model that read passages together, when it reads them apart, before and after."""
    losses = np.array([_apart_and_together(s) for s in SEEDS])
    return tuple((losses[:, 1:] - losses[:, :1]).T)


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
    for rule in rules(model):
        rule.passages = PASSAGES * SIZE if apart else 0


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


@claim("ETC: Encoding Long")
def global_local() -> Numbers:
    """Loss on the topic of a token's own segment, beside a window alone, and beside no labels."""
    kind: Any = forms.rule_class("global_local")
    whole = type("Segments", (kind,), {"segment": SEGMENT})
    near = type("Near", (whole,), {"shared": 0})
    plain = type("Plain", (whole,), {"scores": Rule.scores})
    return tuple(apart(whole, base, segments, TOPICS + NOISE + 2) for base in (near, plain))
