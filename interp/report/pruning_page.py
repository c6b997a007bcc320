"""Folder and page with several pruning curves of one model and task."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from interp.causal.pruning.result import PruningCurve
from interp.core.csv_rows import csv_text
from interp.core.errors import StoreError
from interp.core.files import set_aside, write_atomically
from interp.draw.figure import svg
from interp.report.atlas.single import pruning_page
from interp.report.pruning_plot import plot_curves


def save_curves(curves: Sequence[PruningCurve], folder: str | os.PathLike) -> tuple[Path, ...]:
    """Write `pruning.html` and `pruning.csv` with all curves, and each as `pruning-NAME.json`.

    Curves with other names in the folder are shown after them; a damaged file is moved aside.
    """
    import pandas as pd

    folder = Path(folder)
    written = {_file(folder, c): c for c in curves}
    curves = [*curves, *_others(folder, written)]
    figure = plot_curves(curves)
    frames = [c.wide().assign(ranking=c.name) for c in curves]
    whole = pd.concat(frames, ignore_index=True)
    paths = [folder / "pruning.csv", folder / "pruning.html"]
    write_atomically(paths[0], csv_text(whole).encode())
    parts: list[tuple[Any, ...]] = [
        (c.name, c.summary, f.drop(columns="ranking")) for c, f in zip(curves, frames, strict=True)
    ]
    parts.insert(0, ("All curves", svg(figure)))
    write_atomically(paths[1], pruning_page(curves, sections=parts))
    for path, curve in written.items():
        write_atomically(path, curve.to_json())
        paths.append(path)
    return tuple(paths)


def _file(folder: Path, curve: PruningCurve) -> Path:
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", curve.name).strip("-.") or "curve"
    return folder / f"pruning-{name}.json"


def _others(folder: Path, written: Collection[Path]) -> list[PruningCurve]:
    curves = []
    for path in sorted(folder.glob("pruning-*.json")):
        if path not in written:
            try:
                curves.append(PruningCurve.read(path))
            except StoreError as error:
                set_aside(path, error.__cause__ or error)
    return curves
