"""Anchors: sentences of long texts by the attention they receive and by what depends on them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float, Int

from interp.core.errors import OptionError
from interp.core.files import write_page
from interp.core.head import Head
from interp.core.presenter import drawn, present
from interp.core.rank_statistics import paired_spearman, ranks
from interp.core.result import Result
from interp.core.statistics import finite_interval, finite_mean, redraw
from interp.draw.parts import FoundPart, plain_value, result_part

if TYPE_CHECKING:
    import os

    import pandas as pd

UNITS = {
    "receiver": "attention weight",
    "suppression": "nats",
    "suppression_answer": "nats",
    "resampling": "probability",
    "counterfactual": "probability",
}
"""Measures of a sentence, and their units."""


@dataclass(frozen=True, eq=False, repr=False)
class Anchors(Result):
    """Importance of every sentence by several measures; rows are sentences by measure.

    `receiver` is the mean vertical score over receiver heads; `suppression` the mean divergence of
    later sentences when the sentence is hidden, `suppression_answer` the log odds that the answer
    loses; `resampling` and `counterfactual` the rise of the answer's probability by the sentence.
    The null of a row is the mean of its measure over the sentences of the chain: what a sentence
    drawn at random scores.

    Args:
        chains: names of the chains.
        of_chain: chain of each sentence.
        index: number of each sentence in its chain.
        texts: the sentences.
        values: per measure one value per sentence, NaN where it does not exist.
        sems: standard errors over rollouts, for the measures that are sampled.
        attended: earlier sentence that the receiver heads attend to most from each sentence, at
            least `apart` back; -1 for none.
        depends: earlier sentence whose suppression changes each sentence most; -1 for none.
        receivers: receiver heads with which each chain was scored; chosen on the other chains if
            there are several.
        provenance: model, chains and options.
    """

    chains: tuple[str, ...]
    of_chain: Int[np.ndarray, " sentence"]
    index: Int[np.ndarray, " sentence"]
    texts: tuple[str, ...]
    values: Mapping[str, Float[np.ndarray, " sentence"]]
    sems: Mapping[str, Float[np.ndarray, " sentence"]]
    attended: Int[np.ndarray, " sentence"]
    depends: Int[np.ndarray, " sentence"]
    receivers: tuple[tuple[Head, ...], ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "a sentence belongs to one chain, so no row has values on several prompts"
    _units = ("chain", "sentence")

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures, in order."""
        return tuple(self.values)

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        parts = []
        for name, scores in self.values.items():
            null = np.array(
                [finite_mean(scores[self.of_chain == c]) for c in range(len(self.chains))]
            )
            nothing = np.full(len(scores), np.nan)
            parts.append(
                pd.DataFrame(
                    {
                        "chain": [self.chains[c] for c in self.of_chain],
                        "sentence": self.index,
                        "text": list(self.texts),
                        "metric": name,
                        "score": scores,
                        "sem": self.sems.get(name, nothing),
                        "null": null[self.of_chain],
                        "n": 1,
                        "unit": UNITS[name],
                    }
                )
            )
        return pd.concat(parts, ignore_index=True)

    def agreement(self, *, n_boot: int = 1000, seed: int = 0) -> pd.DataFrame:
        """Return Spearman's correlation over sentences of every two measures, averaged over chains.

        The interval redraws chains and, within them, sentences; the p value permutes the sentences
        of one measure within every chain. Measures that fall (or rise) along a text agree for that
        reason alone, so p is the larger of two: that of the ranks, and that of the ranks without
        their linear trend over sentences.

        Args:
            n_boot: number of bootstrap draws and of permutations.
            seed: seed of both.

        Raises:
            OptionError: there are fewer than two measures.
        """
        import pandas as pd

        if len(self.values) < 2:
            raise OptionError("agreement compares measures, and only one was computed")
        rows = []
        for one, other in combinations(self.values, 2):
            rng = np.random.default_rng(seed)
            pairs = []
            for c in range(len(self.chains)):
                mine = self.of_chain == c
                x, y = self.values[one][mine], self.values[other][mine]
                finite = np.isfinite(x) & np.isfinite(y)
                if finite.sum() > 2:
                    pairs.append((x[finite], y[finite]))
            score = float(finite_mean(np.array([paired_spearman(x, y) for x, y in pairs])))
            boot = np.full(n_boot, np.nan)
            null = np.full(n_boot, np.nan)
            p = np.nan
            if pairs:
                boot = _redrawn(pairs, n_boot, rng)
                null = finite_mean(np.stack([_permuted(x, y, n_boot, rng) for x, y in pairs]), 0)
                p = max(_permutation_p(score, null), _p_beside_trend(pairs, n_boot, rng))
            known = np.isfinite(boot).sum() > n_boot // 2
            low, high = finite_interval(boot) if known else (np.nan, np.nan)
            rows.append(
                {
                    "measure": one,
                    "other": other,
                    "spearman": score,
                    "low": low,
                    "high": high,
                    "null": float(finite_mean(null)),
                    "p": p if np.isfinite(score) else np.nan,
                    "chains": len(pairs),
                    "sentences": sum(len(x) for x, _ in pairs),
                }
            )
        return pd.DataFrame(rows)

    def save_html(self, path: str | os.PathLike, *, title: str | None = None) -> None:
        """Write a self-contained page with the sentences, coloured, and their anchors.

        Raises:
            StoreError: the file cannot be written; an existing file is then unchanged.
        """
        write_page(path, drawn("page", self, title=title or "Anchors"))

    def __repr__(self) -> str:
        lines = []
        for name, scores in self.values.items():
            if np.isfinite(scores).any():
                best = int(np.nanargmax(scores))
                lines.append(f"{name} {self.index[best]} of {self.chains[self.of_chain[best]]}")
        return f"Anchors in {len(self.chains)} chains, largest: {', '.join(lines) or 'none'}"


def _redrawn(
    pairs: list[tuple[np.ndarray, np.ndarray]], draws: int, rng: np.random.Generator
) -> Float[np.ndarray, " draw"]:
    """Return the mean correlation with chains, and sentences within them, drawn again."""
    each = []
    for x, y in pairs:
        at = redraw(len(x), draws, rng)
        each.append(paired_spearman(x[at], y[at]))
    which = rng.integers(len(pairs), size=(len(pairs), draws))
    return finite_mean(np.take_along_axis(np.stack(each), which, axis=0), 0)


def _permuted(
    x: np.ndarray, y: np.ndarray, draws: int, rng: np.random.Generator
) -> Float[np.ndarray, " draw"]:
    others = rng.permuted(np.broadcast_to(y, (draws, len(y))), axis=1)
    return paired_spearman(np.broadcast_to(x, others.shape), others)


def _permutation_p(score: float, null: Float[np.ndarray, " draw"]) -> float:
    if not np.isfinite(score):  # nothing varies, as where the order alone ranks all sentences
        return 1.0
    return (1 + int((np.abs(null) >= abs(score) - 1e-12).sum())) / (1 + len(null))


def _p_beside_trend(
    pairs: list[tuple[np.ndarray, np.ndarray]], draws: int, rng: np.random.Generator
) -> float:
    """Return the permutation p of the correlation of ranks without their trend over sentences."""
    correlations, nulls = [], []
    for x, y in pairs:
        one, other = _without_trend(x), _without_trend(y)
        correlations.append(paired_spearman(one, other))
        nulls.append(_permuted(one, other, draws, rng))
    return _permutation_p(
        float(finite_mean(np.array(correlations))), finite_mean(np.stack(nulls), 0)
    )


def _without_trend(x: Float[np.ndarray, " sentence"]) -> Float[np.ndarray, " sentence"]:
    """Return ranks minus their linear regression on the order of the sentences."""
    r, at = ranks(x), np.arange(len(x)) - (len(x) - 1) / 2
    # rounding keeps equal values equal
    return np.round(r - r.mean() - at * (r @ at) / (at @ at), 9)


SENTENCES = 200  # of a chain in colours


def anchors_part(found: Anchors) -> FoundPart:
    """Return the sentences of long texts, coloured by what later ones attend to and depend on."""
    texts = []
    for number, name in enumerate(found.chains):
        rows = np.flatnonzero(found.of_chain == number)[:SENTENCES]
        measures = [
            (f"{measure} ({unit})", [plain_value(x) for x in values[rows]])
            for measure, values, unit in _measures(found)
            if np.isfinite(values[rows]).any()
        ]
        sentences = [f"{found.index[row]} {found.texts[row]} " for row in rows]
        texts.append({"name": name, "tokens": sentences, "rows": measures})
    heads = list(dict.fromkeys(str(head) for some in found.receivers for head in some))
    text = "; ".join(_largest(found, name) for name in found.measures)
    note = "A receiver head of the anchors: its attention from far behind goes to few sentences"
    return result_part(
        found,
        "anchors",
        "Anchors: sentences that later ones depend on",
        f"The sentence with the largest value by each measure, and the mean of its text: {text}.",
        heads=heads,
        figure={"draw": "texts", "texts": texts},
        notes=dict.fromkeys(heads, note),
    )


def _measures(found: Anchors) -> list[tuple[str, np.ndarray, str]]:
    return [(name, np.asarray(values), UNITS[name]) for name, values in found.values.items()]


def _largest(found: Anchors, measure: str) -> str:
    frame: Any = found[measure].to_pandas().dropna(subset="score")
    if not len(frame):
        return f"{measure}: none"
    row = frame.loc[frame["score"].idxmax()]
    error = "" if row["sem"] != row["sem"] else f" ± {row['sem']:.2g}"
    return (
        f"{measure}: sentence {row['sentence']} of {row['chain']}, {row['score']:.3g}{error} "
        f"{row['unit']}, mean {row['null']:.3g}"
    )


present(
    Anchors,
    page="interp.report.anchors:anchors_page",
    text="interp.report.printed.texts:anchors_text",
    part=anchors_part,
)
