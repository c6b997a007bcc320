"""Gap of clean and corrupted prompts: whether a model does a task, and effects as shares of it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from interp.core.clusters import cluster_count
from interp.core.intervals import normal_as_t
from interp.core.standard_errors import standard_error
from interp.core.statistics import ratio_intervals

Array = np.ndarray
LEAST_GAP = 2.0  # required mean difference, in standard errors of many pairs
LEAST_EFFECT = 0.2  # required mean difference, in standard deviations between prompts
LEAST_OF_TWO = 0.8  # the same, where all pairs ask for the same two tokens
NOTHING = 1e-6  # values that differ by less are equal
FEW = 8  # if at most this many times the pairs would suffice, more pairs are asked for


@dataclass(frozen=True)
class Gap:
    """Difference of clean and corrupted prompts, and whether it shows that the model does the task.

    Two things are required. The mean must be significant: above `required` standard errors, which
    is `LEAST_GAP` for many pairs, and the quantile of Student's t of the same probability (2.3 %)
    for few. And it must be an effect of at least `LEAST_EFFECT`. Significance alone is not enough,
    because a model before training has a gap too: its embeddings reach the logits directly, and
    this small but real difference is significant if the pairs are many or alike. Where all pairs
    ask for the same two tokens, one direction of the stream decides all of them, so that chance
    differences are larger, and `LEAST_OF_TWO` is required.

    Both least effects were chosen on the untrained models of benchmarks/ground_truth.md, of which
    8 of 400 are accepted (2.0 %); of untrained models of other seeds 7 of 400 are (1.8 %).

    Args:
        mean: mean of clean minus corrupted, in the task's unit; positive if clean does better.
        sem: its standard error, 0 for a single pair.
        required: the standard errors that the mean must exceed.
        effect: the mean in standard deviations between prompts of one side (Cohen's d); infinite
            where prompts do not differ.
        least: the effect that is required.
        n: number of pairs.
    """

    mean: float
    sem: float
    required: float
    effect: float
    least: float
    n: int

    @classmethod
    def of(
        cls,
        clean: Float[Array, " pair"],
        corrupted: Float[Array, " pair"],
        clusters: Sequence[str] | None = None,
        tokens: int | None = None,
    ) -> Gap:
        """Measure the gap of pairs, where higher values are better."""
        difference, n = clean - corrupted, len(clean)
        least = LEAST_OF_TWO if tokens == 2 else LEAST_EFFECT
        mean = float(difference.mean())
        if n < 2:
            return cls(mean, 0.0, LEAST_GAP, math.copysign(math.inf, mean), least, n)
        sem = float(standard_error(difference[None], clusters)[0])
        required = normal_as_t(LEAST_GAP, cluster_count(n, clusters))
        spread = math.sqrt((clean.var(ddof=1) + corrupted.var(ddof=1)) / 2)
        effect = mean / spread if spread > 0 else math.copysign(math.inf, mean)
        return cls(mean, sem, required, effect, least, n)

    @property
    def significant(self) -> bool:
        """True if the clean prompts do better by more than chance."""
        return self.mean > max(self.required * self.sem, NOTHING)

    @property
    def shown(self) -> bool:
        """True if the model does the task."""
        return self.significant and self.effect >= self.least

    def reason(self, model: str, task: str, unit: str) -> str:
        """Say why the pairs do not show that the model does the task, and what to do."""
        text = f"clean minus corrupted {self.mean:.3g} ± {self.sem:.2g} {unit} over {self.n} pairs"
        if self.significant:
            return (
                f"{model} hardly does {task}: {text}, {self.effect:.2g} standard deviations between"
                f" prompts of one side, and {self.least:g} is required, because models before"
                " training have such small gaps too; give pairs that differ more, or another model"
            )
        ratio = self.required * self.sem / self.mean if self.mean > NOTHING else np.inf
        needed = self.n * ratio**2
        if needed <= FEW * self.n and self.effect >= self.least:
            return (
                f"too few pairs to tell whether {model} does {task}: {text}, within"
                f" {self.required:.2g} standard errors of 0; if the mean stays the same, about"
                f" {int(np.ceil(1.5 * needed))} pairs are enough"
            )
        turned = (
            " (the corrupted prompts do better: are the sides or the answers exchanged?)"
            if self.mean < -self.required * self.sem
            else ""
        )
        return (
            f"{model} does not do {task}: {text}{turned}; there is nothing for a circuit to explain"
        )


def gap_columns(
    effects: Float[Array, "row pair"], gap: Float[Array, " pair"], clusters: Sequence[str] | None
) -> dict[str, Float[Array, " row"]]:
    """Return the columns score, sem, share, share_low and share_high (95 % interval)."""
    score = effects.mean(1)
    low, high = ratio_intervals(effects, gap, clusters=clusters).T
    return {
        "score": score,
        "sem": standard_error(effects, clusters),
        "share": score / gap.mean(),
        "share_low": low,
        "share_high": high,
    }
