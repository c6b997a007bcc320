"""Text of results on pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def grounding_heads_summary(found: ResultRows) -> str:
    """Return what the picture is worth, and the heads that the answer needs most."""
    lines = [
        f"GroundingHeads: the picture is worth {found.swapped.mean():.2f} nats of the answer, "
        f"these heads together {found.together.mean():.2f}"
    ]
    for row in found.top(5).to_pandas().to_dict("records"):
        lines.append(
            f"  L{row['layer']}H{row['head']}: {row['image_mass']:.2f} of its attention on the "
            f"picture, {row['score']:.2f} nats when ablated (other heads {row['null']:.2f})"
        )
    return "\n".join(lines)


def image_token_effects_summary(found: ResultRows) -> str:
    """Return the change of the answer under each change to the tokens."""
    lines = [f"ImageTokenEffects: {found.metric} ({found.unit})"]
    for row in found:
        ends = "" if np.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
        null = "" if np.isnan(row["null"]) else f", random tokens {row['null']:.3g}"
        lines.append(
            f"  {row['change']}: {row['score']:.3g}{ends}{null}; {row['kept']:.3g} of "
            f"{row['tokens']:.3g} tokens kept"
        )
    return "\n".join(lines)


def visual_sinks_summary(found: ResultRows) -> str:
    """Return how many pictures have sinks, and the heads that attend to them most."""
    number = sum(map(bool, found.sinks))
    where = f"dimensions {', '.join(map(str, found.dims))}" if found.dims else "no dimension"
    lines = [
        f"VisualSinks: sinks in the pictures of {number} of {len(found.sinks)} prompts ({where})"
    ]
    for row in found.top(3).to_pandas().to_dict("records"):
        lines.append(
            f"  {row['stack']} L{row['layer']}H{row['head']}: {row['score']:.2f} of its "
            f"attention to the picture is on sinks (random tokens {row['null']:.2f})"
        )
    return "\n".join(lines)


def head_descriptions_summary(found: ResultRows) -> str:
    """Return the first texts of the first heads."""
    rows = found.wide().groupby("part", sort=False)["text"]
    shown = [f"{part}: {', '.join(texts.iloc[:3])}" for part, texts in rows]
    return f"HeadDescriptions({'; '.join(shown[:3])}{'; ...' if len(shown) > 3 else ''})"


def query_maps_summary(found: ResultRows) -> str:
    """Return the numbers of images, classes and heads."""
    images, heads, classes = found.maps.shape[:3]
    return f"QueryMaps({images} images, {classes} classes, {heads} heads)"


def image_maps_summary(found: ResultRows) -> str:
    """Return the methods and the numbers of images and patches."""
    images, rows, columns = found.maps.shape[1:]
    return f"ImageMaps({', '.join(found.methods)}: {images} images, {rows} x {columns} patches)"


def corrected_accuracy_summary(found: ResultRows) -> str:
    """Return the accuracy of the worst group before and after, and its gain."""
    from interp.vision.correction import bounds_of_worst, worst_accuracy

    low, high = bounds_of_worst(found)["gain"]
    group = found.facts["group"]
    before, after = (float(worst_accuracy(group, x)) for x in (found.before, found.after))
    heads = ", ".join(found.spurious) or "none"
    return (
        f"CorrectedAccuracy(worst group {before:.3f} before, {after:.3f} after; gain "
        f"{after - before:+.3f} [{low:+.3f}, {high:+.3f}]; spurious heads: {heads})"
    )
