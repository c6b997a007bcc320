"""Entries of a head's list with their counted shares, and the grade of the printed list."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.statistics import RatioBootstrap, widened_quantiles
from interp.core.ties import ordered
from interp.profiles.at_queries import QueryLine, judged_lines
from interp.profiles.entries import KeySet, query_kinds
from interp.profiles.judgement import DRAWS, PROBABILITIES, Number, cluster_sums, ratio
from interp.profiles.listed_site import FITTED, MODELS, ListedSite
from interp.profiles.ordered_list import GROUPS
from interp.profiles.reading import CLASSES

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from interp.profiles.corpus import Sample
    from interp.profiles.reading import TokenReader

GRADES = {"described": 0.5, "in part": 0.25, "not described": -np.inf}
"""Grades of a list, by the share of the pattern that it explains on the documents that judge it."""
EVEN, SINK = "even", "on the sink"
"""Grades of a head without a pattern, and of one without attention off the sink."""
FLAT = 0.02  # nats per query by which the rows of an even head differ from even ones, at most
FEWEST_MIXED, RARE_MIXED = 10, 0.15  # documents, and share of them, that a kind needs
APART, DIVIDED = 0.4, 0.85  # of shares, and of their variance, by which two kinds are apart
_BYTES = re.compile(r"<[0-9A-F]{2}( [0-9A-F]{2})*>")  # token that is a part of a character
MEMBERS = 8  # of a group of tokens, that are shown
MOSTLY = 0.8  # share of a group's attention from which a class of tokens names it


@dataclass(frozen=True)
class ListEntry:
    """One entry of a head's list.

    Args:
        number: its place in the list, from 1.
        rule: name of its set of keys: a rule, a place, or "favoured" or "avoided" tokens.
        queries: kind of query that it is limited to; "" if to none.
        phrase: the words after "goes".
        place: it is a distance.
        avoided: the head attends to it less than position predicts.
        share: of the attention off the sink on keys of this entry and of none before it.
        position: the same of the row that position predicts.
        nats: its parameter.
        gain: share of the pattern that is lost without it; None of a place.
        members: tokens of a group, those with the most attention first.
        again: how many entries before it have the same rule and kind of query, such as two groups.
    """

    number: int
    rule: str
    queries: str
    phrase: str
    place: bool
    avoided: bool
    share: Number
    position: float
    nats: float
    gain: Number | None = None
    members: tuple[str, ...] = ()
    again: int = 0

    @property
    def name(self) -> str:
        """Name in tables, which no other entry of the list has."""
        name = f"{self.rule} from {self.queries}" if self.queries else self.rule
        return f"{name} ({self.again + 1})" if self.again else name

    def plain(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        gain = None if self.gain is None else self.gain.plain()
        share = self.share.plain()
        return {**vars(self), "name": self.name, "share": share, "gain": gain} | {
            "members": [*self.members]
        }


@dataclass(frozen=True)
class JudgedList:
    """The judged list of one head.

    Args:
        grade: one of `GRADES`.
        entries: those that hold on the documents that judge, in order.
        numbers: shares of the pattern that the list and its controls explain, by name.
        n: documents that judge.
        mixed: what it does in some documents and in the others; empty if it does not differ.
        lines: what it does at particular queries.
    """

    grade: str
    entries: tuple[ListEntry, ...]
    numbers: Mapping[str, Number] = field(default_factory=dict)
    n: int = 0
    mixed: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[QueryLine] = ()


class ListJudge:
    """Counts of one attention's lists, grouped by cluster of near-duplicates.

    Args:
        listed: lists and sums of every window.
        sample: the windows.
        sets: sets of keys.
        reader: reader of the model's tokens.
        token: text of a token.
        seed: seed of the bootstrap.
    """

    def __init__(
        self,
        listed: ListedSite,
        sample: Sample,
        sets: Sequence[KeySet],
        reader: TokenReader,
        token: Callable[[int], str],
        seed: int,
    ) -> None:
        self.listed, self.sets, self.kinds = listed, sets, query_kinds(reader.has_text)
        self.reader, self.token = reader, token
        judged, fitted = (
            [w.cluster for w in sample.windows if (w.part == FITTED) == which]
            for which in (False, True)
        )
        self.n, self.clusters, self.seed = len(set(judged)), judged, seed
        self.draws = RatioBootstrap(self.n, draws=DRAWS, seed=seed)
        self.fits = RatioBootstrap(len(set(fitted)), draws=DRAWS, seed=seed + 1)
        self.mass, self.guess, self.nats = (
            _by_cluster(x, judged) for x in (listed.mass, listed.by_position, listed.nats)
        )
        self.influence = _by_cluster(listed.influence, fitted)

    def of(self, head: int) -> JudgedList:
        """Return the entries of a head, and what they explain together."""
        weight = self.mass[:, head].sum(1)
        if weight.sum() <= 0:
            nothing = self._gain(head, "uniform", "uniform")
            return JudgedList(SINK, (), {"explained_list": nothing}, self.n)
        entries = _counted([self._entry(head, at) for at in range(self._size(head))])
        explained = self._explained(head)
        even = self._of(head, "uniform").sum() < FLAT * weight.sum() and not entries
        grade = EVEN if even else next(x for x, least in GRADES.items() if explained.value >= least)
        numbers = {
            "uncovered": ratio(self.draws, self.mass[:, head, 0], weight),
            "explained_list": explained,
            "list_beyond_position": self._gain(head, "position", "list"),
        }
        for name in MODELS[-2:]:
            numbers[f"control_list_{name}"] = self._gain(head, "uniform", name)
        order = sorted(entries, key=lambda one: one.avoided)
        lines = judged_lines(self.listed, self.sets, self.clusters, head, self.seed)
        return JudgedList(grade, tuple(order), numbers, self.n, self._mixed(head, entries), lines)

    def _mixed(self, head: int, entries: Sequence[ListEntry]) -> dict[str, Any]:
        """Return what a head does in two kinds of documents, if these are clearly apart.

        Documents are split at the place that divides their shares on one entry best. A normal
        distribution of shares would be divided by two thirds of its variance, an even one by three
        quarters.
        """
        weight = self.mass[:, head].sum(1)
        known = weight > 0
        shares = self.mass[known][:, head] / weight[known, None]
        found: dict[str, Any] = {}
        for one in entries:
            values = np.sort(shares[:, one.number])
            n, total = len(values), values.var() * len(values)
            if n < FEWEST_MIXED or total <= 0:
                continue
            first, second = np.cumsum(values)[:-1], np.cumsum(values**2)[:-1]
            size = np.arange(1, n)
            whole, squares = values.sum(), (values**2).sum()
            within = second - first**2 / size
            within += squares - second - (whole - first) ** 2 / (n - size)
            at = 1 + int(np.argmin(within))
            low, high = values[:at].mean(), values[at:].mean()
            rare = min(at, n - at) < RARE_MIXED * n
            if rare or high - low < APART or within.min() > (1 - DIVIDED) * total:
                continue
            inside = shares[:, one.number] >= values[at]
            sides = [
                shares[side].mean(0)[[x.number for x in entries]] for side in (inside, ~inside)
            ]
            leading = [entries[ordered(side)[0]].phrase for side in sides]
            found = {
                "documents": float(inside.mean()),
                "inside": [leading[0], float(sides[0].max())],
                "others": [leading[1], float(sides[1].max())],
            }
            break
        return found

    def _place(self, head: int, entry: int) -> bool:
        """Return True if an entry is a distance, of all queries."""
        at = self.listed.sets[head, entry]
        fixed = 0 <= at < len(self.sets)
        return bool(fixed and self.sets[at].place and self.listed.kinds[head, entry] == 0)

    def _of(self, head: int, model: str) -> Float[np.ndarray, " document"]:
        return self.nats[:, head, MODELS.index(model)]

    def _gain(self, head: int, over: str, model: str) -> Number:
        uniform = self._of(head, "uniform")
        return ratio(self.draws, self._of(head, over) - self._of(head, model), uniform)

    def _explained(self, head: int) -> Number:
        """Return the explained share; its interval is that of judging and of fitting."""
        uniform, left = self._of(head, "uniform"), self._of(head, "list")
        if uniform.sum() <= 0:
            return ratio(self.draws, uniform, uniform)
        # of n documents the spread of the draws lacks n / (n - 1)
        wide = np.sqrt(self.fits.n / max(self.fits.n - 1, 1))
        moved = wide * (self.fits.weights - 1) @ self.influence[:, head]
        under = self.draws.weights @ uniform
        drawn = 1 - (self.draws.weights @ left + moved) / np.where(under > 0, under, np.nan)
        # no rows are explained better than wholly
        ends = widened_quantiles(np.minimum(drawn, 1.0), PROBABILITIES, self.n)
        return Number(float(1 - left.sum() / uniform.sum()), ends)

    def _entry(self, head: int, at: int) -> ListEntry:
        mass, guess = self.mass[:, head, at + 1], self.guess[:, head, at + 1]
        weight = self.mass[:, head].sum(1)
        share = ratio(self.draws, mass, weight)
        expected = float(guess.sum() / weight.sum())
        which, kind = int(self.listed.sets[head, at]), self.kinds[self.listed.kinds[head, at]]
        place = self._place(head, at)
        avoided = not place and share.value < expected
        gain = self._gain(head, f"without {at + 1}", "list")
        if which < len(self.sets):
            rule, phrase, members = self.sets[which].rule.name, self.sets[which].phrase, ()
        else:
            members, words = self._group(head, at)
            rule = "avoided" if avoided else "favoured"
            phrase = f"to tokens that it {'avoids' if avoided else 'favours'} ({words})"
        if kind.words:
            phrase = f"from {kind.words} {phrase}"
        nats = float(self.listed.parameters[head, at])
        return ListEntry(
            at + 1, rule, kind.words, phrase, place, avoided, share, expected, nats, gain, members
        )

    def _group(self, head: int, at: int) -> tuple[tuple[str, ...], str]:
        """Return the first members of a group of tokens, and the words for it, class by class."""
        favour, seen = self.listed.favour[head], self.listed.observed[head]
        low, high = self._range(head, at)
        inside = np.flatnonzero((favour >= low) & (favour < high) & ~self._before(head, at))
        ids = self.listed.tokens[inside]
        expected = seen[inside] / favour[inside].clip(1e-9)
        first = ordered(np.abs(seen[inside] - expected))[:MEMBERS]
        size = np.maximum(seen[inside], expected)
        named = [self._class(int(i)) for i in ids]
        of_class: dict[str, list[str]] = {}
        for i in first:
            members = of_class.setdefault(named[i], [])
            if (word := _quoted(self.token(int(ids[i])))) not in members:  # with and without space
                members.append(word)
        parts, others = [], []
        for name, members in of_class.items():
            held = size[[one == name for one in named]].sum()
            mostly = "mostly " if held >= MOSTLY * size.sum() else ""
            if name and (mostly or len(members) > 1):
                parts.append(f"{mostly}{name}: {', '.join(members)}")
            else:
                others += members
        if others:
            parts.append(f"{'also ' if parts else ''}{', '.join(others)}")
        more = " and others" if len(inside) > len(first) else ""
        return tuple(self.token(int(ids[i])) for i in first), "; ".join(parts) + more

    def _class(self, token: int) -> str:
        """Return the first class of a token, in words; empty where it has none."""
        if _BYTES.fullmatch(self.token(token)):
            return "parts of characters"
        return next(iter(self.reader.classes(token)), "")

    def _range(self, head: int, at: int) -> tuple[float, float]:
        """Return between which favours the tokens of an entry lie; of a fixed set, none do."""
        group = int(self.listed.sets[head, at]) - len(self.sets)
        return GROUPS[group] if group >= 0 else (np.inf, np.inf)

    def _before(self, head: int, at: int) -> Bool[np.ndarray, " token"]:
        """Return the tokens whose keys all count for an earlier entry: a group, or a class."""
        favour, kinds = self.listed.favour[head], self.listed.kinds[head]
        held = np.zeros(len(favour), bool)
        for earlier in range(at):
            if kinds[earlier] not in (0, kinds[at]):
                continue
            low, high = self._range(head, earlier)
            held |= (favour >= low) & (favour < high)
            which = int(self.listed.sets[head, earlier])
            name = self.sets[which].phrase.removeprefix("to ") if which < len(self.sets) else ""
            if name in CLASSES.values():
                held |= [name in self.reader.classes(int(i)) for i in self.listed.tokens]
        return held

    def _size(self, head: int) -> int:
        return int((self.listed.sets[head] >= 0).sum())


def _quoted(token: str) -> str:
    """Return a word without the space before it, and a sign in quotation marks."""
    bare = token.strip(" ")
    return bare if any(one.isalnum() for one in bare) else repr(bare or token)


def _counted(entries: Sequence[ListEntry]) -> list[ListEntry]:
    """Return the entries, each knowing how many before it have the same name."""
    names = [one.name for one in entries]
    return [replace(one, again=names[:at].count(names[at])) for at, one in enumerate(entries)]


def _by_cluster(values: np.ndarray, clusters: Sequence[int]) -> np.ndarray:
    """Sum values of windows over their clusters."""
    names, at = np.unique(np.asarray(clusters), return_inverse=True)
    return cluster_sums(values.astype(np.float64), at, len(names))
