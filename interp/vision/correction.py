"""Accuracy by group before and after spurious heads are corrected, on held-out images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.intervals import share_interval
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.statistics import DRAWS, percentile_interval, redraw, tails_of
from interp.model.edits import resample
from interp.model.model_argument import takes_model
from interp.vision.images import batches_of, image_batch, image_provenance, vision_stack
from interp.vision.readout import image_output
from interp.vision.result import ImageScores
from interp.vision.spurious import REPAIRS, CuedImages, Repair, cued_images

if TYPE_CHECKING:
    from torch import Tensor

    from interp.model.model import Model

Array = np.ndarray
WORST = "worst group"


def accuracy_rows(
    group: Sequence[str],
    before: Bool[Array, " image"],
    after: Bool[Array, " image"],
    random: Bool[Array, "draw image"],
    made: Mapping[str, Any],
    *,
    spurious: Sequence[str] = (),
    target: Sequence[str] = (),
    seed: int = 0,
) -> ResultRows:
    """Return accuracies by group; see `correct_spurious_heads` for the columns and facts."""
    facts = {
        "metric": "accuracy",
        "unit": "share of images",
        "group": tuple(group),
        "before": before,
        "after": after,
        "random": random,
        "spurious": tuple(spurious),
        "target": tuple(target),
        "seed": seed,
    }
    labels, rows = np.array(group), []
    for name in sorted(set(group)):
        mine, n = labels == name, int((labels == name).sum())
        null = float(random[:, mine].mean()) if len(random) else np.nan
        rows.append((name, "before", float(before[mine].mean()), np.nan, n))
        rows.append((name, "after", float(after[mine].mean()), null, n))
    worst, n = [float(worst_accuracy(group, x)) for x in (before, after)], len(labels)
    null = float(worst_accuracy(group, random).mean()) if len(random) else np.nan
    rows.append((WORST, "before", worst[0], np.nan, n))
    rows.append((WORST, "after", worst[1], null, n))
    rows.append((WORST, "gain", worst[1] - worst[0], null - worst[0], n))
    columns = dict(
        zip(("group", "when", "score", "null", "n"), zip(*rows, strict=True), strict=True)
    )
    return ResultRows(
        "CorrectedAccuracy",
        columns,
        ("group", "when"),
        made,
        facts,
        why_no_per_prompt="the accuracy of the worst group is not a mean over images",
        interval_by="own",
    )


def worst_accuracy(group: Sequence[str], right: Bool[Array, "*n image"]) -> Float[Array, "*n"]:
    """Return the accuracy of the worst group."""
    labels = np.array(group)
    return np.stack([right[..., labels == g].mean(-1) for g in sorted(set(group))]).min(0)


def bounds_of_accuracy(found: ResultRows, level: float) -> np.ndarray:
    """Return Wilson's interval of each group, and those of the worst one."""
    labels, bounds = np.array(found.facts["group"]), []
    drawn = bounds_of_worst(found, level)
    for row in found.wide().to_dict("records"):
        if row["group"] == WORST:
            bounds.append(drawn[row["when"]])
            continue
        right = (found.before if row["when"] == "before" else found.after)[labels == row["group"]]
        bounds.append(share_interval(int(right.sum()), len(right), level))
    return np.array(bounds).reshape(-1, 2)


def bounds_of_worst(found: ResultRows, level: float = 0.95) -> dict[str, tuple[float, float]]:
    """Return intervals of the worst group before and after, and of its gain."""
    if not 0 < level < 1:
        raise OptionError(f"level={level} is not a confidence level; give a number in (0, 1)")
    rng, labels = np.random.default_rng(found.seed), np.array(found.facts["group"])
    groups, both = np.unique(labels), (found.before, found.after)
    lowest = np.full((2, DRAWS), np.inf)
    for name in groups:
        index = np.flatnonzero(labels == name)
        pick = index[redraw(len(index), DRAWS, rng)]
        for row, right in zip(lowest, both, strict=True):
            np.minimum(row, right[pick].mean(1), out=row)
    low, high = percentile_interval(lowest[1] - lowest[0], tails_of(level)).tolist()
    bounds = {"gain": (low, high)}
    for when, right in zip(("before", "after"), both, strict=True):
        shares = [right[labels == name] for name in groups]
        # the lowest share is below every upper end if all of them hold: Bonferroni
        each = 1 - (1 - level) / len(shares)
        bounds[when] = (
            min(share_interval(int(x.sum()), len(x), level)[0] for x in shares),
            min(share_interval(int(x.sum()), len(x), each)[1] for x in shares),
        )
    return bounds


@takes_model
def correct_spurious_heads(
    model: Model,
    images: Any,
    labels: Any,
    cues: Any,
    located: ImageScores | Sequence[str],
    *,
    repair: Repair = "mean",
    how: Literal["direct", "forward"] = "direct",
    texts: Float[Array, "text d"] | None = None,
    n_random: int = 20,
    seed: int = 0,
    batch_size: int = 64,
) -> ResultRows:
    """Measure accuracy by group on new images with and without the heads that read a cue.

    `repair="mean"` replaces what spurious heads add by its mean over the images; "projection" adds
    to what target heads write its projection on the span of the class differences; "both" does
    both. `how="direct"` changes direct contributions alone, as published; "forward" replaces the
    head's output by its mean over images in the forward pass, so that later layers change too.

    Args:
        model: a classifier of images, or a tower with an image embedding.
        images: images on which no head was located.
        labels: right class of each image.
        cues: class that the cue of each image suggests; -1 without a cue.
        located: what `locate_spurious_heads` found on other images, or names of spurious heads.
        repair: mean, projection or both.
        how: direct or forward.
        texts: text embeddings of the classes, for an image tower.
        n_random: draws of random other heads, for the null.
        seed: seed of these draws and of the bootstrap.
        batch_size: images that run together.

    Returns:
        One row per group of images (its class, with an aligned or a conflicting cue) and moment:
        before, after, or the gain of the worst group. Intervals of groups are Wilson's. The worst
        group is not known beforehand, and the lowest of several noisy shares is too low: its
        interval reaches from the lowest lower end of all groups to the lowest upper end, where
        upper ends are corrected for the number of groups. That of the gain is a bootstrap of the
        images within each group. null is the same number after as many random other heads are
        corrected. Facts: spurious, the heads whose output was replaced; target, those whose
        projection was added; before and after, whether the model is right on each image; random,
        the same by draw. `facts["group"]` has the group of each image.

    Reference: Yeo et al. 2025, "Debiasing CLIP: Interpreting and Correcting Bias in Attention
    Heads" (arXiv 2505.17425).

    Raises:
        OptionError: heads were located on these images, a head does not exist, an option is
            unknown, or a projection is asked for in the forward pass.

    Unit: share of images.

    Cost: One forward pass; with how="forward" one for each draw.

    Null: the same correction of random other heads.

    Not for: a cue that nobody named, or one that always goes with the class.
    """
    if repair not in REPAIRS or how not in ("direct", "forward"):
        raise OptionError(
            f"repair={repair!r}, how={how!r}; known: {', '.join(REPAIRS)}, and direct or forward"
        )
    if how == "forward" and repair != "mean":
        raise OptionError("a projection changes direct contributions; use how='direct'")
    pixels = image_batch(model, images)
    about = image_provenance(
        model,
        pixels,
        "correct_spurious_heads",
        seed=seed,
        repair=repair,
        how=how,
        null="the same correction of random other heads",
    )
    if isinstance(located, ImageScores):
        if located.provenance["prompts_hash"] == about["prompts_hash"]:
            raise OptionError(
                "these heads were located on the same images, so the gain would be that of the "
                "selection; give other images"
            )
        spurious, target = (
            [p for p, x in zip(located.parts, located.extra[key], strict=True) if x]
            for key in ("spurious", "target")
        )
    else:
        spurious, target = [str(Head.parse(x)) for x in located], []
    held = cued_images(model, pixels, labels, cues, texts, batch_size)
    unknown = set(spurious) - set(held.parts.labels)
    if unknown:
        raise OptionError(f"{model.name} has no head {', '.join(sorted(unknown))}")
    if repair == "projection":
        spurious = []
    target = target if repair != "mean" else []

    def right(replaced: Sequence[str], added: Sequence[str]) -> Bool[Array, " image"]:
        if not replaced and not added:
            logits = held.logits
        elif how == "forward":
            logits = _forward(model, pixels, replaced, batch_size) @ held.directions.T
        else:
            logits = _direct(held, replaced, added)
        return logits.argmax(1) == held.labels

    rng = np.random.default_rng(seed)
    rest = [x for x in held.parts.labels if x not in (*spurious, *target)]
    size, more = min(len(spurious), len(rest)), len(target)
    random = []
    for _ in range(n_random if size or more else 0):
        drawn = rng.permutation(rest).tolist()
        random.append(right(drawn[:size], drawn[size : size + more]))
    group = tuple(
        f"{label}, {'no cue' if cue < 0 else 'aligned' if cue == label else 'conflicting'}"
        for label, cue in zip(held.labels.tolist(), held.cues.tolist(), strict=True)
    )
    empty = np.zeros((0, len(group)), dtype=bool)
    return accuracy_rows(
        group,
        right([], []),
        right(spurious, target),
        np.array(random) if random else empty,
        about,
        spurious=spurious,
        target=target,
        seed=seed,
    )


def _direct(
    held: CuedImages, replaced: Sequence[str], added: Sequence[str]
) -> Float[Array, "image class"]:
    """Compute the logits after direct contributions of some heads are changed."""
    output = held.parts.output.copy()
    for name in replaced:
        written = held.parts.heads[:, held.parts.find(name)]
        output += written.mean(0) - written
    differences = held.directions - held.directions.mean(0)
    basis = np.linalg.svd(differences, full_matrices=False)[2][: len(differences) - 1]
    for name in added:
        written = held.parts.heads[:, held.parts.find(name)]
        output += written @ basis.T @ basis
    return output @ held.directions.T


def _forward(
    model: Model, pixels: Tensor, heads: Sequence[str], batch_size: int
) -> Float[Array, "image out"]:
    """Compute the outputs while the heads' outputs are their mean over the images."""
    stack = vision_stack(model)
    layers = sorted({Head.parse(h).layer for h in heads})
    total: dict[tuple[str, int], Any] = {}
    for inputs in batches_of(model, pixels, size=batch_size):
        z = model.capture(inputs, ("z",), stack=stack, layers=layers).z_by_site()
        total = {key: total.get(key, 0.0) + x.double().sum(0, keepdim=True) for key, x in z.items()}
    means = {key: x / len(pixels) for key, x in total.items()}
    outputs = []
    with model.edited(resample(list(heads), means, stack=stack)):
        for inputs in batches_of(model, pixels, size=batch_size):
            outputs.append(image_output(model, inputs)[0].double().cpu().numpy())
    return np.concatenate(outputs)


def corrected_accuracy_summary(found: ResultRows) -> str:
    """Return the accuracy of the worst group before and after, and its gain."""
    low, high = bounds_of_worst(found)["gain"]
    group = found.facts["group"]
    before, after = (float(worst_accuracy(group, x)) for x in (found.before, found.after))
    heads = ", ".join(found.spurious) or "none"
    return (
        f"CorrectedAccuracy(worst group {before:.3f} before, {after:.3f} after; gain "
        f"{after - before:+.3f} [{low:+.3f}, {high:+.3f}]; spurious heads: {heads})"
    )


present("CorrectedAccuracy", summary=corrected_accuracy_summary, bounds=bounds_of_accuracy)
