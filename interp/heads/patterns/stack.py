"""Patterns of the heads of one attention stack over one text, or over blocks, and their links."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt8

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.tokens import shown
from interp.heads.patterns.coding import checked

if TYPE_CHECKING:
    from interp_kernels.reductions import Chosen


@dataclass(frozen=True, eq=False, repr=False)
class Terms:
    """Terms of the scores of one head: cap(scale q k) + bias, and the visible keys.

    `q` and `k` are the vectors of the product, after rotary positions and norms.
    """

    q: Float[np.ndarray, "query_pos d_head"]
    k: Float[np.ndarray, "key_pos d_head"]
    scale: float
    softcap: float | None = None
    sink: float | None = None  # a logit in the softmax whose weight is dropped
    bias: Float[np.ndarray, "query_pos key_pos"] | None = None
    visible: Bool[np.ndarray, "query_pos key_pos"] | None = None  # None if all keys are visible

    def scores(self) -> Float[np.ndarray, "query_pos key_pos"]:
        """Return the logits of the softmax, -inf where a key is hidden."""
        s = self.scale * (self.q.astype(float) @ self.k.astype(float).T)
        if self.softcap is not None:
            s = self.softcap * np.tanh(s / self.softcap)
        if self.bias is not None:
            s = s + self.bias
        return s if self.visible is None else np.where(self.visible, s, -np.inf)

    def weights(self) -> Float[np.ndarray, "query_pos key_pos"]:
        """Return the softmax of the scores; rows with a sink sum to less than one."""
        s = self.scores()
        top = s.max(-1, keepdims=True)
        if self.sink is not None:
            top = np.maximum(top, self.sink)
        e = np.exp(s - top)
        total = e.sum(-1, keepdims=True)
        return e / (total if self.sink is None else total + np.exp(self.sink - top))


@dataclass(frozen=True, eq=False, repr=False)
class Picture:
    """Image whose patches are the tokens, row by row, after `skip` other tokens."""

    pixels: UInt8[np.ndarray, "height width 3"]
    grid: tuple[int, int]  # patches down, patches across
    skip: int

    @property
    def n_tokens(self) -> int:
        """The number of tokens of the image and before it."""
        return self.skip + self.grid[0] * self.grid[1]


@dataclass(frozen=True, eq=False, repr=False)
class Tile:
    """Exact part of one head's pattern: some queries and some keys of a long prompt."""

    head: Head
    queries: range
    keys: range
    weights: Float[np.ndarray, "query_pos key_pos"]
    query_tokens: tuple[str, ...]
    key_tokens: tuple[str, ...]
    why: str = "asked for"

    @property
    def name(self) -> str:
        """The tile in the notation of `--set tiles`."""
        q, k = self.queries, self.keys
        return f"{self.head}:{q.start}-{q.stop},{k.start}-{k.stop}"


@dataclass(frozen=True, eq=False, repr=False)
class ZoomTerms:
    """Terms of every weight of one head: exp(cap(scale q k) - lse) where the key is visible.

    Query i is at position `offset + i`, key j at position j; `peaks` are the largest weights of
    blocks of the prompt.
    """

    q: Float[np.ndarray, "query_pos d_head"]
    k: Float[np.ndarray, "key_pos d_head"]
    lse: Float[np.ndarray, " query_pos"]
    scale: float
    softcap: float | None
    causal: bool
    window: int | None
    offset: int
    peaks: Float[np.ndarray, "query_block key_block"]


@dataclass(frozen=True)
class Link:
    """One weight from a query to a key of a long prompt, by token positions."""

    query: int
    key: int
    weight: float
    query_token: str
    key_token: str


@dataclass(frozen=True, eq=False, repr=False)
class Stack:
    """Patterns of the heads of one stack, all over the same queries and keys.

    With `block` > 1 a row is a block of queries and a column a block of keys: a weight is the mean
    over the queries of their total weight on the keys.
    """

    name: str
    weights: Mapping[Head, Float[np.ndarray, "query_pos key_pos"]]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    second: tuple[int, int] | None = None  # the first query and the first key of a second text
    terms: Mapping[Head, Terms] = field(default_factory=dict)
    without_terms: str = "only patterns were given"  # the reason why heads have none
    picture: Picture | None = None
    block: int = 1
    n_queries: int = 0  # tokens behind the rows, which differ from `queries` in blocks
    n_keys: int = 0
    tiles: tuple[Tile, ...] = ()
    links: Mapping[Head, tuple[Link, ...]] = field(default_factory=dict)  # of a long prompt
    zooms: Mapping[Head, ZoomTerms] = field(default_factory=dict)  # of some heads of a long prompt

    def __post_init__(self) -> None:
        shape = len(self.queries), len(self.keys)
        if not self.weights:
            raise OptionError(f"{self.name}: there are no heads to show")
        if 0 in shape:
            raise OptionError(f"{self.name}: there are no tokens to show")
        held = {}
        for head, weights in self.weights.items():
            if np.shape(weights) != shape:
                raise OptionError(
                    f"{self.name} {head} is {list(np.shape(weights))} for {shape[0]} query and "
                    f"{shape[1]} key tokens; give one weight per pair, [query_pos, key_pos]"
                )
            held[Head(*head)] = checked(weights, f"the pattern of {self.name} {head}")
        object.__setattr__(self, "weights", held)
        for name, tokens in (("n_queries", self.queries), ("n_keys", self.keys)):
            if getattr(self, name) == 0:
                object.__setattr__(self, name, len(tokens))
        picture = self.picture
        if picture is not None and len(self.keys) != picture.n_tokens:
            raise OptionError(
                f"{self.name}: {picture.grid[0]} x {picture.grid[1]} patches after {picture.skip} "
                f"other tokens are {picture.n_tokens}; the patterns have {len(self.keys)} keys"
            )

    @property
    def layers(self) -> list[int]:
        """The layers of the heads."""
        return sorted({head.layer for head in self.weights})

    def head(self, head: object) -> Head:
        """Return one of the heads."""
        chosen = head if isinstance(head, Head) else Head.parse(head)
        if chosen not in self.weights:
            heads = list(self.weights)
            raise OptionError(f"{self.name} has no head {chosen}; it has {heads[0]} to {heads[-1]}")
        return chosen


def stack_summary(stack: Stack) -> list[dict[str, object]]:
    """Return one row per head with its entropy, mean weights and largest weight."""
    square = len(stack.queries) == len(stack.keys)
    n = len(stack.queries)
    rows = []
    for head, w in stack.weights.items():
        logs = np.log(w, out=np.zeros_like(w), where=w > 0)
        # the first query of a causal head has one key only, and so no information
        off = w.copy()
        off[:1] = 0 if n > 1 else off[:1]
        query, key = np.unravel_index(int(off.argmax()), off.shape)
        row: dict[str, object] = {
            "stack": stack.name,
            "layer": head.layer,
            "head": head.head,
            "entropy": float(-(w * logs).sum(1).mean()),
            "first": float(w[:, 0].mean()),
        }
        if square:
            row["itself"] = float(w.diagonal().mean())
            row["previous"] = float(w.diagonal(-1).mean()) if n > 1 else float("nan")
        row |= {
            "query": int(query),
            "query_token": stack.queries[query],
            "key": int(key),
            "key_token": stack.keys[key],
            "largest": float(w[query, key]),
        }
        rows.append(row)
    return rows


PER_QUERY = 4  # largest weights of every query among which a link is looked for
MOST = 8  # links per head


def strongest_links(
    chosen: Chosen, queries: Sequence[str], keys: Sequence[str], most: int = MOST
) -> list[tuple[Link, ...]]:
    """Return the strongest links of every head, at most one per query, the strongest first.

    The first key, and within one sequence the query itself and the tokens beside it, are excluded:
    they receive large weights in all models. A query whose largest weights are all on such keys has
    no link.
    """
    from interp.core.ties import ordered

    weight, key = (x[0].detach().float().cpu().numpy() for x in chosen)
    key = key.astype(int)
    query = np.arange(weight.shape[1])[None, :, None]
    far = (key > 0) & (weight > 0)
    if tuple(queries) == tuple(keys):
        far &= np.abs(query - key) > 1
    weight = np.where(far, weight, 0.0)
    best = weight.argmax(-1)[..., None]
    size, place = (np.take_along_axis(x, best, -1)[..., 0] for x in (weight, key))
    links = []
    for head in range(len(size)):
        order = ordered(size[head])[:most]
        links.append(
            tuple(
                Link(q, k, float(size[head, q]), queries[q], keys[k])
                for q, k in ((int(q), int(place[head, q])) for q in order)
                if size[head, q] > 0
            )
        )
    return links


class Largest(NamedTuple):
    """The largest weight of a head, if possible between tokens that are not neighbours."""

    weight: float
    far: bool
    stack: int
    head: Head
    query: str
    key: str


def opening_weight(stacks: Sequence[Stack], named: Sequence[Head] = ()) -> Largest:
    """Return the largest weight of the first named head, or of all heads.

    The first query, the first key and, within one sequence, the query itself and the tokens beside
    it are left out, since they receive large weights in all models; where nothing else is left,
    they count.
    """
    every = list(_candidates(stacks))
    first = [one for one in every if one.head in named[:1]]
    return max(first or every, key=lambda one: (one.far, one.weight))


def _candidates(stacks: Sequence[Stack]) -> Iterator[Largest]:
    for at, stack in enumerate(stacks):
        for head, weights in stack.weights.items():
            if links := stack.links.get(head):
                link = links[0]
                query = _token(link.query_token, link.query)
                key = _token(link.key_token, link.key)
                yield Largest(link.weight, True, at, head, query, key)
                continue
            far, row, column = _distant(stack, weights)
            sides = _named(stack, "query", row), _named(stack, "key", column)
            yield Largest(float(weights[row, column]), far, at, head, *sides)


def _distant(stack: Stack, weights: np.ndarray) -> tuple[bool, int, int]:
    """Return the query and key of the largest weight, and True if they are not neighbours."""
    rows, columns = np.arange(weights.shape[0])[:, None], np.arange(weights.shape[1])
    far = (rows > 0) & (columns > 0)
    if stack.queries == stack.keys:
        far = far & (np.abs(rows - columns) > 1)
    distant = bool((far & (weights > 0)).any())
    allowed = np.where(far, weights, -1.0) if distant else weights
    query, key = np.unravel_index(int(allowed.argmax()), weights.shape)
    return distant, int(query), int(key)


def _named(stack: Stack, side: str, at: int) -> str:
    """Return a row or column of a stack in words."""
    token = (stack.queries if side == "query" else stack.keys)[at]
    if stack.picture is not None:
        return f"patch {token}" if at >= stack.picture.skip else f"token {token}"
    if stack.block > 1:
        last = min((at + 1) * stack.block, stack.n_queries if side == "query" else stack.n_keys)
        return f"tokens {at * stack.block:,} to {last - 1:,}"
    return _token(token, at)


def _token(token: str, at: int) -> str:
    return f"“{shown(token).strip() or shown(token)}” (token {at:,})"
