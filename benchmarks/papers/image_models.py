"""Claims on image models and models of sound: cues, registers, windows, queries of classes."""

from __future__ import annotations

import copy
import types
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from interp import vision
from interp.attribution.token_importance.token_pooling import medoids
from interp.bundled.shape_images import CUES, PATCH, PATTERNS, SIZE, ShapeImages, shape_images
from interp.core.random_state import drawn_with
from interp.heads.geometry._alignment import projection_weighted
from papers.finding import SEEDS, Numbers, claim
from papers.fitting import PLAIN, fit, rules
from papers.hosts import Host
from papers.pictures import accuracy, classifier, held_out
from training import forms


@claim("Locate-Then-Correct", kind="vision transformer", among="spurious")
def corrected(host: Host) -> Numbers:
    """Locate heads on half of the images; correct them, or random ones, on others, 5 draws."""
    model, gain, over = host.model, [], []
    for seed in range(5):
        first, then = (shape_images(100 + 2 * seed + k, 240, aligned=0.5) for k in (0, 1))
        found = vision.locate_spurious_heads(model, first, first.labels, first.cues)
        done = vision.correct_spurious_heads(model, then, then.labels, then.cues, found)
        rows = done.to_pandas()
        worst = rows[(rows["group"] == "worst group") & (rows["when"] == "gain")].iloc[0]
        gain.append(float(worst["score"]))
        over.append(float(worst["score"] - worst["null"]))
    return gain, over


@claim("Attention IoU", kind="vision transformer", among="spurious")
def bias(host: Host) -> Numbers:
    """Compare attention with the corner that a model learned to use with that of bundled:shapes."""
    images = shape_images(300, 120, cue="random")
    corner = np.broadcast_to(images.corner, images.masks.shape)
    scores: dict[str, np.ndarray] = {}
    for name, model in (("biased", host.model), ("other", interp.load("bundled:shapes"))):
        for mask, what in ((corner, "corner"), (images.masks, "shape")):
            found = vision.map_agreement(model, images, mask)
            rows = np.array(found.metrics) == "attention_iou"
            rows &= np.array(found.parts) == "class_attention"
            scores[name, what] = found.per_prompt[rows][0]
    return tuple(scores["biased", what] - scores["other", what] for what in ("corner", "shape"))


def _with_neuron(host: Host, seed: int) -> interp.Model:
    """Add to a model a neuron that fires at the last patch and writes a long vector."""
    module: Any = copy.deepcopy(host.model.module)
    place, written = torch.randn(2, 32, generator=torch.Generator().manual_seed(seed))
    place = (place - place.mean()) / (place - place.mean()).norm()
    with torch.no_grad():
        module.vit.embeddings.position_embeddings[0, -1] += 8 * place
        for layer in module.vit.layers:
            for name, rows, columns in (("fc1", 1, 0), ("fc2", 0, 1)):
                old = getattr(layer.mlp, name)
                new = nn.Linear(old.in_features + columns, old.out_features + rows)
                new.weight.zero_()
                new.bias.zero_()
                new.weight[: old.out_features, : old.in_features] = old.weight
                new.bias[: old.out_features] = old.bias
                setattr(layer.mlp, name, new)
        module.config.intermediate_size += 1
        mlp = module.vit.layers[0].mlp
        mlp.fc1.weight[-1], mlp.fc1.bias[-1] = 4 * place, -10.0
        mlp.fc2.weight[:, -1] = 60 * written / written.norm()
    return interp.load(module)


@claim("Vision Transformers Don't Need", kind="vision transformer")
def registers(host: Host) -> Numbers:
    """Rank neurons on some images; let an added token take the best over, or a random one's."""
    share, less, accuracy, first = [], [], [], 0
    for seed in range(2, 7):
        model = _with_neuron(host, seed)
        images = shape_images(400 + seed, 240, aligned=0.5)
        ranked = vision.register_neurons(model, images.part(slice(0, 80)), keep=1)
        first += ranked.parts[0] == "L0N64"
        judged = images.part(slice(80, 240))
        found = vision.added_register(model, judged, ranked, judged.labels)
        rows = found.to_pandas().set_index(["part", "metric"])
        last = rows.loc[("layer 2, with register", "high_norm_share")]
        share.append(float(last["score"]))
        less.append(float(last["score"] - last["null"]))
        before, after = (rows.loc[(f"{x} register", "accuracy")] for x in ("without", "with"))
        accuracy.append(float(after["score"] - before["score"]))
    return first / 5, share, less, accuracy


WINDOWS = (3, 7, 15, 96)  # of the four heads, in tokens on either side; the last sees all
PITCHES, HIDDEN, TUNE, TIMES = 32, 32, 12, 4


def _melodies(number: int, rng: np.random.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Return tunes of small steps, each repeated at other pitches, four tenths of them hidden."""
    steps = rng.integers(-2, 3, size=(number, 1, TUNE)).cumsum(2)
    start = rng.integers(PITCHES, size=(number, TIMES, 1))
    notes = torch.tensor(((start + steps) % PITCHES).reshape(number, -1))
    hidden = torch.tensor(rng.random(notes.shape) < 0.4)
    return notes.masked_fill(hidden, HIDDEN), notes, hidden.float()


def _hearing(windows: bool, seed: int) -> tuple[interp.Model, float]:
    """Train two layers of four heads on hidden notes; return the model and its held-out loss."""
    sizes = {"vocab_size": PITCHES + 1, "hidden_size": 64, "max_position_embeddings": TUNE * TIMES}
    model: Any = forms.build("both_ways", seed=seed, gain=1.0, **sizes)

    def seen(self: Any, given: Any, rows: Tensor) -> Tensor:
        far = (given.every - rows[:, None]).abs()
        return far <= torch.tensor(WINDOWS)[:, None, None]

    for rule in rules(model) if windows else ():
        rule.seen = types.MethodType(seen, rule)
    rng = np.random.default_rng(seed)

    def loss(number: int) -> Tensor:
        heard, notes, hidden = _melodies(number, rng)
        each = F.cross_entropy(model(heard).logits.mT, notes, reduction="none")
        return (each * hidden).sum() / hidden.sum()

    fit(model, lambda _: loss(16), steps=800, seed=seed, rate=3e-3, **PLAIN)
    with torch.no_grad():
        return interp.load(model), float(loss(500))


def _outputs(model: interp.Model) -> Tensor:
    """Return the heads' outputs over notes, [layer, head, note, d_head]."""
    heard = _melodies(40, np.random.default_rng(99))[0]
    with torch.no_grad():
        cache = model.capture(heard.tolist(), ["z"])
    return torch.stack([cache["z", i].transpose(0, 1).flatten(1, 2) for i in range(2)])


def _spread(model: interp.Model) -> float:
    """Return the spread over heads of the distance of attention."""
    heard = _melodies(8, np.random.default_rng(98))[0].tolist()
    table = interp.score(model, "attention_distance", heard, null="none").to_pandas()
    return float(table["score"].std())


@claim("Masked Autoencoders with Multi-Window")
def multi_window() -> Numbers:
    """Hide notes of generated melodies: heads with windows of four sizes, or all without."""
    better, near, wide = [], [], []
    for seed in SEEDS:
        (model, loss), (plain, plain_loss) = (_hearing(x, seed) for x in (True, False))
        better.append(loss - plain_loss)
        wide.append(_spread(model) - _spread(plain))
        first, second = _outputs(model)
        alike = projection_weighted(first[None], second[None], 4, torch.float32)[0].numpy()
        same = np.eye(4, dtype=bool)
        near.append(float(alike[same].mean() - alike[~same].mean()))
    return better, wide, near


GRID = (SIZE // PATCH, SIZE // PATCH)


def constant_share(x: Tensor) -> Tensor:
    """Return the share of energy that is the same at every token, as the metric low_pass."""
    return x.sum(-2).square().sum(-1) / x.shape[-2] / x.square().sum((-1, -2))


@claim("Token Pooling", kind="vision transformer")
def pooling(host: Host) -> Numbers:
    """Keep 9 of 36 patches after layer 0: weighted K-medoids, the most attended, or random ones."""
    model, images = host.model, shape_images(4000, 400)
    pixels = torch.from_numpy(images.pixels)
    held = model.capture({"pixel_values": pixels}, ["pattern", "resid_post"], layers=0)
    stream: Tensor = held["resid_post", 0][:, 1:]
    weight = held["pattern", 0].double().sum((1, 2))[:, 1:]
    apart = torch.cdist(stream, stream).double().square()
    scores = (
        torch.stack([medoids(a, w, 9) for a, w in zip(apart, weight, strict=True)]),
        weight,
        torch.rand(weight.shape, generator=torch.Generator().manual_seed(0)),
    )
    own, attended, random = (_right_with(model, images, x.topk(9).indices) for x in scores)
    mixed: list[Tensor] = []

    def visit(site: Any, call: Any, real: Any) -> None:
        mixed.append((constant_share(call.z) - constant_share(call.v)).mean(1))

    model.read({"pixel_values": pixels}, visit)
    return torch.stack(mixed).mean(0).numpy(), own - attended, own - random


@torch.no_grad()
def _right_with(model: interp.Model, images: ShapeImages, kept: Tensor) -> np.ndarray:
    """Return which images are named right if only these patches go on after the first layer."""
    vit: Any = model.module.vit

    def choose(layer: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        x = args[0]
        at = torch.cat([torch.zeros_like(kept[:, :1]), kept + 1], 1)
        return (x.gather(1, at[..., None].expand(-1, -1, x.shape[-1])), *args[1:])

    handle = vit.layers[1].register_forward_pre_hook(choose)
    found = model.module(torch.from_numpy(images.pixels)).logits.argmax(-1).numpy()
    handle.remove()
    return (found == images.labels).astype(float)


class Asking(torch.nn.Module):
    """Patches of variant:patches, which a query of each class searches."""

    def __init__(self, seed: int):
        super().__init__()
        sizes = {"hidden_size": 32, "num_attention_heads": 4}
        self.encoder = forms.build("patches", seed=seed, gain=1.0, **sizes)
        with drawn_with(seed):
            self.decoder = vision.ClassQueries(len(PATTERNS), 32, 4)

    def tokens(self, pixels: Tensor) -> Tensor:
        found: list[Tensor] = []
        handle = self.encoder.norm.register_forward_hook(lambda m, a, out: found.append(out))
        self.encoder(pixels)
        handle.remove()
        return found[0]

    def forward(self, pixels: Tensor) -> Tensor:
        return self.decoder(self.tokens(pixels))[0]


@claim("A Simple Interpretable Transformer")
def intr() -> Numbers:
    """Where the query of the true class looks; 6 patches are then replaced by noise."""
    on_shape, of_true, faithful = [], [], []
    for seed in SEEDS:
        made, tested = shape_images(seed, 3000, cue="none"), held_out(seed)
        pixels, labels = torch.from_numpy(made.pixels), torch.from_numpy(made.labels)
        model = Asking(seed)

        def loss(rng: np.random.Generator, m: Any = model, x: Any = pixels, y: Any = labels) -> Any:
            pick = torch.from_numpy(rng.integers(0, len(y), 32))
            return F.cross_entropy(m(x[pick]), y[pick])

        fit(model, loss, steps=300, seed=seed, rate=3e-3)
        with torch.no_grad():
            tokens = model.tokens(torch.from_numpy(tested.pixels))
        found = vision.query_maps(model.decoder, tokens, GRID, PATTERNS, tested)
        maps = found.facts["maps"].mean(1).reshape(len(tested), len(PATTERNS), -1)
        cut = tested.masks.reshape(-1, GRID[0], PATCH, GRID[1], PATCH).mean((2, 4))
        cut = cut.reshape(len(tested), -1)
        mass = np.einsum("icp,ip->ic", maps, cut)
        true = np.eye(len(PATTERNS), dtype=bool)[tested.labels]
        on_shape.append(float(mass[true].mean() - cut.mean()))
        of_true.append(float(mass[true].mean() - mass[~true].mean()))
        rng = np.random.default_rng(seed)
        scores = maps[true], rng.random(maps[true].shape)
        chance = [_chance_without(model, tested, score, seed) for score in scores]
        faithful.append(chance[1] - chance[0])
    return on_shape, of_true, faithful


@torch.no_grad()
def _chance_without(model: Asking, images: ShapeImages, score: np.ndarray, seed: int) -> float:
    """Return the mean probability of the true class with 6 patches replaced by noise."""
    noise = np.random.default_rng([seed, 3]).normal(0, 0.5, images.pixels.shape)
    gone = np.zeros(score.shape, dtype=bool)
    np.put_along_axis(gone, score.argsort(1)[:, -6:], True, 1)
    gone = gone.reshape(-1, 1, *GRID).repeat(PATCH, 2).repeat(PATCH, 3)
    pixels = np.where(gone, noise, images.pixels).astype(np.float32)
    found = model(torch.from_numpy(pixels)).softmax(-1).numpy()
    return float(found[np.arange(len(images)), images.labels].mean())


def same_colour(seed: int, number: int) -> ShapeImages:
    """Return images of two coloured patches on noise: class 1 where their colours are equal."""
    rng = np.random.default_rng([seed, 17])
    pixels = rng.normal(0, 0.3, (number, 3, SIZE, SIZE)).astype(np.float32)
    labels = np.arange(number) % 2
    for i, label in enumerate(labels):
        first = rng.integers(len(CUES))
        second = first if label else (first + rng.integers(1, len(CUES))) % len(CUES)
        for at, colour in zip(rng.permutation(GRID[0] * GRID[1])[:2], (first, second), strict=True):
            row, column = PATCH * (at // GRID[1]), PATCH * (at % GRID[1])
            patch = pixels[i, :, row : row + PATCH, column : column + PATCH]
            patch += np.array(CUES)[colour][:, None, None]
    nothing = np.zeros((number, SIZE, SIZE), dtype=bool)
    return ShapeImages(pixels, labels, nothing, labels)


@claim("Number of heads against encoders")
def heads_against_encoders() -> Numbers:
    """Patterns seen in one patch (250 steps); equal colours of two patches, by context (400)."""

    def without(seed: int, heads: int, layers: int, width: int) -> float:
        sizes: Any = {"num_hidden_layers": layers, "hidden_size": width}
        model = classifier("patches", seed, steps=250, num_attention_heads=heads, **sizes)
        return accuracy(model, held_out(seed))

    def with_context(seed: int, heads: int) -> float:
        how: Any = {"steps": 400, "images": same_colour(seed, 3000), "hidden_size": 40}
        model = classifier("patches", seed, num_attention_heads=heads, **how)
        return accuracy(model, same_colour(seed + 500, 500))

    layers = [without(seed, 1, 3, 32) - without(seed, 8, 1, 56) for seed in SEEDS]
    heads = [with_context(seed, 8) - with_context(seed, 1) for seed in SEEDS]
    return layers, heads
