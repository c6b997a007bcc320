"""Error of token times by cross attention: the result, heads chosen and judged, and the null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.alignment.timed_rows import TimedRows
from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.result import Result
from interp.core.statistics import holm

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
CHOSEN = "chosen heads together"
DECLARED = "declared heads together"
GIVEN = "given heads together"
NULL_DRAWS = 199


@dataclass(frozen=True, eq=False, repr=False)
class TimeAlignments(Result):
    """Error of token times from cross attention; rows are heads, and sets of heads together.

    The score is the mean distance between found and given start times, in seconds, on recordings
    that did not choose heads.

    Args:
        names: each row's head, or the name of a set of heads.
        of: the heads of each row.
        per_prompt: mean error of each judged recording, seconds, `[row, recording]`.
        null: mean error with the token rows of the attention in random order.
        even: error of tokens that are spaced evenly over the sound.
        p: probability of a mean error as low under the null.
        p_holm: p corrected over all rows by Holm's method, also after `top`.
        starts: start times that each row found, seconds, `[row, recording, token]`, NaN beyond.
        judged: indices of the judged recordings.
    """

    names: tuple[str, ...]
    of: tuple[tuple[Head, ...], ...]
    per_prompt: Float[Array, "row recording"]
    null: Float[Array, " row"]
    even: float
    p: Float[Array, " row"]
    p_holm: Float[Array, " row"]
    starts: Float[Array, "row recording token"]
    judged: tuple[int, ...]
    provenance: Mapping[str, Any] = field(default_factory=dict)
    _units = ("heads_read",)
    _per_row = ("names", "of", "per_prompt", "null", "p", "p_holm", "starts")
    _by = "lowest"

    def heads_of(self, name: str) -> tuple[Head, ...]:
        """Return the heads of a row by its name; empty if there is no such row."""
        return dict(zip(self.names, self.of, strict=True)).get(name, ())

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        found = cluster_summary(self.per_prompt.T)
        single = [heads[0] if len(heads) == 1 else None for heads in self.of]
        return pd.DataFrame(
            {
                "heads_read": list(self.names),
                "stack": "cross",
                "layer": [np.nan if head is None else head.layer for head in single],
                "head": [np.nan if head is None else head.head for head in single],
                "metric": "time_alignment_error",
                "score": found.score,
                "sem": found.sem,
                "null": self.null,
                "p": self.p,
                "n": found.n,
                "unit": "seconds",
                "even": self.even,
                "p_holm": self.p_holm,
            }
        )

    def __repr__(self) -> str:
        if not len(self.names):
            return "TimeAlignments without rows"
        first = self.top(1).to_pandas().iloc[0]
        return (
            f"TimeAlignments of {len(self.names)} rows on {self.per_prompt.shape[1]} judged "
            f"recordings; lowest error {first['heads_read']}: {first['score']:.3g} ± "
            f"{first['sem']:.2g} s, token rows in random order {first['null']:.3g} s, evenly "
            f"spaced tokens {self.even:.3g} s"
        )


def judged_times(
    heads: Sequence[Head],
    timed: Sequence[TimedRows],
    *,
    sets: Mapping[str, Sequence[Head]],
    choose: int,
    select: float,
    seconds: float,
    null_draws: int,
    seed: int,
    provenance: Mapping[str, Any],
) -> TimeAlignments:
    """Return the error of each head, of sets of heads, and of heads that some recordings choose.

    Args:
        heads: the heads along the first axis of the weights.
        timed: one recording each.
        sets: heads that are read together, by name; empty sets are left out.
        choose: number of heads to choose; with 0 all recordings judge.
        select: share of the recordings that choose.
        seconds: duration of one frame.
        null_draws: number of random orders of the token rows.
        seed: seed of the split and of the null.
        provenance: of the result.

    Raises:
        OptionError: an option is out of range.
        PromptError: there are fewer than four recordings to choose on and to judge by.
    """
    n = len(timed)
    if choose < 0 or not 0 < select < 1 or null_draws < 1:
        raise OptionError(
            f"choose={choose}, select={select}, null_draws={null_draws}: choose is 0 or more, "
            "select lies between 0 and 1, and null_draws is at least 1"
        )
    if choose and n < 4:
        raise PromptError(
            f"times of {n} recordings; choosing heads on some and judging them on others needs "
            "four or more. Name the heads, or choose none"
        )
    rng = np.random.default_rng(seed)
    judged = list(range(n))
    rows = {str(head): [at] for at, head in enumerate(heads)}
    if choose:
        order = rng.permutation(n)
        cut = min(max(1, round(select * n)), n - 2)
        judged = sorted(order[cut:].tolist())
        alone = [timed[i].errors(list(rows.values()), seconds) for i in sorted(order[:cut])]
        first = np.argsort(np.mean(alone, 0), kind="stable")[:choose]
        rows[CHOSEN] = sorted(first.tolist())
    for name, which in sets.items():
        if which:
            rows[name] = [list(heads).index(head) for head in which]
    every, own = list(rows.values()), [timed[i] for i in judged]
    starts = np.full((len(rows), len(own), max(len(t.known) for t in own)), np.nan)
    draws = np.zeros((len(rows), null_draws))
    for at, one in enumerate(own):
        starts[:, at, : len(one.known)] = one.starts(every) * seconds
        draws += one.shuffled_errors(every, seconds, null_draws, rng) / len(own)
    errors = np.stack([one.errors(every, seconds) for one in own], 1)
    p = (1 + (draws <= errors.mean(1)[:, None] + 1e-12).sum(1)) / (1 + null_draws)
    return TimeAlignments(
        tuple(rows),
        tuple(tuple(heads[h] for h in which) for which in every),
        errors,
        draws.mean(1),
        float(np.mean([one.even_error(seconds) for one in own])),
        p,
        holm(p),
        starts,
        tuple(judged),
        provenance,
    )
