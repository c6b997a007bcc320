"""Roles by which `interp score` would name a head and that no entry of its list says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.ties import reaches
from interp.heads.roles.declared import ROLES
from interp.heads.special import HALF

if TYPE_CHECKING:
    from interp.profiles.corpus import TextWindow
    from interp.profiles.first_look import Look
    from interp.profiles.judged_lists import ListEntry
    from interp.profiles.second_look import JudgedRows

ENTRIES_OF = {
    "induction": ("induction",),
    "previous_token": ("previous",),
    "duplicate_token": ("duplicate_token",),
    "current_token": ("itself",),
    "local_window": ("itself", "previous", "back_2_4"),
}
"""Entries that say what a score measures."""
_WIDE = ("current_token", "local_window")  # a tenth more than even attention is common: half is not


class ScoreNames:
    """Shares of all attention on the keys of detectors, as scores are, of every head.

    Args:
        look: model, rules and reader.
        windows: all windows.
        whole: mass on the keys of every rule.
    """

    def __init__(self, look: Look, windows: Sequence[TextWindow], whole: JudgedRows) -> None:
        self.rules = {r.name: (at, r) for at, r in enumerate(look.rules) if r.name in ENTRIES_OF}
        self.total = whole.total.sum(0, dtype=np.float64)
        self.by_position = whole.expected.sum(0, dtype=np.float64)
        self.causal = [site.causal for site in look.sites for _ in range(site.n_heads)]
        self.even = {x: self._even(look, windows, x) for x in sorted(set(self.causal))}

    def _even(
        self, look: Look, windows: Sequence[TextWindow], causal: bool
    ) -> dict[str, tuple[float, int]]:
        """Return the share of even attention on the keys of each rule, and the queries with any."""
        even, n_queries = np.zeros(len(self.rules)), np.zeros(len(self.rules), int)
        for window in windows:
            rows = np.asarray(window.queries)
            seen = np.ones((len(rows), len(window.ids)), bool)
            if causal:
                seen &= np.arange(len(window.ids)) <= rows[:, None]
            masks = look.masks(window)[[at for at, _ in self.rules.values()]].numpy() & seen
            even += (masks.sum(2) / seen.sum(1)).sum(1)
            n_queries += masks.any(2).sum(1)
        n_queries = n_queries.clip(1)
        return dict(zip(self.rules, zip(even / n_queries, n_queries, strict=True), strict=True))

    def of(self, head: int, entries: Sequence[ListEntry]) -> dict[str, Any]:
        """Return the first role of a head that its list does not say; empty if there is none."""
        said = {one.rule for one in entries if not one.avoided}
        passed = {}
        for role in ROLES:
            for need in role.needs:
                if need.metric not in self.rules or not need.decides:
                    continue
                score, null = self._score(head, need.metric)
                least = HALF * (1 - null) if need.metric in _WIDE else need.least
                if reaches(score - null, least):
                    passed.setdefault(role, (need.metric, score, null))
        names = {role.id for role in passed}
        for role, (metric, score, null) in passed.items():
            if not names & set(role.yields_to) and not said & set(ENTRIES_OF[metric]):
                phrase = self.rules[metric][1].phrase
                scored = {"phrase": phrase, "share": score, "null": null}
                return {"role": role.id, "noun": role.noun, **scored}
        return {}

    def _score(self, head: int, metric: str) -> tuple[float, float]:
        """Return the share of all attention, and what is expected: evenly, or also by position."""
        at, rule = self.rules[metric]
        even, n_queries = self.even[self.causal[head]][metric]
        by_position = 0.0 if rule.positional else float(self.by_position[head, at] / n_queries)
        return float(self.total[head, at] / n_queries), max(float(even), by_position)
