"""Template files: slots with lists of words, and sentences with and without the behaviour (TOML).

[slots]
A = ["Anna", "Peter", "Lucy"]
B = "A"                                  # another word of the same list
C = "A"
K = [{land = "France", city = "Paris"}, {land = "Spain", city = "Madrid"}]

[[templates]]
clean = "Then {A} and {B} met in {K.city}. {A} gave a ball to"
corrupted = "Then {A} and {B} met in {K.city}. {C} gave a ball to"
answer = " {B}"
wrong = " {A}"
roles = {S2 = "A:2"}                     # the second occurrence of slot A in the clean prompt
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.causal.task_rows import task_rows
from interp.core.documents import parse_toml
from interp.core.errors import PromptError
from interp.core.prompt_file import prompt_text

if TYPE_CHECKING:
    import numpy as np

SlotWord = str | Mapping[str, str]
_KEYS = ("clean", "corrupted", "answer", "wrong", "roles")


@dataclass(frozen=True)
class FilledTemplate:
    """A template with words in its slots.

    Args:
        template: Number of the template, from 0.
        clean: The prompt with the behaviour.
        corrupted: The prompt without it.
        answer: Text after the clean prompt; None for the model's own completion.
        wrong: Text that the answer is compared with; None for the model's own completion of the
            corrupted prompt.
        ends: Role -> number of characters of the clean prompt up to the end of its word.
    """

    template: int
    clean: str
    corrupted: str
    answer: str | None
    wrong: str | None
    ends: Mapping[str, int]


@dataclass(frozen=True)
class Template:
    """One sentence with slots, with and without the behaviour; see `FilledTemplate`.

    Args:
        roles: Role -> (slot, number of its occurrence in the clean prompt, from 1).
    """

    clean: str
    corrupted: str
    answer: str | None
    wrong: str | None
    roles: Mapping[str, tuple[str, int]]


@dataclass(frozen=True)
class TemplateFile:
    """Slots and templates of a file.

    Args:
        words: Words by the slot that lists them.
        slots: Every slot, with the slot whose list it draws from.
        templates: The templates, in the order of the file.
    """

    words: Mapping[str, tuple[SlotWord, ...]]
    slots: Mapping[str, str]
    templates: tuple[Template, ...]

    def draw(self, rng: np.random.Generator) -> FilledTemplate:
        """Fill a random template with random words; slots of one list get different words."""
        number = int(rng.integers(len(self.templates)))
        chosen: dict[str, SlotWord] = {}
        for owner, words in self.words.items():
            sharing = [slot for slot, of in self.slots.items() if of == owner]
            for slot, at in zip(
                sharing, rng.choice(len(words), len(sharing), replace=False), strict=True
            ):
                chosen[slot] = words[int(at)]
        return _filled(number, self.templates[number], chosen)


def read_templates(path: Path) -> TemplateFile:
    """Read and check a template file, without a model."""
    try:
        document = parse_toml(prompt_text(path))
    except ValueError as error:
        raise PromptError(f"{path} is not valid TOML: {error}") from error
    _known(path, document, ("slots", "templates"), "the file")
    slots, given = document.get("slots", {}), document.get("templates")
    if not isinstance(slots, dict) or not isinstance(given, list) or not given:
        raise PromptError(
            f"{path}: a template file has a table [slots] and one or more [[templates]] with the"
            " keys clean and corrupted"
        )
    lists = {name: each for name, each in slots.items() if isinstance(each, list)}
    words = {name: _words(path, name, each) for name, each in lists.items()}
    owners = {name: name if name in words else str(each) for name, each in slots.items()}
    for name, owner in owners.items():
        if owner not in words:
            raise PromptError(
                f"{path}: slot {name} is {slots[name]!r}; give a list of words, or the name of a"
                f" slot with a list ({', '.join(words) or 'there is none'})"
            )
    for owner, listed in words.items():
        sharing = [slot for slot, of in owners.items() if of == owner]
        if len(listed) < len(sharing):
            raise PromptError(
                f"{path}: slots {', '.join(sharing)} need different words, but the list of {owner}"
                f" has only {len(listed)}; add words"
            )
    template_file = TemplateFile(
        words, owners, tuple(_template(path, i, t) for i, t in enumerate(given))
    )
    for i, each in enumerate(template_file.templates):
        _check_slots(path, i, each, template_file)
    return template_file


def _known(path: Path, values: Mapping[str, Any], keys: Sequence[str], where: str) -> None:
    strange = sorted(set(values) - set(keys))
    if strange:
        raise PromptError(f"{path}: {where} has the key {strange[0]!r}; known: {', '.join(keys)}")


def _words(path: Path, name: str, given: Sequence[Any]) -> tuple[SlotWord, ...]:
    fields = {tuple(sorted(w)) if isinstance(w, dict) else None for w in given}
    plain = all(
        isinstance(w, str) or (isinstance(w, dict) and all(isinstance(x, str) for x in w.values()))
        for w in given
    )
    if not given or not plain or len(fields) > 1:
        raise PromptError(
            f"{path}: slot {name} must be a list of words, or of tables with the same keys, such"
            ' as {land = "France", city = "Paris"}'
        )
    if len({repr(w) for w in given}) < len(given):
        raise PromptError(f"{path}: the list of slot {name} has a word twice; remove one")
    return tuple(given)


def _template(path: Path, number: int, given: Any) -> Template:
    where = f"template {number}"
    if not isinstance(given, dict):
        raise PromptError(f"{path}: {where} is not a table; write [[templates]] before its keys")
    _known(path, given, _KEYS, where)
    texts = {key: given.get(key) for key in _KEYS[:4]}
    for key, text in texts.items():
        if not isinstance(text, str) and (text is not None or key in ("clean", "corrupted")):
            raise PromptError(f"{path}: {where} needs a text for {key}")
    if (texts["answer"] is None) != (texts["wrong"] is None):
        raise PromptError(
            f"{path}: {where} has only one of answer and wrong; give both, or neither for the"
            " model's own completions"
        )
    roles = {}
    for role, place in (given.get("roles") or {}).items():
        match = re.fullmatch(r"([\w.]+)(?::([1-9]\d*))?", str(place))
        if match is None:
            raise PromptError(
                f"{path}: role {role} of {where} is {place!r}; give a slot and the number of its"
                ' occurrence, such as "A:2"'
            )
        roles[role] = (match[1], int(match[2] or 1))
    return Template(texts["clean"], texts["corrupted"], texts["answer"], texts["wrong"], roles)  # type: ignore[arg-type]


def _pieces(text: str) -> list[tuple[str, str | None]]:
    """Split a text into literal pieces, each with the slot that follows it."""
    pieces = []
    for before, field, spec, conversion in string.Formatter().parse(text):
        if spec or conversion:
            raise ValueError(f"a slot is written {{{field}}}, without : or !")
        pieces.append((before, field))
    return pieces


def _check_slots(path: Path, number: int, template: Template, file: TemplateFile) -> None:
    for text in (template.clean, template.corrupted, template.answer, template.wrong):
        try:
            fields = [field for _, field in _pieces(text or "") if field is not None]
        except ValueError as error:
            raise PromptError(f"{path}: template {number}: {text!r}: {error}") from error
        for field in fields:
            _check_field(path, number, field, file)
    inside = [field for _, field in _pieces(template.clean) if field is not None]
    for role, (field, which) in template.roles.items():
        if inside.count(field) < which:
            raise PromptError(
                f"{path}: role {role} of template {number} is occurrence {which} of {field}, but"
                f" the clean prompt has {inside.count(field)}"
            )


def _check_field(path: Path, number: int, field: str, file: TemplateFile) -> None:
    name, _, key = field.partition(".")
    if name not in file.slots:
        raise PromptError(
            f"{path}: template {number} has the slot {{{field}}}; known slots:"
            f" {', '.join(file.slots) or 'none'}"
        )
    first = file.words[file.slots[name]][0]
    keys = tuple(first) if isinstance(first, Mapping) else ()
    if (key not in keys) if keys else key:
        known = ", ".join(f"{{{name}.{k}}}" for k in keys) or f"{{{name}}}"
        raise PromptError(f"{path}: template {number} has {{{field}}}; write {known}")


def _filled(number: int, template: Template, chosen: Mapping[str, SlotWord]) -> FilledTemplate:
    def value(field: str) -> str:
        name, _, key = field.partition(".")
        word = chosen[name]
        return word if isinstance(word, str) else word[key]

    def fill(text: str | None) -> str | None:
        if text is None:
            return None
        return "".join(a + ("" if f is None else value(f)) for a, f in _pieces(text))

    ends, length, seen = {}, 0, dict[str, int]()
    for before, field in _pieces(template.clean):
        length += len(before)
        if field is None:
            continue
        length += len(value(field))
        seen[field] = seen.get(field, 0) + 1
        ends |= {r: length for r, at in template.roles.items() if at == (field, seen[field])}
    clean, corrupted = fill(template.clean), fill(template.corrupted)
    assert clean is not None
    assert corrupted is not None
    return FilledTemplate(
        number, clean, corrupted, fill(template.answer), fill(template.wrong), ends
    )


LOOK = 4  # pairs that are enough to look for a circuit, without a claim
LEAST_PAIRS = 6  # to measure it on a held-out third
NEEDED = (
    "a circuit is found by comparing every prompt with one of the same length without the behaviour"
)


def count_pairs(path: Path) -> int:
    """Count the pairs in a file; 0 for a Python or template file, which makes pairs for a model.

    A line that is no pair, or too few of them, raise PromptError, before a model is loaded.
    """
    prompt_text(path)
    if path.suffix == ".py":
        return 0
    if path.suffix == ".toml":
        read_templates(path)
        return 0
    rows = task_rows(str(path))
    if "corrupted" not in rows[0]:
        raise PromptError(
            f"{path}: its lines have no field 'corrupted', the prompt without the behaviour;"
            f" {NEEDED}"
        )
    require_enough(path, len(rows))
    return len(rows)


def require_enough(path: Path, n: int) -> None:
    """Raise PromptError for fewer pairs than `LOOK`."""
    if n < LOOK:
        raise PromptError(
            f"{path} has {n} pairs; {LOOK} are enough to look for a circuit, and {LEAST_PAIRS} to"
            " measure it too, on a third of them that is held out"
        )


def require_task_files(task: str, given: Path | None) -> None:
    """Refuse a file that cannot be read before torch is imported; raises PromptError."""
    files = [Path(task)] if task.endswith((".jsonl", ".toml", ".py")) else []
    for path in [*files, *([] if given is None else [given])]:
        prompt_text(path)
    if task.endswith(".toml"):
        read_templates(Path(task))
