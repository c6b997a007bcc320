"""Hypothesis about one head: the keys that it names, or the pattern that its program returns.

A claim that a feature of a dictionary fires on some tokens has the same form: its tokens are those
from which an entry names a key.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.errors import InterpError, OptionError
from interp.profiles.entries import QUERY_KINDS, QueryKind
from interp.profiles.rules import KeyRule
from interp.profiles.sentence_reader import SentenceReader, foreign_sentence

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from interp.profiles.reading import Reading, TokenReader

SECONDS = 20.0  # that a user's function may take for one document
FEATURE = re.compile(r"(.+):F(\d+)", re.DOTALL)
"""Name of a feature: the folder of its dictionary, and its number."""
_PROBABILITY = 1e-4  # added to those of a program, whose zeros are no certainty


@dataclass(frozen=True)
class KeyClaim:
    """One entry of a hypothesis: keys that a head is said to attend to.

    Args:
        rule: the keys.
        queries: kind of query that it is limited to; "" if to none.
        share: claimed share of the attention off the sink; None if none is claimed.
    """

    rule: KeyRule
    queries: str = ""
    share: float | None = None

    @property
    def name(self) -> str:
        """Name of the entry in tables."""
        return f"{self.rule.name} from {self.queries}" if self.queries else self.rule.name


@dataclass(frozen=True)
class Hypothesis:
    """Hypothesis about one head: entries, of which the first that names a key counts, or a program.

    Args:
        head: the head, or the feature.
        asked: the hypothesis as it was given.
        entries: what it says of keys, in order; empty for a program.
        program: function of token ids that returns a pattern `[query, key]`.
        reader: the language model that reads it, if it is a sentence.
        at: kind of query to which it is limited, so that only these judge it; None if to none.
    """

    head: str
    asked: str
    entries: tuple[KeyClaim, ...] = ()
    program: Callable[[list[int]], Any] | None = None
    reader: SentenceReader | None = None
    at: QueryKind | None = None

    @property
    def sentence(self) -> str:
        """Text of a sentence, without the name of the head."""
        return self.asked.partition("=")[2]

    @property
    def feature(self) -> tuple[str, int] | None:
        """Folder of the dictionary and number of the feature that it is about, if it is."""
        match = FEATURE.fullmatch(self.head)
        return None if match is None else (match[1], int(match[2]))

    def foreign(self, seed: int) -> Hypothesis | None:
        """Return another sentence for the same reader, as a control; None if it is no sentence."""
        if self.reader is None:
            return None
        sentence = foreign_sentence(self.sentence, seed)
        return replace(self, asked=sentence, entries=(KeyClaim(self.reader.rule(sentence)),))

    def features(
        self, text: Reading, queries: Int[np.ndarray, " row"]
    ) -> Float[Tensor, "feature row pos"]:
        """Return what a row model of the hypothesis weighs: a mask per entry, or log pattern."""
        if self.program is not None:
            return self._of_program(text, queries)
        owner = self.owner(text, queries)
        return torch.stack([(owner == at + 1).float() for at in range(len(self.entries))])

    def owner(self, text: Reading, queries: Int[np.ndarray, " row"]) -> Int[Tensor, "row pos"]:
        """Return the number, from 1, of the entry that names each key first; 0 where none does."""
        owner = np.zeros((len(queries), len(text)), np.int64)
        for at, entry in reversed([*enumerate(self.entries)]):
            owner[self._named(entry, text, queries)] = at + 1
        return torch.from_numpy(owner)

    def tokens(self, text: Reading, causal: bool) -> Float[np.ndarray, "pos entry"]:
        """Return 1 at the tokens that each entry names first: those from which it names a key."""
        every, free, masks = np.arange(len(text)), np.ones(len(text), bool), []
        for entry in self.entries:
            named = self._named(entry, text, every)
            masks.append((np.tril(named) if causal else named).any(1) & free)
            free &= ~masks[-1]
        return np.stack(masks, 1).astype(float)

    def _named(
        self, entry: KeyClaim, text: Reading, queries: Int[np.ndarray, " row"]
    ) -> Bool[np.ndarray, "row pos"]:
        query, key = np.asarray(queries)[:, None], np.arange(len(text))[None]
        tokens = text.tokens.copy()
        tokens.setflags(write=False)  # a function of the user may not change the document
        own = replace(text, tokens=tokens)
        given = (
            entry.rule.mask(query, key, own)
            if self.reader is not None
            else _within_time(lambda: entry.rule.mask(query, key, own), self.asked)
        )
        try:
            mask = np.broadcast_to(np.asarray(given), (len(queries), len(text)))
        except ValueError as error:
            raise OptionError(
                f"{self.asked}: it returned an array of shape {np.shape(given)}; expected one value"
                f" per query and key, which broadcasts to {(len(queries), len(text))}"
            ) from error
        if mask.dtype != bool:
            raise OptionError(
                f"{self.asked}: it returned values of type {mask.dtype}; return True where the head"
                " is said to attend"
            )
        kinds = {kind.words: kind.mask for kind in QUERY_KINDS}
        return mask & kinds[entry.queries](text)[queries][:, None]

    def _of_program(
        self, text: Reading, queries: Int[np.ndarray, " row"]
    ) -> Float[Tensor, "1 row pos"]:
        program, n = self.program, len(text)
        assert program is not None
        given = _within_time(lambda: program(text.tokens.tolist()), self.asked)
        try:
            pattern = np.asarray(given, np.float64)
        except (TypeError, ValueError) as error:
            raise OptionError(f"{self.asked}: it returned no array of numbers") from error
        if pattern.shape != (n, n):
            raise OptionError(
                f"{self.asked}: it returned an array of shape {pattern.shape} for {n} tokens;"
                f" expected a pattern [query, key] of shape {(n, n)}"
            )
        if not np.isfinite(pattern).all() or pattern.min() < 0 or pattern.sum(1).max() > 1 + 1e-3:
            raise OptionError(
                f"{self.asked}: its pattern has rows that are no probabilities; return numbers from"
                " 0 on whose rows sum to 1 at most"
            )
        return torch.from_numpy(np.log(pattern[queries] + _PROBABILITY)).float()[None]


def kind_by(function: Callable[[Any], Any]) -> QueryKind:
    """Return the kind of query that a user's function of the token ids selects."""
    name = getattr(function, "__name__", "function")

    def mask(text: Reading) -> Any:
        found = np.asarray(_within_time(lambda: function(text.tokens.copy()), name))
        if found.dtype != bool or found.shape != (len(text),):
            raise OptionError(
                f"{name}: it returned an array of shape {found.shape} and type {found.dtype} for"
                f" {len(text)} tokens; expected True or False for each"
            )
        return found

    return QueryKind(name, mask, needs_text=False)


def _within_time(function: Callable[[], Any], asked: str) -> Any:
    """Return what a user's function returns; refuse one that raises or does not end."""
    outcome: list[Any] = []

    def call() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:  # reported below, in the caller's thread
            outcome.append((None, error))

    thread = Thread(target=call, daemon=True)
    thread.start()
    thread.join(SECONDS)
    if not outcome:
        raise OptionError(
            f"{asked}: it took more than {SECONDS:g} s for one document; give a function that ends"
        )
    value, error = outcome[0]
    if isinstance(error, InterpError):
        raise error
    if error is not None:
        message = " ".join(str(error).split())
        raise OptionError(f"{asked}: {type(error).__name__}: {message[:300]}") from error
    return value


def require_sense(
    hypothesis: Hypothesis,
    reader: TokenReader,
    ids: Sequence[int],
    other: Sequence[int],
    queries: Int[np.ndarray, " row"],
) -> None:
    """Refuse a function of the user that reads tokens after the query."""
    own = [e for e in hypothesis.entries if e.rule.code and not e.rule.positional]
    alone = replace(hypothesis, entries=tuple(own))
    if not own and hypothesis.program is None:
        return
    for query in queries[:: max(1, len(queries) // 8)].tolist():
        at = np.array([query])
        changed = [*ids[: query + 1], *np.resize(other, max(0, len(ids) - query - 1)).tolist()]
        one, two = (alone.features(reader.read(x), at)[..., : query + 1] for x in (ids, changed))
        if not torch.allclose(one, two):
            raise OptionError(
                f"{hypothesis.asked}: what it says of the query at position {query} changes with"
                " the tokens after it, which the model has not read there; use tokens up to the"
                " query"
            )
