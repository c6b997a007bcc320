"""Attention scores in singular vectors of the query-key matrix, and the writers that they read.

    found = signals(model, "The cat sat on the mat. The cat sat on the")
    found.to_pandas()      # one row per firing: head, query, key, weight, slices, upstream heads

A head's score is `x_query Omega x_key`. In the singular vectors of Omega it is a sum of d_head
products ("slices"), and few of them carry it where the head fires: these are its signal. The share
of an upstream head in the attention is the part of the signal that the upstream head wrote.

Reference: Franco and Crovella 2024, "Sparse Attention Decomposition Applied to Circuit Tracing"
(arXiv 2410.00340) for scores; its successors for scores relative to the other keys and for the
weight after the softmax.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from interp.circuits.linear_scores import CONSTANT, LinearScores
from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.ties import ordered_by
from interp.model.calls.call import Call, precise
from interp.model.calls.sites import Site
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    from jaxtyping import Float

    from interp.model.model import Model

Array = np.ndarray
Measure = Literal["score", "relative", "softmax"]
MEASURES = ("score", "relative", "softmax")
STEPS = 64  # midpoints of the path over which softmax attributions are averaged


@dataclass(frozen=True, eq=False)
class Signal:
    """Slices that carry one head's attention from one query to one key.

    Args:
        row: Number of the prompt.
        layer, head: The head.
        query, key: Token positions.
        weight: The attention weight.
        total: The measure summed over all slices.
        parts: The part of each slice, in descending order.
        chosen: Number of slices in the signal.
        by_query, by_key: The part of every earlier writer through the signal's slices, as part of
            the query and as part of the key; the last entry belongs to no writer.
        writers: Names of the writers.
    """

    row: int
    layer: int
    head: int
    query: int
    key: int
    weight: float
    total: float
    parts: Float[Array, " slice"]
    chosen: int
    by_query: Float[Array, " writer_1"]
    by_key: Float[Array, " writer_1"]
    writers: tuple[str, ...]

    @property
    def name(self) -> str:
        """Name of the head, such as `L1H2`."""
        return f"L{self.layer}H{self.head}"

    def shares(self, side: str) -> dict[str, float]:
        """Return every writer's share of what reaches the signal from one side ("q" or "k").

        Shares sum to 1; they may be negative, and above 1 where others are negative.
        """
        reached = self.by_query if side == "q" else self.by_key
        names = (*self.writers, CONSTANT)
        return dict(zip(names, (reached / reached.sum()).tolist(), strict=True))


@dataclass(eq=False)
class Tracer:
    """Signals of one batch of prompts, computed on demand.

    Args:
        scores: The decomposed scores of the batch.
        fires: Attention weight from which a head fires.
        measure: Quantity by which slices are ranked: their part of the score (`score`), of the
            score minus its mean over keys (`relative`), or of the weight after the softmax, by its
            gradient averaged over a path from no product to the whole product (`softmax`).
        first: Whether firings on the first token count; many heads attend there by default.
        basis: A seed for random orthonormal slices in place of singular ones, as a control.
    """

    scores: LinearScores
    fires: float = 0.5
    measure: Measure = "softmax"
    first: bool = False
    basis: int | None = None
    _rotation: dict[int, Tensor] = field(default_factory=dict)
    _caps: dict[Site, tuple[float | None, Tensor | None]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.measure not in MEASURES:
            raise OptionError(f"measure={self.measure!r}; known: {', '.join(MEASURES)}")
        if not 0 < self.fires < 1:
            raise OptionError(f"fires={self.fires}; expected a weight between 0 and 1")

        def visit(site: Site, call: Call, real: Tensor) -> None:
            sinks = getattr(call, "sinks", None)
            self._caps[site] = (
                getattr(call, "softcap", None),
                None if sinks is None else precise(sinks.detach()),
            )

        model = self.scores.model
        inputs = {k: v[:1] if _batched(v) else v for k, v in self.scores.inputs.items()}
        model.read(inputs, visit)

    def firings(self, site: Site) -> Float[Array, "firing 4"]:
        """Return row, head, query and key of every attention weight of at least `fires`."""
        pattern = self.scores.cache["pattern", site.layer]
        places = (pattern >= self.fires).nonzero().cpu().numpy()
        return places if self.first else places[places[:, 3] > 0]

    def signal(self, site: Site, row: int, head: int, query: int, key: int) -> Signal | None:
        """Return the signal of one weight; None where the slices sum to nothing above zero."""
        s = self.scores
        keys = s.cache["k", site.layer][row, site.kv_head(head)]
        scale, keys = s.scale(site), precise(keys)
        core_q, core_k = s.cores(site, head, row, query, key)
        left, values, right = torch.linalg.svd(core_q @ core_k.T * scale)
        d = core_q.shape[1]  # the bias adds a row, but does not increase the rank
        left, right = left[:, :d], values[:d, None] * right[:d]
        if self.basis is not None:
            turn = self._random(d).to(left)
            left, right = left @ turn, turn.T @ right
        read_q = s.read(site, "q", head, row, query)
        read_k = s.read(site, "k", head, row, key)
        along = read_q.sum(0) @ left  # the query along each slice
        to_keys = (left.T @ core_q) @ keys.T * scale  # product of each slice with every key
        products = along[:, None] * to_keys
        where = self._effect(site, row, head, query, key, products)
        parts = products @ where
        total = float(parts.sum())
        if self.measure != "softmax" and total <= 0:
            return None
        order = torch.argsort(parts, descending=True)
        chosen = self._chosen(site, row, head, query, key, products, parts, order, total)
        if chosen == 0:
            return None
        some = order[:chosen]
        by_query = (read_q @ left[:, some]) @ (to_keys[some] @ where)
        by_key = (read_k @ right[some].T) @ along[some] * where[key]
        n = s.before[site]
        return Signal(
            row,
            site.layer,
            head,
            query,
            key,
            float(s.cache["pattern", site.layer][row, head, query, key]),
            total,
            parts[order].double().cpu().numpy(),
            chosen,
            by_query.double().cpu().numpy(),
            by_key.double().cpu().numpy(),
            s.writers[:n],
        )

    # --- measures -----------------------------------------------------------------------------

    def _row(self, site: Site, row: int, head: int, query: int) -> tuple[Tensor, Tensor]:
        """Return the scores of a row, and a mask of the keys that it can attend to."""
        scores = precise(self.scores.cache["scores", site.layer][row, head, query])
        return scores, self.scores.cache["pattern", site.layer][row, head, query] > 0

    def _capped(self, site: Site, product: Tensor) -> Tensor:
        cap = self._caps[site][0]
        return product if cap is None else cap * torch.tanh(product / cap)

    def _weights(self, site: Site, head: int, scores: Tensor, seen: Tensor) -> Tensor:
        scores = scores.masked_fill(~seen, -torch.inf)
        sinks = self._caps[site][1]
        if sinks is None:
            return scores.softmax(-1)
        sink = sinks[head].expand(*scores.shape[:-1], 1)
        return torch.cat([scores, sink], -1).softmax(-1)[..., :-1]

    def _effect(
        self, site: Site, row: int, head: int, query: int, key: int, products: Tensor
    ) -> Float[Tensor, " key_pos"]:
        """Return the effect on the measure of one unit of q·k to each key."""
        scores, seen = self._row(site, row, head, query)
        here = torch.zeros_like(scores)
        here[key] = 1.0
        if self.measure == "score":
            return here
        if self.measure == "relative":
            return here - seen.to(here) / seen.sum()
        whole = products.sum(0)
        rest = scores - self._capped(site, whole)
        t = (torch.arange(STEPS).to(scores) + 0.5)[:, None] / STEPS
        weights = self._weights(site, head, self._capped(site, t * whole) + rest, seen)
        weight = weights[:, key, None]
        slope = weight * (here - weights)
        cap = self._caps[site][0]
        if cap is not None:
            slope = slope * (1 - torch.tanh(t * whole / cap).square())
        return slope.mean(0)

    def _chosen(
        self,
        site: Site,
        row: int,
        head: int,
        query: int,
        key: int,
        products: Tensor,
        parts: Tensor,
        order: Tensor,
        total: float,
    ) -> int:
        """Return the number of slices in the signal, counted from the largest."""
        if self.measure != "softmax":
            reached = parts[order].double().cumsum(0) >= total * (1 - 1e-6)
            return 1 + int(reached.nonzero()[0]) if bool(reached.any()) else 0
        # Slices are removed one after the other, until the head no longer fires.
        scores, seen = self._row(site, row, head, query)
        whole = products.sum(0)
        rest = scores - self._capped(site, whole)
        left = whole - products[order].cumsum(0)
        weights = self._weights(site, head, self._capped(site, left) + rest, seen)[:, key]
        below = (weights < self.fires).nonzero()
        return 1 + int(below[0]) if len(below) else 0

    def _random(self, n: int) -> Tensor:
        if n not in self._rotation:
            generator = torch.Generator().manual_seed(self.basis or 0)
            self._rotation[n] = torch.linalg.qr(torch.randn(n, n, generator=generator))[0]
        return self._rotation[n]


def signal_rows(
    found: Sequence[Signal], model: str, measure: str, d_head: int, made: Mapping[str, Any]
) -> ResultRows:
    """Return a row per firing; see `signals` for the columns and facts."""
    import pandas as pd

    rows = []
    for s in found:
        row: dict[str, Any] = {
            "prompt": s.row,
            "layer": s.layer,
            "head": s.head,
            "query": s.query,
            "key": s.key,
            "weight": s.weight,
            "slices": s.chosen,
            "of": d_head,
            measure: s.total,
        }
        for side in ("q", "k"):
            shares = {n: v for n, v in s.shares(side).items() if n != CONSTANT}
            best = ordered_by(shares, shares.__getitem__)[0]
            row |= {f"{side}_from": best, f"{side}_share": shares[best]}
        rows.append(row)
    columns = ["prompt", "layer", "head", "query", "key", "weight", "slices", "of"]
    columns += [measure, "q_from", "q_share", "k_from", "k_share"]
    facts = {
        "metric": f"signal by {measure}",
        "model": model,
        "measure": measure,
        "d_head": d_head,
        "unit": "attention weight" if measure == "softmax" else "attention score",
    }
    same = {} if measure == "score" else {"score": measure}
    return ResultRows(
        "Signals",
        pd.DataFrame(rows, columns=columns),
        ("prompt", "layer", "head", "query", "key"),
        made,
        facts,
        why_no_per_prompt="every row is one attention weight of one prompt",
        arrays={"found": tuple(found)},
        same_as=same,
    )


def writer_shares(found: ResultRows, part: str = "k") -> pd.DataFrame:
    """Return the mean share of each writer (columns) in what each head (rows) reads on a side.

    Args:
        found: Result of `signals`.
        part: "q" for the queries or "k" for the keys.

    Raises:
        OptionError: The part is neither "q" nor "k".
    """
    import pandas as pd

    if part not in ("q", "k"):
        raise OptionError(f'part {part!r}; expected "q" for the queries or "k" for the keys')
    found.require_kind("Signals", "signals")
    rows: dict[str, list[dict[str, float]]] = {}
    for s in found.found:
        rows.setdefault(s.name, []).append(s.shares(part))
    frame = pd.DataFrame({name: pd.DataFrame(x).mean() for name, x in rows.items()}).T
    return frame.drop(columns=CONSTANT, errors="ignore")


@takes_model
def signals(
    model: Model,
    prompts: Any,
    *,
    fires: float = 0.5,
    measure: Measure = "softmax",
    first: bool = False,
) -> ResultRows:
    """Decompose every attention weight of at least `fires`, on prompts of one length.

    Args:
        model: The model.
        prompts: Prompts of one length.
        fires: Attention weight from which a head fires.
        measure: Quantity by which slices are ranked, `score`, `relative` or `softmax`; see
            `Tracer`.
        first: Also include weights on the first token.

    Returns:
        One row per firing: prompt, layer, head, query, key; weight; slices, the number of slices in
        the signal, of d_head; the measure, summed over all slices; the writer of the largest share
        on each side, and its share. Facts: model, measure, d_head. By row: found, the `Signal`s, in
        the order of layers, prompts, heads and queries. `plot(side)` maps `writer_shares`.

    Raises:
        OptionError: The measure is unknown, or `fires` is not between 0 and 1.
        UnreadableAttention: Scores are not a product of one query and key, or the stream is not a
            plain sum.
    """
    tracer = Tracer(LinearScores(model, prompts), fires, measure, first)
    decomposed = [
        signal
        for site in model.sites
        for row, head, query, key in tracer.firings(site).tolist()
        if (signal := tracer.signal(site, row, head, query, key)) is not None
    ]
    provenance = model_provenance(model) | {
        "made_by": "interp.circuits.query_key_signals.signals",
        "options": {"fires": fires, "measure": measure, "first": first},
        "prompts": {"design": "given", "n": len(tracer.scores.inputs["input_ids"])},
    }
    return signal_rows(decomposed, model.name, measure, model.sites[0].d_head, provenance)


def _batched(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() > 0


def signals_summary(found: ResultRows) -> str:
    """Return the number of firings and heads, and the median number of slices of a signal."""
    heads = len({s.name for s in found.found})
    middle = np.median(found.slices) if len(found) else float("nan")
    return (
        f"Signals({found.facts['model']}: {len(found)} firings of {heads} heads, median {middle:g} "
        f"of {found.d_head} slices by {found.measure})"
    )


def signals_figure(found: ResultRows, side: str = "k") -> go.Figure:
    """Draw a heat map of the writers that make each head attend, on one side."""
    from interp.draw.charts import signed_map

    what = "queries" if side == "q" else "keys"
    title = f"Writers of what the {what} of each head read, where it fires"
    return signed_map(writer_shares(found, side), title=title, unit="share").update_layout(
        xaxis={"title": "written by"}, yaxis={"title": "head that fires", "autorange": "reversed"}
    )


present(
    "Signals",
    summary=signals_summary,
    plot=signals_figure,
    holds=("interp.circuits.query_key_signals:Signal",),
)
