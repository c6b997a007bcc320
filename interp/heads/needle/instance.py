"""One needle in one haystack, with its question and its answer, and the options that ask for it."""

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
class NeedleOptions:
    """Needles in a haystack.

    Options:
        task: as in `retrieval`, of the families `single_key` and `many_keys` alone; `auto` is the
            task that the model answers best, else `ids`.
        needles: number of different needles; the instances of one form a cluster.
        min_length, max_length, lengths: tokens of the shortest and of the longest prompt, and
            how many lengths from one to the other.
        depths: number of needle positions, from first to last.
        answer: number of tokens of the needle after its key, in `ids` and the families.
    """

    task: str = "auto"
    needles: int = 8
    min_length: int = 24
    max_length: int = 48
    lengths: int = 2
    depths: int = 3
    answer: int = 4


@dataclass(frozen=True)
class SourceOptions(NeedleOptions):
    """Needles among segments of a context, which need longer prompts."""

    min_length: int = 32


@dataclass(frozen=True)
class Instance:
    """Haystack with its needle, and the question that is answered by copying the needle.

    `span` holds the first and one-past-last position in the context of the answer, and `document`
    those of the whole needle around it. `null` is an uninformative question and `other` a question
    about something absent: attention that does not depend on the question appears under both.
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
    places: tuple[int, ...] = ()  # positions of the answer's sources, if they do not stand together
    at_once: bool = False  # all tokens of the answer are asked for in one step, in any order

    @property
    def prompt(self) -> tuple[int, ...]:
        """Prompt that the model reads."""
        return self.context + self.question

    @property
    def sources(self) -> tuple[int, ...]:
        """Positions of the tokens to be copied."""
        return self.places or tuple(range(*self.span))

    @property
    def answer(self) -> tuple[int, ...]:
        """Tokens to be copied; each once where they are asked for at once."""
        tokens = tuple(self.context[at] for at in self.sources)
        return tuple(dict.fromkeys(tokens)) if self.at_once else tokens

    @property
    def given(self) -> tuple[int, ...]:
        """Tokens of the answer that the model reads under teacher forcing."""
        return () if self.at_once else self.answer[:-1]

    def holders(self, token: int) -> int:
        """Count the sources that hold a token."""
        return sum(self.context[at] == token for at in self.sources)


def prompts_of(instances: Iterable[Instance]) -> Prompts:
    """Return the prompts of the instances."""
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
    """Build an instance with the needle's `body` placed in the filler before its token `at`."""
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
    """Get `number` lengths from low to high, both included; only the longest if `number` is 1."""
    if number < 1 or low < 1:
        raise OptionError(f"lengths={number}, min_length={low}: both must be at least 1")
    if high < low:
        raise OptionError(
            f"max_length={high} is shorter than min_length={low}; give max_length >= min_length"
        )
    each = [high] if number == 1 else np.linspace(low, high, number).round().astype(int).tolist()
    return tuple(dict.fromkeys(each))


def even_depths(number: int) -> tuple[float, ...]:
    """Return `number` depths from 0 to 1; the middle if `number` is 1."""
    if number < 1:
        raise OptionError(f"depths={number}: there must be at least 1")
    return (0.5,) if number == 1 else tuple(np.linspace(0, 1, number).tolist())


def check_depths(depths: Iterable[float]) -> tuple[float, ...]:
    """Return the depths after checking that all lie between 0 and 1."""
    depths = tuple(float(d) for d in depths)
    if not depths or not all(0 <= d <= 1 for d in depths):
        raise OptionError(
            f"depths {depths} are not valid; give shares of the haystack, from 0 to 1"
        )
    return depths


def room(model: Model, answer: int) -> int | None:
    """Return the longest prompt that leaves positions for an answer; None if unlimited."""
    ends = [x for x in (model.limit, model.context) if x is not None]
    return min(ends) - (answer - 1) if ends else None


def fitting(lengths: Iterable[int], model: Model, answer: int, *, beyond: bool) -> tuple[int, ...]:
    """Return the different lengths of prompts, reduced to the positions of the model.

    With `beyond`, to those that can be computed; otherwise to those of its config, less those that
    an answer needs.
    """
    limit = model.limit if beyond else room(model, answer)
    return tuple(dict.fromkeys(int(x) if limit is None else min(int(x), limit) for x in lengths))


def check_room(length: int, needle: int, question: int, model: Model) -> int:
    """Return the number of filler tokens in a prompt of `length` tokens."""
    first = int(bos_id(model) is not None)
    filler = length - needle - question - first
    if filler < needle:
        raise PromptError(
            f"a prompt of {length} tokens leaves {max(filler, 0)} for the haystack, fewer than the "
            f"needle's {needle}; use at least {2 * needle + question + first} tokens, or a "
            f"shorter needle"
        )
    return filler
