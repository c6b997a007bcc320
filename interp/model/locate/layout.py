"""Locations of the weight matrices of each attention, embedding and unembedding: names and columns.

They are found by value in `find_layout`: over a few dozen tokens, a column of q is proportional to
exactly one column of the projection's output. Fused, interleaved, grouped and scaled layouts are
all such a selection of columns, so no table of families is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.model.calls.sites import Site

_COSINE = 1 - 1e-5  # random columns over a dozen tokens or more do not agree this closely by chance
_CHUNK = 1024


@dataclass(frozen=True, eq=False)
class Columns:
    """`target = factor * source[:, index] + offset`; index -1 where the target is constant."""

    source: int  # index of the candidate
    index: Int[Tensor, "column"]
    factor: Float[Tensor, "column"]
    offset: Float[Tensor, "column"]

    def take(self, matrix: Float[Tensor, "... source"]) -> Float[Tensor, "... column"]:
        """Select the columns of a matrix by the same indices and factors."""
        factor = self.factor.to(matrix) * (self.index >= 0).to(matrix)
        return matrix[..., self.index.clamp_min(0).to(matrix.device)] * factor


def flat(x: Tensor, rows: int) -> Float[Tensor, "row column"]:
    """Flatten to one row per token."""
    return x.reshape(rows, -1)


def heads_flat(x: Float[Tensor, "batch head pos d"]) -> Float[Tensor, "row column"]:
    """Flatten to one row per token, with the heads side by side."""
    return x.transpose(1, 2).flatten(2).flatten(0, 1)


def find_columns(
    target: Float[Tensor, "row column"], candidates: Sequence[Float[Tensor, "row source"]]
) -> Columns | None:
    """Return the candidate whose columns give all of the target's; the last one of several."""
    target = target.double()
    mean = target.mean(0)
    moving = target - mean
    size = moving.norm(dim=0)
    # A column that is constant over random tokens depends on none: a bias, or a zero part.
    constant = size <= 1e-6 * target.abs().amax(0).clamp_min(1e-12) * len(target) ** 0.5
    for number in reversed(range(len(candidates))):
        matched = _match(moving, size, constant, candidates[number].double())
        if matched is None:
            continue
        index, factor, source_mean = matched
        offset = mean - factor * source_mean
        scale = target.abs().amax(0).clamp_min(1e-30)
        offset = torch.where(offset.abs() < 1e-5 * scale, 0.0, offset)
        return Columns(number, index, factor, offset)
    return None


def _match(
    moving: Tensor, size: Tensor, constant: Tensor, source: Tensor
) -> tuple[Tensor, Tensor, Tensor] | None:
    mean = source.mean(0)
    source = source - mean
    length = source.norm(dim=0)
    unit = source / length.clamp_min(1e-30)
    n = moving.shape[1]
    index = torch.full((n,), -1, device=moving.device)
    factor = torch.zeros(n, dtype=moving.dtype, device=moving.device)
    wanted = (~constant).nonzero().flatten()
    for part in wanted.split(_CHUNK):
        cosine = (moving[:, part] / size[part]).T @ unit
        best, at = cosine.abs().max(-1)
        if bool((best < _COSINE).any()):
            return None
        index[part] = at
        factor[part] = (moving[:, part] * source[:, at]).sum(0) / length[at].square()
    factor = torch.where((factor - 1).abs() < 1e-5, 1.0, factor)
    return index, factor, torch.where(index >= 0, mean[index.clamp_min(0)], 0.0)


@dataclass(frozen=True, eq=False)
class OwnNorm:
    """Norm between a projection and q or k (Qwen3, OLMo 2, Gemma 3)."""

    module: str
    shape: tuple[int, ...]
    columns: Columns  # columns of the norm's output that are q or k


@dataclass(frozen=True, eq=False)
class ReadMatrix:
    """Location of the matrix that computes q, k or v from the attention's input."""

    module: str
    width: int
    columns: Columns
    own_norm: OwnNorm | None
    run: int
    before: str | None  # the norm between the stream and the matrix
    stream_norm: (
        str | None
    )  # without one before the matrix: the norm that produced the stream itself


@dataclass(frozen=True, eq=False)
class Writing:
    """Norm or gain, and factor, between the output projection and the stream."""

    after: str | None
    scale: float


@dataclass(frozen=True, eq=False)
class Layout:
    """Locations of the parts of one attention, or the reasons why they cannot be read."""

    q: ReadMatrix | str
    k: ReadMatrix | str
    v: ReadMatrix | str
    o: Writing | str
    scale: float | None  # score = scale * q·k, where the score is a product
    readers: tuple[str, int] | None = (
        None  # the norm through which its stream is read, and its width
    )


@dataclass(frozen=True, eq=False)
class FoldStep:
    """Module between embedding, stream and unembedding that can be folded: norm or matrix."""

    kind: str  # "norm" or "matrix"
    module: str
    width: int


@dataclass(frozen=True, eq=False)
class Entering:
    """Path from a table of embeddings to the first stream: `factor`, then the steps in order."""

    table: str
    factor: float
    steps: tuple[FoldStep, ...]


@dataclass(frozen=True, eq=False)
class Leaving:
    """Path from the last stream to the logits: the steps in order, then the unembedding."""

    matrix: str
    width: int
    steps: tuple[FoldStep, ...]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Embedding into the streams and unembedding, or the reason why they are not linear."""

    entering: dict[str, Entering | str]  # by stream
    leaving: Leaving | str


@dataclass(frozen=True, eq=False)
class Layouts:
    """Layouts of all attention layers, and of embedding and unembedding."""

    sites: dict[Site, Layout]
    vocabulary: Vocabulary


def stream_written(site: Site) -> str:
    """Return the residual stream that a stack writes to: for cross attention the decoder's."""
    return "decoder" if site.stack == "cross" else site.stack


def stream_read(site: Site, part: str) -> str:
    """Return the stream that q, k or v is computed from: cross attention reads the encoder's."""
    return "encoder" if site.stack == "cross" and part in "kv" else stream_written(site)
