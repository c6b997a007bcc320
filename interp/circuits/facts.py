"""Facts for causal tracing: prompts with a subject, whose next token is the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.circuits.tasks.wording import prompt_ids
from interp.core.documents import parse_json
from interp.core.errors import OptionError, PromptError
from interp.core.prompt_file import prompt_text
from interp.core.text_file import lines_of_text
from interp.core.tokens import encoded_text, token_id

if TYPE_CHECKING:
    from interp.model.model import Model

FIELDS = ("prompt", "subject", "answer")
PUBLISHED = {"attribute": "answer"}  # the name in the list of known facts of Meng et al.
EXPECTED = 'expected an object like {"prompt": "The Eiffel Tower is in", "subject": "Eiffel Tower"}'
CORRUPT = ("subject", "relation")
PLACES = (
    "before subject",
    "first subject",
    "middle subject",
    "last subject",
    "first after",
    "further",
    "last",
)


@dataclass(frozen=True)
class Fact:
    """A prompt about a subject; what follows the prompt is the answer.

    Args:
        prompt: A text, or token ids.
        subject: A part of the text; for token ids, the first position and the one after the last.
        answer: The answer, of which the first token is measured, or its token id; by default the
            model's most likely next token.
    """

    prompt: str | tuple[int, ...]
    subject: str | tuple[int, int]
    answer: str | int | None = None


@dataclass(frozen=True)
class PlacedFact:
    """Tokens of a fact, the positions of its subject, and the id of its answer, if it is given."""

    ids: tuple[int, ...]
    subject: range
    answer: int | None

    def corrupted(self, what: str, begin: int | None) -> tuple[int, ...]:
        """Return the positions that noise is added to: the subject, or everything else."""
        if what == "subject":
            return tuple(self.subject)
        first = int(self.ids[0] == begin)
        return tuple(i for i in range(first, len(self.ids)) if i not in self.subject)

    @property
    def places(self) -> dict[str, tuple[int, ...]]:
        """Positions by their place relative to the subject; the last position is "last" only."""
        first, end, last = self.subject.start, self.subject.stop, len(self.ids) - 1
        positions = {
            "before subject": range(first),
            "first subject": range(first, end - 1)[:1],
            "middle subject": range(first + 1, end - 1),
            "last subject": range(end - 1, end),
            "first after": range(end, last)[:1],
            "further": range(end + 1, last),
            "last": range(last, last + 1),
        }
        return {name: tuple(at) for name, at in positions.items() if len(at)}


def read_facts(path: Path) -> list[Fact]:
    """Read facts from a `.jsonl` file of objects, or from a `.json` file with a list of them.

    An object has "prompt", "subject" and perhaps "answer" (or "attribute", as in the list of known
    facts of Meng et al.); a prompt is a text, or token ids with a subject of two positions. Other
    fields are ignored.
    """
    return [_fact(where, row) for where, row in json_rows(path, "fact", EXPECTED)]


def json_rows(path: Path, what: str, expected: str) -> list[tuple[str, Mapping[str, Any]]]:
    """Read the objects of a `.jsonl` file, or of the list in a `.json` file, with their places."""
    text = prompt_text(path)
    try:
        if path.suffix.lower() == ".json":
            rows = parse_json(text)
        else:
            rows = [parse_json(line) for line in lines_of_text(text) if line.strip()]
    except ValueError as error:
        raise PromptError(f"{path} is not JSON ({error}); {expected}") from error
    if not isinstance(rows, list):
        raise PromptError(f"{path} holds {type(rows).__name__}, not a list of {what}s; {expected}")
    placed = []
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            raise PromptError(f"{path}, {what} {number}: {type(row).__name__} found; {expected}")
        placed.append((f"{path}, {what} {number}", row))
    return placed


def _fact(where: str, row: Mapping[str, Any]) -> Fact:
    row = {PUBLISHED.get(name, name): value for name, value in row.items()}
    if missing := [name for name in FIELDS[:2] if name not in row]:
        raise PromptError(f"{where}: {missing[0]!r} is missing; {EXPECTED}")
    prompt, subject, answer = (row.get(name) for name in FIELDS)
    if isinstance(prompt, list):
        prompt, subject = tuple(prompt), tuple(subject) if isinstance(subject, list) else subject
    fact = Fact(prompt, subject, answer)  # type: ignore[arg-type]
    _check(fact, where)
    return fact


def _check(fact: Fact, where: str) -> None:
    ids = isinstance(fact.prompt, (tuple, list))
    whole = ids and all(type(x) is int for x in fact.prompt)
    if not (whole or isinstance(fact.prompt, str)):
        raise PromptError(f"{where}: 'prompt' is neither a text nor a list of token ids")
    if not ids and not (isinstance(fact.subject, str) and fact.subject):
        raise PromptError(f"{where}: 'subject' is not a text, as its prompt is; {EXPECTED}")
    pair = isinstance(fact.subject, (tuple, list)) and [type(x) for x in fact.subject] == [int, int]
    if ids and not pair:
        raise PromptError(
            f"{where}: the prompt is token ids, so 'subject' must be two positions: the first, and"
            " the one after the last"
        )
    if not isinstance(fact.answer, (str, int, type(None))):
        raise PromptError(f"{where}: 'answer' is neither a text nor a token id")


def place_facts(model: Model, facts: Sequence[Fact]) -> list[PlacedFact]:
    """Find the tokens of the subject and of the answer."""
    if not facts:
        raise OptionError("there are no facts to trace; give one or more")
    return [_placed(model, fact, f"fact {number}") for number, fact in enumerate(facts, 1)]


def _placed(model: Model, fact: Fact, where: str) -> PlacedFact:
    _check(fact, where)
    if isinstance(fact.prompt, str):
        ids, subject = _of_text(model, fact.prompt, str(fact.subject), where)
    else:
        ids = tuple(token_id(model, x) for x in fact.prompt)
        first, end = fact.subject  # type: ignore[misc]
        subject = range(int(first), int(end))
    if not 0 <= subject.start < subject.stop <= len(ids):
        raise PromptError(
            f"{where}: the subject covers positions {subject.start} to {subject.stop} of a prompt"
            f" of {len(ids)} tokens; give the first position and the one after the last"
        )
    answer = fact.answer
    if isinstance(answer, str):
        if model.tokenizer is None:
            raise PromptError(f"{where}: {model.name} has no tokenizer; give the answer as an id")
        spaced = answer if answer[:1].isspace() else f" {answer}"
        answer = int(
            encoded_text(model.tokenizer, spaced, add_special_tokens=False)["input_ids"][0]
        )
    return PlacedFact(ids, subject, None if answer is None else token_id(model, answer))


def _of_text(model: Model, text: str, subject: str, where: str) -> tuple[tuple[int, ...], range]:
    if model.tokenizer is None:
        raise PromptError(f"{where}: {model.name} has no tokenizer; give the prompt as token ids")
    if (times := text.count(subject)) != 1:
        raise PromptError(
            f"{where}: the prompt {text!r} holds the subject {subject!r} {times} times; it must be"
            " there exactly once"
        )
    if not getattr(model.tokenizer, "is_fast", False):
        raise PromptError(
            f"{where}: the tokenizer of {model.name} does not say where its tokens lie in a text;"
            " give the prompt as token ids, and the subject as two positions"
        )
    ids = prompt_ids(model, text)
    begin = text.index(subject)
    end = begin + len(subject)
    ends = encoded_text(model.tokenizer, text, return_offsets_mapping=True)["offset_mapping"][
        : len(ids)
    ]
    inside = [i for i, (a, b) in enumerate(ends) if a < end and begin < b and a < b]
    if not inside:
        raise PromptError(f"{where}: no token of {text!r} lies in its subject {subject!r}")
    return ids, range(inside[0], inside[-1] + 1)


def told_facts(model: Model, task: str, role: str, n: int = 32) -> list[Fact]:
    """Return n prompts of a task; the subject is the answer, where the prompt tells it (a role)."""
    from interp.circuits.tasks import make_contrast

    pairs = make_contrast(model, task, n=n)
    places = [roles[role] for roles in pairs.roles]
    prompts = zip(pairs.clean.ids, places, strict=True)
    return [Fact(tuple(ids), (at, at + 1), model.tokenizer.decode(ids[at])) for ids, at in prompts]


def capitals() -> list[Fact]:
    """Return the facts of the task `known_fact`: countries and their capitals."""
    from interp.circuits.tasks.fact_pairs import CAPITALS

    return [
        Fact(f"The capital of {country} is", country, capital)
        for country, capital in CAPITALS.items()
    ]
