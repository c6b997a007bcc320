"""Measures of `interp study vision`, and its output on the screen."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.cli.between import aligned_columns
from interp.cli.written import folder_for
from interp.core.columns import with_error
from interp.core.errors import OptionError, UnknownName
from interp.core.files import write_atomically
from interp.core.registry import ATTRIBUTION_METHODS

if TYPE_CHECKING:
    from interp.cli.vision_images import Pictures
    from interp.core.result import Result
    from interp.model.model import Model

ON_REQUEST = ("registers", "pruning")  # few models have long tokens; pruning needs many runs
MEASURES = (
    "direct", "distance", "tokens", "class_token", "readouts", "agreement", "cue", "texts",
    *ON_REQUEST,
)  # fmt: skip
SHOWN = 4  # images of a page of maps


def chosen_measures(only: str | None) -> tuple[str, ...] | None:
    """Return the named measures; None for all that can be computed.

    Raises:
        UnknownName: there is no such measure.
    """
    if only is None:
        return None
    names = tuple(name.strip().replace("-", "_") for name in only.split(",") if name.strip())
    for name in names:
        if name not in MEASURES:
            raise UnknownName("measure", name, MEASURES)
    if not names:
        raise OptionError(f"--method names no measure; known: {', '.join(MEASURES)}")
    return names


def require_maps(names: Sequence[str]) -> None:
    """Raise if a map is not class_attention, pooling, a head or an attribution method.

    Raises:
        UnknownName: there is no such map.
    """
    for name in names:
        if name not in ("class_attention", "pooling") and not re.fullmatch(r"L\d+H\d+", name):
            ATTRIBUTION_METHODS.parse(name)


def maps_to_draw(model: Model, names: Sequence[str]) -> tuple[str, ...]:
    """Return the maps to draw; by default those that the model has.

    A model of two towers has no rollout, since an attribution explains one stack.
    """
    from interp.model.softmax_view import layers_view

    alone = len(layers_view(model).stacks) == 1
    return tuple(names) or (("class_attention", "rollout") if alone else ("class_attention",))


def measures_of_images(
    model: Model, pictures: Pictures, asked: tuple[str, ...] | None, seed: int
) -> dict[str, Result]:
    """Compute the named measures, or all that the model and the images allow.

    Raises:
        OptionError: a named measure lacks labels, masks, cues or texts.
    """
    from interp.heads import vision

    x, labels = pictures.pixels, pictures.labels
    embeds = _may_embed(model) and vision.image_readout(model).kind == "embedding"
    texts = None
    if pictures.texts is not None:
        texts = vision.text_embeddings(model, pictures.texts)
    classes = not embeds or texts is not None
    needs = {
        "direct": (classes, "--texts, as the model has no classes"),
        "class_token": (classes, "--texts, as the model has no classes"),
        "pruning": (classes, "--texts, as the model has no classes"),
        "readouts": (labels is not None, "images in subfolders named after their class"),
        "agreement": (pictures.masks is not None, "--masks"),
        "cue": (
            pictures.cues is not None and labels is not None and classes,
            "--cues and labels, and --texts of a model without classes",
        ),
        "texts": (pictures.bank is not None, "--bank"),
    }
    for name in asked or ():
        there, what = needs.get(name, (True, ""))
        if not there:
            raise OptionError(f"--method {name} needs {what}")
    chosen = asked or tuple(
        m for m in MEASURES if m not in ON_REQUEST and needs.get(m, (True, ""))[0]
    )
    if asked is None and "class_token" in chosen and not _has_class_token(model, x):
        chosen = tuple(m for m in chosen if m != "class_token")
    found: dict[str, Result] = {}
    for name in chosen:
        if name == "cue":
            found |= _cue(model, pictures, texts, seed)
        elif name == "registers":
            found |= _registers(model, pictures, None if embeds else labels, seed)
        else:
            found[name] = _one(model, pictures, name, texts, embeds, seed)
    return found


def _one(
    model: Model, pictures: Pictures, name: str, texts: Any, embeds: bool, seed: int
) -> Result:
    from interp.heads import vision

    x, labels, bank = pictures.pixels, pictures.labels, pictures.bank or ()
    measures: dict[str, Callable[[], Result]] = {
        "direct": lambda: vision.image_direct_effects(model, x, labels, texts=texts, seed=seed),
        "distance": lambda: vision.patch_distance(model, x),
        "tokens": lambda: vision.high_norm_tokens(model, x),
        "class_token": lambda: vision.class_token_effects(model, x, labels, texts=texts, seed=seed),
        "pruning": lambda: vision.prune_image_tokens(
            model, x, labels, masks=pictures.masks, texts=texts, seed=seed
        ),
        "readouts": lambda: vision.head_readouts(model, x, labels, seed=seed),
        "agreement": lambda: vision.map_agreement(
            model, x, pictures.masks, labels=None if embeds else labels, seed=seed
        ),
        "texts": lambda: vision.describe_heads(
            model, x, vision.text_embeddings(model, bank), bank, ranks=min(5, len(bank)), seed=seed
        ),
    }
    return measures[name]()


def _may_embed(model: Model) -> bool:
    return not getattr(model.config, "architectures", None) or not any(
        "ImageClassification" in name for name in model.config.architectures
    )


def _has_class_token(model: Model, pixels: np.ndarray) -> bool:
    from interp.heads.vision.images import image_batch
    from interp.heads.vision.patterns import grid_of

    return grid_of(model, image_batch(model, pixels[:1])).class_token


def _cue(model: Model, pictures: Pictures, texts: Any, seed: int) -> dict[str, Result]:
    """Locate heads on a random half of the images, and correct them on the other."""
    from interp.heads import vision

    assert pictures.cues is not None
    assert pictures.labels is not None
    order = np.random.default_rng(seed).permutation(len(pictures.pixels))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    located = vision.locate_spurious_heads(
        model,
        pictures.pixels[first],
        pictures.labels[first],
        pictures.cues[first],
        texts=texts,
        seed=seed,
    )
    return {
        "cue": located,
        "corrected": vision.correct_spurious_heads(
            model,
            pictures.pixels[second],
            pictures.labels[second],
            pictures.cues[second],
            located,
            how="forward",
            texts=texts,
            seed=seed,
        ),
    }


def _registers(model: Model, pictures: Pictures, labels: Any, seed: int) -> dict[str, Result]:
    """Find register neurons on one half of the images, and shift them on the other."""
    from interp.heads import vision

    order = np.random.default_rng(seed).permutation(len(pictures.pixels))
    first, second = order[: len(order) // 2], order[len(order) // 2 :]
    neurons = vision.register_neurons(model, pictures.pixels[first], seed=seed)
    own = None if labels is None else labels[second]
    return {
        "registers": neurons,
        "added_register": vision.added_register(
            model, pictures.pixels[second], neurons, own, seed=seed
        ),
    }


def text_of_vision(name: str, pictures: Pictures, found: Mapping[str, Result], top: int) -> str:
    """Format the results of one model, with at most `top` rows per metric."""
    lines = [f"{name}: {len(pictures.pixels)} images, {pictures.origin}"]
    for result in found.values():
        lines += ["", *_result_lines(result, top)]
    return "\n".join(lines)


def _result_lines(result: Result, top: int) -> list[str]:
    if type(result).__name__ == "CorrectedAccuracy":
        return [f"  {result!r}"]
    if type(result).__name__ == "HeadDescriptions":
        return _description_lines(result, top)
    rows: list[tuple[str, ...]] = []
    every: Any = result.to_pandas()
    for metric in dict.fromkeys(every["metric"]):
        mine = every[every["metric"] == metric]
        size = mine["score"].abs().fillna(-1.0)
        for at, row in enumerate(
            mine.loc[size.sort_values(ascending=False, kind="stable").index[:top]].to_dict(
                "records"
            )
        ):
            null, p = float(row["null"]), float(row.get("p_holm", math.nan))
            marks = [m for m in ("spurious", "target") if row.get(m) is True]
            rows.append((
                metric if at == 0 else "", str(row["part"]), ", ".join(marks),
                with_error(float(row["score"]), float(row["sem"])),
                "" if math.isnan(null) else f"null {null:.3g}",
                "" if math.isnan(p) else f"p {p:.2g}", str(row["unit"]) if at == 0 else "",
            ))  # fmt: skip
    notes = getattr(result, "notes", {})
    told = [f"  {k}: {v:.3g}" if isinstance(v, float) else f"  {k}: {v}" for k, v in notes.items()]
    return [*aligned_columns(rows).splitlines(), *told]


def _description_lines(result: Result, top: int) -> list[str]:
    """Format one row per head: its texts in order of choice, and what the first one explains."""
    every: Any = result.to_pandas()
    first = every[every["rank"] == 1].sort_values("score", ascending=False, kind="stable")
    rows = []
    for at, row in enumerate(first.head(top).to_dict("records")):
        texts = every[every["part"] == row["part"]].sort_values("rank")["text"]
        rows.append((
            "explained_variance" if at == 0 else "", str(row["part"]),
            with_error(float(row["score"]), float(row["sem"])), f"null {row['null']:.3g}",
            f"p {row['p']:.2g}", ", then ".join(texts),
        ))  # fmt: skip
    told = "  Share of the variance on held-out images that the first text explains."
    return [*aligned_columns(rows).splitlines(), told]


def write_maps(
    model: Model, pictures: Pictures, maps: Sequence[str], out: Path, name: str,
    about: Mapping[str, Any],
) -> Path:  # fmt: skip
    """Write the maps of the first images as a page and as JSON; return the page's path."""
    from interp.draw.figure import svg
    from interp.draw.page import page
    from interp.heads import vision

    labels = None if pictures.labels is None else pictures.labels[:SHOWN]
    found = vision.image_maps(model, pictures.pixels[:SHOWN], list(maps), labels=labels)
    folder = folder_for(out, name, "maps.html", {**about, "maps": list(maps)})
    found.save(folder / "maps.json")
    parts = [(f"image {i}", svg(found.plot(i))) for i in range(len(found.pixels))]
    content = page(f"Maps of {model.name}", None, parts, found.provenance)
    write_atomically(folder / "maps.html", content)
    return folder / "maps.html"


def write_head_table(found: Mapping[str, Result], out: Path, name: str) -> Path | None:
    """Write the scores of heads of all measures as one table, which the atlas reads."""
    from interp.core.table import HeadTable
    from interp.heads.vision.result import ImageScores

    tables = [
        x.table
        for x in found.values()
        if isinstance(x, ImageScores) and any(head >= 0 for _, _, head in x.places)
    ]
    if not tables:
        return None
    path = out / f"vision-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.parquet"
    HeadTable.concat(tables).save(path)
    return path
