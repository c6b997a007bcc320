"""Masks and biases of one attention call, as flat arrays for the compiled pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from interp_kernels.bias_rows import BiasRows
from interp_kernels.checks import unexpanded

if TYPE_CHECKING:
    from torch import Tensor

    from interp_kernels.problem import Attention


Arrays = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


class Masks:
    """Everything that hides keys or is added to scores, beside causality and window."""

    def __init__(self, attention: Attention):
        self.attention = attention
        bias, relative = attention.bias, attention.relative_bias
        self.flat, self.strides = flat_bias(None if isinstance(bias, BiasRows) else bias)
        if isinstance(bias, BiasRows):  # rows of all heads, one query after another
            heads, keys = bias.shape[1], attention.shape.key
            self.strides = (0, keys * (heads > 1), heads * keys, 1)
        self.relative = np.zeros(0, np.float32)
        if relative is not None:
            self.relative = relative.float().contiguous().flatten().numpy()

    def numbers(self) -> dict[str, float]:
        """Return strides, in elements, and the value up to which a bias hides its key."""
        bias, relative = self.attention.bias, self.attention.relative_bias
        names = ("bias_head", "bias_query", "bias_key")
        numbered = bias is not None and bias.dtype != torch.bool
        return {
            **dict(zip(names, self.strides[1:], strict=True)),
            "relative_head": relative.shape[1] if relative is not None and len(relative) > 1 else 0,
            "lowest": self.attention.hidden_below() if numbered else 0,
        }

    def arrays(self, batch: int, queries: slice) -> Arrays:
        """Return bias, visibility, relative bias, ranges and padding of one prompt.

        Args:
            batch: the prompt.
            queries: the queries of a bias that is given in rows.
        """
        bias = self.attention.bias
        if isinstance(bias, BiasRows):
            numbers, shown = _rows(bias, batch, queries)
        else:
            numbers, shown = (flat[batch * self.strides[0] :] for flat in self.flat)
        return numbers, shown, self.relative, self._ranges(batch), self._seen(batch)

    def _ranges(self, batch: int) -> np.ndarray:
        ranges = self.attention.ranges
        if ranges is None:
            return np.zeros((0, 2), np.int64)
        return ranges[batch if len(ranges) > 1 else 0].contiguous().numpy()

    def _seen(self, batch: int) -> np.ndarray:
        attention, shape = self.attention, self.attention.shape
        pads = ((attention.key_padding, shape.key), (attention.query_padding, shape.query))
        if all(pad is None for pad, _ in pads):
            return np.zeros(0, np.uint8)
        parts = [torch.ones(n) if pad is None else pad[batch] for pad, n in pads]
        return torch.cat([part.to(torch.uint8) for part in parts]).numpy()


def _rows(bias: BiasRows, batch: int, queries: slice) -> tuple[np.ndarray, np.ndarray]:
    numbers, shown = np.zeros(0, np.float32), np.zeros(0, np.uint8)
    rows = bias.rows(queries)[batch if bias.shape[0] > 1 else 0].transpose(0, 1)
    if bias.dtype == torch.bool:
        return numbers, rows.contiguous().view(torch.uint8).flatten().numpy()
    return rows.float().contiguous().flatten().numpy(), shown


def flat_bias(bias: Tensor | None) -> tuple[tuple[np.ndarray, np.ndarray], tuple[int, ...]]:
    """Return memory of a float and a bool bias (one is empty), with the strides of its axes."""
    numbers, shown = np.zeros(0, np.float32), np.zeros(0, np.uint8)
    if bias is None or bias.numel() == 0:
        return (numbers, shown), (0, 0, 0, 0)
    bias = unexpanded(bias)
    if bias.dtype != torch.bool:
        bias = bias.float()
    if bias.shape[3] > 1 and bias.stride(3) != 1:
        bias = bias.contiguous()
    strides = [s if n > 1 else 0 for s, n in zip(bias.stride(), bias.shape, strict=True)]
    last = sum(s * (n - 1) for s, n in zip(strides, bias.shape, strict=True))
    flat = bias.as_strided((last + 1,), (1,))
    if bias.dtype == torch.bool:
        return (numbers, flat.view(torch.uint8).numpy()), tuple(strides)
    return (flat.numpy(), shown), tuple(strides)
