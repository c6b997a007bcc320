"""Labels of tokens, and the keys of every rule that reads text, on a sentence by hand."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
from transformers import PretrainedConfig

from interp.profiles.reading import Reading, TokenReader
from interp.profiles.rules import declared_rules, masks_of

TEXT = (
    'The old dog saw Ann. She called the dog: "Come, Dog!"\nNow (at 12) it is running home. The end'
)


class Words:
    """A tokenizer whose tokens are words with the space before them, signs, and line ends."""

    all_special_ids = (0,)

    def __init__(self, text: str) -> None:
        self.parts = re.findall(r" ?[A-Za-z]+| ?[0-9]+|\n| ?[^A-Za-z0-9\s]", text)
        self.known = ["<s>", *dict.fromkeys(self.parts)]

    def ids(self) -> list[int]:
        return [0, *map(self.known.index, self.parts)]

    def get_vocab(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.known)}

    def convert_ids_to_tokens(self, index: int) -> str:
        return self.known[index]

    def decode(self, ids: list[int]) -> str:
        return "".join(self.known[index] for index in ids)


@pytest.fixture(scope="module")
def words() -> Words:
    return Words(TEXT)


@pytest.fixture(scope="module")
def reading(words: Words) -> Reading:
    model = SimpleNamespace(tokenizer=words, config=PretrainedConfig())
    return TokenReader(model, [words.ids()] * 9).read(words.ids())


def keys(reading: Reading, words: Words, rule: str, query: str) -> list[str]:
    """Return the keys of a rule from the last token with a text, as texts."""
    [found] = [one for one in declared_rules() if one.name == rule]
    texts = ["<s>", *words.parts]
    at = len(texts) - 1 - texts[::-1].index(query)
    mask = masks_of([found], reading, np.array([at]))[0, 0]
    return [texts[k].strip(" ") for k in np.flatnonzero(mask) if k <= at and k > 0]


@pytest.mark.parametrize(
    ("rule", "query", "expected"),
    [
        ("sentence_first", " running", ["Now"]),
        ("sentence_second", " dog", ["called"]),
        ("sentence_third", " Dog", ["the"]),
        ("sentence_starts", " end", ["The", "She", "Now"]),
        ("sentence", " saw", ["The", "old", "dog"]),
        ("last_sentence", " called", ["The", "old", "dog", "saw", "Ann", "."]),
        ("other_form", " Dog", ["dog", "dog"]),
        ("after_same_form", " Dog", ["saw", ":"]),
        ("stops", " end", [".", "!", "."]),
        ("last_stop", " end", ["."]),
        ("delimiters", " Dog", [".", ":", ","]),
        ("last_delimiter", " Dog", [","]),
        ("quotes", "Now", ['"', '"']),
        ("newlines", "Now", ["\n"]),
        ("line_start", " it", ["Now"]),
        ("brackets", " it", ["("]),
        ("numbers", " it", ["12"]),
        ("names", " Dog", ["Ann"]),
        ("last_name", " home", ["Ann"]),
        ("first_names", " home", ["Ann"]),
        ("before_copy", " Dog", []),
        ("before_copy", " dog", ["old"]),
        ("frequent", " saw", ["The", "old", "dog"]),
        ("rare", " end", []),
        ("articles", " called", ["The"]),
        ("pronouns", " is", ["She", "it"]),
        ("pronoun_names", " it", ["Ann"]),
        ("auxiliaries", " home", ["is"]),
        ("prepositions", " home", ["at"]),
        ("past_forms", " Dog", ["called"]),
        ("ing_forms", " home", ["running"]),
        ("last_content", " end", ["home"]),
        ("repeated", " Dog", ["the", "dog"]),
        ("first_mentions", " called", ["old", "dog", "saw", "Ann"]),
        ("same_before", " dog", ["old"]),
        ("content_pairs", "\n", []),
    ],
)
def test_rules_name_the_right_keys(
    reading: Reading, words: Words, rule: str, query: str, expected: list[str]
) -> None:
    assert keys(reading, words, rule, query) == expected


def test_rules_have_names_and_words_of_their_own() -> None:
    rules = declared_rules()
    assert len({rule.name for rule in rules}) == len(rules)
    assert len({rule.phrase for rule in rules}) == len(rules)
    assert all(re.match(r"(to|from|within|in|where) ", rule.phrase) for rule in rules)
