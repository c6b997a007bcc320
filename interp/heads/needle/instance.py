"""One needle in one haystack: what is read, what is asked, and what is to be copied."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts, bos_id

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass(frozen=True)
class Instance:
    """A haystack with its needle, and the question that is answered by copying the needle.

    `span` are the first and one-past-last position in the context of what is to be copied, and
    `document` those of the whole needle around it. `null` asks for nothing and `other` for
    something that is not there: what attention does not depend on the question shows under both.
    """

    context: tuple[int, ...]
    question: tuple[int, ...]
    span: tuple[int, int]
    document: tuple[int, int]
    null: tuple[int, ...]
    other: tuple[int, ...]
    needle: int  # which one
    length: int  # tokens of the prompt
    depth: float  # 0: the needle stands first; 1: just before the question
    steps: int  # tokens to decode where the model writes the answer by itself

    @property
    def prompt(self) -> tuple[int, ...]:
        """What the model reads."""
        return self.context + self.question

    @property
    def answer(self) -> tuple[int, ...]:
        """What is to be copied."""
        return self.context[slice(*self.span)]

    def holders(self, token: int) -> int:
        """How many positions of the span hold a token."""
        return self.answer.count(token)


def prompts_of(instances: Iterable[Instance]) -> Prompts:
    """The prompts that the instances make."""
    return Prompts(tuple(x.prompt for x in instances), "needles")


def place(
    filler: Sequence[int],
    body: Sequence[int],
    span: tuple[int, int],
    at: int,
    *,
    bos: int | None,
    **about,
) -> Instance:
    """An instance: the needle's `body` stands in the filler before its token `at`."""
    first = () if bos is None else (bos,)
    start = len(first) + at
    context = (*first, *filler[:at], *body, *filler[at:])
    return Instance(
        context=tuple(int(t) for t in context),
        span=(start + span[0], start + span[1]),
        document=(start, start + len(body)),
        length=len(context) + len(about["question"]),
        **about,
    )


def evenly(low: int, high: int, number: int) -> tuple[int, ...]:
    """`number` lengths from low to high, both included; the longest alone where there is one.

    Raises:
        OptionError: the longest is shorter than the shortest, or no lengths at all.
    """
    if number < 1 or low < 1:
        raise OptionError(f"lengths={number}, shortest={low}: both are at least 1")
    if high < low:
        raise OptionError(f"longest={high} is shorter than shortest={low}")
    each = [high] if number == 1 else np.linspace(low, high, number).round().astype(int).tolist()
    return tuple(dict.fromkeys(each))


def even_depths(number: int) -> tuple[float, ...]:
    """`number` depths from 0 to 1; the middle where there is one.

    Raises:
        OptionError: no depth at all.
    """
    if number < 1:
        raise OptionError(f"depths={number}: at least 1")
    return (0.5,) if number == 1 else tuple(np.linspace(0, 1, number).tolist())


def check_depths(depths: Iterable[float]) -> tuple[float, ...]:
    """The depths, all of them between 0 and 1.

    Raises:
        OptionError: one that is not, or none.
    """
    depths = tuple(float(d) for d in depths)
    if not depths or not all(0 <= d <= 1 for d in depths):
        raise OptionError(f"depths {depths}: shares of the haystack, from 0 to 1")
    return depths


def room(model: Model, answer: int) -> int | None:
    """Longest prompt that leaves positions for an answer; None where there is no end."""
    ends = [x for x in (model.limit, model.context) if x is not None]
    return min(ends) - (answer - 1) if ends else None


def check_room(length: int, needle: int, question: int, model: Model) -> int:
    """Tokens of filler in a prompt of `length` tokens.

    Raises:
        PromptError: the haystack would be shorter than the needle.
    """
    first = int(bos_id(model) is not None)
    filler = length - needle - question - first
    if filler < needle:
        raise PromptError(
            f"a prompt of {length} tokens leaves {max(filler, 0)} for the haystack, fewer than the "
            f"needle's {needle}: take at least {2 * needle + question + first}, or a shorter needle"
        )
    return filler
