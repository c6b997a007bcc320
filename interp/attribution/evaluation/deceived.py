"""The standing warning: what a method finds in a model whose attention hides its reason.

`bundled:deceive` answers by a name in the sentence and was trained to attend to it as little as it
can. A method that ranks the name low there would be wrong about any model that learned the same by
itself; nothing in attention alone tells the two apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from interp.attribution.declaration import BoundMethod
from interp.attribution.example import Example
from interp.core.errors import InterpError

HELD_OUT = 20_000  # seed of sentences that neither training nor the model card has seen


@dataclass(frozen=True)
class Deceived:
    """Where a method ranks the word that decides, 1 being first, over held-out sentences.

    Args:
        rank, sem: mean and standard error; ties share their mean rank.
        chance: the mean rank of a method that knows nothing.
        first: share of sentences in which the word is ranked first.
        error: why the method gave no scores; then the numbers are NaN.
    """

    method: str
    needs: str
    rank: float
    sem: float
    chance: float
    first: float
    n: int
    error: str = ""


@cache
def _examples(n: int) -> tuple[tuple[Example, int], ...]:
    from interp.bundled.deceive_text import sentences
    from interp.model.load import load

    model = load("bundled:deceive")
    return tuple(
        (Example(model, s.text, f"token:{s.right}|{s.wrong}"), s.cause + 1)
        for s in sentences(HELD_OUT, n)
    )


def deceived(methods: Iterable[BoundMethod], n: int = 16) -> list[Deceived]:
    """The rank of the word that decides among the words before the one at which it is asked.

    Scores count by their size. The special token in front and the asking word itself are left out.
    """
    found = []
    examples = _examples(n)
    chance = float(np.mean([(len(e) - 1) / 2 for e, _ in examples]))
    for chosen in methods:
        try:
            ranks = np.array([_rank(chosen, e, cause) for e, cause in examples])
        except InterpError as error:
            nan = float("nan")
            found.append(
                Deceived(chosen.label, chosen.method.needs, nan, nan, chance, nan, n, str(error))
            )
            continue
        sem = float(ranks.std(ddof=1) / n**0.5)
        found.append(
            Deceived(
                chosen.label,
                chosen.method.needs,
                float(ranks.mean()),
                sem,
                chance,
                float((ranks == 1).mean()),
                n,
            )
        )
    return found


def _rank(chosen: BoundMethod, example: Example, cause: int) -> float:
    size = np.abs(chosen.of(example).scores)[1:-1]
    mine = size[cause - 1]
    return float((size > mine).sum() + ((size == mine).sum() + 1) / 2)


def warning(found: Iterable[Deceived]) -> str:
    """The warning as a sentence with its numbers; empty if every method passed or none was tried.

    A method is warned of when its mean rank is no better than chance; baselines that read nothing
    are passed over.
    """
    fooled = [d for d in found if d.needs != "nothing" and d.rank + d.sem >= d.chance]
    if not fooled:
        return ""
    told = ", ".join(f"{d.method} {d.rank:.1f}" for d in sorted(fooled, key=lambda d: -d.rank))
    return (
        "On bundled:deceive, a model trained to hide the deciding word from its attention, these "
        f"rank that word no better than chance (mean rank {fooled[0].chance:.1f} of "
        f"{2 * fooled[0].chance - 1:.0f} words, {fooled[0].n} sentences): {told}. "
        "Where one of these finds nothing on another model, that is no evidence."
    )
