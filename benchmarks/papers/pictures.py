"""Claims on forms of attention between the patches of an image, trained on generated shapes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import interp
from interp.bundled.shape_images import SIZE, ShapeImages, shape_images
from interp.core.random_state import drawn_with
from papers.finding import SEEDS, Numbers, claim
from papers.fitting import fit, rules
from training import forms
from training.forms.host_rules import convolved_on_grid, regions

SIZES = {"hidden_size": 32, "num_attention_heads": 4, "num_hidden_layers": 2}
TRAINED_ON, TESTED_ON, HELD_OUT = 3000, 500, 10_000


def classifier(
    form: str,
    seed: int,
    change: Callable[[Any], None] | None = None,
    *,
    steps: int = 300,
    images: ShapeImages | None = None,
    parameters: Callable[[Any], list[Any]] | None = None,
    **sizes: Any,
) -> Any:
    """Train a form on images without a coloured corner; forms of a seed see the same ones.

    A `change` edits the model before it is trained, all of it or some `parameters`; `images` are
    others to train on. `sizes` are fields of the config other than `SIZES`.
    """
    model = forms.build(form, seed=seed, gain=1.0, **(SIZES | sizes))
    if change is not None:
        with drawn_with(seed):
            change(model)
    made = images or shape_images(seed, TRAINED_ON, cue="none")
    pixels, labels = torch.from_numpy(made.pixels), torch.from_numpy(made.labels)

    def loss(rng: np.random.Generator) -> torch.Tensor:
        pick = torch.from_numpy(rng.integers(0, len(made), 32))
        return F.cross_entropy(model(pixels[pick]).logits, labels[pick])

    trained = None if parameters is None else parameters(model)
    fit(model, loss, steps=steps, seed=seed, rate=3e-3, parameters=trained)
    return model


def held_out(seed: int) -> ShapeImages:
    """Return images that no model has seen."""
    return shape_images(HELD_OUT + seed, TESTED_ON, cue="none")


@torch.no_grad()
def accuracy(model: Any, images: ShapeImages) -> float:
    """Return the share of images whose class the model names."""
    found = model(torch.from_numpy(images.pixels)).logits.argmax(-1).numpy()
    return float((found == images.labels).mean())


def accuracies(form: str, change: Callable[[Any], None] | None = None, **how: Any) -> np.ndarray:
    """Return the held-out accuracy of a form with each seed."""
    return np.array(
        [accuracy(classifier(form, seed, change, **how), held_out(seed)) for seed in SEEDS]
    )


def on_larger_canvas(images: ShapeImages, size: int, seed: int) -> ShapeImages:
    """Place each image at random within noise like its own background."""
    rng = np.random.default_rng([seed, size])
    canvas = rng.normal(0, 0.5, (len(images), 3, size, size)).astype(np.float32)
    masks = np.zeros((len(images), size, size), dtype=bool)
    for i, (row, column) in enumerate(rng.integers(0, size - SIZE + 1, (len(images), 2))):
        canvas[i, :, row : row + SIZE, column : column + SIZE] = images.pixels[i]
    return ShapeImages(canvas, images.labels, masks, images.cues)


@claim("Conditional Positional Encodings")
def conditional() -> Numbers:
    """Trained on 24 x 24 pixels, tested on 48 x 48; the learned table is interpolated."""
    gain = []
    for seed in SEEDS:
        larger = on_larger_canvas(held_out(seed), 2 * SIZE, seed)
        made, table = (classifier(form, seed) for form in ("grid_positions", "patches"))
        gain.append(accuracy(made, larger) - accuracy(table, larger))
    return gain


def plain_linear(model: Any) -> None:
    """Turn focused attention into linear attention over relu features, without convolution."""
    for rule in rules(model):
        rule.power = 1
        nn.init.zeros_(rule.kernel)
        rule.kernel.requires_grad_(False)


def effective_rank(matrix: Tensor) -> Tensor:
    """Return the exponential of the entropy of the shares of the singular values."""
    share = torch.linalg.svdvals(matrix)
    share = share / share.sum(-1, keepdim=True)
    return torch.special.entr(share).sum(-1).exp()


def ranks(model: interp.Model, images: ShapeImages) -> tuple[float, float]:
    """Return the mean effective rank of maps, and of maps with the convolution of each channel."""
    alone, both = [], []

    def visit(site: Any, call: Any, real: Any) -> None:
        attention: Any = model.module.get_submodule(site.module)
        kernel = attention.rule.kernel
        patches = call.v.shape[2]
        unit = torch.eye(patches)[None, :, :, None].expand(-1, -1, -1, len(kernel))
        moved = convolved_on_grid(unit.flatten(0, 1), kernel, (6, 6))  # [from, to, channel]
        matrices = call.map()[:, :, None] + moved.permute(2, 1, 0)
        alone.append(float(effective_rank(call.map()).mean()))
        both.append(float(effective_rank(matrices).mean()))

    with torch.no_grad():
        model.read({"pixel_values": torch.from_numpy(images.pixels[:20])}, visit)
    return float(np.mean(alone)), float(np.mean(both))


@claim("FLatten")
def flatten() -> Numbers:
    """Linear attention over relu features, with and without power and convolution."""
    gain, sharper, higher = [], [], []
    for seed in SEEDS:
        tested = held_out(seed)
        focused = classifier("focused_grid", seed)
        linear = classifier("focused_grid", seed, plain_linear)
        gain.append(accuracy(focused, tested) - accuracy(linear, tested))
        loaded = [interp.load(copy.deepcopy(m)) for m in (focused, linear)]
        images = {"pixel_values": torch.from_numpy(tested.pixels[:50])}
        tables = [interp.score(m, ["entropy"], images, null="none").to_pandas() for m in loaded]
        sharper.append(tables[0].score.mean() - tables[1].score.mean())
        alone, both = ranks(loaded[0], tested)
        higher.append(both - alone)
    return gain, sharper, higher


def forms_of_shapes(seed: int, number: int) -> ShapeImages:
    """Return images whose class is the form: a disc leaves corners of its box empty."""
    made = shape_images(seed, number, cue="none")
    rows, columns = made.masks.any(2).sum(1), made.masks.any(1).sum(1)
    square = made.masks.sum((1, 2)) > 0.95 * rows * columns
    return ShapeImages(made.pixels, square.astype(int), made.masks, made.cues)


@claim("Learnable Memory")
def memory() -> Numbers:
    """The class head alone, with 5 memory tokens per layer, or with all weights."""
    over_head, over_half = [], []
    for seed in SEEDS:
        learned = classifier("patches", seed).state_dict()
        task, tested = forms_of_shapes(seed + 50, 1000), forms_of_shapes(seed + 99, 1000)

        def taught(
            form: str, *words: str, seed: int = seed, task: Any = task, learned: Any = learned
        ) -> Any:
            def some(model: Any) -> list[Any]:
                named = model.named_parameters()
                return [p for n, p in named if any(word in n for word in words)]

            def start(model: Any) -> None:
                model.load_state_dict(learned, strict=False)

            return classifier(form, seed, start, images=task, parameters=some)

        head, tokens, full = (
            accuracy(taught(*given), tested)
            for given in (("patches", "head"), ("memory_tokens", "head", "memory"), ("patches", ""))
        )
        over_head.append(tokens - head)
        over_half.append(tokens - (head + full) / 2)
    return over_head, over_half


def without_rim(model: Any) -> None:
    """Let blocks see themselves alone."""
    for rule in rules(model):
        rule.halo = 0


class Convolution(nn.Module):
    """A convolution over 3 x 3 patches in the place of attention."""

    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor, grid: tuple[int, int]) -> Tensor:
        return self.inner(x.mT.unflatten(-1, grid)).flatten(2).mT


def convolutions(model: Any) -> None:
    """Replace attention by convolutions, which have more than twice the parameters."""
    for block in model.blocks:
        block.attention = Convolution(model.config.hidden_size)


@claim("Scaling Local Self-Attention")
def halo() -> Numbers:
    """Blocks of 2 x 2 patches with a rim of 1; 4,100 parameters a layer against 9,200."""
    with_rim, alone = accuracies("halo"), accuracies("halo", without_rim)
    convolved = accuracies("halo", convolutions)
    return with_rim - alone, with_rim - convolved


@claim("Transformer in Transformer")
def nested() -> Numbers:
    """Two inner layers of width 8, or a third layer between patches, which costs more."""
    inside = accuracies("inner_patches", patch_size=8)
    outside = accuracies("patches", patch_size=8, num_hidden_layers=3)
    return inside - outside


def nearest_regions(model: Any) -> None:
    """Let each region see the 4 nearest ones, itself included, whatever they hold."""
    for rule in rules(model):

        def chosen(given: Any, rule: Any = rule) -> Tensor:
            every = torch.unique(regions(given, given.keys, rule.size))
            side = round(len(every) ** 0.5)
            at = torch.stack([every // side, every % side], -1).double()
            order = torch.cdist(at, at).argsort(dim=-1, stable=True)[:, : rule.kept]
            seen = torch.zeros(len(every), len(every), dtype=torch.bool)
            return seen.scatter(1, order, True)[None, None]

        rule.chosen = chosen


def all_regions(model: Any) -> None:
    """Let each region see all regions."""
    for rule in rules(model):
        rule.kept = 9


@claim("BiFormer")
def biformer() -> Numbers:
    """4 of 9 regions chosen by content, the 4 nearest, or all; with the convolution of values."""
    routed, near = accuracies("grid_routing"), accuracies("grid_routing", nearest_regions)
    full = accuracies("grid_routing", all_regions)
    return routed - near, routed - full
