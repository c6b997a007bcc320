"""Locations of the weight matrices of each attention, embedding and unembedding: names and columns.

They are found by value in `find_layout`.
"""

from __future__ import annotations

from dataclasses import dataclass

from interp.model.calls.sites import Site
from interp.model.locate.matching import Columns


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
