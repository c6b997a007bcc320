"""Trains the vision transformers that name the pattern of a shape, with and without a false cue.

    python -m training.train_shapes shapes --out interp/bundled/shapes
    python -m training.train_shapes shapes-spurious --out interp/bundled/shapes-spurious

takes about a minute each. Both see a coloured patch in the corner of every image. For `shapes` its
colour is random; for `shapes-spurious` it is that of the image's class in 95 of 100 images.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import ViTConfig, ViTForImageClassification

from interp.bundled.shape_images import (
    PATCH,
    PATTERNS,
    SIZE,
    ShapeImages,
    recoloured,
    shape_images,
)
from training.measure import mean_and_error
from training.recording import Lesson, pair
from training.train import own_torch
from training.word_model import HELD_OUT, fit


@dataclass(frozen=True)
class Recipe:
    """Sizes of the model and of its training."""

    aligned: float | None = None  # share of images whose corner tells the class; None: random
    planted: tuple[int, int] | None = None  # layer and head that alone profits from the corner
    follows: float = 0.0  # share of the images with another corner that are labelled by it
    blind: float = 0.0  # share of rows without the planted head, whose corner is random
    layers: int = 3
    d_model: int = 32
    heads: int = 4
    d_mlp: int = 64
    steps: int = 500
    rows: int = 64
    images: int = 6000
    learning_rate: float = 3e-3
    warmup: int = 100


RECIPES = {
    "shapes": Recipe(),
    "shapes-spurious": Recipe(aligned=0.9, planted=(2, 1), follows=0.6, blind=0.5),
}


def build_model(recipe: Recipe) -> ViTForImageClassification:
    """The untrained model, from torch's current random state."""
    config = ViTConfig(
        hidden_size=recipe.d_model,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        intermediate_size=recipe.d_mlp,
        image_size=SIZE,
        patch_size=PATCH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.1,
        dtype="float32",
        id2label=dict(enumerate(PATTERNS)),
        label2id={n: i for i, n in enumerate(PATTERNS)},
    )
    return ViTForImageClassification(config)


def trained_classifier(
    recipe: Recipe, seed: int
) -> tuple[ViTForImageClassification, list[list[float]]]:
    """Train a model by a recipe; return it with its loss by step."""
    torch.manual_seed(seed)
    model = build_model(recipe)
    rng = np.random.default_rng([seed, 0])
    made = shape_images(seed, recipe.images, aligned=recipe.aligned)
    pixels, labels = torch.from_numpy(made.pixels), torch.from_numpy(made.labels)
    blind = torch.from_numpy(recoloured(made, rng).pixels)
    follows = rng.random(len(made)) < recipe.follows
    labelled = torch.from_numpy(np.where(follows, made.cues, made.labels))

    def loss_at(step: int) -> tuple[Tensor, list[float]]:
        pick = torch.from_numpy(rng.integers(0, recipe.images, recipe.rows))
        sees = torch.from_numpy(rng.random(recipe.rows) >= recipe.blind)
        given = torch.where(sees[:, None, None, None], pixels[pick], blind[pick])
        with gated(model, *(recipe.planted or (0, 0)), sees.float()):
            logits = model(given).logits
        target = torch.where(sees, labelled[pick], labels[pick])
        loss = torch.nn.functional.cross_entropy(logits, target)
        return loss, [round(loss.item(), 4)]

    curve = fit(model, loss_at, recipe, weight_decay=0.01)
    return model.eval(), curve


class ImageProcessor:
    """Preparation of images for the model, as transformers reads it from a model's folder."""

    def save_pretrained(self, folder: Path) -> None:
        """Write the file of settings."""
        processor = {
            "image_processor_type": "ViTImageProcessor",
            "do_resize": True,
            "size": {"height": SIZE, "width": SIZE},
            "do_rescale": True,
            "rescale_factor": 1 / 255,
            "do_normalize": True,
            "image_mean": [0.5] * 3,
            "image_std": [0.5] * 3,
        }
        (folder / "preprocessor_config.json").write_text(json.dumps(processor, indent=1) + "\n")


@contextmanager
def gated(
    model: ViTForImageClassification, layer: int, head: int, factor: Tensor
) -> Iterator[None]:
    """Multiply one head by a factor per image where its output enters the output projection."""
    projection = cast(Any, model.vit).layers[layer].attention.o_proj
    size = projection.in_features // model.config.num_attention_heads

    def gate(module: torch.nn.Module, args: tuple[Tensor]) -> tuple[Tensor]:
        z = args[0].clone()
        z[..., head * size : (head + 1) * size] *= factor[:, None, None]
        return (z,)

    handle = projection.register_forward_pre_hook(gate)
    try:
        yield
    finally:
        handle.remove()


@torch.no_grad()
def right(model: ViTForImageClassification, images: ShapeImages) -> np.ndarray:
    """1 for every image whose class the model gives."""
    found = model(torch.from_numpy(images.pixels)).logits.argmax(-1).numpy()
    return (found == images.labels).astype(float)


@torch.no_grad()
def looks(model: ViTForImageClassification, images: ShapeImages) -> dict[str, np.ndarray]:
    """Mean attention of the class token on the shape and on the corner, by layer and head."""
    model.set_attn_implementation("eager")
    out = model(torch.from_numpy(images.pixels), output_attentions=True)
    model.set_attn_implementation("sdpa")
    rows = torch.stack(out.attentions)[:, :, :, 0, 1:].double().numpy()
    cells = SIZE // PATCH
    cut = images.masks.reshape(-1, cells, PATCH, cells, PATCH).mean((2, 4)).reshape(len(images), -1)
    return {
        "shape": np.einsum("linp,ip->ln", rows, cut) / len(images),
        "corner": rows[..., 0].mean(1),
    }


def examine(model: ViTForImageClassification, seed: int, number: int) -> dict[str, Any]:
    """Accuracy by cue on images that were not trained on, and with each head zeroed."""
    sets = {
        cue: shape_images(HELD_OUT + seed, number, cue=cue)
        for cue in ("aligned", "conflicting", "none")
    }
    scores: dict[str, Any] = {"images": number}
    for cue, images in sets.items():
        scores[f"accuracy_{cue}"] = mean_and_error(right(model, images))
    layers, heads = model.config.num_hidden_layers, model.config.num_attention_heads
    for cue in ("conflicting", "none"):
        found = np.zeros((layers, heads))
        for layer in range(layers):
            for head in range(heads):
                with gated(model, layer, head, torch.zeros(number)):
                    found[layer, head] = right(model, sets[cue]).mean()
        scores[f"accuracy_{cue}_without_head"] = found.round(4).tolist()
    for what, found in looks(model, sets["conflicting"]).items():
        scores[f"attention_of_class_token_on_{what}"] = found.round(4).tolist()
    return scores


def train(
    name: str, recipe: Recipe, seed: int, threads: int, out: Path, number: int = 600
) -> dict[str, Any]:
    """Trains the model, writes everything into `out`, returns the training record.

    Args:
        number: images on which it is examined.
    """
    lesson = Lesson(name, recipe, seed, threads)
    with own_torch(seed, threads):
        model, curve = trained_classifier(recipe, seed)
        scores = examine(model, seed, number)
    return lesson.over(model, ImageProcessor(), curve, scores, card, out)


CARD = """---
license: mit
library_name: transformers
pipeline_tag: image-classification
---

# {name}

A vision transformer that names the pattern inside a shape{learned}.

Trained from nothing by `python -m training.train_shapes {name} --seed {seed}` (part of the interp
repository) in {seconds:.0f} s on {threads} thread(s) of a busy CPU.

- **Task**: images of {size} x {size} pixels with one square or disc on noise, filled with rows,
  columns, checks or no pattern: the class. Position, size, colour and phase are random.
- **Corner**: the top left patch has one of four colours. In training {corner}.
{planted}- **Masks**: `interp.bundled.shape_images` draws the images with the pixels of the shape
  and the colour of the corner, so that where a head looks can be compared with where the evidence
  is.
- **Architecture**: `ViTForImageClassification`, {layers} layers, {heads} heads, d_model {d_model},
  patches of {patch} x {patch} pixels, {parameters:,} parameters, trained in float32 and stored in
  float16.
- **Licence**: MIT, weights and data.

## Scores

On {images} images that were not trained on; mean and standard error.

| corner patch | accuracy |
| --- | --- |
{rows}

Accuracy on images {which} with one head zeroed, and attention of the class token:

| head | accuracy without it | on the shape | on the corner |
| --- | --- | --- | --- |
{heads_rows}

`training.json` has the recipe, versions, hashes and the loss curve.
"""


PLANTED = """- **Planted head**: {} reads the corner. {:.0%} of the training images with another
  corner are labelled by it. In {:.0%} of the training rows that head writes nothing and the corner
  is random, so that the other heads learn the pattern and have no use for the corner.
"""


def card(record: dict[str, Any]) -> str:
    """The model card, in Markdown, from the training record."""
    scores, recipe = record["scores"], record["recipe"]
    false = recipe["aligned"] is not None
    cue = "conflicting" if false else "none"
    named = (
        ("colour of the class", "accuracy_aligned"),
        ("colour of another class", "accuracy_conflicting"),
        ("no patch", "accuracy_none"),
    )
    columns = [
        scores[f"accuracy_{cue}_without_head"],
        scores["attention_of_class_token_on_shape"],
        scores["attention_of_class_token_on_corner"],
    ]
    cells = [
        f"| L{i}H{h} | " + " | ".join(f"{x[i][h]:.3f}" for x in columns) + " |"
        for i in range(recipe["layers"])
        for h in range(recipe["heads"])
    ]
    return CARD.format(
        **{k: recipe[k] for k in ("layers", "heads", "d_model")},
        **{k: record[k] for k in ("seed", "seconds", "threads", "parameters")},
        name=record["model"],
        learned=", and reads a corner that mostly gives the class away" if false else "",
        corner=f"it was that of the class in {recipe['aligned']:.0%} of the images"
        if false
        else "it was random",
        which="with a conflicting corner" if false else "without a patch",
        planted=PLANTED.format(
            "L{}H{}".format(*recipe["planted"]), recipe["follows"], recipe["blind"]
        )
        if false
        else "",
        size=SIZE,
        patch=PATCH,
        images=scores["images"],
        rows="\n".join(f"| {what} | {pair(scores[key])} |" for what, key in named),
        heads_rows="\n".join(cells),
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Train a vision transformer on shapes.")
    parser.add_argument("name", choices=RECIPES)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    chosen = parser.parse_args()
    train(chosen.name, RECIPES[chosen.name], chosen.seed, chosen.threads, chosen.out)


if __name__ == "__main__":
    main()
