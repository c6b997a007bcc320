"""Reductions: statistics of an attention pattern that need not store it, one small class each.

P is the pattern [batch, head, query, key]: the weights, 0 where a key is hidden. |P| equals P
except for the "signed" activation; statistics of the *amount* of attention use |P|, products use P.

`needs` states the requirements of an implementation:
    "row"     the whole row of one query at a time; one value (or a few) per query
    "column"  the same, summed over queries
    "lse"     only each row's log-sum-exp: single weights are exp(score - lse), O(d) each

Positions in `Mass`, `Targets`, `KeySetMass` and `PairMass` are prompt positions: counted from
`Attention.start`. Everything else (`Rows`, `Tile`, `Diagonal`'s queries, keys returned by `Largest`
and `TopK`, labels) counts along the tensors' own axes. Unused so far: KeySetMass, ResultNorm.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple

from interp_kernels.reduction_checks import check_fields, check_labels, require

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from interp_kernels.predicate_runs import KeyRuns
    from interp_kernels.problem import AttentionShape

Needs = Literal["row", "column", "lse"]


class Chosen(NamedTuple):
    """Weights with their keys; key -1 where there is no weight above zero."""

    weight: Float[Tensor, "batch head query_pos *k"]
    key: Int[Tensor, "batch head query_pos *k"]


class ScoreMoments(NamedTuple):
    """Mean, population variance and maximum of the scores of a row's visible keys."""

    mean: Float[Tensor, "batch head query_pos"]
    variance: Float[Tensor, "batch head query_pos"]
    maximum: Float[Tensor, "batch head query_pos"]


class Reduction:
    """Statistic of an attention pattern; `name` is its key in the result."""

    needs: ClassVar[Needs] = "row"
    name: str

    def __post_init__(self) -> None:
        check_fields(self)

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return the shape of the result (of each tensor for `Chosen` and `ScoreMoments`)."""
        return (at.batch, at.head, at.query)

    def check(self, at: AttentionShape) -> None:
        """Raise if the reduction does not fit this attention call.

        Raises:
            InvalidReduction: states what does not fit and what would.
        """


@dataclass(frozen=True, eq=False, kw_only=True)
class Output(Reduction):
    """P @ v, the head's output before the output projection, in the dtype of v."""

    name: str = "output"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, query, d_v]."""
        return (at.batch, at.head, at.query, at.d_v)


@dataclass(frozen=True, eq=False, kw_only=True)
class LogSumExp(Reduction):
    """Logarithm of the sum of exp(score) over visible keys and the sink; -inf for an empty row."""

    name: str = "lse"


@dataclass(frozen=True, eq=False, kw_only=True)
class Entropy(Reduction):
    """Entropy -sum_key |P| ln |P| of the weights, in nats (a sink's share is left out)."""

    name: str = "entropy"


@dataclass(frozen=True, eq=False, kw_only=True)
class Largest(Reduction):
    """Weight of largest magnitude and its key; the first of equals; (0, -1) for an empty row."""

    name: str = "largest"


@dataclass(frozen=True, eq=False)
class Mass(Reduction):
    """Mass sum_key |P| over the keys where `predicate(query, key, tokens=...)` holds.

    A call with segments gives it `segments=...` too. `runs` are the keys where it holds, if known:
    a column of these runs. They may replace the predicate, and belong to calls with the same sizes,
    tokens, segments, offset and starts.
    """

    name: str
    predicate: Callable[..., Tensor]
    runs: KeyRuns | None = None
    column: int = 0


@dataclass(frozen=True, eq=False)
class Targets(Reduction):
    """Number of visible keys where the predicate holds, per row; 0 marks a row without a target."""

    needs: ClassVar[Needs] = "lse"
    name: str
    predicate: Callable[..., Tensor]


@dataclass(frozen=True, eq=False)
class PairMass(Reduction):
    """Mass sum_key |P| over listed pairs (batch, query position, key position)."""

    needs: ClassVar[Needs] = "lse"
    name: str
    pairs: Int[Tensor, "pair 3"]

    def check(self, at: AttentionShape) -> None:
        """Check that pairs are integers in three columns."""
        require(
            self.pairs.ndim == 2
            and self.pairs.shape[1] == 3
            and not self.pairs.is_floating_point(),
            f"{self.name}: pairs are {self.pairs.dtype} {list(self.pairs.shape)}; expected whole "
            "numbers [pair, 3]: batch, query position, key position",
        )


@dataclass(frozen=True, eq=False)
class KeySetMass(Reduction):
    """Mass sum_key |P| over a fixed set of prompt positions, such as the first four."""

    needs: ClassVar[Needs] = "lse"
    name: str
    keys: tuple[int, ...]

    def check(self, at: AttentionShape) -> None:
        """Check that positions lie on the key axis."""
        require(
            all(isinstance(key, int) and key >= 0 for key in self.keys),
            f"{self.name}: keys are {self.keys}; expected prompt positions from 0",
        )


@dataclass(frozen=True, eq=False)
class SegmentMass(Reduction):
    """Mass sum_key |P| over each of n segments, a segment being the keys with its label."""

    labels: Int[Tensor, "#batch key_pos"]
    n: int
    name: str = "segment_mass"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, query, n]."""
        return (at.batch, at.head, at.query, self.n)

    def check(self, at: AttentionShape) -> None:
        """Check that there is one label per key."""
        check_labels(self.name, self.labels, at.key, at.batch, "key")


@dataclass(frozen=True, eq=False)
class SegmentToSegment(Reduction):
    """Sum of |P| over the queries of one segment and the keys of another, for every pair."""

    needs: ClassVar[Needs] = "column"
    query_labels: Int[Tensor, "#batch query_pos"]
    key_labels: Int[Tensor, "#batch key_pos"]
    n_query: int
    n_key: int
    name: str = "segment_to_segment"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, n_query, n_key]."""
        return (at.batch, at.head, self.n_query, self.n_key)

    def check(self, at: AttentionShape) -> None:
        """Check that there is one label per query and one per key."""
        check_labels(self.name, self.query_labels, at.query, at.batch, "query")
        check_labels(self.name, self.key_labels, at.key, at.batch, "key")


@dataclass(frozen=True, eq=False, kw_only=True)
class Distance(Reduction):
    """Distance sum_key |P| |query - key|: the mean distance in tokens if the row sums to 1."""

    name: str = "distance"


@dataclass(frozen=True, eq=False)
class TopK(Reduction):
    """The k weights of largest magnitude and their keys, largest first; ties in any order."""

    k: int
    name: str = "top_k"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, query, k]; slots beyond the visible keys hold (0, -1)."""
        return (at.batch, at.head, at.query, self.k)

    def check(self, at: AttentionShape) -> None:
        """Check that k is at least one."""
        require(self.k >= 1, f"{self.name}: k is {self.k}; expected at least 1")


@dataclass(frozen=True, eq=False, kw_only=True)
class Received(Reduction):
    """Received attention sum_query |P|: the attention of all queries to each key."""

    needs: ClassVar[Needs] = "column"
    name: str = "received"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, key]."""
        return (at.batch, at.head, at.key)


@dataclass(frozen=True, eq=False, kw_only=True)
class ReceivedValueWeighted(Reduction):
    """Received attention sum_query |P| times the norm of the key's value vector."""

    needs: ClassVar[Needs] = "column"
    name: str = "received_value_weighted"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, key]."""
        return (at.batch, at.head, at.key)


@dataclass(frozen=True, eq=False)
class ResultNorm(Reduction):
    """Norm of the head's output P @ v, or of its projection (P @ v) @ W_O[head]."""

    w_o: Float[Tensor, "head d_value d_model"] | None = None
    name: str = "result_norm"

    def check(self, at: AttentionShape) -> None:
        """Check that there is one output matrix per query head."""
        w_o = self.w_o
        require(
            w_o is None or (w_o.ndim == 3 and tuple(w_o.shape[:2]) == (at.head, at.d_v)),
            f"{self.name}: w_o is {None if w_o is None else list(w_o.shape)}; expected "
            f"[{at.head}, {at.d_v}, d_model]",
        )


@dataclass(frozen=True, eq=False)
class PooledMap(Reduction):
    """Sum of |P| over each block x block square of the pattern, squares counted from (0, 0)."""

    needs: ClassVar[Needs] = "column"
    block: int
    name: str = "pooled_map"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, query blocks, key blocks]; the last ones may be partial."""
        return (at.batch, at.head, -(-at.query // self.block), -(-at.key // self.block))

    def check(self, at: AttentionShape) -> None:
        """Check that a block holds at least one token."""
        require(self.block >= 1, f"{self.name}: block is {self.block}; expected at least 1")


@dataclass(frozen=True, eq=False)
class Rows(Reduction):
    """Pattern P at chosen queries and every key."""

    needs: ClassVar[Needs] = "lse"
    rows: tuple[int, ...]
    name: str = "rows"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, row, key]."""
        return (at.batch, at.head, len(self.rows), at.key)

    def check(self, at: AttentionShape) -> None:
        """Check that rows lie on the query axis."""
        require(
            all(0 <= row < at.query for row in self.rows),
            f"{self.name}: rows {self.rows} do not all lie in 0..{at.query - 1}",
        )


@dataclass(frozen=True, eq=False)
class Tile(Reduction):
    """Pattern P at chosen queries and chosen keys."""

    needs: ClassVar[Needs] = "lse"
    rows: tuple[int, ...]
    keys: tuple[int, ...]
    name: str = "tile"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, row, chosen key]."""
        return (at.batch, at.head, len(self.rows), len(self.keys))

    def check(self, at: AttentionShape) -> None:
        """Check that rows lie on the query axis and keys on the key axis."""
        require(
            all(0 <= row < at.query for row in self.rows)
            and all(0 <= key < at.key for key in self.keys),
            f"{self.name}: rows {self.rows} or keys {self.keys} exceed {at.query} x {at.key}",
        )


@dataclass(frozen=True, eq=False)
class Diagonal(Reduction):
    """Pattern P at key = query position - offset, per offset; 0 where that key does not exist."""

    needs: ClassVar[Needs] = "lse"
    offsets: tuple[int, ...]
    name: str = "diagonal"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, query, offset]."""
        return (at.batch, at.head, at.query, len(self.offsets))


@dataclass(frozen=True, eq=False)
class LeftProduct(Reduction):
    """Product vectors @ P: weighted sums over queries (rollout towards the input)."""

    needs: ClassVar[Needs] = "column"
    vectors: Float[Tensor, "#batch #head n query_pos"]
    name: str = "left_product"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, n, key]."""
        return (at.batch, at.head, self.vectors.shape[-2], at.key)

    def check(self, at: AttentionShape) -> None:
        """Check that vectors run along the query axis."""
        sizes = tuple(self.vectors.shape)
        require(
            len(sizes) == 4
            and sizes[0] in (1, at.batch)
            and sizes[1] in (1, at.head)
            and sizes[3] == at.query,
            f"{self.name}: vectors are {list(sizes)}; expected [{at.batch} or 1, {at.head} or 1, "
            f"n, {at.query}]",
        )


@dataclass(frozen=True, eq=False)
class RightProduct(Reduction):
    """Product P @ vectors: expectations of functions of the key (rollout away from the input)."""

    vectors: Float[Tensor, "#batch #head key_pos n"]
    name: str = "right_product"

    def output_shape(self, at: AttentionShape) -> tuple[int, ...]:
        """Return [batch, head, query, n]."""
        return (at.batch, at.head, at.query, self.vectors.shape[-1])

    def check(self, at: AttentionShape) -> None:
        """Check that vectors run along the key axis."""
        sizes = tuple(self.vectors.shape)
        require(
            len(sizes) == 4
            and sizes[0] in (1, at.batch)
            and sizes[1] in (1, at.head)
            and sizes[2] == at.key,
            f"{self.name}: vectors are {list(sizes)}; expected [{at.batch} or 1, {at.head} or 1, "
            f"{at.key}, n]",
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Moments(Reduction):
    """Mean, variance and maximum of the scores (scaled, capped, biased) over visible keys."""

    name: str = "moments"
