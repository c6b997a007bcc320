"""The verdict on a hypothesis: one word, by a rule that is fixed beforehand.

On each document, the share is measured that a hypothesis explains of what its reference leaves: of
the divergence of the head's rows from the model of position, or from even attention if it names
the same keys whatever the tokens are. A document on which it explains less than nothing counts 0.
The hypothesis holds if the mean share is more than .5, and holds in part if it is more than .1; in
both cases it must also be .1 ahead of itself on the tokens of another document, and of random keys.

Shares lie between 0 and 1, so that their mean is tested by betting, which assumes nothing else
about them: a rare kind of document on which a hypothesis fails makes no test too sure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.statistics import mean_above_p
from interp.profiles.held_back import NOT_SHOWN, PREFIX

if TYPE_CHECKING:
    from interp.profiles.ledger import QuestionTurn

HOLDS, IN_PART, NOT, OPEN = (
    "holds",
    "holds in part",
    "does not hold",
    "cannot be told with these documents",
)
SHARES = {HOLDS: 0.5, IN_PART: 0.1}
"""Mean share of what the reference leaves that each word asks for."""
AGAINST = 0.05  # level of the statement that a hypothesis does not hold
MOST = 100_000  # documents above which a needed number is not stated
DocumentSums = Mapping[str, Float[np.ndarray, " document"]]


def shares_of(
    reference: Float[np.ndarray, " *x"], judged: Float[np.ndarray, " *x"]
) -> Float[np.ndarray, " *x"]:
    """Return the share of a reference's divergence that a row model explains, from 0 to 1.

    NaN where the reference leaves nothing, as on a document on which the head rests on the sink.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(reference > 0, np.clip(1 - judged / reference, 0, 1), np.nan)


@dataclass(frozen=True)
class Tested:
    """P-values of one hypothesis.

    Args:
        p: that it does not have the mean share that each word asks for, or is not so far ahead of
            a control.
        against: that it has the smallest mean share, and is so far ahead of every control.
        beaten: controls of which it is not shown to be ahead, by name.
        share: mean share of what the reference leaves.
        n: documents on which the reference leaves something.
    """

    p: Mapping[str, float]
    against: float
    beaten: tuple[str, ...]
    share: float
    n: int

    @classmethod
    def of(
        cls, nats: DocumentSums, reference: str, judged: str, controls: tuple[str, ...]
    ) -> Tested:
        """Test a row model against its reference, and against controls that should be worse."""
        shares = shares_of(nats[reference], nats[judged])
        known = np.isfinite(shares)
        if not known.any():
            return cls(dict.fromkeys(SHARES, 1.0), 1.0, (), np.nan, 0)
        under = nats[reference][known]
        ahead = {
            name: np.clip((nats[name] - nats[judged])[known] / under, 0, 1) for name in controls
        }
        return cls.of_shares(shares[known], ahead, SHARES[IN_PART])

    @classmethod
    def of_shares(
        cls, shares: Float[np.ndarray, " unit"], ahead: DocumentSums, least: float
    ) -> Tested:
        """Test shares of units, and by control numbers from 0 to 1 whose mean must exceed `least`.

        These say how far each unit is ahead of the control.
        """
        over = {name: mean_above_p(x, least) for name, x in ahead.items()}
        worst, in_part = max(over.values(), default=0.0), SHARES[IN_PART]
        p = {word: max(worst, mean_above_p(shares, share)) for word, share in SHARES.items()}
        less = [mean_above_p(1 - x, 1 - least, (0.99,)) for x in ahead.values()]
        small = mean_above_p(1 - shares, 1 - in_part, (0.99,))
        beaten = tuple(name for name, value in over.items() if value > AGAINST)
        return cls(
            p,
            min(1.0, 2 * small, *(2 * len(less) * x for x in less)),
            beaten,
            float(shares.mean()),
            len(shares),
        )

    def settled(self, turn: QuestionTurn, asked: str, documents: Sequence[str]) -> dict[str, Any]:
        """Write the verdict into the ledger, and return what is to be said of it."""
        levels = {word: turn.level(word) for word in SHARES}
        word = self.word(levels)
        p = dict(self.p)
        return _written(turn, asked, documents, word, p) | {
            "p": p,
            "levels": levels,
            "beaten": list(self.beaten),
            "needed": self.needed(levels),
        }

    def answered(self, turn: QuestionTurn, asked: str, held: Sequence[str]) -> dict[str, Any]:
        """Write the answer of held-back documents into the ledger, and return no other number."""
        level, in_part = turn.answers.level, self.p[IN_PART]
        answer = HOLDS if max(in_part, self.p[HOLDS]) <= level else IN_PART
        answer = answer if in_part <= level else NOT_SHOWN
        return _written(turn, asked, [PREFIX + x for x in held], answer, {}) | {"level": level}

    def word(self, levels: Mapping[str, float]) -> str:
        """Return the word of the verdict at the levels that the ledger allows."""
        for word in SHARES:
            if self.p[word] <= levels[word]:
                return word
        return NOT if self.against <= AGAINST else OPEN

    def needed(self, levels: Mapping[str, float]) -> int | None:
        """Estimate the number of documents that would tell, at the shares found; None if unknown.

        The money grows by the same factor with every document, on average.
        """
        reached = [word for word in SHARES if self.share > SHARES[word]]
        p, level = (self.p[reached[0]], levels[reached[0]]) if reached else (self.against, AGAINST)
        if not 0 < p < 1:
            return None
        needed = int(np.ceil(self.n * np.log(level) / np.log(p)))
        return needed if needed <= MOST else None


def _written(
    turn: QuestionTurn, asked: str, documents: Sequence[str], verdict: str, p: Mapping[str, float]
) -> dict[str, Any]:
    """Write a question into its ledger, and return what every verdict states of it."""
    turn.write(asked=asked, documents=documents, p=p, verdict=verdict)
    return {
        "verdict": verdict,
        "hypothesis": asked,
        "question": turn.number,
        "questions": turn.listing(),
    }
