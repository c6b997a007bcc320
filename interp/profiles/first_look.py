"""First look at a corpus: the sums per head from which every row model is fitted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.model.each_batch import each_batch
from interp.profiles.log_linear import position_features
from interp.profiles.reading import CorpusWords, TokenReader
from interp.profiles.rows_read import AttentionRows, read_rows
from interp.profiles.rules import KeyRule, masks_of
from interp.profiles.steps import StoredArrays

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor

    from interp.model.calls.sites import Site
    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow
    from interp.profiles.kept_rows import KeptRows

FOR_RULES, LEAST, MOST = 600, 4, 8
"""Queries of a part from which rules are fitted, and of each window, at least and at most."""
FOR_TOKENS = 8  # queries of a window from which the two tokens are fitted
GROUPS = 16  # of windows, half of each part: what a resumed run repeats, and a step of the tokens


@dataclass(frozen=True, eq=False)
class Sums(StoredArrays):
    """Sums over the queries of one group of windows.

    Args:
        rules: mass on the keys of every rule, of the queries from which rules are fitted.
        position: mass on every feature of positions.
        tokens: mass times the vectors of query (after a 1) and key, of those that fit tokens.
        uniform: KL from the uniform row, weighted by the attention off the sink.
        weight: attention off the sink, of every query of every window in order.
        sink: attention on the sink, of the same queries.
        visible: keys that each query may see, as bits, by site and window.
    """

    rules: Float[Tensor, "head rule"]
    position: Float[Tensor, "head feature"]
    tokens: Float[Tensor, "head query key"]
    uniform: Float[Tensor, "head"]
    weight: list[Float[Tensor, "head row"]]
    sink: list[Float[Tensor, "head row"]]
    visible: list[Bool[Tensor, "site row pos"]]


RowsOf = Callable[["TextWindow", Callable[[slice, AttentionRows], None]], None]
"""What passes the rows of every attention on a window, with the place of its heads."""
ALL = slice(None)
_WHOLE = ("rules", "position", "tokens", "uniform")


class Look:
    """The model, its sites, the rules and the token vectors, as every look at a corpus needs them.

    Args:
        model: the model.
        sites: attentions whose heads are described.
        rules: the rules.
        vectors: a vector per token id.
        corpus: documents that tell names and rare words, or what they tell.
        n_fitted: windows of a part, on which rules are fitted.
    """

    def __init__(
        self,
        model: Model,
        sites: Sequence[Site],
        rules: Sequence[KeyRule],
        vectors: Float[Tensor, "token dim"],
        corpus: Iterable[Sequence[int]] | CorpusWords | None,
        n_fitted: int = 0,
    ) -> None:
        self.model, self.sites, self.rules, self.vectors = model, sites, rules, vectors
        self.reader = TokenReader(model, corpus)
        self._for_rules = int(np.clip(-(-FOR_RULES // max(n_fitted, 1)), LEAST, MOST))
        self._masks: dict[tuple[TextWindow, tuple[int, ...]], Int[np.ndarray, "rule row byte"]] = {}
        starts = np.cumsum([0, *(site.n_heads for site in sites)])
        self.places = {
            site: slice(int(a), int(b))
            for site, a, b in zip(sites, starts[:-1], starts[1:], strict=True)
        }
        self.n_heads = int(starts[-1])

    def masks(self, window: TextWindow, text: Sequence[int] | None = None) -> Tensor:
        """Return the rules' masks on a window, or on other tokens at its positions."""
        ids = window.ids if text is None else tuple(text)
        if (window, ids) not in self._masks:
            masks = masks_of(self.rules, self.reader.read(ids), window.queries)
            self._masks[window, ids] = np.packbits(masks, axis=-1)
        bits = np.unpackbits(self._masks[window, ids], axis=-1, count=len(ids))
        return torch.from_numpy(bits.view(bool))

    def for_rules(self, window: TextWindow) -> slice:
        """Return the sampled queries of a window from which rules are fitted."""
        return slice(None, None, max(1, len(window.queries) // self._for_rules))

    def token_vectors(self, window: TextWindow, some: slice = ALL) -> tuple[Tensor, Tensor]:
        """Return the vectors of all or some queries, each after a 1, and of the keys."""
        keys = self.vectors[torch.as_tensor(window.ids)]
        queries = keys[torch.as_tensor(window.queries[some])]
        return torch.cat([torch.ones(len(queries), 1), queries], 1), keys

    def rows(self, window: TextWindow, visit: Callable[[slice, AttentionRows], None]) -> None:
        """Pass the rows of every site to `visit`, with the place of its heads."""
        read_rows(
            self.model,
            window,
            sorted(self.reader.special),
            lambda site, rows: visit(self.places[site], rows),
            self.sites,
        )


def for_tokens(window: TextWindow) -> slice:
    """Return the sampled queries of a window from which the two tokens are fitted."""
    return slice(None, None, max(1, len(window.queries) // FOR_TOKENS))


def first_look(
    look: Look,
    windows: Sequence[TextWindow],
    advance: Callable[[], Any],
    kept: KeptRows | None = None,
) -> Sums:
    """Run the model on a group of windows, sum what the fits need, and keep the rows if asked."""
    size = look.vectors.shape[1]
    heads, rules = look.n_heads, len(look.rules)
    n_features = len(position_features(np.array([2]), 3))
    total = Sums(
        torch.zeros(heads, rules, dtype=torch.double),
        torch.zeros(heads, n_features, dtype=torch.double),
        torch.zeros(heads, size + 1, size),
        torch.zeros(heads, dtype=torch.double),
        [],
        [],
        [],
    )
    order = {place.start: at for at, place in enumerate(look.places.values())}

    def run(window: TextWindow) -> tuple[Tensor, Tensor, Tensor]:
        some, of_tokens = look.for_rules(window), for_tokens(window)
        masks = look.masks(window)[:, some].float().flatten(1)
        places = position_features(window.queries, len(window.ids)).flatten(1)
        queries, keys = look.token_vectors(window, of_tokens)
        weight, sink = torch.zeros(2, heads, len(window.queries))
        visible = torch.zeros(len(look.sites), len(window.queries), len(window.ids)).bool()

        def add(at: slice, rows: AttentionRows) -> None:
            flat = rows.mass.flatten(1)
            total.rules[at] += (rows.mass[:, some].flatten(1) @ masks.T).double()
            total.position[at] += (flat @ places.T).double()
            total.tokens[at] += queries.T @ (rows.mass[:, of_tokens] @ keys)
            weight[at], sink[at] = rows.weight, rows.sink
            if kept is not None:
                kept.add(window, at, rows)
            visible[order[at.start]] = rows.visible
            total.uniform[at] += row_divergence(rows, uniform_rows(rows.visible)).double().sum(1)

        look.rows(window, add)
        advance()
        return weight, sink, visible

    for weight, sink, visible in each_batch(look.model, windows, run, lambda w: len(w.ids)):
        total.weight.append(weight)
        total.sink.append(sink)
        total.visible.append(visible)
    return total


def uniform_rows(visible: Bool[Tensor, "row pos"]) -> Float[Tensor, "row pos"]:
    """Return log probabilities of the row that is even over the visible keys."""
    return -torch.log(visible.sum(-1, keepdim=True).clamp_min(1).float()).expand(visible.shape)


def row_divergence(
    rows: AttentionRows, log_model: Float[Tensor, "*head row pos"]
) -> Float[Tensor, "head row"]:
    """Return the KL divergence of every row from a model's row, times the row's weight, in nats."""
    return rows.negentropy - (rows.mass * log_model.clamp_min(-50)).sum(-1)


def groups_of(windows: Sequence[TextWindow]) -> list[list[int]]:
    """Split the windows of each part evenly into groups, those of part 0 first."""
    groups: list[list[int]] = []
    for part in (0, 1):
        mine = [at for at, window in enumerate(windows) if window.part == part]
        n = min(GROUPS // 2, len(mine))
        groups += [mine[at::n] for at in range(n)]
    return groups


def summed(parts: Sequence[Sums]) -> dict[str, Tensor]:
    """Add the sums of several groups."""
    return {name: sum(getattr(part, name) for part in parts) for name in _WHOLE}  # type: ignore[misc]


def visible_groups(
    look: Look, sums: Sequence[Sums]
) -> list[tuple[list[int], Int[Tensor, " head"]]]:
    """Group the sites that see the same keys in every window, with their heads."""
    groups: list[list[int]] = []
    for site in range(len(look.sites)):
        for group in groups:
            if all(bool((v[site] == v[group[0]]).all()) for part in sums for v in part.visible):
                group.append(site)
                break
        else:
            groups.append([site])
    places = [*look.places.values()]
    return [
        (group, torch.cat([torch.arange(places[s].start, places[s].stop) for s in group]))
        for group in groups
    ]
