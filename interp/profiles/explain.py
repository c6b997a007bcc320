"""Fit of every rung of the ladder on one part of the documents, from the sums of the first look."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.profiles.first_look import ALL, Look, Sums, for_tokens, summed, visible_groups
from interp.profiles.log_linear import (
    N_OFFSETS,
    Features,
    Sheet,
    fit_row_models,
    logits_of_position,
    position_features,
    sparse,
)
from interp.profiles.steps import StoredArrays
from interp.profiles.token_model import TokenGroup, TokenPage, fit_tokens

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from interp.profiles.corpus import TextWindow

LEAST_SHARE = 0.001  # of the KL from the uniform row, that a rule must explain to be kept
LEAST_NATS = 0.0005  # per unit of attention off the sink, that it must explain besides
EVERYWHERE = 0.98  # share of the visible keys from which a rule says nothing
NOWHERE = 1e-5
_EVERY = 4  # documents per document whose curvature is summed
_TABLE = 2**25  # entries of the logits of position that are held for all pairs
_CHUNK = 32  # queries of a sheet of positions


@dataclass(frozen=True, eq=False)
class Description(StoredArrays):
    """Row models of every head, fitted on one part of the documents.

    Args:
        offset: parameters of the bins of distance alone.
        position: parameters of all features of positions.
        rules: parameters of the rules, on top of position; 0 for one that a head does not need.
        tokens: the bilinear function of the two tokens, on top of the rules.
    """

    offset: Float[Tensor, "head feature"]
    position: Float[Tensor, "head feature"]
    rules: Float[Tensor, "head rule"]
    tokens: Float[Tensor, "head query key"]


def describe(
    look: Look,
    windows: Sequence[TextWindow],
    groups: Sequence[Sequence[int]],
    sums: Sequence[Sums],
    live: Bool[Tensor, " rule"],
    advance: Callable[[], Any],
) -> Description:
    """Fit all rungs on the windows of some groups."""
    total = summed(sums)
    n_features = total["position"].shape[1]
    description = Description(
        torch.zeros(look.n_heads, n_features),
        torch.zeros(look.n_heads, n_features),
        torch.zeros(look.n_heads, len(look.rules)),
        torch.zeros(total["tokens"].shape),
    )
    for sites, heads in visible_groups(look, sums):
        part = _Part(look, windows, groups, sums, sites, heads, live)
        weight = part.weight
        observed = total["position"][heads]
        for name in ("offset", "position"):
            part.features = observed.sum(0) > 0
            if name == "offset":
                part.features[N_OFFSETS:] = False
            fit = fit_row_models(part.position_sheets, observed[:, part.features], weight)
            getattr(description, name)[heads[:, None], part.features.nonzero().T] = fit.parameters
            advance()
        part.position = description.position[heads]
        observed = total["rules"][heads][:, live]
        if live.any():
            apart = (total["uniform"][heads] / weight.clamp_min(1e-9)).clamp_min(0)
            weight = part.rule_weight
            fit = fit_row_models(part.rule_sheets, observed, weight, every=_EVERY)
            used = sparse(fit, (LEAST_SHARE * apart).clamp_min(LEAST_NATS))
            fit = fit_row_models(
                part.rule_sheets, observed, weight, start=fit, used=used, passes=3, every=_EVERY
            )
            part.rules = fit.parameters
            description.rules[heads.unsqueeze(1), live.nonzero().T] = fit.parameters
        advance()
        description.tokens[heads] = fit_tokens(part.token_groups())
        advance()
    return description


class _Part:
    """Sheets of one part, for heads that see the same keys."""

    def __init__(
        self,
        look: Look,
        windows: Sequence[TextWindow],
        groups: Sequence[Sequence[int]],
        sums: Sequence[Sums],
        sites: Sequence[int],
        heads: Int[Tensor, " head"],
        live: Bool[Tensor, " rule"],
    ) -> None:
        self.look, self.groups, self.sums, self.heads, self.live = look, groups, sums, heads, live
        self.places = [
            [
                (windows[at], mine.weight[i][heads], mine.visible[i][sites[0]])
                for i, at in enumerate(group)
            ]
            for group, mine in zip(groups, sums, strict=True)
        ]
        each = [weight.sum(1) for _, weight, _ in chain.from_iterable(self.places)]
        self.weight = torch.stack(each).double().sum(0)
        few = [
            w[:, look.for_rules(window)].sum(1) for window, w, _ in chain.from_iterable(self.places)
        ]
        self.rule_weight = torch.stack(few).double().sum(0)
        self.features = torch.zeros(0, dtype=torch.bool)
        self.position = torch.zeros(len(heads), 0)
        self.rules = torch.zeros(len(heads), int(live.sum()))
        self._masks: dict[tuple[int, int | None], Features] = {}
        self._table: Tensor | None = None
        self._longest = max(len(w.ids) for w, _, _ in chain.from_iterable(self.places))
        self._even = self._together()

    def _together(self) -> list[tuple[Tensor, Tensor, Tensor]] | None:
        """Return the queries of all windows as one, where what each sees depends on its place."""
        every = [*chain.from_iterable(self.places)]
        longest = self._longest
        at, key = torch.arange(longest)[:, None], torch.arange(longest)[None]
        causal = (key <= at) & (key >= 1)
        weight = torch.zeros(len(self.heads), longest)
        for window, mine, visible in every:
            rows = torch.as_tensor(window.queries)
            if not bool((visible == causal[rows, : len(window.ids)]).all()):
                return None
            weight.index_add_(1, rows, mine)
        return [
            (
                position_features(np.arange(start, min(start + _CHUNK, longest)), longest),
                causal[start : start + _CHUNK],
                weight[:, start : start + _CHUNK],
            )
            for start in range(0, longest, _CHUNK)
        ]

    def position_sheets(self, heads: Int[Tensor, " head"]) -> Iterator[Sheet]:
        """Yield the queries with the features of positions, for some of the heads."""
        for features, visible, weight in self._even or self._each():
            yield Sheet(Features.of(features[self.features]), visible, weight[heads])

    def _each(self) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        for window, weight, visible in chain.from_iterable(self.places):
            yield position_features(window.queries, len(window.ids)), visible, weight

    def rule_sheets(self, heads: Int[Tensor, " head"]) -> Iterator[Sheet]:
        """Yield the queries with the rules, on top of position, for some of the heads."""
        for window, weight, visible in chain.from_iterable(self.places):
            some = self.look.for_rules(window)
            fired, base = self._fired(window, some), self._base(window, some, heads)
            yield Sheet(fired, visible[some], weight[heads][:, some], base)

    def _base(
        self, window: TextWindow, some: slice, heads: Int[Tensor, " head"] | slice = ALL
    ) -> Tensor:
        """Return the logits of position on some queries, from one table where it is small."""
        n, queries = self._longest, window.queries[some]
        if len(self.heads) * n * n > _TABLE:
            return logits_of_position(self.position[heads], queries, len(window.ids))
        if self._table is None:
            self._table = logits_of_position(self.position, np.arange(n), n)
        rows = self._table[:, torch.as_tensor(queries), : len(window.ids)]
        return rows[heads]

    def _fired(self, window: TextWindow, some: slice) -> Features:
        """Return the live rules on some queries of a window, evaluated once."""
        key = id(window), some.step
        if key not in self._masks:
            fired = self.look.masks(window)[self.live][:, some]
            self._masks[key] = Features.of(fired.float())
        return self._masks[key]

    def token_groups(self) -> list[TokenGroup]:
        """Return the groups of documents with their sums, on top of the rules."""

        def pages(group: list) -> Iterator[TokenPage]:
            for window, weight, visible in group:
                some = for_tokens(window)
                rules = self._fired(window, some).logits(self.rules)
                base = self._base(window, some) + rules
                vectors = self.look.token_vectors(window, some)
                yield TokenPage(base, visible[some], weight[:, some], *vectors)

        return [
            TokenGroup(
                lambda group=group: pages(group),
                mine.tokens[self.heads],
                torch.stack([w[:, for_tokens(window)].sum(1) for window, w, _ in group]).sum(0),
            )
            for group, mine in zip(self.places, self.sums, strict=True)
        ]
