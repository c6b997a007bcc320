"""Heads against encoders: vision transformers of equal cost, trained on the generated shapes.

    python -m benchmarks.vision_heads

Every model has 1, 2, 4 or 8 heads and 1, 2 or 3 encoder layers. The width of the stream falls with
the number of layers and the width of the MLPs is set so that all models need the same number of
multiplications per image, up to rounding; the number of heads does not change that number, since
heads share the width. Every model sees the same images in the same order. Writes vision_heads.md
and vision_heads.json.
"""

from __future__ import annotations

import json
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from interp.bundled.shape_images import PATCH, SIZE, shape_images
from interp.core.statistics import percentile_interval
from training.train import own_torch
from training.train_shapes import Recipe, right, trained_classifier
from training.word_model import HELD_OUT

HERE = Path(__file__).parent
HEADS, WIDTHS = (1, 2, 4, 8), {1: 56, 2: 40, 3: 32}  # width of the stream by number of layers
SEEDS, IMAGES, TESTED, STEPS, ROWS = (0, 1, 2), 2000, 500, 350, 32
PATCHES = (SIZE // PATCH) ** 2
TOKENS = PATCHES + 1
FIXED = 3 * PATCH**2 * PATCHES  # times the width: the embedding of the patches


def multiplications(layers: int, width: int, d_mlp: int) -> int:
    """Multiplications of one image: patches, projections, scores, values and MLPs."""
    one = 4 * TOKENS * width**2 + 2 * TOKENS**2 * width + 2 * TOKENS * width * d_mlp
    return FIXED * width + layers * one


def mlp_of_equal_cost(layers: int, width: int) -> int:
    """Width of the MLPs with which a model costs what 3 layers of width 32 and MLPs of 64 cost."""
    bare = multiplications(layers, width, 0)
    each = multiplications(layers, width, 1) - bare
    return round((multiplications(3, 32, 64) - bare) / each)


def measure(layers: int, heads: int) -> dict[str, Any]:
    """Train one shape of model with every seed, and name other images."""
    width = WIDTHS[layers]
    d_mlp = mlp_of_equal_cost(layers, width)
    recipe = Recipe(
        layers=layers,
        heads=heads,
        d_model=width,
        d_mlp=d_mlp,
        steps=STEPS,
        rows=ROWS,
        images=IMAGES,
        warmup=50,
    )
    correct, seconds, size = [], 0.0, 0
    for seed in SEEDS:
        with own_torch(seed, 1):
            start = time.process_time()
            model, _ = trained_classifier(recipe, seed)
            seconds += time.process_time() - start
            correct.append(right(model, shape_images(HELD_OUT + seed, TESTED)))
        size = sum(p.numel() for p in model.parameters())
    return {
        "layers": layers,
        "heads": heads,
        "width": width,
        "d_mlp": d_mlp,
        "multiplications": multiplications(layers, width, d_mlp),
        "parameters": size,
        "seconds": round(seconds / len(SEEDS), 1),
        "correct": np.array(correct),
    }


def interval(correct: np.ndarray) -> list[float]:
    """95 % interval of a mean over seeds and images; seeds are redrawn, then images in each."""
    rng = np.random.default_rng(0)
    seeds, images = correct.shape
    which = rng.integers(seeds, size=(2000, seeds, 1))
    drawn = correct[which, rng.integers(images, size=(2000, seeds, images))].mean((1, 2))
    return [round(float(x), 3) for x in percentile_interval(drawn)]


def scores_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Accuracy of each model, and its difference to one head in as many layers."""
    alone = {r["layers"]: r["correct"] for r in rows if r["heads"] == 1}
    found = []
    for row in rows:
        correct = row.pop("correct")
        gain = correct - alone[row["layers"]]
        found.append(
            row
            | {
                "accuracy": round(float(correct.mean()), 3),
                "interval": interval(correct),
                "by_seed": correct.mean(1).round(3).tolist(),
                "gain_over_one_head": round(float(gain.mean()), 3),
                "gain_interval": interval(gain),
            }
        )
    return found


def table_of(rows: list[dict[str, Any]]) -> str:
    """The file that people read."""
    lines = [
        "# Heads against encoders in vision transformers of equal cost",
        "",
        f"Accuracy on {TESTED} images per seed that were not trained on (4 classes, chance 0.25),",
        f"mean of {len(SEEDS)} seeds, {STEPS} steps of {ROWS} of {IMAGES} generated images of "
        "shapes. Every model",
        "needs the same number of multiplications per image. Intervals of 95 % redraw seeds and",
        "images; with three seeds they are rough. Gains are over one head in as many layers, with",
        "the same seeds and images.",
        "",
        "| layers | heads | width | MLP | million multiplications | parameters | accuracy "
        "| interval | by seed | gain over one head | CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        low, high = r["interval"]
        gain = (
            ""
            if r["heads"] == 1
            else (
                f"{r['gain_over_one_head']:+.3f} [{r['gain_interval'][0]:+.3f}, "
                f"{r['gain_interval'][1]:+.3f}]"
            )
        )
        by_seed = ", ".join(f"{x:.3f}" for x in r["by_seed"])
        lines.append(
            f"| {r['layers']} | {r['heads']} | {r['width']} | {r['d_mlp']} | "
            f"{r['multiplications'] / 1e6:.3f} | {r['parameters']:,} | {r['accuracy']:.3f} | "
            f"[{low:.3f}, {high:.3f}] | {by_seed} | {gain} | {r['seconds']} |"
        )
    lines += ["", f"CPU seconds: training of one model on one thread of {platform.machine()}."]
    lines += ["`python -m benchmarks.vision_heads` repeats it; `docs/guides/vision_heads.md`."]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Train all models and write both files."""
    rows = []
    for layers in WIDTHS:
        for heads in HEADS:
            rows.append(measure(layers, heads))
            print(layers, heads, round(float(rows[-1]["correct"].mean()), 3), flush=True)
    found = scores_of(rows)
    about = {"seeds": SEEDS, "images": IMAGES, "tested": TESTED, "steps": STEPS, "rows": ROWS}
    (HERE / "vision_heads.json").write_text(json.dumps(about | {"models": found}, indent=1) + "\n")
    (HERE / "vision_heads.md").write_text(table_of(found))


if __name__ == "__main__":
    main()
