"""Needles of text in a haystack of text."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from interp.core.errors import PromptError
from interp.core.prompts import bos_id
from interp.core.text_file import read_text, require_inside
from interp.core.tokens import encoded_text
from interp.heads.needle.instance import Instance, check_depths, check_room, fitting, place
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

QUESTION = "\n\nQuestion: {question}\nAnswer:"
NOTHING = "N/A"  # content of the uninformative question
OPENING = " And then it was"  # a sentence that nothing in the haystack completes
DECODED = 50  # maximum tokens of a generated answer
ENDS = (".", "!", "?", "\n")

Ids = Sequence[int]


@dataclass(frozen=True)
class Needle:
    """Sentence to hide, a question about it, and the literal part of it that is the answer.

    All three are texts, or all token ids. With an empty question the prompt ends with the needle's
    beginning, up to the answer, and the model completes it.
    """

    needle: str | Ids
    question: str | Ids
    answer: str | Ids

    @property
    def completes(self) -> bool:
        """True if the needle's own beginning serves as the question."""
        return len(self.question) == 0


@takes_model
def text_instances(
    model: Model,
    needles: Sequence[Needle],
    haystack: str | Path | Ids,
    *,
    lengths: Iterable[int] = (512, 1024),
    depths: Iterable[float] = (0.0, 0.5, 1.0),
    beyond: bool = False,
) -> list[Instance]:
    """Return every needle in the haystack, cut to every length, at every depth.

    The needle is tokenised by itself and inserted after the last sentence end before its depth, so
    its position is known; the answer is the part of it that the model must copy exactly.

    Args:
        model: the model that reads the prompts.
        needles: the needles to hide.
        haystack: a text, a `.txt` file, a folder of them (in order of name), or token ids.
        lengths: tokens of the prompt, question included; reduced to fit the model's positions.
        depths: relative position of the needle, from 0 (first) to 1 (last).
        beyond: allow more tokens than the config states, if positions are computed.

    Raises:
        PromptError: an answer is not part of its needle, the haystack is shorter than a length or
            than the needle, or text is given for a model without a tokenizer.
        OptionError: a depth lies outside 0 to 1.
    """
    if not needles:
        raise PromptError("there are no needles to hide; give at least one")
    hay = haystack_ids(model, haystack)
    return hidden_needles(
        model, needles, [hay] * len(needles), lengths=lengths, depths=depths, beyond=beyond
    )


def hidden_needles(
    model: Model,
    needles: Sequence[Needle],
    hays: Sequence[Ids],
    *,
    lengths: Iterable[int],
    depths: Iterable[float],
    beyond: bool = False,
    stretch: bool = False,
) -> list[Instance]:
    """Return every needle in its own haystack; see `text_instances`."""
    depths, lengths = check_depths(depths), [int(x) for x in lengths]
    bos = bos_id(model)
    texts = [_tokens(model, n, i) for i, n in enumerate(needles, 1)]
    nothing = _nothing(model, needles[0])
    instances = []
    for which, (body, question, span) in enumerate(texts):
        hay, ends = hays[which], _sentence_ends(model, hays[which])
        elsewhere = texts[(which + 1) % len(texts)][1] if len(texts) > 1 else nothing * 2
        fits = 2 * len(body) + len(question) + int(bos is not None) if stretch else 0
        longer = [max(x, fits) for x in lengths]
        for asked in fitting(longer, model, span[1] - span[0], beyond=beyond):
            n = check_room(asked, len(body), len(question), model)
            if n > len(hay):
                raise PromptError(
                    f"a prompt of {asked} tokens needs a haystack of {n}; this one has "
                    f"{len(hay)}; give a longer text or a smaller length"
                )
            # the completion starts a new sentence, so the previous one must have ended
            end = _after(ends, n) if stretch or needles[which].completes else n
            filler, stops = hay[end - n : end], [0, *(e - end + n for e in ends if e > end - n)]
            for depth in depths:
                at = _before(stops, round(depth * n))
                instances.append(
                    place(
                        filler,
                        body,
                        span,
                        at,
                        bos=bos,
                        question=question,
                        null=nothing,
                        other=elsewhere,
                        needle=which,
                        depth=depth,
                        steps=DECODED,
                    )
                )
    return instances


def haystack_ids(model: Model, haystack: str | Path | Ids) -> tuple[int, ...]:
    """Return the tokens of a haystack: a text, a `.txt` file, a folder of them, or ids."""
    if not isinstance(haystack, (str, Path)):
        return tuple(int(t) for t in haystack)
    text = haystack
    if isinstance(haystack, Path):
        files = [haystack]
        if haystack.is_dir():
            files = require_inside(haystack, sorted(haystack.glob("*.txt")))
        try:
            text = "\n\n".join(read_text(f) for f in files)
        except (OSError, UnicodeDecodeError) as error:
            raise PromptError(f"haystack {haystack} cannot be read: {error}") from error
    if not str(text).strip():
        raise PromptError(
            f"haystack {str(haystack)[:60]!r} contains no text; give a text of several sentences"
        )
    return text_tokens(model, str(text))


def text_tokens(model: Model, text: str) -> tuple[int, ...]:
    """Return the tokens of a text, without special tokens."""
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer: give needle and haystack as token ids")
    encoded = encoded_text(model.tokenizer, text, add_special_tokens=False, verbose=False)
    return tuple(encoded["input_ids"])


def _tokens(
    model: Model, needle: Needle, number: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, int]]:
    """Return the ids of needle and question, and the position of the answer in the needle."""
    body, question, span = _spelt(model, needle, number)
    if needle.completes:
        question = body[: span[0]]
        if not question:
            raise PromptError(
                f"needle {number} has no question and begins with its answer, so there is no "
                f"beginning to complete; give a question, or words before the answer"
            )
    return body, question, span


def _spelt(
    model: Model, needle: Needle, number: int
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, int]]:
    if not isinstance(needle.needle, str):
        body, answer = tuple(needle.needle), tuple(needle.answer)
        starts = [i for i in range(len(body)) if body[i : i + len(answer)] == answer]
        if not starts or not answer:
            raise PromptError(
                f"needle {number}: the ids of its answer are not part of it; give "
                f"an answer copied from the needle"
            )
        return body, tuple(needle.question), (starts[0], starts[0] + len(answer))  # type: ignore[arg-type]
    body = text_tokens(model, " " + needle.needle.strip())
    asked = "" if needle.completes else QUESTION.format(question=str(needle.question).strip())
    question = text_tokens(model, asked) if asked else ()
    # end of each token in the decoded text
    ends = [len(model.tokenizer.decode(body[: i + 1])) for i in range(len(body))]
    spelt = model.tokenizer.decode(body)
    answer = str(needle.answer).strip()
    at = spelt.find(answer)
    if at < 0 or not answer:
        raise PromptError(
            f"needle {number}: its answer {answer!r} is not an exact part of it (case matters); "
            f"copy the answer from the needle"
        )
    first = next(i for i, end in enumerate(ends) if end > at)
    last = next(i for i, end in enumerate(ends) if end >= at + len(answer))
    return body, question, (first, last + 1)


def _nothing(model: Model, needle: Needle) -> tuple[int, ...]:
    """Return an uninformative question in the form of the others."""
    if not isinstance(needle.needle, str):
        return tuple(needle.question[:1]) or tuple(needle.needle[:1])  # type: ignore[arg-type]
    return text_tokens(model, OPENING if needle.completes else QUESTION.format(question=NOTHING))


def _sentence_ends(model: Model, ids: Ids) -> list[int]:
    """Return the positions after which a sentence has ended; every position if there is no text."""
    if model.tokenizer is None:
        return list(range(len(ids) + 1))
    ending = {
        t: model.tokenizer.decode([t]).rstrip(" \"')").endswith(ENDS) for t in dict.fromkeys(ids)
    }
    return [0, *(i + 1 for i, t in enumerate(ids) if ending[t])]


def _before(ends: Sequence[int], at: int) -> int:
    return ends[bisect_right(ends, at) - 1]


def _after(ends: Sequence[int], at: int) -> int:
    """Return the first sentence end from `at` on; `at` itself if none follows."""
    later = bisect_left(ends, at)
    return ends[later] if later < len(ends) else at
