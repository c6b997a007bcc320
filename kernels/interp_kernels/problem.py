"""Description of one attention call for all backends, validated when it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

import torch

from interp_kernels import checks
from interp_kernels.bias_rows import BiasRows
from interp_kernels.errors import InvalidAttention
from interp_kernels.segments import Segments
from interp_kernels.vector_math import settle

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

settle()

Activation = Literal["softmax", "sigmoid", "relu", "signed"]

# A numeric mask hides a key by about the most negative number of some dtype. -1e30 is below every
# real bias (ALiBi reaches -1e5 at 100k tokens).
HIDDEN_BELOW = -1e30


_TENSORS = (
    "q",
    "k",
    "v",
    "ranges",
    "bias",
    "relative_bias",
    "key_padding",
    "query_padding",
    "sinks",
    "tokens",
)


@dataclass(frozen=True)
class AttentionShape:
    """Sizes of one attention call, from which memory is estimated."""

    batch: int
    head: int
    kv_head: int
    query: int
    key: int
    d: int
    d_v: int
    itemsize: int = 4

    @property
    def group(self) -> int:
        """Query heads per key-value head."""
        return self.head // self.kv_head

    @property
    def work_itemsize(self) -> int:
        """Bytes of a number inside the computation: float64 for float64 inputs, else float32."""
        return max(4, self.itemsize)


@dataclass(frozen=True, eq=False, kw_only=True)
class Attention:
    """One attention call: softmax(mask(softcap(scale q k^T) + bias)) v, or a variant of it.

    Query i has the absolute position `offset + i`, key j the position j. A key is visible when
    every mask allows it: `causal` (key <= query), `window` (key > query - window), `ranges`, a bool
    `bias`, a float `bias` above -1e30 (or half its dtype's most negative number), `key_padding`,
    `query_padding`.

    A row without a visible key (a padded query, for example) is defined: pattern 0, output 0,
    log-sum-exp -inf (the sink's logit if the head has a sink), entropy 0, largest weight 0 at key
    -1. Zero-length batches, queries and keys give empty or all-zero results, never an error.

    Args:
        q, k, v: any strides, expanded or not; float16, bfloat16, float32 or float64, all equal.
        causal: required, because the tensors do not distinguish encoders from decoders.
        scale: multiplies q k^T; d ** -0.5 unless given.
        window: number of keys back that a query sees, itself included; None for no limit.
        ranges: first key and one past the last that each query sees, as indices of the key axis:
            chunks, prefixes, packed documents and windows on both sides. Tiles outside are skipped.
        bias: added to the scores after the soft-cap (float), or True where visible (bool);
            `BiasRows` gives it some queries at a time.
        relative_bias: added to the score of query index i and key index j is entry
            `j - i + Q - 1` (relative positions, ALiBi).
        key_padding, query_padding: True for a real token, False for padding. Padding of queries
            is not derived: give `query_padding` to exclude them from the column statistics.
        softcap: scores become softcap * tanh(scores / softcap).
        sinks: one extra logit per head inside the softmax, dropped after it: rows sum to < 1.
        offset: K - Q unless given, so that the last query is at the last key.
        activation: "softmax"; "sigmoid" and "relu" of each score; "signed", which is
            sign(score) softmax(|score|). Only softmax allows sinks.
        tokens: ids on the key axis, passed to predicates.
        segments: what each position stands for, passed to predicates as well where it is given.
        start: first prompt position of each row under left padding; by default the first key that
            is not padding. Predicates and key sets count positions from it.

    Raises:
        InvalidAttention: tensors do not fit, hold NaN or infinity, or scores exceed the dtype.
    """

    q: Float[Tensor, "batch head query_pos d_head"]
    k: Float[Tensor, "batch kv_head key_pos d_head"]
    v: Float[Tensor, "batch kv_head key_pos d_value"]
    causal: bool
    scale: float = None  # pyright: ignore[reportAssignmentType] - set below, as are offset and start
    window: int | None = None
    ranges: Int[Tensor, "#batch query_pos 2"] | None = None
    bias: (
        Float[Tensor, "#batch #head #query_pos #key_pos"]
        | Bool[Tensor, "#b #h #q #k"]
        | BiasRows
        | None
    ) = None
    relative_bias: Float[Tensor, "#head distance"] | None = None
    key_padding: Bool[Tensor, "batch key_pos"] | None = None
    query_padding: Bool[Tensor, "batch query_pos"] | None = None
    softcap: float | None = None
    sinks: Float[Tensor, " head"] | None = None
    offset: int = None  # pyright: ignore[reportAssignmentType]
    activation: Activation = "softmax"
    tokens: Int[Tensor, "batch key_pos"] | None = None
    segments: Segments | None = None
    start: tuple[int, ...] = None  # pyright: ignore[reportAssignmentType]

    def __post_init__(self) -> None:
        for name in _TENSORS:
            x = getattr(self, name)
            if name in ("q", "k", "v") or not (x is None or isinstance(x, BiasRows)):
                checks.check_dense(name, x)
        if not isinstance(self.causal, bool):
            raise InvalidAttention(f"causal is {self.causal!r}; give True or False")
        if self.segments is not None and not isinstance(self.segments, Segments):
            raise InvalidAttention(f"segments are a {type(self.segments).__name__}; give Segments")
        checks.check_tensors(self.q, self.k, self.v)
        batch, head, query, d = self.q.shape
        key = self.k.shape[2]

        def derive(field: str, value: object) -> None:
            object.__setattr__(self, field, value)

        if self.scale is None:
            derive("scale", d**-0.5)
        if self.offset is None:
            derive("offset", key - query)
        if self.activation not in get_args(Activation):
            known = ", ".join(get_args(Activation))
            raise InvalidAttention(f"activation {self.activation!r} is not known; known: {known}")
        checks.check_numbers(self.scale, self.offset, self.window, self.softcap)
        if self.bias is not None:
            derive("bias", checks.checked_bias(self.bias, (batch, head, query, key), self.q.device))
        checks.check_ranges(self.ranges, (batch, query, key), self.q.device)
        checks.check_relative(self.relative_bias, (head, query, key), self.q.device)
        checks.check_padding("key_padding", self.key_padding, (batch, key), self.q.device)
        checks.check_padding("query_padding", self.query_padding, (batch, query), self.q.device)
        checks.check_sinks(self.sinks, head, self.activation, self.q.device)
        if self.tokens is not None:
            checks.check_tokens(self.tokens, (batch, key), self.q.device)
        if self.segments is not None:
            self.segments.check(batch, query + self.offset, key, self.q.device)
        derive("start", checks.checked_starts(self.start, self.key_padding, batch, key))
        bound = checks.check_finite(self.q, self.k, self.v)
        if self.softcap is None:
            checks.check_score_range(self.q, self.k, self.scale, bound)

    @property
    def shape(self) -> AttentionShape:
        """Sizes of the call."""
        batch, head, query, d = self.q.shape
        kv_head, key, d_v = self.v.shape[1:]
        return AttentionShape(batch, head, kv_head, query, key, d, d_v, self.q.element_size())

    @property
    def work_dtype(self) -> torch.dtype:
        """Dtype of sums: float64 for float64 inputs, float32 for all others."""
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32

    @property
    def normalised(self) -> bool:
        """True if weights come from a softmax, so that a log-sum-exp exists."""
        return self.activation in ("softmax", "signed")

    def hidden_below(self) -> float:
        """Return the value at and below which a float bias hides its key."""
        assert self.bias is not None, "only a bias has a threshold"
        return max(HIDDEN_BELOW, torch.finfo(self.bias.dtype).min / 2)
