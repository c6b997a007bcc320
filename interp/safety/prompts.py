"""Harmful prompts, which a model should decline, and harmless ones: reading and framing.

harmful = read_prompts("harmful.txt")          # a prompt per line
harmless = read_prompts("harmless.jsonl")      # {"prompt": ...} per line
sets = PromptSets.of(model, templated(model, harmful), templated(model, harmless))
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.chat import has_template
from interp.core.documents import parse_json
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.text_file import lines_of_text, read_text
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

FIELDS = ("prompt", "instruction", "text", "goal")  # the names that published sets use
LABEL = "harmful"
MOST_SHARED = 16  # tokens at the end that are counted as part of the template


@dataclass(frozen=True)
class PromptSets:
    """Harmful and harmless prompts as ids; their numbers may differ."""

    harmful: Prompts
    harmless: Prompts

    @classmethod
    def of(cls, model: Model, harmful: Any, harmless: Any) -> PromptSets:
        """Make the sets from texts, ids or `Prompts`."""
        sets = cls(Prompts.of(harmful, model), Prompts.of(harmless, model))
        for name, prompts in (("harmful", sets.harmful), ("harmless", sets.harmless)):
            prompts.check(model)
            if len(prompts) < 2:
                raise PromptError(
                    f"one {name} prompt; an error over prompts needs at least two of each kind"
                )
        both = set(sets.harmful.ids) & set(sets.harmless.ids)
        if both == set(sets.harmful.ids) == set(sets.harmless.ids):
            raise PromptError(
                f"the harmful and the harmless prompts are the same {len(both)} prompts, so "
                "nothing tells them apart; give two different sets"
            )
        if both:
            first = next(i for i, p in enumerate(sets.harmful.ids) if p in both)
            raise PromptError(
                f"{len(both)} prompts are in both sets (harmful prompt {first} is one); take them "
                "out of one of them"
            )
        return sets

    @property
    def together(self) -> Prompts:
        """Harmful prompts, then harmless ones."""
        design = f"harmful: {self.harmful.design}; harmless: {self.harmless.design}"
        return Prompts(self.harmful.ids + self.harmless.ids, design)

    @property
    def shared_ending(self) -> int:
        """Tokens at the end that all prompts share: those of the template after the instruction.

        At least 1 (the last token is always looked at), at most 16.
        """
        rows = [*self.harmful.ids, *self.harmless.ids]
        most = min(MOST_SHARED, *map(len, rows))
        same = (len({row[len(row) - k] for row in rows}) == 1 for k in range(1, most + 1))
        return max(1, next((k for k, equal in enumerate(same) if not equal), most))

    def halves(self, seed: int, share: float = 0.5) -> tuple[PromptSets, PromptSets]:
        """Two parts by chance; the second holds `share` of each set, at least one prompt."""
        if not 0 < share < 1:
            raise OptionError(f"share={share} of the prompts; it lies between 0 and 1")
        rng = np.random.default_rng([seed, 3])
        parts: list[list[Prompts]] = [[], []]
        for prompts in (self.harmful, self.harmless):
            order = rng.permutation(len(prompts)).tolist()
            n = min(max(1, round(share * len(prompts))), len(prompts) - 1)
            for part, which in zip(parts, (order[n:], order[:n]), strict=True):
                part.append(prompts.part(sorted(which)))
        return PromptSets(*parts[0]), PromptSets(*parts[1])

    def about(self) -> dict[str, Any]:
        """Return the provenance of the sets."""
        return {
            "prompts": self.together.design,
            "prompts_hash": self.together.hash,
            "n_harmful": len(self.harmful),
            "n_harmless": len(self.harmless),
        }


@takes_model
def templated(model: Model, prompts: Sequence[str], template: str = "chat") -> Prompts:
    """Format instructions in a template that the model was trained on."""
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, so it takes no templates; give ids")
    if template != "chat":
        if "{prompt}" not in template:
            raise OptionError(f"template {template!r} has no {{prompt}} in it")
        formatted = Prompts.of([template.replace("{prompt}", p) for p in prompts], model)
        return Prompts(formatted.ids, f"template {template!r}")
    if not has_template(model.tokenizer):
        raise PromptError(f"{model.name} has no chat template; give one with {{prompt}} in it")
    chats = [[{"role": "user", "content": prompt}] for prompt in prompts]
    return Prompts(Prompts.of(chats, model).ids, "chat template")


def read_prompts(path: str | Path) -> list[Any]:
    """Read the prompts of a file: texts, or lists of token ids.

    `.txt` has one per line; `.jsonl` one JSON object per line with one of the fields `prompt`,
    `instruction`, `text`, `goal`; `.json` a list of such objects. A bare text or list of ids in
    place of an object is a prompt too. Empty lines are skipped.

    Raises:
        PromptError: The file cannot be read or is empty, or lines are invalid; the message says
            what is wrong with the first one, and numbers the others.
        OptionError: The file has another suffix.
    """
    prompts, _ = _read(Path(path), labelled=False)
    return prompts


def read_labelled(path: str | Path) -> tuple[list[Any], list[Any]]:
    """Read harmful and harmless prompts of one `.jsonl` file, labelled by the field `harmful`."""
    prompts, labels = _read(Path(path), labelled=True)
    harmful = [p for p, label in zip(prompts, labels, strict=True) if label]
    harmless = [p for p, label in zip(prompts, labels, strict=True) if not label]
    for name, part in (("harmful", harmful), ("harmless", harmless)):
        if not part:
            raise PromptError(f"{path} holds no {name} prompts: {LABEL!r} is the same on all lines")
    return harmful, harmless


def _read(path: Path, *, labelled: bool) -> tuple[list[Any], list[bool]]:
    kinds = (".jsonl",) if labelled else (".txt", ".jsonl", ".json")
    if path.suffix not in kinds:
        raise OptionError(f"prompts {str(path)!r}: give a {', '.join(kinds)} file")
    prompts, labels, bad = [], [], []
    for where, row in _rows(path):
        what = row
        if path.suffix != ".txt":
            what, wrong = _prompt(row, labelled)
        else:
            wrong = None
        if wrong:
            bad.append((where, wrong))
            continue
        prompts.append(what)
        labels.append(isinstance(row, dict) and row.get(LABEL) is True)
    if bad:
        (where, wrong), *rest = bad
        more = f" (also bad: {', '.join(w for w, _ in rest[:8])})" if rest else ""
        raise PromptError(f"{path} {where} {wrong}{more}")
    if not prompts:
        raise PromptError(f"{path} holds no prompts")
    if len({isinstance(p, str) for p in prompts}) > 1:
        raise PromptError(f"{path} mixes texts and lists of token ids; a file holds one kind")
    return prompts, labels


class _Bad(str):
    """Reason why a line could not be parsed."""


def _rows(path: Path) -> list[tuple[str, Any]]:
    content = read_text(path)
    if path.suffix == ".json":
        try:
            rows = parse_json(content)
        except ValueError as error:
            raise PromptError(f"{path} is not JSON: {error}") from error
        if not isinstance(rows, list):
            raise PromptError(f"{path} is not a list of prompts")
        return [(f"entry {number}", row) for number, row in enumerate(rows, 1)]
    entries: list[tuple[str, Any]] = []
    for number, line in enumerate(lines_of_text(content), 1):
        if not line.strip():
            continue
        row: Any = line
        if path.suffix == ".jsonl":
            try:
                row = parse_json(line)
            except ValueError as error:
                row = _Bad(f"is not JSON: {error}")
        entries.append((f"line {number}", row))
    return entries


def _prompt(row: Any, labelled: bool) -> tuple[Any, str | None]:  # noqa: PLR0911  one per fault
    """Return the prompt of a row, or the description of what is wrong with it."""
    if isinstance(row, _Bad):
        return None, str(row)
    value = row
    if isinstance(row, dict):
        named = [name for name in FIELDS if name in row]
        if len(named) != 1:
            known = ", ".join(FIELDS)
            have = f"has {' and '.join(named)}" if named else "has no prompt"
            return None, f"{have}: one of the fields {known} holds the prompt"
        value = row[named[0]]
        if labelled and not isinstance(row.get(LABEL), bool):
            return None, f"does not say {LABEL!r}: true or false"
    elif labelled:
        return None, f"does not say {LABEL!r}: true or false"
    if isinstance(value, str) and value.strip():
        return value, None
    ids = isinstance(value, list) and value
    if ids and all(isinstance(t, int) and not isinstance(t, bool) and t >= 0 for t in value):
        return value, None
    return None, f"holds {json.dumps(value)[:40]}, which is neither a text nor a list of token ids"
