"""Ordered lists of sets of keys, of which the first match counts, and the pages they are for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from interp.profiles.entries import WindowSets

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

ENTRIES = 5
GROUPS = ((3.0, 1e9), (1.6, 1e9), (0.0, 0.3), (0.0, 0.6))
"""Groups of tokens by how many times what position gives a head attends to them."""


@dataclass(eq=False)
class Page:
    """Rows of the heads of one attention on one document, with the sets of keys to choose from.

    Args:
        mass: attention off the sink; rows sum to `weight`.
        visible: keys that a query may see, without the sink.
        weight: attention of every query off the sink.
        base: log probabilities of the model of position.
        sets: the sets of keys, and the kinds of queries, the first of which holds all.
        types: number of the token of every position; -1 for one that the fit has not seen.
        owner: number of the entry, from 1, that holds each pair; 0 where none does.
        fold: which of the estimates of favoured tokens it uses; see `Lists`.
        seen: attention of every query on the keys of no entry, then of every entry.
        guess: what the model of position puts there, of 1.
    """

    mass: Float[Tensor, "head row pos"]
    visible: Bool[Tensor, "row pos"]
    weight: Float[Tensor, "head row"]
    base: Float[Tensor, "head row pos"]
    sets: WindowSets
    types: Int[Tensor, " pos"]
    owner: Int[Tensor, "head row pos"]
    fold: int = 0
    seen: Float[Tensor, "head row owner"] = field(init=False)
    guess: Float[Tensor, "head row owner"] = field(init=False)

    def __post_init__(self) -> None:
        self.seen, self.guess = torch.zeros(2, *self.weight.shape, ENTRIES + 1)

    @cached_property
    def by_position(self) -> Float[Tensor, "head row"]:
        """KL divergence of every row from the model of position, in nats, times its weight."""
        negentropy = torch.special.xlogy(self.mass, self.mass).sum(-1)
        negentropy -= torch.special.xlogy(self.weight, self.weight)
        return negentropy - (self.mass * self.base.clamp_min(-50)).sum(-1)

    def on(self, base: Float[Tensor, "head row pos"]) -> Page:
        """Return the page with another model of position."""
        page = replace(self, base=base)
        page.seen, page.guess = self.seen, on_entries(base.exp(), self.owner)
        return page

    def apart(self, sets: WindowSets, types: Int[Tensor, " pos"]) -> Page:
        """Return the page with other sets and tokens, whose pairs are given to no entry yet."""
        return replace(self, sets=sets, types=types, owner=torch.zeros_like(self.owner))

    def nats(self, parameters: Float[Tensor, "head entry"]) -> Float[Tensor, " head"]:
        """Return the divergence from the model of position and entries, over all rows."""
        values = torch.nn.functional.pad(parameters, (1, 0))[:, None]
        left = torch.log((self.guess * values.exp()).sum(-1).clamp_min(1e-30))
        return (self.by_position - (self.seen * values).sum(-1) + self.weight * left).sum(1)


@dataclass(frozen=True, eq=False)
class Lists:
    """Ordered lists of some heads.

    Args:
        sets: number of the set of every entry; those after the fixed sets are the `GROUPS`, and -1
            is no entry.
        kinds: number of the kind of query of every entry.
        parameters: of every entry, in nats.
        favour: how many times what position gives a head attends to each token, on keys of no
            place of its list: of all pages of the fit, then of each half of them, by which the
            other half is read, so that no page tells its own favourites.
        observed: attention on each token there, on all pages of the fit.
        n_places: entries that are places, of all queries; they come first.
    """

    sets: Int[Tensor, "head entry"]
    kinds: Int[Tensor, "head entry"]
    parameters: Float[Tensor, "head entry"]
    favour: Float[Tensor, "3 head token"]
    observed: Float[Tensor, "head token"]
    n_places: Int[Tensor, " head"]

    @property
    def length(self) -> Int[Tensor, " head"]:
        """Number of entries of each list."""
        return (self.sets >= 0).sum(1)

    def rolled(self) -> Lists:
        """Return the lists, each given to the next head."""
        return Lists(
            self.sets.roll(1, 0),
            self.kinds.roll(1, 0),
            self.parameters.roll(1, 0),
            self.favour.roll(1, 1),
            self.observed.roll(1, 0),
            self.n_places.roll(1, 0),
        )

    def insert(self, head: int, at: int, which: int, kind: int) -> None:
        """Put an entry into a list, before the entries from a place on."""
        for values, new in ((self.sets, which), (self.kinds, kind)):
            values[head, at + 1 :] = values[head, at:-1].clone()
            values[head, at] = new
        self.parameters[head, at + 1 :] = self.parameters[head, at:-1].clone()

    def own(self, page: Page, some: Bool[Tensor, " head"] | None = None) -> None:
        """Give every pair of some heads to the first entry that names it."""
        moved = torch.ones(len(self.sets), dtype=torch.bool) if some is None else some
        if not moved.any():
            return
        heads, sets, fixed = moved.nonzero().flatten(), self.sets[moved], page.sets.n_sets
        used = torch.unique(sets[(sets >= 0) & (sets < fixed)])
        masks = torch.nn.functional.pad(page.sets.masks(used.tolist()), (0, 0, 0, 0, 0, 1))
        at = torch.searchsorted(used, sets).masked_fill((sets < 0) | (sets >= fixed), len(used))
        held = masks[at]
        of_group, entry = (sets >= fixed).nonzero(as_tuple=True)
        ratio = of_tokens(self.favour[page.fold, heads[of_group]], page.types)
        low, high = torch.tensor(GROUPS).T[:, sets[of_group, entry] - fixed, None]
        held[of_group, entry] = ((ratio >= low) & (ratio < high))[:, None]
        held &= page.sets.kinds[self.kinds[moved]][..., None]
        # the first of the entries that hold a pair has the largest number from the end
        from_end = torch.arange(ENTRIES, 0, -1, dtype=torch.int8)[:, None, None]
        last = (held.to(torch.int8) * from_end).amax(1).mul_(page.visible)
        owner = (ENTRIES + 1 - last).mul_(last > 0)
        page.owner[moved] = owner
        page.seen[moved] = on_entries(page.mass[moved], owner)
        page.guess[moved] = on_entries(page.base[moved].exp(), owner)

    def rows(self, page: Page, some: Bool[Tensor, " head"]) -> Float[Tensor, "head row pos"]:
        """Return the probabilities of the row model of the lists of some heads."""
        raised = parameters_at(self.parameters[some], page.owner[some]).add_(page.base[some]).exp_()
        return raised.div_(raised.sum(-1, keepdim=True).clamp_min(1e-30))

    def keep(self, held: Bool[Tensor, "head entry"]) -> None:
        """Keep some entries of every list, in their order."""
        order = torch.argsort((~held).int(), dim=1, stable=True)
        gone = ~held.gather(1, order)
        for values, none in ((self.sets, -1), (self.kinds, 0), (self.parameters, 0)):
            values[:] = values.gather(1, order).masked_fill(gone, none)


def parameters_at(
    parameters: Float[Tensor, "head entry"], owner: Int[Tensor, "head row pos"]
) -> Float[Tensor, "head row pos"]:
    """Return the parameter of the entry that holds each pair."""
    with_none = torch.nn.functional.pad(parameters, (1, 0))
    return with_none.gather(1, owner.flatten(1).long()).view(owner.shape)


def on_entries(
    pairs: Float[Tensor, "head row pos"], owner: Int[Tensor, "head row pos"]
) -> Float[Tensor, "head row owner"]:
    """Sum a number over the keys of no entry, then of every entry."""
    sums = torch.zeros(*pairs.shape[:2], ENTRIES + 1)
    return sums.scatter_add_(2, owner.long(), pairs)


def of_tokens(
    favour: Float[Tensor, "head token"], types: Int[Tensor, " pos"]
) -> Float[Tensor, "head pos"]:
    """Return the favour of the token of every position; NaN for one that the fit has not seen."""
    return torch.where(types >= 0, favour[:, types.clamp_min(0)], torch.nan)


def in_groups(
    favour: Float[Tensor, "head token"], types: Int[Tensor, " pos"]
) -> Bool[Tensor, "group head pos"]:
    """Return the positions whose tokens are in each of the `GROUPS`."""
    ratio = of_tokens(favour, types)
    return torch.stack([(ratio >= low) & (ratio < high) for low, high in GROUPS])
