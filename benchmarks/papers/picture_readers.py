"""Claims about image models: tokens that are pooled, queries of classes, heads against encoders."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

import interp
from benchmarks.paper_findings import Finding
from interp.attribution.token_importance.token_pooling import medoids
from interp.bundled.shape_images import CUES, PATCH, PATTERNS, SIZE, ShapeImages, shape_images
from interp.core.random_state import drawn_with
from interp.vision import ClassQueries, query_maps
from papers.finding import SEEDS, TRAINED, above, claim
from papers.fitting import fit
from papers.hosts import Host
from papers.picture_tasks import accuracy, classifier, held_out
from training import forms

GRID = (SIZE // PATCH, SIZE // PATCH)


def constant_share(x: Tensor) -> Tensor:
    """Return the share of energy that is the same at every token, as the metric low_pass."""
    return x.sum(-2).square().sum(-1) / x.shape[-2] / x.square().sum((-1, -2))


@claim("Token Pooling", kind="vision transformer")
def pooling(host: Host) -> list[Finding]:
    """Keep 9 of 36 patches after layer 0: weighted K-medoids, the most attended, or random ones."""
    model, images = host.model, shape_images(4000, 400)
    pixels = torch.from_numpy(images.pixels)
    held = model.capture({"pixel_values": pixels}, ["pattern", "resid_post"], layers=0)
    stream: Tensor = held["resid_post", 0][:, 1:]
    weight = held["pattern", 0].double().sum((1, 2))[:, 1:]
    apart = torch.cdist(stream, stream).double().square()
    rng = torch.Generator().manual_seed(0)
    kept = {
        "medoids": torch.stack([medoids(a, w, 9) for a, w in zip(apart, weight, strict=True)]),
        "attended": weight,
        "random": torch.rand(weight.shape, generator=rng),
    }
    right = {
        kind: _right_with(model, images, score.topk(9).indices) for kind, score in kept.items()
    }
    mixed: list[Tensor] = []

    def visit(site: Any, call: Any, real: Any) -> None:
        mixed.append((constant_share(call.z) - constant_share(call.v)).mean(1))

    model.read({"pixel_values": pixels}, visit)
    return [
        above(
            "constant share of the energy, heads' outputs minus their values",
            torch.stack(mixed).mean(0),
            "400 images, 12 heads",
            unit="share",
        ),
        *(
            above(
                f"accuracy, patches of K-medoids minus {words}",
                right["medoids"] - right[kind],
                "400 images",
                unit="share",
            )
            for kind, words in (("attended", "the most attended"), ("random", "random ones"))
        ),
    ]


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
        self.encoder = forms.build(
            "patches", seed=seed, gain=1.0, hidden_size=32, num_attention_heads=4
        )
        with drawn_with(seed):
            self.decoder = ClassQueries(len(PATTERNS), 32, 4)

    def tokens(self, pixels: Tensor) -> Tensor:
        """Return the features of the patches."""
        found: list[Tensor] = []
        handle = self.encoder.norm.register_forward_hook(lambda m, a, out: found.append(out))
        self.encoder(pixels)
        handle.remove()
        return found[0]

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the logits of the classes."""
        return self.decoder(self.tokens(pixels))[0]


@claim(
    "A Simple Interpretable Transformer",
    "interp.vision.ClassQueries on patches of a "
    "two-layer encoder, trained together for 300 steps on generated images",
)
def intr() -> list[Finding]:
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
        found = query_maps(model.decoder, tokens, GRID, PATTERNS, tested)
        maps = found.facts["maps"].mean(1).reshape(len(tested), len(PATTERNS), -1)
        cut = tested.masks.reshape(-1, GRID[0], PATCH, GRID[1], PATCH).mean((2, 4))
        cut = cut.reshape(len(tested), -1)
        mass = np.einsum("icp,ip->ic", maps, cut)
        true = np.eye(len(PATTERNS), dtype=bool)[tested.labels]
        on_shape.append(float(mass[true].mean() - cut.mean()))
        of_true.append(float(mass[true].mean() - mass[~true].mean()))
        rng = np.random.default_rng(seed)
        chance = [
            _chance_without(model, tested, score, seed)
            for score in (maps[true], rng.random(maps[true].shape))
        ]
        faithful.append(chance[1] - chance[0])
    words = f"{TRAINED}, 500 held-out images each"
    return [
        above(
            "attention of the true class on the shape minus its area", on_shape, words, unit="share"
        ),
        above("attention on the shape, true class minus the others", of_true, words, unit="share"),
        above(
            "probability of the true class, 6 random patches removed minus its 6 most attended",
            faithful,
            words,
            unit="share",
        ),
    ]


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
            pixels[i, :, row : row + PATCH, column : column + PATCH] += np.array(CUES)[colour][
                :, None, None
            ]
    nothing = np.zeros((number, SIZE, SIZE), dtype=bool)
    return ShapeImages(pixels, labels, nothing, labels)


@claim(
    "Number of heads against encoders",
    "vision transformers with 1 or 8 heads: 3 layers of "
    "width 32, 1 of width 56 (equal cost) and 2 of width 40, on generated images",
)
def heads_against_encoders() -> list[Finding]:
    """Patterns seen in one patch (250 steps); equal colours of two patches, by context (400)."""

    def without(seed: int, heads: int, layers: int, width: int) -> float:
        sizes: Any = {"num_hidden_layers": layers, "hidden_size": width}
        model = classifier("patches", seed, steps=250, num_attention_heads=heads, **sizes)
        return accuracy(model, held_out(seed))

    def with_context(seed: int, heads: int) -> float:
        model = classifier(
            "patches",
            seed,
            steps=400,
            images=same_colour(seed, 3000),
            num_attention_heads=heads,
            hidden_size=40,
        )
        return accuracy(model, same_colour(seed + 500, 500))

    layers = [without(seed, 1, 3, 32) - without(seed, 8, 1, 56) for seed in SEEDS]
    heads = [with_context(seed, 8) - with_context(seed, 1) for seed in SEEDS]
    words = f"{TRAINED}, 500 held-out images each"
    return [
        above(
            "accuracy without context, 3 layers of 1 head minus 1 layer of 8",
            layers,
            words,
            unit="share",
        ),
        above("accuracy with context, 8 heads minus 1 in 2 layers", heads, words, unit="share"),
    ]
