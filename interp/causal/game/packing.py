"""Grouping of coalitions that share a forward pass, by their first changed attention."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from interp.model.calls.sites import Site


@dataclass(frozen=True)
class Pack:
    """Coalitions that share a batch, and the first attention that any of them changes."""

    rows: tuple[int, ...]
    first: Site | None


def first_changes(gates: Mapping[Site, Tensor], order: Mapping[Site, int]) -> list[Site | None]:
    """Return the first attention with a gate other than 1 per coalition; None if there is none."""
    sites = sorted(gates, key=order.__getitem__)
    firsts: list[Site | None] = [None] * (len(gates[sites[0]]) if sites else 0)
    for site in reversed(sites):
        for row in (gates[site] != 1).any(1).nonzero().flatten().tolist():
            firsts[row] = site
    return firsts


def coalition_packs(firsts: list[Site | None], order: Mapping[Site, int], most: int) -> list[Pack]:
    """Group coalitions into packs of at most `most`, lowest changed attention first."""

    def place(site: Site | None) -> int:
        return len(order) if site is None else order[site]

    enough = max(1, most // 4)  # a batch this full is worth a separate pass
    packs: list[list[int]] = []
    for c in sorted(range(len(firsts)), key=lambda c: place(firsts[c])):
        last = packs[-1] if packs else []
        room = 0 < len(last) < most and firsts[c] is not None
        if room and (place(firsts[c]) == place(firsts[last[0]]) or len(last) < enough):
            last.append(c)
        else:
            packs.append([c])
    return [Pack(tuple(p), firsts[p[0]]) for p in packs]
