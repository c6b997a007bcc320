"""Transfer of the claim about a head: to the same answer made otherwise, and to another answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from interp.core.clusters import cluster_count, numbered
from interp.core.statistics import bootstrap_interval, holm, sign_flip_ps

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from jaxtyping import Float

Claim = Literal["answer", "step"]
HALF = 0.5
LEVEL = 0.05
"""Level of all tests of causal checks; a smallest possible p above it can show nothing."""
STEPS = frozenset(
    {
        "previous_token",
        "previous_token_text",
        "duplicate_token",
        "duplicate_token_text",
        "echo",
        "s_inhibition",
        "function_vector",
    }
)
"""Metrics of heads that do a step towards the answer, such as finding where it stands."""


@dataclass(frozen=True)
class HeadTransfer:
    """Effect of one head's output taken from another prompt: what about the prompt it depends on.

    A head that is said to give the answer should do damage if its output comes from a prompt with
    another answer, and little if it comes from one with the same answer that is reached otherwise.
    A head that is said to do a step of the computation should do the reverse.

    Args:
        head: name of the head.
        claim: "answer" or "step"; see `STEPS`.
        verdict: "not shown to be needed" if the damage of ablation may be chance (`ablation_p`
            above 0.05) or is below 1 % of the distance to uniform guessing; "fails" if the
            difference is less than half of the damage of ablation or of the source that should do
            damage, whichever is larger, with a bootstrap interval over prompts that excludes this
            half; "transfers" if it does not fail and the damages differ as the claim says (`p` at
            most 0.05); otherwise "not shown".
        unit: unit of all damages: decrease in task performance, positive is worse.
        ablated: damage from ablating this head alone on these prompts.
        other_answer: damage with its output from a prompt that keeps the computation and changes
            the answer.
        other_computation: damage with its output from a prompt that keeps the answer and changes
            the computation.
        difference: the damage that the claim expects minus the other one, with a bootstrap interval
            over prompts in `low` and `high`.
        p, ablation_p: two-sided sign-flip tests, paired over prompts, of the difference and of the
            damage of ablation; corrected by Holm's method over the heads of the score. 1 if
            the mean has the wrong sign.
        n: number of prompts; `n_clusters` of them are independent.
    """

    head: str
    claim: Claim
    verdict: Literal["transfers", "fails", "not shown", "not shown to be needed"]
    unit: str
    ablated: float
    other_answer: float
    other_computation: float
    difference: float
    low: float
    high: float
    p: float
    ablation_p: float
    n: int
    n_clusters: int

    def summary(self) -> str:
        """Describe the damages and their difference."""
        within = "" if math.isnan(self.low) else f" [{self.low:+.3g}, {self.high:+.3g}]"
        return (
            f"{self.head} {self.verdict}: damage {self.other_answer:.3g} with another answer, "
            f"{self.other_computation:.3g} with the same answer reached otherwise, "
            f"{self.ablated:.3g} ablated ({self.unit}); as a head of the {self.claim} "
            f"{self.difference:+.3g}{within}, p {self.p:.2g}"
        )


def restored_transfers(rows: Iterable[Mapping[str, Any]]) -> tuple[HeadTransfer, ...]:
    """Return tests from JSON data, with NaN where it has null."""
    transfers = []
    for row in rows:
        values: dict[str, Any] = {k: math.nan if x is None else x for k, x in row.items()}
        transfers.append(HeadTransfer(**values))
    return tuple(transfers)


def judge_transfers(
    heads: Sequence[str],
    claim: Claim,
    unit: str,
    ablated: Float[np.ndarray, "head prompt"],
    other_answer: Float[np.ndarray, "head prompt"],
    other_computation: Float[np.ndarray, "head prompt"],
    *,
    least: float = 0.0,
    clusters: Sequence[str] | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> tuple[HeadTransfer, ...]:
    """Return the test of every head of one score, from damages per prompt."""
    expected, other = other_answer, other_computation
    if claim == "step":
        expected, other = other, expected
    difference = expected - other
    larger = np.where((expected.mean(1) > ablated.mean(1))[:, None], expected, ablated)
    p = _greater(difference, clusters, seed)
    ablation_p = _greater(ablated, clusters, seed)
    n = difference.shape[1]
    number = cluster_count(n, clusters)
    ends = short = np.full((len(heads), 2), math.nan)
    if number > 1:
        options = {"level": level, "seed": seed, "clusters": clusters}
        ends = bootstrap_interval(difference, **options)
        short = bootstrap_interval(difference - HALF * larger, **options)
    transfers = []
    for i, head in enumerate(heads):
        verdict = "not shown"
        if ablation_p[i] > LEVEL or ablated[i].mean() < least:
            verdict = "not shown to be needed"
        elif short[i, 1] < 0:
            verdict = "fails"
        elif p[i] <= LEVEL:
            verdict = "transfers"
        transfers.append(
            HeadTransfer(
                head,
                claim,
                verdict,
                unit,
                ablated=float(ablated[i].mean()),
                other_answer=float(other_answer[i].mean()),
                other_computation=float(other_computation[i].mean()),
                difference=float(difference[i].mean()),
                low=float(ends[i, 0]),
                high=float(ends[i, 1]),
                p=float(p[i]),
                ablation_p=float(ablation_p[i]),
                n=n,
                n_clusters=number,
            )
        )
    return tuple(transfers)


def _greater(
    x: Float[np.ndarray, "head prompt"], clusters: Sequence[str] | None, seed: int
) -> Float[np.ndarray, " head"]:
    """Return corrected p values of a mean above 0, with one sign for each cluster of prompts."""
    which = numbered(x.shape[1], clusters)
    sums = np.zeros((len(x), int(which.max()) + 1))
    np.add.at(sums.T, which, x.T)
    return holm(np.where(x.mean(1) > 0, sign_flip_ps(sums, seed=seed), 1.0))
