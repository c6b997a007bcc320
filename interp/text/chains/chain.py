"""A long text in sentences, with an optional question at its end and its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.tokens import encoded_text
from interp.text.chains.sentences import sentence_spans

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass(frozen=True)
class Chain:
    """Token ids with the span of every sentence: a reasoning trace, or documents of a prompt.

    Args:
        ids: token ids, with a beginning-of-sequence token where the model uses one.
        spans: first and one-past-last token of each sentence, in order, without overlap. Tokens
            outside all spans belong to no sentence.
        texts: the sentences as text.
        question: ids that follow, such as "Therefore the answer is".
        answer: ids of the answer, which follow the question.
        depends: known pairs (later sentence, earlier sentence that it depends on), for tests.
        sources: known sentences that the answer rests on, for tests.
        name: name in results.

    Raises:
        PromptError: there are no sentences, one has no token, or spans overlap or leave the ids.
    """

    ids: tuple[int, ...]
    spans: tuple[tuple[int, int], ...]
    texts: tuple[str, ...]
    question: tuple[int, ...] = ()
    answer: tuple[int, ...] = ()
    depends: tuple[tuple[int, int], ...] = ()
    sources: tuple[int, ...] = ()
    name: str = "chain"

    def __post_init__(self) -> None:
        if not self.spans:
            raise PromptError(f"{self.name} has no sentences; give a text of at least two")
        if len(self.texts) != len(self.spans):
            raise PromptError(
                f"{self.name} has {len(self.spans)} spans and {len(self.texts)} texts; give one "
                "text per span"
            )
        end = 0
        for i, (a, b) in enumerate(self.spans):
            if a >= b:
                raise PromptError(
                    f"sentence {i} of {self.name} ({self.texts[i][:40]!r}) has no token of its "
                    "own: the tokenizer joined it with a neighbour; join the two sentences"
                )
            if a < end or b > len(self.ids):
                raise PromptError(
                    f"sentence {i} of {self.name} spans tokens {a} to {b} of {len(self.ids)}, "
                    f"after a sentence that ends at {end}; give spans in order, without overlap"
                )
            end = b

    def __len__(self) -> int:
        return len(self.spans)

    @classmethod
    def of_text(
        cls,
        model: Model,
        text: str,
        *,
        question: str = "",
        answer: str = "",
        spans: Sequence[tuple[int, int]] | None = None,
        name: str = "chain",
    ) -> Chain:
        """Tokenise a text and give every token to the sentence that holds its last character.

        Args:
            model: the model, whose tokenizer is used.
            text: the text.
            question: text after it; the answer's tokens are those that follow this text.
            answer: the answer, as it follows the question: usually with a leading space.
            spans: character spans of the sentences; by default those of `sentence_spans`.
            name: name in results.

        Raises:
            PromptError: the model has no tokenizer, or a sentence has no token.
        """
        if model.tokenizer is None:
            raise PromptError(
                f"{model.name} has no tokenizer, so it takes token ids: make a Chain of ids and "
                "spans"
            )
        text_spans = sentence_spans(text) if spans is None else list(spans)
        ids, ends = _tokens(model, text)
        starts = np.array([a for a, _ in text_spans])
        owner = [-1 if end is None else int((starts < end).sum()) - 1 for end in ends]
        token_spans = []
        for i in range(len(text_spans)):
            mine = [at for at, who in enumerate(owner) if who == i]
            token_spans.append((mine[0], mine[-1] + 1) if mine else (0, 0))
        more = _plain_ids(model, question) if question else ()
        rest = _plain_ids(model, answer) if answer else ()
        texts = tuple(text[a:b].strip() for a, b in text_spans)
        return cls(tuple(ids), tuple(token_spans), texts, more, rest, name=name)

    @property
    def prompt(self) -> tuple[int, ...]:
        """The ids, the question and the answer."""
        return self.ids + self.question + self.answer

    @property
    def labels(self) -> np.ndarray:
        """Sentence of each token of `ids`, -1 for none."""
        sentences = np.full(len(self.ids), -1, dtype=np.int64)
        for i, (a, b) in enumerate(self.spans):
            sentences[a:b] = i
        return sentences

    def shuffled(self, seed: int) -> Chain:
        """Return the null: the tokens of all sentences in random order, in the same spans."""
        where = np.flatnonzero(self.labels >= 0)
        ids = np.array(self.ids)
        ids[where] = np.random.default_rng(seed).permutation(ids[where])
        return replace(self, ids=tuple(ids.tolist()), name=f"{self.name}, tokens shuffled")

    def fits(self, model: Model, *, beyond: bool = False) -> None:
        """Raise if the chain does not fit the model.

        Args:
            model: the model.
            beyond: allow more tokens than the config states, if positions are computed.

        Raises:
            PromptError: the chain is longer than the context of the model.
        """
        n, context = len(self.prompt), model.context
        if not beyond and context is not None and n > context:
            raise PromptError(
                f"{self.name} has {n:,} tokens and {model.name} a context of {context:,}; shorten "
                "it, or give beyond=True if positions are computed"
            )
        Prompts((self.prompt,)).check(model)


def require_answer(chain: Chain) -> None:
    """Raise if a chain has no answer to explain."""
    if not chain.answer:
        raise OptionError(
            f"{chain.name} has no answer; give the tokens that the effect is measured on "
            "(answer=, --answer)"
        )


def _tokens(model: Model, text: str) -> tuple[list[int], list[int | None]]:
    """Return ids, and for each the one-past-last character that it covers; None if special."""
    tokenizer = model.tokenizer
    if getattr(tokenizer, "is_fast", False):
        coded = encoded_text(tokenizer, text, return_offsets_mapping=True, verbose=False)
        offsets = coded["offset_mapping"]
        return list(coded["input_ids"]), [b if b > a else None for a, b in offsets]
    # without offsets: where the tokens of the text up to each character end
    ids = list(encoded_text(tokenizer, text, verbose=False)["input_ids"])
    ends: list[int | None] = [None] * len(ids)
    plain = list(_plain_ids(model, text))
    places = range(len(ids) - len(plain) + 1)
    first = next((i for i in places if ids[i : i + len(plain)] == plain), 0)
    done = 0
    for at in range(1, len(text) + 1):
        n = min(len(_plain_ids(model, text[:at])), len(plain))
        for i in range(done, n):
            ends[first + i] = at
        done = max(done, n)
    return ids, ends


def _plain_ids(model: Model, text: str) -> tuple[int, ...]:
    encoding = encoded_text(model.tokenizer, text, add_special_tokens=False, verbose=False)
    return tuple(encoding["input_ids"])
