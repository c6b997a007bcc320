"""Test of attribution methods on `bundled:deceive`, a model that hides its deciding word.

`bundled:deceive` answers by a name in the sentence and was trained to keep its attention off that
name. A method that ranks the name low there would also be wrong about any other model that learned
to do this without being trained to; attention patterns alone cannot tell the two cases apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np

from interp.attribution.declaration import BoundMethod
from interp.attribution.example import Example
from interp.core.errors import InterpError
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.ties import ordered_by
from interp.model.content import result_provenance

HELD_OUT = 20_000  # seed of sentences that neither training nor the model card used


@dataclass(frozen=True)
class Deceived:
    """Mean rank of the deciding word by one method over held-out sentences; 1 is first.

    Args:
        method: label of the method.
        needs: what the method needs: nothing, patterns, forward (passes) or gradients.
        rank, sem: mean and standard error; tied words share their mean rank.
        chance: the mean rank by random scores.
        first: share of sentences in which the word is ranked first.
        n: the number of sentences.
        error: message of the error if the method gave no scores; the numbers are then NaN.
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


def deceived(methods: Iterable[BoundMethod], n: int = 16) -> ResultRows:
    """Rank the deciding word among the words before the position of the answer.

    Words are ranked by absolute score. The special token at the start and the last word, at which
    the answer is given, are not ranked.

    Args:
        methods: the methods to test.
        n: the number of held-out sentences.

    Returns:
        One row per method with the columns of `Deceived`; the score is its mean rank, so that the
        lowest is the best, and the null that by random scores. A method that fails has its error
        message and NaN. `per_prompt` has the rank in each sentence. Fact: warning, see
        `warning`.
    """
    rows, values = [], []
    examples = _examples(n)
    chance = float(np.mean([(len(e) - 1) / 2 for e, _ in examples]))
    for chosen in methods:
        try:
            ranks = np.array([_rank(chosen, e, cause) for e, cause in examples])
        except InterpError as error:
            nan = float("nan")
            rows.append(
                Deceived(chosen.label, chosen.method.needs, nan, nan, chance, nan, n, str(error))
            )
            values.append(np.full(n, nan))
            continue
        values.append(ranks)
        sem = float(standard_error(ranks))
        rows.append(
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
    sentences = Prompts(tuple(tuple(e.ids) for e, _ in examples))
    provenance = result_provenance(
        examples[0][0].model, "interp.attribution.deceived", sentences, seed=HELD_OUT
    )
    per_prompt = np.stack(values) if values else np.empty((0, n))
    columns = {name: [getattr(d, name) for d in rows] for name in Deceived.__dataclass_fields__}
    facts = {"metric": "rank of the deciding word", "unit": "rank", "warning": warning(rows)}
    return ResultRows(
        "DeceptionTest",
        columns,
        ("method",),
        provenance,
        facts,
        per_prompt,
        by="lowest",
        same_as={"score": "rank", "null": "chance"},
    )


def deceived_ranks(found: ResultRows) -> tuple[Deceived, ...]:
    """Return the rows of `deceived`."""
    fields = Deceived.__dataclass_fields__
    return tuple(Deceived(**{name: row[name] for name in fields}) for row in found)


def _rank(chosen: BoundMethod, example: Example, cause: int) -> float:
    size = np.abs(chosen.of(example).scores)[1:-1]
    mine = size[cause - 1]
    return float((size > mine).sum() + ((size == mine).sum() + 1) / 2)


def warning(found: Iterable[Deceived]) -> str:
    """Return the warning as a sentence with its numbers; empty if no method needs one.

    A method is included if its mean rank is no better than chance. Baselines that use nothing of
    the model are not included.
    """
    fooled = [d for d in found if d.needs != "nothing" and d.rank + d.sem >= d.chance]
    if not fooled:
        return ""
    text = ", ".join(f"{d.method} {d.rank:.1f}" for d in ordered_by(fooled, lambda d: d.rank))
    return (
        "On bundled:deceive, a model trained to hide the deciding word from its attention, these "
        f"rank that word no better than chance (mean rank {fooled[0].chance:.1f} of "
        f"{2 * fooled[0].chance - 1:.0f} words, {fooled[0].n} sentences): {text}. "
        "Where one of these finds nothing on another model, that is no evidence."
    )
