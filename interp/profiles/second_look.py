"""Second look at a corpus: every row model judged on the documents that did not fit it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.model.each_batch import each_batch
from interp.profiles.edges import WindowEdges
from interp.profiles.explain import Description
from interp.profiles.first_look import Look, RowsOf, row_divergence, uniform_rows
from interp.profiles.log_linear import log_rows, logits_of_position
from interp.profiles.rows_read import AttentionRows
from interp.profiles.steps import StoredArrays
from interp.profiles.token_model import token_logits

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from interp.profiles.corpus import TextWindow

RUNGS = ("uniform", "offset", "position", "rules", "tokens")
CONTROLS = ("swapped_document",)
"""Descriptions that should fail: the rules on another document."""
MEASURES = ("weight", "sink", "entropy", "distance", "largest")
KEYS = 3  # keys of a query that are kept for examples


@dataclass(frozen=True, eq=False)
class JudgedRows(StoredArrays):
    """Sums over the queries of each window, and what is kept of each query.

    Args:
        nats: KL from the rows of every rung, then of every control, times the attention off the
            sink.
        measures: sums of `MEASURES`; entropy (nats), distance (tokens) and largest weight are those
            of the rows off the sink, times the attention off the sink.
        total: mass on every rule.
        expected: mass that the model of position puts on every rule.
        surprise: KL from the row of the rules, of every query, times the attention off the sink.
        largest: mass of every query on its largest keys.
        keys: the positions of these keys.
        fired: bits of the rules that fire on the largest key of every query.
        on_key: mass on every key.
        by_position: mass that the model of position puts there.
        weights: attention of every query off the sink.
        edge_rows: queries that give an edge; see `interp.profiles.edges`.
        edge_keys: the key of each, then one that the model of position draws.
        edge_fired: bits of the rules that fire there.
        edge_vectors: what is read there.
    """

    nats: Float[np.ndarray, "window head model"]
    measures: Float[np.ndarray, "window head measure"]
    total: Float[np.ndarray, "window head rule"]
    expected: Float[np.ndarray, "window head rule"]
    surprise: list[Float[np.ndarray, "head row"]]
    largest: list[Float[np.ndarray, "head row key"]]
    keys: list[Int[np.ndarray, "head row key"]]
    fired: list[Int[np.ndarray, "head row byte"]]
    on_key: list[Float[np.ndarray, "head pos"]]
    by_position: list[Float[np.ndarray, "head pos"]]
    weights: list[Float[np.ndarray, "head row"]]
    edge_rows: list[Int[np.ndarray, " edge"]]
    edge_keys: list[Int[np.ndarray, "2 head edge"]]
    edge_fired: list[Int[np.ndarray, "2 head edge byte"]]
    edge_vectors: list[Float[np.ndarray, "head edge vector dim"]]

    @classmethod
    def joined(cls, parts: Sequence[JudgedRows], order: Sequence[int]) -> JudgedRows:
        """Join groups of windows, and put the windows in order."""
        back = np.argsort(order)
        arrays: dict[str, Any] = {
            x: np.concatenate([getattr(part, x) for part in parts])[back] for x in _WHOLE
        }
        for name in _EACH:
            values = [value for part in parts for value in getattr(part, name)]
            arrays[name] = [values[at] for at in back]
        return cls(**arrays)


_EDGES = ("edge_rows", "edge_keys", "edge_fired", "edge_vectors")
_ROWS = ("surprise", "largest", "keys", "fired", "on_key", "by_position", "weights")
_EACH = (*_ROWS, *_EDGES)
_WHOLE = ("nats", "measures", "total", "expected")


def second_look(
    look: Look,
    windows: Sequence[TextWindow],
    others: Sequence[TextWindow],
    description: Description,
    seed: int,
    advance: Callable[[], Any],
    n_edges: int = 1,
    rows: RowsOf | None = None,
) -> JudgedRows:
    """Judge a description on a group of windows, on rows that are kept or of the model's run."""

    def run(pair: tuple[TextWindow, TextWindow]) -> dict[str, np.ndarray]:
        judged = _one(look, *pair, description, seed, n_edges, rows or look.rows)
        advance()
        return judged

    pairs = zip(windows, others, strict=True)
    judged_windows = each_batch(look.model, pairs, run, lambda pair: len(pair[0].ids))
    parts: dict[str, Any] = {x: np.stack([one[x] for one in judged_windows]) for x in _WHOLE}
    parts |= {x: [one[x] for one in judged_windows] for x in _EACH}
    return JudgedRows(**parts)


def _one(
    look: Look,
    window: TextWindow,
    other: TextWindow,
    description: Description,
    seed: int,
    n_edges: int,
    rows_of: RowsOf,
) -> dict[str, np.ndarray]:
    """Judge one window."""
    heads, n_rules = look.n_heads, len(look.rules)
    rows, n = window.queries, len(window.ids)
    masks = look.masks(window).float()
    swapped = look.masks(window, np.resize(np.asarray(other.ids), n).tolist()).float()
    position = logits_of_position(description.position, rows, n)
    models = RowModels(look, window, description, masks, swapped, position)
    out = _empty(heads, len(rows), n, n_rules)
    edges = WindowEdges(window, look.sites, heads, n_edges, n_rules, seed)
    sites = {place.start: site for site, place in look.places.items()}
    each_row = torch.arange(len(rows))
    flat = masks.flatten(1)
    back = (torch.as_tensor(rows)[:, None] - torch.arange(n)).abs().float()

    def judge(at: slice, seen: AttentionRows) -> None:
        for which, log_model in enumerate(models.of(at, seen.visible)):
            nats = row_divergence(seen, log_model)
            out["nats"][at, which] = nats.sum(1)
            if which == RUNGS.index("rules"):
                out["surprise"][at] = nats.half()
        off = seen.weight.sum(1)
        even = seen.mass / seen.weight.clamp_min(1e-9)[..., None]
        entropy = -(torch.special.xlogy(even, even).sum(-1) * seen.weight).sum(1)
        distance = (seen.mass * back).sum((1, 2))
        largest, keys = seen.mass.topk(out["keys"].shape[2], dim=-1)
        peak = largest[..., 0].sum(1)
        sink = seen.sink.sum(1)
        out["measures"][at] = torch.stack([off, sink, entropy, distance, peak], 1)
        out["total"][at] = seen.mass.flatten(1) @ flat.T
        guess = torch.exp(log_rows(position[at], seen.visible)) * seen.weight[..., None]
        out["expected"][at] = guess.flatten(1) @ flat.T
        edges.add(at, sites[at.start], seen, masks, guess)
        out["largest"][at], out["keys"][at] = largest.half(), keys.int()
        on_largest = masks.bool()[:, each_row, keys[..., 0]].permute(1, 2, 0)
        out["fired"][at] = torch.from_numpy(np.packbits(on_largest.numpy(), axis=-1))
        out["on_key"][at], out["by_position"][at] = seen.mass.sum(1).half(), guess.sum(1).half()
        out["weights"][at] = seen.weight.half()

    rows_of(window, judge)
    arrays = {name: value.numpy() for name, value in out.items()}
    return arrays | edges.plain()


def _empty(heads: int, rows: int, n: int, rules: int) -> dict[str, Float[Tensor, "head *size"]]:
    """Return zeros for what is kept of a window, but its edges."""
    zeros = {
        "nats": torch.zeros(heads, len(RUNGS) + len(CONTROLS)),
        "measures": torch.zeros(heads, len(MEASURES)),
    }
    for name in ("total", "expected"):
        zeros[name] = torch.zeros(heads, rules)
    for name in ("surprise", "weights"):
        zeros[name] = torch.zeros(heads, rows, dtype=torch.half)
    for name in ("on_key", "by_position"):
        zeros[name] = torch.zeros(heads, n, dtype=torch.half)
    keys = min(KEYS, n)
    zeros["largest"] = torch.zeros(heads, rows, keys, dtype=torch.half)
    zeros["keys"] = torch.zeros(heads, rows, keys, dtype=torch.int32)
    zeros["fired"] = torch.zeros(heads, rows, -(-rules // 8), dtype=torch.uint8)
    return zeros


class RowModels:
    """Log probabilities of every rung and control on one window."""

    def __init__(
        self,
        look: Look,
        window: TextWindow,
        description: Description,
        masks: Tensor,
        swapped: Tensor,
        position: Tensor,
    ) -> None:
        self.look, self.window, self.description = look, window, description
        self.masks, self.swapped, self.position = masks, swapped, position
        self.offset = logits_of_position(description.offset, window.queries, len(window.ids))
        self.vectors = look.token_vectors(window)

    def of(self, at: slice, visible: Tensor) -> Any:
        """Yield log probabilities in the order of `RUNGS` and `CONTROLS`."""
        own_rules = self.description.rules[at]
        base = self.position[at]

        def rows(parameters: Tensor, masks: Tensor) -> Tensor:
            return base + (parameters @ masks.flatten(1)).unflatten(1, masks.shape[1:])

        yield uniform_rows(visible)
        yield log_rows(self.offset[at], visible)
        yield log_rows(base, visible)
        logits = rows(own_rules, self.masks)
        yield log_rows(logits, visible)
        tokens = token_logits(self.description.tokens[at], *self.vectors)
        yield log_rows(logits + tokens, visible)
        yield log_rows(rows(own_rules, self.swapped), visible)
