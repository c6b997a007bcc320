"""Prompts that several models read: the same tokens, or the same texts by their own tokenizers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts

if TYPE_CHECKING:
    from interp.model.model import Model

_TEXTS = "give texts (prompts=[...], --file FILE), which each model reads by its tokenizer"


@dataclass
class SharedPrompts:
    """Prompts for one model after another, compared with those that the first one received.

    Args:
        given: texts, ids or `Prompts`; None for the default prompts of `interp.score`.
        seed: seed of the default prompts.
        same_tokens: raise where two models read different tokens for the same texts.
    """

    given: Any = None
    seed: int = 0
    same_tokens: bool = False
    by_text: bool = False
    _first: tuple[str, Any, Prompts] | None = field(default=None, repr=False)

    def of(self, model: Model) -> Prompts:
        """Return the prompts for one model, checked against those of the first model."""
        if isinstance(self.given, Mapping) or not model.takes_text:
            raise OptionError(
                f"{model.name} is compared on tokens, but it reads {model.kind} input; only models "
                "that read tokens can be compared"
            )
        vocabulary = vocabulary_of(model)
        if self._first is None:
            prompts = self._made(model)
            prompts.check(model)
            self._first = model.name, vocabulary, prompts
            return prompts
        name, known, prompts = self._first
        if vocabulary == known:
            prompts.check(model)
            return prompts
        if not self._texts():
            what = "the default prompts" if self.given is None else "these prompts"
            advice = _TEXTS
            if wordless := [n for n, v in ((name, known), (model.name, vocabulary)) if _numbers(v)]:
                advice = f"texts do not help, since {' and '.join(wordless)} has no tokenizer"
            raise PromptError(
                f"{name} and {model.name} have different vocabularies, and {what} are token ids, "
                f"which mean different tokens to them; {advice}"
            )
        tokenized = self._made(model)
        tokenized.check(model)
        for i, text in enumerate(self._listed()):
            _require_expressed(model, text, i, tokenized.ids[i])
        if tokenized.ids == prompts.ids:
            return prompts
        if self.same_tokens:
            raise PromptError(
                f"{name} and {model.name} split the same texts into different tokens, so their "
                "attention patterns have no positions in common; patterns can be compared only "
                "between models with one tokenizer"
            )
        self.by_text = True
        return tokenized

    @property
    def hash(self) -> str:
        """sha256 of the prompts of the first model, or of the texts where tokens differ."""
        if self.by_text:
            return hashlib.sha256(repr(self._listed()).encode()).hexdigest()
        return "" if self._first is None else self._first[2].hash

    @property
    def clusters(self) -> tuple[str, ...] | None:
        """Label of each prompt, if prompts share something."""
        return None if self._first is None else self._first[2].clusters

    @property
    def design(self) -> str:
        """Description of the prompts."""
        text = "" if self._first is None else self._first[2].design
        return f"{text}, split by each model's tokenizer" if self.by_text else text

    def _texts(self) -> bool:
        return self.given is not None and all(isinstance(x, str) for x in self._listed())

    def _listed(self) -> list[Any]:
        if isinstance(self.given, Prompts):
            return list(self.given.ids)
        return [self.given] if isinstance(self.given, str) else list(self.given)

    def _made(self, model: Model) -> Prompts:
        from interp.heads.scoring import default_prompts

        source = default_prompts(model, self.seed) if self.given is None else self.given
        if isinstance(source, Mapping):
            raise OptionError(f"{model.name} does not read tokens alone, so it cannot be compared")
        prompts = Prompts.of(source, model)
        if self._texts():
            for i, text in enumerate(self._listed()):
                _require_expressed(model, text, i, prompts.ids[i])
        return prompts


def vocabulary_of(model: Model) -> Any:
    """Return what token ids mean to a model: its tokenizer's table, or the number of ids."""
    if model.tokenizer is None:
        return model.d_vocab
    return dict(model.tokenizer.get_vocab())


def _numbers(vocabulary: Any) -> bool:
    """Return True for the vocabulary of a model without a tokenizer, the number of its ids."""
    return isinstance(vocabulary, int)


def _require_expressed(model: Model, text: str, at: int, ids: tuple[int, ...]) -> None:
    """Raise if a tokenizer replaces parts of a text by its unknown token."""
    unknown = getattr(model.tokenizer, "unk_token_id", None)
    if unknown is not None and unknown in ids and model.tokenizer.unk_token not in text:
        raise PromptError(
            f"prompt {at}: the tokenizer of {model.name} has no tokens for a part of the text and "
            "replaces it by its unknown token, so the models would not read the same; choose texts "
            "that every tokenizer can express"
        )
