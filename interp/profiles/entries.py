"""Sets of keys and kinds of queries that the entries of a head's list are chosen from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.profiles.reading import Reading, TokenReader
from interp.profiles.rules import KeyRule, closing_quotes, masks_of, names_in

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor

    from interp.profiles.corpus import TextWindow


@dataclass(frozen=True)
class KeySet:
    """A set of keys of every query."""

    rule: KeyRule
    place: bool = False

    @property
    def phrase(self) -> str:
        """The words after "goes"."""
        return self.rule.phrase

    @property
    def positional(self) -> bool:
        """True if it depends on positions alone."""
        return self.rule.positional


def _between(low: int, high: int) -> Callable[[Any, Any, Reading], Any]:
    return lambda query, key, text: (query - key >= low) & (query - key <= high)


PLACES = tuple(
    KeySet(KeyRule(name, phrase, _between(low, high), True, False, f"{low} to {high}"), place=True)
    for name, phrase, low, high in (
        ("itself", "to the token itself", 0, 0),
        ("previous", "to the previous token", 1, 1),
        ("back_2_4", "2 to 4 tokens back", 2, 4),
        ("next", "to the next token", -1, -1),
        ("ahead_2_4", "2 to 4 tokens ahead", -4, -2),
    )
)
"""Places, by distance."""
SECOND = KeySet(
    KeyRule("second", "to the second token of the text", lambda q, k, t: k == 1, True, False),
    place=True,
)
"""A place by its own position; the first token of a text is the sink."""
AHEAD = ("next", "ahead_2_4")


@dataclass(frozen=True)
class QueryKind:
    """A kind of query: its words, and which positions are of it."""

    words: str
    mask: Callable[[Reading], Any]
    needs_text: bool = True

    @property
    def limit(self) -> str:
        """Words after what is limited to the kind."""
        return self.words if self.words.startswith("before ") else f"from {self.words}"


def _kind(name: str) -> Callable[[Reading], Any]:
    return lambda text: text.kinds[name]


QUERY_KINDS = (
    QueryKind("", lambda text: np.ones(len(text), bool)),
    QueryKind("ends of sentences", _kind("stop")),
    QueryKind("delimiters", _kind("delimiter")),
    QueryKind("quotation marks", _kind("quote")),
    QueryKind("line ends", _kind("newline")),
    QueryKind("names", names_in),
    QueryKind("pronouns", _kind("pronoun")),
    QueryKind("possessives", _kind("possessive")),
    QueryKind("articles", _kind("article")),
    QueryKind("prepositions", _kind("preposition")),
    QueryKind("conjunctions", _kind("conjunction")),
    QueryKind("auxiliary verbs", _kind("auxiliary")),
    QueryKind("content words", _kind("content")),
)
"""Kinds of queries; the first holds all."""
CLOSING = QueryKind("closing quotation marks", closing_quotes)
"""A kind to which a claim may be limited; lists have no use for it, as their rules tell it."""


def judged_kinds() -> dict[str, QueryKind]:
    """Return the kinds of queries to which a claim may be limited, by their words.

    Before a kind are the tokens that predict it: the next token is of the kind.
    """
    known = [*QUERY_KINDS[1:], CLOSING]
    before = [QueryKind(f"before {kind.words}", _before(kind.mask)) for kind in known]
    return {kind.words: kind for kind in (*known, *before)}


def _before(mask: Callable[[Reading], Any]) -> Callable[[Reading], Any]:
    return lambda text: np.r_[mask(text)[1:], False]


def _next_copy(query: Any, key: Any, text: Reading) -> Any:
    return (np.r_[text.same[1:], -(10**9)][query] == text.same[key]) & (key <= query)


NEXT_COPY = KeyRule("next_copy", "to earlier copies of the token that follows", _next_copy)
"""Keys of lines at particular queries alone: a list describes queries before what follows."""


def query_kinds(has_text: bool) -> tuple[QueryKind, ...]:
    """Return the kinds of queries that the model's tokens allow."""
    return QUERY_KINDS if has_text else QUERY_KINDS[:1]


def key_sets(rules: Iterable[KeyRule], *, causal: bool) -> list[KeySet]:
    """Return the sets of keys to choose from: places, then rules."""
    places = [one for one in PLACES if not causal or one.rule.name not in AHEAD]
    return [*places, SECOND, *map(KeySet, rules)]


@dataclass(frozen=True, eq=False)
class WindowSets:
    """Sets and kinds of queries of one window, a bit each.

    Args:
        bits: of the sets of keys, and last of `NEXT_COPY`.
        kinds: of the kinds of queries.
        ids: the tokens.
        judged: of the kinds of `judged_kinds`; none where there is no text.
        n_judged: number of all positions of the window of each of these kinds.
    """

    bits: Int[np.ndarray, "set row byte"]
    kinds: Bool[Tensor, "kind row"]
    ids: tuple[int, ...]
    judged: Bool[Tensor, "judged row"]
    n_judged: Int[np.ndarray, " judged"]

    @classmethod
    def of(
        cls,
        reader: TokenReader,
        sets: Sequence[KeySet],
        window: TextWindow,
        text: Sequence[int] | None = None,
    ) -> WindowSets:
        """Evaluate the sets on a window, or on other tokens at its positions."""
        ids = window.ids if text is None else tuple(text)
        reading = reader.read(ids)
        rules = [*(one.rule for one in sets), NEXT_COPY]
        bits = np.packbits(masks_of(rules, reading, window.queries), axis=-1)
        kinds = np.stack([k.mask(reading)[window.queries] for k in query_kinds(reader.has_text)])
        known = judged_kinds().values() if reader.has_text else ()
        every = np.array([k.mask(reading) for k in known], bool).reshape(len(known), len(ids))
        judged = torch.from_numpy(every[:, window.queries])
        return cls(bits, torch.from_numpy(kinds), ids, judged, every[:, 2:].sum(1))

    @property
    def n_sets(self) -> int:
        """Number of sets of keys, without the last."""
        return len(self.bits) - 1

    def masks(self, some: Sequence[int] | None = None) -> Bool[Tensor, "set row pos"]:
        """Return some sets of keys of every query, or all but the last."""
        bits = self.bits[:-1] if some is None else self.bits[list(some)]
        unpacked = np.unpackbits(bits, axis=-1, count=len(self.ids))
        return torch.from_numpy(unpacked.view(bool))
