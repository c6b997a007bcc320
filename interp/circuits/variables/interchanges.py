"""Interchanges: pairs of prompts, and the answer if one variable had its value from the other.

computation = CausalModel({"sum": lambda ids, known: ids[1] + ids[2]},
                          lambda ids, known: (known["sum"] + ids[3]) % 10)
rows = computation.interchanges(prompts, "sum", n=200)
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.facts import json_rows
from interp.circuits.tasks.wording import prompt_ids
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.prompts import bos_id, ordinary_ids
from interp.core.tokens import encoded_text, token_id

if TYPE_CHECKING:
    from interp.model.model import Model

Prompt = str | tuple[int, ...]
EXPECTED = (
    'expected an object like {"base": "2 + 3 =", "source": "2 + 6 =", "base_answer": "5", '
    '"answer": "8", "variable": "second"}'
)
LENGTH = 12  # tokens before the one that is repeated
INDUCTION, OWNER = "induction", "stories:owner"
"""Tasks of which pairs are drawn where none are given."""
CHANGED = 0.75  # least share of drawn pairs whose answer the variable changes


@dataclass(frozen=True)
class Interchange:
    """Two prompts, and the answer to the first if a variable had the value of the second.

    Args:
        base: the prompt that is run: a text, or token ids.
        source: the prompt that the value of the variable is taken from.
        answer: the answer then: a token id, or a text, of which the first token counts.
        base_answer: the answer to the base prompt.
        variable: name of the variable.
        template: name of the template of the prompts; templates are the clusters of the pairs.
        read_at: position of the answer's prediction in the base prompt; the last by default.
    """

    base: Prompt
    source: Prompt
    answer: str | int
    base_answer: str | int
    variable: str = "variable"
    template: str = ""
    read_at: int = -1


@dataclass(frozen=True)
class CausalModel:
    """A computation with named variables, such as a person would write it down.

    Args:
        variables: by name, in their order, functions of the prompt and of the values of the
            variables before.
        answer: the answer, from the prompt and the values of all variables: a token id or a text.
    """

    variables: Mapping[str, Callable[[Any, Mapping[str, Any]], Any]]
    answer: Callable[[Any, Mapping[str, Any]], str | int] = field(repr=False)

    def values(self, prompt: Any, **given: Any) -> dict[str, Any]:
        """Return the values of all variables; those that are given keep the given value."""
        computed: dict[str, Any] = {}
        for name, compute in self.variables.items():
            computed[name] = given[name] if name in given else compute(prompt, computed)
        return computed

    def interchanges(
        self, prompts: Sequence[Any], name: str, n: int = 256, seed: int = 0
    ) -> list[Interchange]:
        """Draw pairs of prompts, of which the variable changes the answer in at least 3 of 4.

        Raises:
            UnknownName: there is no such variable.
            OptionError: too few pairs differ in the variable.
        """
        if name not in self.variables:
            raise UnknownName("variable", name, self.variables)
        rng = np.random.default_rng([seed, 83])
        known = [self.values(prompt) for prompt in prompts]
        plain = [self.answer(prompt, values) for prompt, values in zip(prompts, known, strict=True)]
        rows: list[Interchange] = []
        same = tries = 0
        while len(rows) < n:
            if (tries := tries + 1) > 200 * n:
                raise OptionError(
                    f"of {200 * n} random pairs of the {len(prompts)} prompts fewer than "
                    f"{round(CHANGED * n)} change their answer with {name!r}; give prompts that"
                    " differ in this variable"
                )
            a, b = (int(x) for x in rng.integers(0, len(prompts), 2))
            given = {name: known[b][name]}
            answer = self.answer(prompts[a], self.values(prompts[a], **given))
            if answer == plain[a]:
                if a == b or same >= (1 - CHANGED) * n:
                    continue
                same += 1
            rows.append(Interchange(prompts[a], prompts[b], answer, plain[a], name))
        return rows


@dataclass(frozen=True)
class PlacedInterchange:
    """An interchange in token ids, with its number in the list that it came from."""

    base: tuple[int, ...]
    source: tuple[int, ...]
    answer: int
    base_answer: int
    variable: str
    template: str
    read_at: int

    @property
    def changes(self) -> bool:
        """True if the variable changes the answer."""
        return self.answer != self.base_answer


def read_interchanges(path: Path) -> list[Interchange]:
    """Read interchanges from a `.jsonl` file of objects, or from a `.json` file with a list."""
    names = Interchange.__dataclass_fields__
    interchanges = []
    for where, row in json_rows(path, "interchange", EXPECTED):
        for name in ("base", "source", "answer", "base_answer"):
            if name not in row:
                raise PromptError(f"{where}: {name!r} is missing; {EXPECTED}")
        given: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in row.items() if k in names
        }
        interchanges.append(Interchange(**given))
    return interchanges


def place_interchanges(model: Model, rows: Sequence[Interchange]) -> list[PlacedInterchange]:
    """Return interchanges in the model's tokens."""
    if not rows:
        raise OptionError("there are no interchanges; give pairs of prompts")
    return [_placed(model, row, f"interchange {at}") for at, row in enumerate(rows, 1)]


def _placed(model: Model, row: Interchange, where: str) -> PlacedInterchange:
    base, source = (_ids(model, x, where) for x in (row.base, row.source))
    if len(base) != len(source):
        raise PromptError(
            f"{where}: its prompts have {len(base)} and {len(source)} tokens; positions correspond "
            "only where both have the same number"
        )
    if type(row.read_at) is not int or not -len(base) <= row.read_at < len(base):
        raise PromptError(f"{where}: read_at={row.read_at!r} is no position of {len(base)} tokens")
    return PlacedInterchange(
        base,
        source,
        _answer(model, row.answer, where),
        _answer(model, row.base_answer, where),
        str(row.variable),
        str(row.template),
        row.read_at % len(base),
    )


def _ids(model: Model, prompt: Any, where: str) -> tuple[int, ...]:
    if isinstance(prompt, str):
        if model.tokenizer is None:
            raise PromptError(f"{where}: {model.name} has no tokenizer; give prompts as token ids")
        return prompt_ids(model, prompt)
    if not isinstance(prompt, tuple | list) or not all(type(x) is int for x in prompt):
        raise PromptError(f"{where}: a prompt is neither a text nor a list of token ids")
    if not prompt:
        raise PromptError(f"{where}: a prompt is empty")
    return tuple(token_id(model, x) for x in prompt)


def _answer(model: Model, answer: Any, where: str) -> int:
    if type(answer) is int:
        # a model may answer in other words than those it reads, such as a compiled program
        if answer < 0:
            raise PromptError(f"{where}: the answer {answer} is no token id")
        return answer
    if not isinstance(answer, str) or not answer:
        raise PromptError(f"{where}: an answer is neither a text nor a token id")
    if model.tokenizer is None:
        raise PromptError(f"{where}: {model.name} has no tokenizer; give answers as token ids")
    spaced = answer if answer[:1].isspace() else f" {answer}"
    return int(encoded_text(model.tokenizer, spaced, add_special_tokens=False)["input_ids"][0])


def base_hashes(rows: Sequence[PlacedInterchange]) -> list[str]:
    """Return a short hash of every base prompt's tokens, by which repeated ones are recognised."""
    return [hashlib.sha256(repr(row.base).encode()).hexdigest()[:12] for row in rows]


def drawn_interchanges(model: Model, task: str, n: int = 160, seed: int = 0) -> list[Interchange]:
    """Return n interchanges or more of each variable of a task: induction, or stories:owner."""
    drawn = induction_interchanges if task == INDUCTION else owner_interchanges
    return drawn(model, n=n, seed=seed)


def owner_interchanges(model: Model, n: int = 160, seed: int = 0) -> list[Interchange]:
    """Return interchanges of the two variables of who has a thing that one person gave another.

    The source is the same sentences about two other people. "name" is the name of the receiver: the
    source tells of a gift in the same direction, and its receiver is the answer. "mention" is which
    of the two people is the receiver: the source tells of a gift in the other direction, and the
    answer is the giver of the base prompt. Pairs without such a source are left out.
    """
    from interp.circuits.tasks import make_contrast

    pairs = make_contrast(model, OWNER, n=n, seed=seed)
    people = [
        (int(ids[roles["receiver"]]), int(ids[roles["giver"]]))
        for ids, roles in zip(pairs.clean.ids, pairs.roles, strict=True)
    ]
    kinds = [(name, len(ids)) for name, ids in zip(pairs.templates, pairs.clean.ids, strict=True)]
    rng = np.random.default_rng([seed, 85])
    rows = []
    for at, (receiver, giver) in enumerate(people):
        alike = [other for other, kind in enumerate(kinds) if kind == kinds[at]]
        alike = [other for other in alike if not {*people[other]} & {receiver, giver}]
        if not alike:
            continue
        other = int(rng.choice(alike))
        sources = ((pairs.clean, people[other][0], "name"), (pairs.corrupted, giver, "mention"))
        rows += [
            Interchange(pairs.clean.ids[at], x.ids[other], answer, receiver, name, kinds[at][0])
            for x, answer, name in sources
        ]
    return rows


def induction_interchanges(model: Model, n: int = 160, seed: int = 0) -> list[Interchange]:
    """Return interchanges of the two variables of induction, on random tokens; no tokenizer needed.

    A prompt `... a b ... a` is answered with b. "content" is the token b that is copied: the source
    has another one. "pointer" is the place after the earlier a: the source has the same a at
    another place, and the answer is the token of the base prompt that follows this place.
    """
    ids, first = ordinary_ids(model), bos_id(model)
    begin = () if first is None else (int(first),)
    room = min(x for x in (LENGTH + 2, model.limit, model.context) if x) - len(begin) - 1
    length = min(LENGTH, room, len(ids) // 2)
    if length < 6:
        raise PromptError(
            f"{model.name} has room for {room} tokens and a vocabulary of {len(ids)}; interchanges "
            "of induction need 6 tokens and a repeat, and 12 different ones"
        )
    rng = np.random.default_rng([seed, 84])
    rows = []
    for at in range(2 * n):
        variable = ("content", "pointer")[at % 2]
        drawn = rng.choice(ids, 2 * length, replace=False).tolist()
        here, there = drawn[:length], drawn[length:]
        i, j = (int(x) for x in rng.choice(length - 1, 2, replace=False))
        if variable == "pointer":
            there[j] = here[i]
        answer = there[j + 1] if variable == "content" else here[j + 1]
        base, source = (*begin, *here, here[i]), (*begin, *there, there[j])
        rows.append(Interchange(base, source, answer, here[i + 1], variable))
    return rows
