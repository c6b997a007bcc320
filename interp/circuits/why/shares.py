"""Result of query-key shares: the score of a head as a sum over pairs of writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.clusters import cluster_summary
from interp.core.errors import UnknownName
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.result import Result
from interp.core.ties import ranked
from interp.draw.charts import signed_map
from interp.draw.parts import FoundPart, between, result_part

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go
    from jaxtyping import Float

Array = np.ndarray
ADDED = "position bias"  # ALiBi or relative positions: a part of its own, of no writer


@dataclass(frozen=True, eq=False, repr=False)
class QKShares(Result):
    """Terms of the attention score of heads, one row per head, query writer and key writer.

    The score of a row is the mean over positions, then over prompts, of
    `scale * (query part of the one writer) . (key part of the other)`; the rows of a head sum to
    its score before a soft-cap. `relative` is the same minus its mean over all visible keys, which
    is what changes the attention: terms that are equal for all keys cancel in the softmax.

    Args:
        model: Name of the model.
        layers, heads: The head of each row.
        query_writers, key_writers: The writers of each row.
        per_prompt: The term in each prompt, `[row, prompt]`.
        relative: The term minus its mean over visible keys.
        nulls: The null of each row: the term for a visible key drawn at random, or in a model with
            random weights.
        capped: The term times cap(score) / score, in models with a soft-cap.
        spread: How far the key writer's part varies over keys, of the largest part: 0 for a term
            that is constant over keys.
        at: Rule of the positions.
        pairs: Number of positions in each prompt, by head.
        errors: By head, the largest difference of the sum of all terms from the score.
        prompt_ids: Identity of each prompt.
        clusters: A label per prompt where prompts share something.
        null_kind: "keys" or "random-weights".
        made: Provenance.
    """

    model: str
    layers: tuple[int, ...]
    heads_of: tuple[int, ...]
    query_writers: tuple[str, ...]
    key_writers: tuple[str, ...]
    per_prompt: Float[Array, "row prompt"] = field(repr=False)
    relative: Float[Array, "row prompt"] = field(repr=False)
    nulls: Float[Array, " row"] = field(repr=False)
    spread: Float[Array, " row"] = field(repr=False)
    at: str
    pairs: Mapping[str, tuple[int, ...]]
    errors: Mapping[str, float]
    capped: Float[Array, " row"] | None = field(default=None, repr=False)
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    null_kind: str = "keys"
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _units = ("layer", "head", "query_writer", "key_writer")
    _by = "relative"
    _per_row = (
        "layers",
        "heads_of",
        "query_writers",
        "key_writers",
        "per_prompt",
        "relative",
        "nulls",
        "spread",
        "capped",
    )

    @property
    def provenance(self) -> Mapping[str, Any]:  # type: ignore[override]
        """The model, the prompts and the options."""
        return self.made

    def __len__(self) -> int:
        return len(self.layers)

    @property
    def places(self) -> str:
        """The positions in words, or as pairs of query and key."""
        if self.at[:1].isalpha():
            return f"{self.at} positions"
        return "query:key " + self.at.replace(",", ":").replace(" ", ", ")

    def _facts(self) -> Mapping[str, Any]:
        return {"metric": f"qk_shares:at={self.at}", "unit": "attention score"}

    def _rows(self) -> pd.DataFrame:
        """Return a row per head and pair of writers: the term, also relative to the keys."""
        import pandas as pd

        score = cluster_summary(self.per_prompt.T, self.clusters)
        relative = cluster_summary(self.relative.T, self.clusters)
        frame = pd.DataFrame(
            {
                "layer": self.layers,
                "head": self.heads_of,
                "query_writer": self.query_writers,
                "key_writer": self.key_writers,
                "score": score.score,
                "sem": score.sem,
                "null": self.nulls,
                "n": score.n,
                "clusters": score.clusters,
                "relative": relative.score,
                "relative_sem": relative.sem,
                "spread": self.spread,
            }
        )
        if self.capped is not None:
            frame["capped"] = self.capped
        return frame

    @property
    def names(self) -> tuple[str, ...]:
        """The heads, each once."""
        rows = zip(self.layers, self.heads_of, strict=True)
        return tuple(dict.fromkeys(str(Head(layer, head)) for layer, head in rows))

    def of(self, head: Any) -> QKShares:
        """Return the rows of one head.

        Raises:
            UnknownName: The result does not hold it.
        """
        name = str(Head.parse(head))
        rows = [
            i
            for i, (x, h) in enumerate(zip(self.layers, self.heads_of, strict=True))
            if f"L{x}H{h}" == name
        ]
        if not rows:
            raise UnknownName("head", name, self.names)
        return self._take(rows)

    def side(self, side: str) -> pd.DataFrame:
        """Return the sums over the other side's writers: one row per head and writer.

        Args:
            side: "query" or "key".

        Raises:
            UnknownName: It is neither.
        """
        import pandas as pd

        if side not in ("query", "key"):
            raise UnknownName("side", side, ("query", "key"))
        writers = self.query_writers if side == "query" else self.key_writers
        labels = list(zip(self.layers, self.heads_of, writers, strict=True))
        names = list(dict.fromkeys(labels))
        place = {name: i for i, name in enumerate(names)}
        totals = np.zeros((2, len(names), self.per_prompt.shape[1]))
        for i, label in enumerate(labels):
            totals[0, place[label]] += self.per_prompt[i]
            totals[1, place[label]] += self.relative[i]
        score, relative = (cluster_summary(x.T, self.clusters) for x in totals)
        frame = pd.DataFrame(names, columns=["layer", "head", "writer"])
        frame["score"], frame["sem"] = score.score, score.sem
        frame["relative"], frame["relative_sem"] = relative.score, relative.sem
        return ranked(frame, "relative").reset_index(drop=True)

    def constant(self, within: float = 1e-6) -> QKShares:
        """Return the terms that are the same for all keys, which cancel in the softmax."""
        return self._take([i for i, x in enumerate(self.spread) if x <= within])

    def plot(self, k: int = 12, *, value: str = "relative") -> go.Figure:
        """Draw the first head's terms as a heat map of query writers and key writers.

        Args:
            k: Number of writers on each side: those with the largest sums of absolute terms.
            value: "relative" to the visible keys, or "score".

        Raises:
            UnknownName: There is no such value.
        """
        if value not in ("relative", "score"):
            raise UnknownName("value", value, ("relative", "score"))
        mine = self.of(self.names[0]) if len(self) else self
        frame = mine.wide().assign(
            query_writer=list(mine.query_writers), key_writer=list(mine.key_writers)
        )
        table = frame.pivot_table(
            index="query_writer", columns="key_writer", values=value, sort=False
        )
        size = table.abs()
        rows = size.sum(axis=1).nlargest(k).index
        columns = size.sum(axis=0).nlargest(k).index
        table = table.loc[
            [r for r in table.index if r in rows], [c for c in table.columns if c in columns]
        ]
        what = "relative to the visible keys" if value == "relative" else "as they add to the score"
        name = self.names[0] if len(self) else "no head"
        title = f"Terms of {name} in {self.model} at {self.places}, {what}"
        return signed_map(table, title=title, unit="score").update_layout(
            xaxis={"title": "key side written by"},
            yaxis={"title": "query side written by", "autorange": "reversed"},
        )

    def __repr__(self) -> str:
        first = self.top(1).wide()
        best = "".join(
            f", largest {r['query_writer']} x {r['key_writer']} {r['relative']:+.3g}"
            for r in first.to_dict("records")
        )
        return (
            f"QKShares({', '.join(self.names)} of {self.model} at {self.places} of "
            f"{self.per_prompt.shape[1]} prompts: {len(self)} terms{best} relative to the keys)"
        )


def joined_shares(parts: Sequence[QKShares]) -> QKShares:
    """Return the shares of several heads on the same prompts as one result."""
    from dataclasses import replace

    cut = {}
    for name in QKShares._per_row:
        values = [getattr(p, name) for p in parts]
        if name == "capped":
            cut[name] = None if values[0] is None else np.concatenate(values)
        elif isinstance(values[0], tuple):
            cut[name] = tuple(x for v in values for x in v)
        else:
            cut[name] = np.concatenate(values)
    pairs = {k: v for p in parts for k, v in p.pairs.items()}
    errors = {k: v for p in parts for k, v in p.errors.items()}
    return replace(parts[0], **cut, pairs=pairs, errors=errors)


ON_CARD, IN_TABLE = 3, 8  # terms of each head on its card, and in the table


def qk_shares_part(found: QKShares) -> FoundPart:
    """Return the largest query side x key side terms of each head, and a note for its card."""
    import pandas as pd

    notes, tables = {}, []
    for name in found.names:
        mine = found.of(name)
        whole: Any = mine.wide()
        rows = mine.top(IN_TABLE, by="relative").to_pandas()
        tables.append(rows)
        text = ", ".join(
            f"{r['query_writer']} x {r['key_writer']} {r['relative']:+.3g}"
            for r in rows.head(ON_CARD).to_dict("records")
        )
        notes[name] = (
            f"Why it attends ({found.places}): query side x key side {text}, of a score of "
            f"{whole['relative'].sum():+.3g} relative to the visible keys"
        )
    frame: Any = pd.concat(tables, ignore_index=True)
    columns = [
        "layer",
        "head",
        "query_writer",
        "key_writer",
        "score",
        "low",
        "high",
        "null",
        "relative",
        "n",
    ]
    first = found.top(1).to_pandas().to_dict("records")
    best = "".join(
        f" The largest is {r['query_writer']} x {r['key_writer']} in L{r['layer']}H{r['head']}: "
        f"{r['score']:+.3g}{between(r['low'], r['high'])}, {r['relative']:+.3g} relative to the "
        "visible keys."
        for r in first
    )
    return result_part(
        found,
        "shares",
        f"Why heads attend: {found.places}",
        f"The attention scores of {len(found.names)} heads on {found.per_prompt.shape[1]} "
        f"prompts as sums over pairs of upstream writers; the first {IN_TABLE} terms of each by "
        f"what they add relative to the visible keys.{best}",
        frame[columns],
        heads=found.names,
        notes=notes,
    )


present(QKShares, text="interp.report.printed.circuits:shares_text", part=qk_shares_part)
