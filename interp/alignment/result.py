"""Alignment error of every cross-attention head, with its interval over sentences and its null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.alignment.links import alignment_error_rate, drawn_error_rates, share_of
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.result import Result
from interp.core.statistics import percentile_interval, widened_tails
from interp.core.ties import ranked
from interp.draw.parts import FoundPart, between, result_part

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray


def lowest(error: Float[Array, " row"]) -> int:
    """Return the index of the lowest error, the first of equal ones; NaN counts as largest."""
    return int(np.where(np.isnan(error), np.inf, error).argmin())


def best_of_layers(error: Float[Array, " row"], layers: Sequence[int]) -> Bool[Array, " row"]:
    """Mark the row with the lowest error of each layer."""
    best = np.zeros(len(error), bool)
    for layer in dict.fromkeys(layers):
        mine = np.flatnonzero(np.array(layers) == layer)
        best[mine[lowest(error[mine])]] = True
    return best


@dataclass(frozen=True, eq=False, repr=False)
class HeadAlignments(Result):
    """Word alignments of cross-attention heads; the score is the alignment error rate, 0 to 1.

    Rows are heads, one per convention of which decoder row stands for a target word. Counts are
    summed over the judged sentences before dividing; intervals draw whole sentences with
    replacement. What is called best was chosen on the other sentences.

    Args:
        of: the head of each row.
        rows: the convention of each row, "emits" or "fed".
        counts: per judged sentence the numbers of links, of sure gold links, and of links that are
            sure and that are possible, `[row, sentence, 4]`.
        chosen_counts: the same on the sentences on which heads are chosen.
        steps: source words with a link, source words, neighbouring target words that go forward,
            and such neighbours, `[row, sentence, 4]`.
        links: the source word of each target word, -1 without one, `[row, sentence, target]`.
        gold: gold links of each judged sentence, `[link, 3]`: source, target, 1 if sure.
        judged: indices of the judged pairs.
        null: error rate against the gold of the null, mean over its draws.
        p: probability of an error rate as low under the null.
        p_holm: p corrected over all rows by Holm's method, also after `top`.
        best_of_layer: True for the row of each layer with the lowest error on the other sentences.
        null_kind: what the null is.
    """

    of: tuple[Head, ...]
    rows: tuple[str, ...]
    counts: Int[Array, "row sentence 4"]
    chosen_counts: Int[Array, "row sentence 4"]
    steps: Int[Array, "row sentence 4"]
    links: Int[Array, "row sentence target"]
    gold: tuple[Int[Array, "link 3"], ...]
    judged: tuple[int, ...]
    null: Float[Array, " row"]
    p: Float[Array, " row"]
    p_holm: Float[Array, " row"]
    best_of_layer: Bool[Array, " row"]
    null_kind: str
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _units = ("stack", "layer", "head", "rows")
    _per_row = (
        "of",
        "rows",
        "counts",
        "chosen_counts",
        "steps",
        "links",
        "null",
        "p",
        "p_holm",
        "best_of_layer",
    )
    _by = "lowest"

    @property
    def per_prompt(self) -> Float[Array, "row sentence"]:  # type: ignore[override]
        """Alignment error rate of each sentence alone; the score sums over sentences instead."""
        return alignment_error_rate(*np.moveaxis(self.counts, -1, 0))

    @property
    def score(self) -> Float[Array, " row"]:
        """Alignment error rate over all judged sentences."""
        return alignment_error_rate(*self.counts.sum(1).T)

    @property
    def on_chosen(self) -> Float[Array, " row"]:
        """Alignment error rate on the sentences on which heads are chosen."""
        return alignment_error_rate(*self.chosen_counts.sum(1).T)

    def drawn(self, seed: int = 0) -> Float[Array, "draw row"]:
        """Return the score on bootstrap draws of the judged sentences."""
        return drawn_error_rates(self.counts, seed)

    def bounds(self, level: float = 0.95) -> Float[Array, "row 2"]:
        """Return the interval of each score over draws of sentences, widened where they are few."""
        return interval_of_draws(self.drawn(), level, self.counts.shape[1])

    def best(self) -> HeadAlignments:
        """Return the row with the lowest error of each layer, chosen on the other sentences."""
        return self._take(np.flatnonzero(self.best_of_layer).tolist())

    def best_head(self) -> HeadAlignments:
        """Return the single row with the lowest error of all, chosen on the other sentences."""
        return self._take([lowest(self.on_chosen)])

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        links, sure, in_sure, in_possible = self.counts.sum(1).T
        covered, words, forward, neighbours = self.steps.sum(1).T
        drawn = self.drawn() if len(self.of) else np.zeros((2, 0))
        low, high = interval_of_draws(drawn, 0.95, self.counts.shape[1]).T
        return pd.DataFrame(
            {
                "stack": [head.stack for head in self.of],
                "layer": [head.layer for head in self.of],
                "head": [head.head for head in self.of],
                "rows": list(self.rows),
                "metric": "alignment_error_rate",
                "score": self.score,
                "sem": drawn.std(0, ddof=1),
                "low": low,
                "high": high,
                "null": self.null,
                "p": self.p,
                "n": self.counts.shape[1],
                "unit": "share of links",
                "precision": share_of(in_possible, links),
                "recall": share_of(in_sure, sure),
                "coverage": share_of(covered, words),
                "monotonicity": share_of(forward, neighbours),
                "on_chosen": self.on_chosen,
                "best_of_layer": self.best_of_layer,
                "p_holm": self.p_holm,
            }
        )

    def __repr__(self) -> str:
        if not len(self.of):
            return "HeadAlignments without rows"
        one = self.best_head()
        row = one.to_pandas().iloc[0]
        chosen = self.chosen_counts.shape[1]
        return (
            f"HeadAlignments of {len(set(self.of))} cross-attention heads on {len(self.judged)} "
            f"judged pairs; chosen on {chosen} others: {one.of[0]} (row that "
            f"{'emits the word' if one.rows[0] == 'emits' else 'is fed the word'}), alignment "
            f"error rate {row['score']:.3f} [{row['low']:.3f}, {row['high']:.3f}], null "
            f"{row['null']:.3f} ({self.null_kind})"
        )


def interval_of_draws(
    drawn: Float[Array, "draw row"], level: float, sentences: int
) -> Float[Array, "row 2"]:
    """Return the interval of each row of bootstrap draws of sentences; NaN with one sentence."""
    if sentences < 2:
        return np.full((drawn.shape[1], 2), np.nan)
    return percentile_interval(drawn, widened_tails(level, sentences), axis=0).T


_ROW = {"emits": "the row that emits a word", "fed": "the row that is fed a word"}


def alignment_part(found: HeadAlignments) -> FoundPart:
    """Return the alignment error of every cross-attention head, in the better of its rows."""
    frame: Any = found.to_pandas()
    notes: dict[str, str] = {}
    for row in ranked(frame, "score", lowest=True).to_dict("records"):
        label = f"cross L{row['layer']}H{row['head']}"
        notes.setdefault(
            label,
            f"Word alignment ({_ROW[row['rows']]}): error rate {row['score']:.3f}"
            f"{between(row['low'], row['high'])}, null {row['null']:.3f}",
        )
    heads = [f"cross {head}" for head in found.best().of]
    title = "Word alignment by cross attention"
    return result_part(found, "alignment", title, f"{found}.", heads=heads, notes=notes)


present(HeadAlignments, part=alignment_part)
