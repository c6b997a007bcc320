"""Places of the matrices of each attention, and of embedding and unembedding: names and columns.

They are found by value in `find_layout`.
"""

from __future__ import annotations

from dataclasses import dataclass

from interp.model.locate.matching import Columns
from interp.model.locate.sites import Site


@dataclass(frozen=True, eq=False)
class OwnNorm:
    """A norm between a projection and q or k (Qwen3, OLMo 2, Gemma 3)."""

    module: str
    shape: tuple[int, ...]
    columns: Columns  # of the norm's output, that are q or k


@dataclass(frozen=True, eq=False)
class ReadMatrix:
    """Where the matrix is that makes q, k or v of what the attention reads."""

    module: str
    width: int
    columns: Columns
    own_norm: OwnNorm | None
    run: int
    before: str | None  # the norm between the stream and the matrix
    stream_norm: str | None  # where there is none before: the norm that made the stream itself


@dataclass(frozen=True, eq=False)
class Writing:
    """What stands between the output projection and the stream: a norm or gain, and a factor."""

    after: str | None
    scale: float


@dataclass(frozen=True, eq=False)
class Layout:
    """One attention: each part, or the reason why it cannot be read."""

    q: ReadMatrix | str
    k: ReadMatrix | str
    v: ReadMatrix | str
    o: Writing | str
    scale: float | None  # score = scale * q·k, where it is a product at all
    readers: tuple[str, int] | None = None  # the norm through which its stream is read, and width


@dataclass(frozen=True, eq=False)
class FoldStep:
    """A module between embedding, stream and unembedding that can be folded: norm or matrix."""

    kind: str  # "norm" or "matrix"
    module: str
    width: int


@dataclass(frozen=True, eq=False)
class Entering:
    """From a table of embeddings to the first stream: `factor`, then the steps in their order."""

    table: str
    factor: float
    steps: tuple[FoldStep, ...]


@dataclass(frozen=True, eq=False)
class Leaving:
    """From the last stream to the logits: the steps in their order, then the unembedding."""

    matrix: str
    width: int
    steps: tuple[FoldStep, ...]


@dataclass(frozen=True, eq=False)
class Vocabulary:
    """Where tokens enter the streams and where they are predicted, or why that is not linear."""

    entering: dict[str, Entering | str]  # by stream
    leaving: Leaving | str


@dataclass(frozen=True, eq=False)
class Layouts:
    """Every attention's layout, and that of embedding and unembedding."""

    sites: dict[Site, Layout]
    vocabulary: Vocabulary


def stream_written(site: Site) -> str:
    """The residual stream that a stack writes to: cross attention writes to the decoder's."""
    return "decoder" if site.stack == "cross" else site.stack


def stream_read(site: Site, part: str) -> str:
    """The stream that q, k or v is made of: cross attention looks at the encoder's."""
    return "encoder" if site.stack == "cross" and part in "kv" else stream_written(site)
