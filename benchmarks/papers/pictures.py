"""Claims about forms of attention between the patches of an image, trained on generated shapes."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import nn

import interp
from benchmarks.paper_findings import Finding
from interp.bundled.shape_images import SIZE, ShapeImages, shape_images
from papers.finding import SEEDS, TRAINED, above, below, claim
from papers.picture_tasks import accuracies, accuracy, classifier, held_out, rules
from training.forms.host_rules import convolved_on_grid, regions

IN_WORDS = "two layers, trained alike for 300 steps on generated images of patterned shapes"
SAMPLES = f"{TRAINED}, 500 held-out images each"


def on_larger_canvas(images: ShapeImages, size: int, seed: int) -> ShapeImages:
    """Place each image at random within noise like its own background."""
    rng = np.random.default_rng([seed, size])
    canvas = rng.normal(0, 0.5, (len(images), 3, size, size)).astype(np.float32)
    masks = np.zeros((len(images), size, size), dtype=bool)
    for i, (row, column) in enumerate(rng.integers(0, size - SIZE + 1, (len(images), 2))):
        canvas[i, :, row : row + SIZE, column : column + SIZE] = images.pixels[i]
    return ShapeImages(canvas, images.labels, masks, images.cues)


@claim(
    "Conditional Positional Encodings", f"variant:grid_positions and variant:patches, {IN_WORDS}"
)
def conditional() -> Finding:
    """Trained on 24 x 24 pixels, tested on 48 x 48; the learned table is interpolated."""
    gain = []
    for seed in SEEDS:
        larger = on_larger_canvas(held_out(seed), 2 * SIZE, seed)
        made, table = (classifier(form, seed) for form in ("grid_positions", "patches"))
        gain.append(accuracy(made, larger) - accuracy(table, larger))
    what = "accuracy on images of twice the size, positions by convolution minus learned table"
    return above(what, gain, SAMPLES, unit="share")


def plain_linear(model: Any) -> None:
    """Turn focused attention into linear attention over relu features, without convolution."""
    for rule in rules(model):
        rule.power = 1
        nn.init.zeros_(rule.kernel)
        rule.kernel.requires_grad_(False)


def effective_rank(matrix: torch.Tensor) -> torch.Tensor:
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


@claim("FLatten", f"variant:focused_grid, with and without its two parts, {IN_WORDS}")
def flatten() -> list[Finding]:
    """Linear attention over relu features, with and without power and convolution."""
    gain, sharper, higher = [], [], []
    for seed in SEEDS:
        tested = held_out(seed)
        focused = classifier("focused_grid", seed)
        linear = classifier("focused_grid", seed, plain_linear)
        gain.append(accuracy(focused, tested) - accuracy(linear, tested))
        loaded = [interp.load(copy.deepcopy(m)) for m in (focused, linear)]
        images = {"pixel_values": torch.from_numpy(tested.pixels[:50])}
        entropy = [
            interp.score(m, ["entropy"], images, null="none").to_pandas().score.mean()
            for m in loaded
        ]
        sharper.append(entropy[0] - entropy[1])
        alone, both = ranks(loaded[0], tested)
        higher.append(both - alone)
    return [
        above("accuracy, focused minus plain linear", gain, SAMPLES, unit="share"),
        below(
            "entropy of rows, focused minus plain linear", sharper, f"{TRAINED}, 50 images, 8 heads"
        ),
        above(
            "effective rank of the map with the convolution minus without",
            higher,
            f"{TRAINED}, 20 images, 8 heads, 8 channels",
            unit="dimensions",
        ),
    ]


def forms_of_shapes(seed: int, number: int) -> ShapeImages:
    """Return images whose class is the form: a disc leaves corners of its box empty."""
    made = shape_images(seed, number, cue="none")
    rows, columns = made.masks.any(2).sum(1), made.masks.any(1).sum(1)
    square = made.masks.sum((1, 2)) > 0.95 * rows * columns
    return ShapeImages(made.pixels, square.astype(int), made.masks, made.cues)


@claim(
    "Learnable Memory",
    "variant:memory_tokens on top of variant:patches, which has learned "
    "patterns and is taught forms (square or disc) by 300 steps on 1,000 images",
)
def memory() -> list[Finding]:
    """The class head alone, with 5 memory tokens per layer, or with all weights."""
    over_head, over_half = [], []
    for seed in SEEDS:
        learned = classifier("patches", seed).state_dict()
        task, tested = forms_of_shapes(seed + 50, 1000), forms_of_shapes(seed + 99, 1000)
        found = {}
        for form, words in (
            ("patches", ("head",)),
            ("memory_tokens", ("head", "memory")),
            ("patches", ("",)),
        ):

            def taught(model: Any, words: Any = words) -> list[Any]:
                named = model.named_parameters()
                return [p for n, p in named if any(word in n for word in words)]

            def start(model: Any, learned: Any = learned) -> None:
                model.load_state_dict(learned, strict=False)

            model = classifier(form, seed, start, images=task, parameters=taught)
            found[words] = accuracy(model, tested)
        head, tokens, full = found[("head",)], found[("head", "memory")], found[("",)]
        over_head.append(tokens - head)
        over_half.append(tokens - (head + full) / 2)
    words = f"{TRAINED}, 1,000 held-out images each"
    return [
        above("accuracy, memory and head minus head alone", over_head, words, unit="share"),
        above(
            "accuracy, memory and head minus the middle of head alone and all weights",
            over_half,
            words,
            unit="share",
        ),
    ]


def without_rim(model: Any) -> None:
    """Let blocks see themselves alone."""
    for rule in rules(model):
        rule.halo = 0


class Convolution(nn.Module):
    """A convolution over 3 x 3 patches in the place of attention."""

    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: torch.Tensor, grid: tuple[int, int]) -> torch.Tensor:
        """Return what the layer adds to the patches."""
        return self.inner(x.mT.unflatten(-1, grid)).flatten(2).mT


def convolutions(model: Any) -> None:
    """Replace attention by convolutions, which have more than twice the parameters."""
    for block in model.blocks:
        block.attention = Convolution(model.config.hidden_size)


@claim(
    "Scaling Local Self-Attention",
    f"variant:halo, without halo, and with 3 x 3 convolutions in its place, {IN_WORDS}",
)
def halo() -> list[Finding]:
    """Blocks of 2 x 2 patches with a rim of 1; 4,100 parameters a layer against 9,200."""
    with_rim, alone = accuracies("halo"), accuracies("halo", without_rim)
    convolved = accuracies("halo", convolutions)
    return [
        above(
            "accuracy, blocks with halo minus blocks alone", with_rim - alone, SAMPLES, unit="share"
        ),
        above(
            "accuracy, blocks with halo minus convolutions",
            with_rim - convolved,
            SAMPLES,
            unit="share",
        ),
    ]


@claim(
    "Transformer in Transformer",
    "variant:inner_patches (patches of 8 x 8 pixels, inner ones "
    f"of 4 x 4) and variant:patches with a third layer, {IN_WORDS}",
)
def nested() -> Finding:
    """Two inner layers of width 8, or a third layer between patches, which costs more."""
    inside = accuracies("inner_patches", patch_size=8)
    outside = accuracies("patches", patch_size=8, num_hidden_layers=3)
    what = "accuracy, with attention inside patches minus a third layer between them"
    return above(what, inside - outside, SAMPLES, unit="share")


def nearest_regions(model: Any) -> None:
    """Let each region see the 4 nearest ones, itself included, whatever they hold."""
    for rule in rules(model):

        def chosen(given: Any, rule: Any = rule) -> torch.Tensor:
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


@claim("BiFormer", f"variant:grid_routing, with regions at fixed places, and with all, {IN_WORDS}")
def biformer() -> list[Finding]:
    """4 of 9 regions chosen by content, the 4 nearest, or all; with the convolution of values."""
    routed, near = accuracies("grid_routing"), accuracies("grid_routing", nearest_regions)
    full = accuracies("grid_routing", all_regions)
    return [
        above(
            "accuracy, regions chosen by content minus the nearest ones",
            routed - near,
            SAMPLES,
            unit="share",
        ),
        above(
            "accuracy, 4 of 9 regions chosen by content minus all regions",
            routed - full,
            SAMPLES,
            -0.02,
            "share",
        ),
    ]
