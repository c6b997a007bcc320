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
    """The attention off the sink of every window, on disk.

    Args:
        n_heads: number of heads of all attentions.
    """

    def __init__(self, n_heads: int) -> None:
        self.n_heads = n_heads
        self._folder = Path(mkdtemp(prefix="interp-rows-"))
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)

    def _path(self, window: TextWindow) -> Path:
        return self._folder / f"{id(window)}.npy"

    def has(self, window: TextWindow) -> bool:
        """Return True if the rows of a window are kept."""
        return self._path(window).exists()

    def add(self, window: TextWindow, at: slice, rows: AttentionRows) -> None:
        """Keep the rows of some heads of a window."""
        path, shape = self._path(window), (self.n_heads, *rows.mass.shape[1:])
        if path.exists():
            file = np.lib.format.open_memmap(path, "r+")
        else:
            file = np.lib.format.open_memmap(path, "w+", np.float32, shape)
        file[at] = rows.mass.numpy()

    def of(self, window: TextWindow, at: slice) -> Float[Tensor, "head row pos"]:
        """Return the rows of some heads of a window."""
        return torch.from_numpy(np.load(self._path(window), mmap_mode="r")[at].copy())
