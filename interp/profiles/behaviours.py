"""Behaviours of every head as shares with bootstrap draws, which profiles of one corpus share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.profiles.judgement import Judge

ON = "on:"  # in front of the name of a rule: attention on its keys, whatever other rules fire there
DRAWN = 50  # draws that are kept
SHARES = ("off_sink", "explained_position", "explained_rules", "explained_tokens")


@dataclass(frozen=True, eq=False)
class Behaviours:
    """Shares of every head, and the same in bootstrap samples of the documents.

    Profiles of the same documents with the same seed drew the same samples, so the difference of
    their draws is a draw of the difference: documents are paired.

    Args:
        names: of the shares: `on:` and the name of a rule, then `SHARES`.
        phrases: words of each.
        values: of each head of the profile; NaN where a head has no attention off the sink.
        errors: standard deviation of the draws.
        draws: minus the values, in standard deviations.
        n: documents that were drawn.
    """

    names: tuple[str, ...]
    phrases: tuple[str, ...]
    values: Float[np.ndarray, "head name"]
    errors: Float[np.ndarray, "head name"]
    draws: Float[np.ndarray, "head name draw"]
    n: int

    def deviations(self, head: int, names: Sequence[int]) -> Float[np.ndarray, "name draw"]:
        """Return the draws minus the values, of some shares of a head."""
        return self.draws[head, names].astype(np.float64) * self.errors[head, names, None]


def behaviours_of(judge: Judge, heads: Sequence[int]) -> Behaviours:
    """Return the shares of some heads."""
    phrases = {
        "off_sink": "off the sink",
        "explained_position": "explained by position",
        "explained_rules": "explained by the rules",
        "explained_tokens": "explained by the two tokens",
    }
    used = np.flatnonzero(judge.sums["total"].sum((0, 1)) > 0).tolist()
    names = [*(f"{ON}{judge.rules[rule].name}" for rule in used), *SHARES]
    words = [*(judge.rules[rule].phrase for rule in used), *(phrases[name] for name in SHARES)]
    samples = np.concatenate([np.ones((1, judge.n)), judge.draws[None].weights[:DRAWN]])
    shares = np.stack([_shares(judge, head, used, samples) for head in heads])
    values, draws = shares[..., 0], shares[..., 1:] - shares[..., :1]
    # of n documents the spread of the draws lacks n / (n - 1)
    errors = draws.std(-1, ddof=1) * np.sqrt(judge.n / max(judge.n - 1, 1))
    scaled = (draws / np.where(errors > 0, errors, 1.0)[..., None]).astype(np.float16)
    return Behaviours(tuple(names), tuple(words), values, errors, scaled, judge.n)


def _shares(
    judge: Judge, head: int, rules: Sequence[int], samples: Float[np.ndarray, "sample document"]
) -> Float[np.ndarray, "name sample"]:
    """Return every share of one head in samples of the documents, given as their counts."""
    from interp.profiles.second_look import MEASURES

    weight = judge.sums["measures"][:, head, MEASURES.index("weight")]
    sink = judge.sums["measures"][:, head, MEASURES.index("sink")]
    uniform = judge.nats(head, "uniform")
    with np.errstate(invalid="ignore", divide="ignore"):
        on = (samples @ judge.sums["total"][:, head, rules]) / (samples @ weight)[:, None]
        off = 1 - (samples @ sink) / (samples @ judge.counts)
        rest = [
            1 - (samples @ judge.nats(head, name.removeprefix("explained_"))) / (samples @ uniform)
            for name in SHARES[1:]
        ]
    return np.concatenate([on.T, off[None], np.stack(rest)])
