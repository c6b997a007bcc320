"""Ordered lists of the heads of one attention: chosen on one part, counted on the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.statistics import RatioBootstrap
from interp.profiles.at_queries import QueryLines, chosen_lines, counted_lines
from interp.profiles.chosen_lists import LEAST_GAIN, LEAST_NATS, chosen_lists
from interp.profiles.entries import KeySet, WindowSets
from interp.profiles.explain import Description
from interp.profiles.first_look import Look, Sums, row_divergence, uniform_rows
from interp.profiles.judgement import cluster_sums
from interp.profiles.kept_rows import KeptRows
from interp.profiles.list_refit import nats_moved, refit_with_position, slope_of
from interp.profiles.log_linear import log_rows, logits_of_position, position_features
from interp.profiles.ordered_list import ENTRIES, Lists, Page
from interp.profiles.rows_read import AttentionRows
from interp.profiles.second_look import KEYS

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from interp.model.calls.sites import Site
    from interp.profiles.corpus import TextWindow

FITTED = 0
"""The part of the windows on which lists are chosen and fitted; the other one counts and judges."""
_WITHOUT = tuple(f"without {n + 1}" for n in range(ENTRIES))
MODELS = ("uniform", "position", "list", *_WITHOUT, "other_head", "swapped_document")
"""Row models that are judged: even, position, the list with and without each entry, controls."""
DRAWS = 1000
SMALL = 256  # tokens of the longest window up to which values of all pairs of places are held


@dataclass(frozen=True, eq=False)
class ListedSite(QueryLines):
    """Lists and lines of the heads of one attention, and what is counted on the windows that judge.

    Args:
        sets: number of the set of keys of every entry; see `Lists`.
        kinds: number of the kind of query of every entry.
        parameters: of the entries, in nats.
        favour: how many times what position gives a head attends to each token.
        observed: attention on each token.
        tokens: ids of these tokens.
        mass: attention off the sink on keys of no entry, then of every entry.
        by_position: the same of the row that position predicts.
        nats: KL from the rows of `MODELS`, times the attention off the sink.
        influence: by how many nats the judged windows would be worse described if a window of the
            fit counted once more.
        owner: number of the entry that holds each of the largest keys of every query, on all
            windows.
    """

    sets: Int[np.ndarray, "head entry"]
    kinds: Int[np.ndarray, "head entry"]
    parameters: Float[np.ndarray, "head entry"]
    favour: Float[np.ndarray, "head token"]
    observed: Float[np.ndarray, "head token"]
    tokens: Int[np.ndarray, " token"]
    mass: Float[np.ndarray, "judged head owner"]
    by_position: Float[np.ndarray, "judged head owner"]
    nats: Float[np.ndarray, "judged head model"]
    influence: Float[np.ndarray, "fitted head"]
    owner: list[Int[np.ndarray, "head row key"]]


class Listing:
    """Windows of a corpus with the sets of keys to choose from.

    Args:
        look: model, rules and reader.
        windows: all windows.
        sets: the sets of keys.
        kept: rows of the windows that were read.
    """

    def __init__(
        self,
        look: Look,
        windows: Sequence[TextWindow],
        sets: Sequence[KeySet],
        kept: KeptRows,
    ) -> None:
        self.look, self.windows, self.sets, self.kept = look, windows, sets, kept
        self._swapped: dict[int, WindowSets] = {}
        self.tokens = np.unique(np.concatenate([w.ids for w in windows if w.part == FITTED]))

    @cached_property
    def evaluated(self) -> list[WindowSets]:
        """The sets of keys on every window."""
        return [self._sets(window) for window in self.windows]

    def _sets(self, window: TextWindow, text: Sequence[int] | None = None) -> WindowSets:
        return WindowSets.of(self.look.reader, self.sets, window, text)

    def swapped(self, at: int, other: TextWindow) -> WindowSets:
        """Return the sets of keys on the tokens of another document, at the places of a window."""
        if at not in self._swapped:
            window = self.windows[at]
            text = np.resize(np.asarray(other.ids), len(window.ids)).tolist()
            self._swapped[at] = self._sets(window, text)
        return self._swapped[at]

    def read(self) -> None:
        """Read the rows of the windows that are not kept."""
        for window in self.windows:
            self._require(window)

    def _require(self, window: TextWindow) -> None:
        if not self.kept.has(window):
            self.look.rows(window, lambda at, rows: self.kept.add(window, at, rows))

    def rows(
        self,
        sums: Sequence[Sums],
        groups: Sequence[Sequence[int]],
        window: TextWindow,
        visit: Callable[[slice, AttentionRows], None],
    ) -> None:
        """Pass the kept rows of a window to `visit`, with what the first look summed of them."""
        self._require(window)
        at = next(at for at, one in enumerate(self.windows) if one is window)
        mine, i = next(
            (part, group.index(at)) for part, group in zip(sums, groups, strict=True) if at in group
        )
        for order, place in enumerate(self.look.places.values()):
            visit(
                place,
                AttentionRows(
                    self.kept.of(window, place),
                    mine.visible[i][order],
                    mine.weight[i][place],
                    mine.sink[i][place],
                ),
            )


class SitePages:
    """Pages of the windows for the heads of one attention.

    Args:
        listing: windows and sets of keys.
        visible: keys that each query of each window may see.
        site: the attention.
        description: the model of position.
    """

    def __init__(
        self,
        listing: Listing,
        visible: Sequence[Bool[Tensor, "row pos"]],
        site: Site,
        description: Description,
    ) -> None:
        self.listing, self.visible, self.place = listing, visible, listing.look.places[site]
        self.position = description.position[self.place]
        self.used = (self.position != 0).any(0)
        self.offset = description.offset[self.place]
        longest = max(len(window.ids) for window in listing.windows)
        self.longest = longest if longest <= SMALL else 0
        if self.longest:
            self._features = position_features(np.arange(longest), longest)[self.used]
        self.of_position = self.logits(self.position)

    def page(self, at: int, fold: int = 0) -> Page:
        """Return the page of one window."""
        window, sets = self.listing.windows[at], self.listing.evaluated[at]
        mass, visible = self.listing.kept.of(window, self.place), self.visible[at]
        return Page(
            mass,
            visible,
            mass.sum(-1),
            log_rows(self.of_position(at), visible),
            sets,
            self._types(sets),
            torch.zeros(mass.shape, dtype=torch.int8),
            fold,
        )

    def swapped(self, lists: Lists, at: int, page: Page, other: TextWindow) -> Page:
        """Return a page with the tokens of another document, and its pairs given to the entries."""
        sets = self.listing.swapped(at, other)
        swapped = page.apart(sets, self._types(sets))
        lists.own(swapped)
        return swapped

    def _types(self, sets: WindowSets) -> Int[Tensor, " pos"]:
        ids, known = np.asarray(sets.ids), self.listing.tokens
        at = np.searchsorted(known, ids).clip(0, len(known) - 1)
        return torch.from_numpy(np.where(known[at] == ids, at, -1))

    def logits(
        self, position: Float[Tensor, "head feature"]
    ) -> Callable[[int], Float[Tensor, "head row pos"]]:
        """Return what gives the logits of a model of positions on a window."""
        windows = self.listing.windows
        if not self.longest:
            return lambda at: logits_of_position(
                position, windows[at].queries, len(windows[at].ids)
            )
        every = logits_of_position(position, np.arange(self.longest), self.longest)
        return lambda at: self._on(every, windows[at])

    def features(self, at: int) -> Float[Tensor, "feature row pos"]:
        """Return the features of positions on one window that the model of position has."""
        window = self.listing.windows[at]
        if self.longest:
            return self._on(self._features, window)
        return position_features(window.queries, len(window.ids))[self.used]

    @staticmethod
    def _on(every: Float[Tensor, "part all all"], window: TextWindow) -> Tensor:
        """Return the values of all pairs of places on the queries and keys of a window."""
        rows = every.index_select(1, torch.as_tensor(window.queries))
        return rows[..., : len(window.ids)].contiguous()


def listed_site(
    pages: SitePages, others: Callable[[int], TextWindow], advance: Callable[[], Any]
) -> ListedSite:
    """Choose the lists of the heads of one attention, count their entries and judge them.

    Pages of the fit are in memory together, those that are judged one by one, twice.
    """
    listing = pages.listing
    listing.read()
    parts = [window.part for window in listing.windows]
    clusters = [window.cluster for window in listing.windows]
    fits = [at for at, part in enumerate(parts) if part == FITTED]
    rest = [at for at, part in enumerate(parts) if part != FITTED]
    order = sorted({clusters[at] for at in fits})
    fitted = {at: pages.page(at, 1 + order.index(clusters[at]) % 2) for at in fits}
    lists = _chosen(pages, fitted)
    lines = chosen_lines([*fitted.values()], listing.sets)
    advance()

    def judged() -> Iterator[tuple[int, Page, Page]]:
        for at in rest:
            page = pages.page(at)
            lists.own(page)
            yield at, page, pages.swapped(lists, at, page, others(at))

    chosen = [(_judged(lists, page, swapped), page.weight.sum(1)) for _, page, swapped in judged()]
    nats, weights = zip(*chosen, strict=True)
    lists.keep(held_entries(lists, np.stack(nats), [clusters[at] for at in rest], weights))
    for page in fitted.values():
        lists.own(page)
    refit = refit_with_position(
        lists,
        [*fitted.values()],
        lambda: map(pages.features, fitted),
        pages.position[:, pages.used],
    )
    owner = {at: _of_largest(page) for at, page in fitted.items()}
    fitted.clear()
    position = torch.zeros_like(pages.position)
    position[:, pages.used] = refit.position
    lists.parameters[:] = refit.entries
    logits = pages.logits(position)
    counted, slopes = [], []
    for at, page, swapped in judged():
        base = log_rows(logits(at), page.visible)
        counted.append(
            (
                counted_lines(page, *lines),
                page.sets.n_judged,
                page.seen.sum(1).numpy(),
                (page.guess * page.weight[..., None]).sum(1).numpy(),
                _judged(lists, page.on(base), swapped.on(base), page),
            )
        )
        slopes.append(slope_of(page, pages.features(at), refit.position, refit.entries)[0])
        owner[at] = _of_largest(page)
    advance()
    line_sums, n_queries, mass, by_position, judged_nats = map(np.stack, zip(*counted, strict=True))
    return ListedSite(
        lines[0].numpy(),
        lines[1].numpy(),
        line_sums,
        n_queries,
        lists.sets.numpy(),
        lists.kinds.numpy(),
        refit.entries.numpy(),
        lists.favour[0].numpy(),
        lists.observed.numpy(),
        listing.tokens,
        mass,
        by_position,
        judged_nats,
        nats_moved(refit, torch.stack(slopes).sum(0)),
        [owner[at] for at in range(len(parts))],
    )


def _chosen(pages: SitePages, fitted: Mapping[int, Page]) -> Lists:
    """Choose the lists on the windows of the fit."""
    even, distance, weight = (torch.zeros(len(pages.position)) for _ in range(3))
    offset = pages.logits(pages.offset)
    for at, page in fitted.items():
        even += _nats(page, uniform_rows(page.visible))
        distance += _nats(page, log_rows(offset(at), page.visible))
        weight += page.weight.sum(1)
    sets = pages.listing.sets
    return chosen_lists(
        [*fitted.values()],
        len(pages.listing.tokens),
        [at for at, one in enumerate(sets) if one.place],
        [at for at, one in enumerate(sets) if one.positional and not one.place],
        1 - distance / even.clamp_min(1e-9),
        even / weight.clamp_min(1e-9),
    )


def _judged(
    lists: Lists, page: Page, swapped: Page, position: Page | None = None
) -> Float[np.ndarray, "head model"]:
    """Return the nats of `MODELS` on one page.

    With the page of another model of position that one is judged, and so is the control of another
    head's list.
    """
    without = lists.parameters.repeat(ENTRIES, 1, 1)
    without[range(ENTRIES), :, range(ENTRIES)] = 0
    swapped.by_position = page.by_position
    by_position = (position or page).by_position.sum(1)
    other, with_others = lists.rolled(), by_position
    if position is not None:
        rolled = page.apart(page.sets, page.types)
        other.own(rolled)
        rolled.by_position = page.by_position
        with_others = rolled.nats(other.parameters)
    models = (
        _nats(page, uniform_rows(page.visible)),
        by_position,
        page.nats(lists.parameters),
        *(page.nats(parameters) for parameters in without),
        with_others,
        swapped.nats(lists.parameters),
    )
    return torch.stack(models, 1).numpy()


def held_entries(
    lists: Lists,
    nats: Float[np.ndarray, "judged head model"],
    clusters: Sequence[int],
    weights: Sequence[Float[Tensor, " head"]],
) -> Bool[Tensor, "head entry"]:
    """Return which entries help on the documents that did not choose them; places stay.

    A list that says no more than it does on the tokens of another document has places alone.
    """
    names, at = np.unique(clusters, return_inverse=True)
    sums = cluster_sums(nats.astype(np.float64), at, len(names))
    weight = cluster_sums(np.stack([x.numpy() for x in weights]).astype(np.float64), at, len(names))
    draws = RatioBootstrap(len(names), draws=DRAWS)
    held = lists.sets >= 0
    for head in range(len(held)):
        of = dict(zip(MODELS, sums[:, head].T, strict=True))
        even, total = of["uniform"], weight[:, head].sum()
        if total <= 0 or even.sum() <= 0:
            held[head] = False
            continue

        def helps(worse: str, of: dict = of, even: np.ndarray = even, total: float = total) -> bool:
            gain = of[worse] - of["list"]
            if gain.sum() < max(LEAST_GAIN * even.sum(), LEAST_NATS * total):
                return False
            return draws.interval(gain, even)[0] > 0

        places = int(lists.n_places[head])
        beyond = helps("swapped_document")
        for entry in range(places, ENTRIES):
            held[head, entry] &= beyond and helps(_WITHOUT[entry])
    return held


def _of_largest(page: Page) -> Int[np.ndarray, "head row key"]:
    """Return the number of the entry that holds each of the largest keys of every query."""
    keys = page.mass.topk(min(KEYS, page.mass.shape[2]), dim=-1).indices
    return page.owner.gather(2, keys).numpy()


def _nats(page: Page, log_model: Float[Tensor, "*head row pos"]) -> Float[Tensor, " head"]:
    """Return the KL divergence from a row model, over all rows of a page."""
    rows = AttentionRows(page.mass, page.visible, page.weight, page.weight)
    return row_divergence(rows, log_model).sum(1)


def visible_of(
    sums: Sequence[Any], groups: Sequence[Sequence[int]], order: int
) -> list[Bool[Tensor, "row pos"]]:
    """Return the keys that each query of each window may see at one attention."""
    by_window: Mapping[int, Tensor] = {
        at: part.visible[i][order]
        for part, group in zip(sums, groups, strict=True)
        for i, at in enumerate(group)
    }
    return [by_window[at] for at in sorted(by_window)]
