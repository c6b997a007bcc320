"""The alignment of one sentence pair by one head: as a matrix, and as lines between its words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.alignment.links import (
    AlignedRow,
    alignment_error_rate,
    largest_links,
    link_sets,
    require_rows,
)
from interp.alignment.measure import pair_weights
from interp.alignment.pair_file import WordLink, side_words
from interp.alignment.pairs import encode_pairs
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.result import Result
from interp.draw.parts import ALL_EQUAL, FoundPart, plain_value, result_part
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from interp.model.model import Model

_LINE = {
    "sure": ("solid", "right: a sure gold link"),
    "possible": ("dashdot", "right: a possible gold link"),
    "wrong": ("dash", "wrong: not a gold link"),
    "missed": ("dot", "missed: a sure gold link without a line"),
    "found": ("solid", "link"),
}


@dataclass(frozen=True, eq=False, repr=False)
class PairAlignment(Result):
    """Attention between the words of one pair, for one head, with its links and the gold ones.

    Rows are links of the head, and sure gold links that it misses. The score is the attention of
    the link, the null the share of one word of the source.

    Args:
        head: the cross-attention head.
        rows: the decoder row that stands for a target word; see `word_alignment`.
        source: the source words.
        target: the target words.
        weights: attention, `[target, source]`; special tokens are left out.
        links: links of the head, `(source word, target word)`.
        sure: sure gold links; None without a gold alignment.
        possible: possible gold links, the sure ones included.
    """

    head: Head
    rows: AlignedRow
    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Float[np.ndarray, "target source"]
    links: frozenset[WordLink]
    sure: frozenset[WordLink] | None
    possible: frozenset[WordLink]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "a link belongs to one pair"
    _units = ("source_place", "source_word", "target_place", "target_word")

    @property
    def error(self) -> float:
        """Alignment error rate of the pair; NaN without a gold alignment."""
        if self.sure is None:
            return float("nan")
        links, sure = self.links, self.sure
        counts = len(links), len(sure), len(links & sure), len(links & self.possible)
        return float(alignment_error_rate(*(np.array(x) for x in counts)))

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        kinds = self.kinds()
        return pd.DataFrame(
            {
                "source_place": [s for s, _ in kinds],
                "source_word": [self.source[s] for s, _ in kinds],
                "target_place": [t for _, t in kinds],
                "target_word": [self.target[t] for _, t in kinds],
                "metric": "attention",
                "score": [float(self.weights[t, s]) for s, t in kinds],
                "null": 1 / len(self.source),
                "n": 1,
                "unit": "attention weight",
                "kind": list(kinds.values()),
            }
        )

    def plot(self) -> go.Figure:  # type: ignore[override]  # every row is drawn
        """Draw the weights as a matrix; `lines` draws the links."""
        return self.matrix()

    def __repr__(self) -> str:
        known = "" if self.sure is None else f", alignment error rate {self.error:.3f}"
        return (
            f"PairAlignment of {len(self.source)} source and {len(self.target)} target words by "
            f"{self._title()}: {len(self.links)} links{known}"
        )

    def kinds(self) -> dict[WordLink, str]:
        """Return every link of head or gold with its kind: sure, possible, wrong, missed, found."""
        if self.sure is None:
            return dict.fromkeys(sorted(self.links), "found")
        named = {
            link: "sure" if link in self.sure else "possible" if link in self.possible else "wrong"
            for link in sorted(self.links)
        }
        return named | dict.fromkeys(sorted(self.sure - self.links), "missed")

    def matrix(self) -> go.Figure:
        """Draw the weights as a heat map, target words by source words, gold cells marked."""
        import plotly.graph_objects as go

        from interp.draw.colours import COLOURS, palette
        from interp.draw.page import text

        hover = [
            [f"{t!r} to {s!r}: {w:.3f}" for s, w in zip(self.source, row, strict=True)]
            for t, row in zip(self.target, self.weights, strict=True)
        ]
        cells = go.Heatmap(
            z=self.weights.astype(np.float32),
            text=[[text(x) for x in row] for row in hover],
            hovertemplate="%{text}<extra></extra>",
            colorscale=palette(False),
            showlegend=False,
            colorbar={"title": {"text": "weight"}},
        )
        figure = go.Figure(cells)
        for name, links, symbol in (
            ("sure gold link", self.sure or frozenset(), "circle"),
            ("possible gold link", self.possible - (self.sure or frozenset()), "circle-open"),
        ):
            if links:
                figure.add_scatter(
                    x=[s for s, _ in sorted(links)],
                    y=[t for _, t in sorted(links)],
                    mode="markers",
                    name=name,
                    marker={"color": COLOURS[1], "symbol": symbol, "size": 9},
                )
        figure.update_layout(template="plotly_white", title=text(self._title()))
        figure.update_layout(legend={"orientation": "h", "y": -0.2})
        figure.update_xaxes(**_words(self.source, "source"))
        figure.update_yaxes(**_words(self.target, "target"), autorange="reversed")
        return figure

    def lines(self) -> go.Figure:
        """Draw the links as lines between the source words, above, and the target words."""
        import plotly.graph_objects as go

        from interp.draw.colours import COLOURS, GREY
        from interp.draw.page import text

        figure = go.Figure()
        wide = max(len(self.source), len(self.target))
        places = [_spread(len(words), wide) for words in (self.source, self.target)]
        colours = {
            "sure": COLOURS[0],
            "possible": COLOURS[4],
            "wrong": COLOURS[1],
            "missed": GREY,
            "found": COLOURS[0],
        }
        named: set[str] = set()
        for (source, target), kind in self.kinds().items():
            dash, stated = _LINE[kind]
            figure.add_scatter(
                x=[places[0][source], places[1][target]],
                y=[1, 0],
                mode="lines",
                name=stated,
                showlegend=kind not in named,
                legendgroup=kind,
                hoverinfo="skip",
                line={"color": colours[kind], "dash": dash, "width": 2},
            )
            named.add(kind)
        for words, at, y, above in (
            (self.source, places[0], 1, 0.14),
            (self.target, places[1], 0, -0.2),
        ):
            figure.add_scatter(
                x=at,
                y=[y] * len(words),
                mode="markers",
                showlegend=False,
                hoverinfo="skip",
                marker={"color": GREY, "size": 4},
            )
            figure.add_scatter(
                x=at,
                y=[y + above] * len(words),
                mode="text",
                text=[text(w) for w in words],
                textposition="middle center",
                showlegend=False,
                hoverinfo="skip",
            )
        figure.update_layout(template="plotly_white", title=text(self._title()), height=320)
        figure.update_layout(legend={"orientation": "h", "y": -0.05})
        figure.update_xaxes(visible=False, range=[-0.7, wide - 0.3])
        figure.update_yaxes(visible=False, range=[-0.35, 1.35])
        return figure

    def _title(self) -> str:
        which = "emits" if self.rows == "emits" else "is fed"
        return f"cross.{self.head}, the row that {which} a target word"


@takes_model
def pair_alignment(
    model: Model, pair: Any, head: Head | str | tuple[int, int], *, rows: AlignedRow = "emits"
) -> PairAlignment:
    """Return how one cross-attention head aligns one sentence pair, to be drawn.

    Args:
        model: the encoder-decoder model.
        pair: the pair, with or without a gold alignment.
        head: the head, such as "L1H0".
        rows: "emits" or "fed"; see `word_alignment`.

    Raises:
        OptionError: the model has no cross attention or no such head.
        PromptError: the pair does not fit the model.
    """
    kinds = require_rows(rows)
    if len(kinds) > 1:
        raise OptionError("rows='both' cannot be drawn at once; give 'emits' or 'fed'")
    parsed = Head.parse(head)
    wanted = Head(parsed.layer, parsed.head, "cross")
    encoded = encode_pairs(model, [pair])
    [maps] = pair_weights(model, encoded, kinds, 1)
    if wanted not in maps.heads:
        raise OptionError(
            f"{model.name} has no cross-attention head {wanted}; it has "
            f"{', '.join(map(str, maps.heads[:8]))}{' ...' if len(maps.heads) > 8 else ''}"
        )
    weights = maps.weights[rows][maps.heads.index(wanted)]
    [links] = link_sets(largest_links(weights[None]))
    one = encoded.pairs[0]
    source, target = (tuple(map(str, side_words(x))) for x in (one.source, one.target))
    provenance = result_provenance(
        model, "interp.alignment.pair_alignment", encoded.prompts, head=str(wanted), rows=rows
    )
    return PairAlignment(
        wanted, rows, source, target, weights, links, one.sure, one.possible, provenance
    )


def _words(words: Sequence[str], title: str) -> dict[str, Any]:
    from interp.draw.page import text

    at = [*range(len(words))]
    return {"tickvals": at, "ticktext": [text(w) for w in words], "title": {"text": title}}


def _spread(n: int, wide: int) -> list[float]:
    """Return places of n words, centred in a row of `wide` words."""
    return [i + (wide - n) / 2 for i in range(n)]


def pair_part(found: PairAlignment) -> FoundPart:
    """Return how one head aligns one sentence pair, as a matrix and as lines."""
    label = f"cross {found.head}"
    figure: Any = {
        "draw": "alignment",
        "layer": found.head.layer,
        "head": found.head.head,
        "row": found.rows,
        "source": list(found.source),
        "target": list(found.target),
        "weights": plain_value(found.weights),
        "links": plain_value(sorted(found.links)),
        "sure": None if found.sure is None else plain_value(sorted(found.sure)),
        "possible": plain_value(sorted(found.possible)),
    }
    error = "" if found.sure is None else f", alignment error rate {found.error:.3f}"
    return result_part(
        found,
        "alignment",
        "Alignment of one sentence pair",
        f"{found}.",
        heads=[label],
        figure=figure,
        notes={label: f"Alignment of {' '.join(found.target)[:60]}{error}"},
        drop=ALL_EQUAL,
    )


present(PairAlignment, part=pair_part)
