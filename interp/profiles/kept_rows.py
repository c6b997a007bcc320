"""Attention rows of all windows, kept in a folder while a profile is made."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.profiles.corpus import TextWindow
    from interp.profiles.rows_read import AttentionRows


class KeptRows:
    """The attention off the sink of every window, on disk."""

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="interp-rows-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def _path(self, window: TextWindow) -> Path:
        return self._folder / f"{id(window)}.f32"

    def has(self, window: TextWindow) -> bool:
        """Return True if the rows of a window are kept."""
        return self._path(window).exists()

    def add(self, window: TextWindow, at: slice, rows: AttentionRows) -> None:
        """Keep the rows of some heads of a window."""
        path = self._path(window)
        with path.open("r+b" if path.exists() else "wb") as file:
            file.seek(at.start * rows.mass[0].nbytes)
            rows.mass.numpy().tofile(file)

    def of(self, window: TextWindow, at: slice) -> Float[Tensor, "head row pos"]:
        """Return the rows of some heads of a window."""
        shape = (at.stop - at.start, len(window.queries), len(window.ids))
        size = 4 * shape[1] * shape[2]
        values = np.fromfile(
            self._path(window), np.float32, int(np.prod(shape)), offset=at.start * size
        )
        return torch.from_numpy(values.reshape(shape))
