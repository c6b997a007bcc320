"""Folder of `interp study vision`: the page of maps, and all scores of heads as one table."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp import vision
from interp.core.files import write_atomically
from interp.core.result_folder import folder_for
from interp.core.table import HeadTable
from interp.draw.figure import svg
from interp.draw.page import page
from interp.vision.result import ImageScores

if TYPE_CHECKING:
    from interp.core.result import Result
    from interp.model.model import Model
    from interp.vision.own_images import Pictures

SHOWN = 4  # images of a page of maps


def write_maps(
    model: Model,
    pictures: Pictures,
    maps: Sequence[str],
    out: Path,
    name: str,
    about: Mapping[str, Any],
) -> Path:
    """Write the maps of the first images as a page and as JSON; return the page's path."""
    labels = None if pictures.labels is None else pictures.labels[:SHOWN]
    result = vision.image_maps(model, pictures.pixels[:SHOWN], list(maps), labels=labels)
    folder = folder_for(out, name, "maps.html", {**about, "maps": list(maps)})
    result.save(folder / "maps.json")
    parts = [(f"image {i}", svg(result.plot(i))) for i in range(len(result.pixels))]
    title = f"Maps of {model.name}"
    content = page(title, None, parts, result.provenance, heading=result.first_line())
    write_atomically(folder / "maps.html", content)
    return folder / "maps.html"


def write_head_table(found: Mapping[str, Result], out: Path, name: str) -> Path | None:
    """Write the scores of heads of all measures as one table, which the atlas reads."""
    tables = [
        x.table
        for x in found.values()
        if isinstance(x, ImageScores)
        and any(h >= 0 and row["n"] > 0 for row, (_, _, h) in zip(x, x.places, strict=True))
    ]
    if not tables:
        return None
    path = out / f"vision-{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}.parquet"
    HeadTable.concat(tables).save(path)
    return path
