"""Several pruning curves of one model and task in one folder and on one page."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from interp.causal.pruning.plot import plot_curves
from interp.causal.pruning.result import PruningCurve
from interp.core.files import write_atomically
from interp.draw.page import page


def save_curves(curves: Sequence[PruningCurve], folder: str | os.PathLike) -> tuple[Path, ...]:
    """Write `pruning.html` and `pruning.csv` with all curves, and each as `pruning-NAME.json`.

    Raises:
        OptionError: curves of different models or tasks.
        StoreError: the folder or disk refuses.
    """
    import pandas as pd

    folder = Path(folder)
    figure = plot_curves(curves)
    frames = [c.to_pandas().assign(ranking=c.name) for c in curves]
    whole = pd.concat(frames, ignore_index=True)
    paths = [folder / "pruning.csv", folder / "pruning.html"]
    write_atomically(paths[0], whole.to_csv(index=False, lineterminator="\n").encode())
    made = curves[0].made
    title = f"Pruning {made.get('model_id', '')}: {made.get('task', '')}"
    parts = [
        (c.name, c.summary, f.drop(columns="ranking")) for c, f in zip(curves, frames, strict=True)
    ]
    told = {c.name: dict(c.made) for c in curves}
    write_atomically(paths[1], page(title, figure, parts, told, file_name="pruning"))
    for curve in curves:
        name = re.sub(r"[^A-Za-z0-9._-]+", "-", curve.name).strip("-.") or "curve"
        path = folder / f"pruning-{name}.json"
        write_atomically(path, curve.to_json())
        paths.append(path)
    return tuple(paths)
