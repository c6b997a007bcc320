"""Prompts that show a function of words by examples, and the same with the answers shuffled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.tokens import encoded_text

if TYPE_CHECKING:
    from interp.model.model import Model

FUNCTIONS: dict[str, tuple[tuple[str, str], ...]] = {
    "antonym": (
        ("hot", "cold"),
        ("big", "small"),
        ("up", "down"),
        ("good", "bad"),
        ("day", "night"),
        ("fast", "slow"),
        ("old", "young"),
        ("open", "closed"),
        ("happy", "sad"),
        ("wet", "dry"),
        ("light", "dark"),
        ("high", "low"),
        ("long", "short"),
        ("rich", "poor"),
        ("hard", "soft"),
        ("left", "right"),
        ("in", "out"),
        ("early", "late"),
        ("full", "empty"),
        ("true", "false"),
    ),
    "plural": (
        ("cat", "cats"),
        ("dog", "dogs"),
        ("car", "cars"),
        ("tree", "trees"),
        ("book", "books"),
        ("friend", "friends"),
        ("toy", "toys"),
        ("bird", "birds"),
        ("hat", "hats"),
        ("game", "games"),
        ("hand", "hands"),
        ("house", "houses"),
        ("star", "stars"),
        ("child", "children"),
        ("man", "men"),
        ("foot", "feet"),
        ("flower", "flowers"),
    ),
    "past_tense": (
        ("go", "went"),
        ("see", "saw"),
        ("take", "took"),
        ("give", "gave"),
        ("run", "ran"),
        ("eat", "ate"),
        ("come", "came"),
        ("make", "made"),
        ("say", "said"),
        ("find", "found"),
        ("play", "played"),
        ("look", "looked"),
        ("want", "wanted"),
        ("like", "liked"),
        ("help", "helped"),
        ("walk", "walked"),
        ("know", "knew"),
        ("think", "thought"),
    ),
    "capital": (
        ("France", "Paris"),
        ("Germany", "Berlin"),
        ("Italy", "Rome"),
        ("Spain", "Madrid"),
        ("Japan", "Tokyo"),
        ("England", "London"),
        ("Russia", "Moscow"),
        ("China", "Beijing"),
        ("Egypt", "Cairo"),
        ("Austria", "Vienna"),
        ("Greece", "Athens"),
        ("Poland", "Warsaw"),
        ("Ireland", "Dublin"),
        ("Cuba", "Havana"),
        ("Norway", "Oslo"),
    ),
    "uppercase": (
        ("one", "One"),
        ("two", "Two"),
        ("day", "Day"),
        ("man", "Man"),
        ("time", "Time"),
        ("house", "House"),
        ("water", "Water"),
        ("good", "Good"),
        ("home", "Home"),
        ("big", "Big"),
        ("red", "Red"),
        ("blue", "Blue"),
        ("dog", "Dog"),
        ("cat", "Cat"),
    ),
}
SHOWN, ASKED = "Q: {x}\nA: {y}\n\n", "Q: {x}\nA:"


@dataclass(frozen=True)
class InContext:
    """Prompts of one function, with the token of the right answer of each.

    Args:
        function: name of the function.
        ids: prompts that show examples and ask for one more.
        shuffled: the same prompts, with the answers of the examples exchanged.
        bare: the same questions without examples.
        answers: the token that answers.
    """

    function: str
    ids: tuple[tuple[int, ...], ...]
    shuffled: tuple[tuple[int, ...], ...]
    bare: tuple[tuple[int, ...], ...]
    answers: tuple[int, ...]


def known_functions(model: Model, shots: int) -> dict[str, list[tuple[str, str, int]]]:
    """Return by function its words whose answer is one token, if there are enough for a prompt."""
    by_function: dict[str, list[tuple[str, str, int]]] = {}
    for name, pairs in FUNCTIONS.items():
        rows = []
        for x, y in pairs:
            ids = encoded_text(model.tokenizer, f" {y}", add_special_tokens=False)["input_ids"]
            asked = encoded_text(model.tokenizer, f" {x}", add_special_tokens=False)["input_ids"]
            unknown = model.tokenizer.unk_token_id
            if len(ids) == 1 and unknown not in (ids[0], *asked):
                rows.append((x, y, ids[0]))
        if len(rows) >= shots + 2:
            by_function[name] = rows
    return by_function


def in_context_prompts(
    model: Model,
    function: str,
    *,
    n: int = 24,
    shots: int = 5,
    seed: int = 0,
    shown: str = SHOWN,
    asked: str = ASKED,
) -> InContext:
    """Make n prompts of a function, with the same words in both versions of a prompt.

    Reference: Todd et al. 2023, "Function Vectors in Large Language Models" (arXiv 2310.15213; the
    form of the prompts; the words are ours).
    """
    if function not in FUNCTIONS:
        raise UnknownName("function", function, FUNCTIONS)
    if n < 1 or shots < 2:
        raise OptionError(f"n={n}, shots={shots}: at least 1 prompt and 2 examples")
    if model.tokenizer is None:
        raise PromptError(f"{model.name} has no tokenizer, but the prompts are text; give one")
    rows = known_functions(model, shots).get(function)
    if rows is None:
        raise PromptError(
            f"the tokenizer of {model.name} splits (or does not know) too many answers of the "
            f"function {function}; {shots + 2} of one token each are needed"
        )
    rng = np.random.default_rng([seed, 43])
    parts: dict[str, list[tuple[int, ...]]] = {"ids": [], "shuffled": [], "bare": []}
    answers = []
    for _ in range(n):
        *given, (word, _, token) = (rows[i] for i in rng.permutation(len(rows))[: shots + 1])
        xs, ys = [x for x, *_ in given], [y for _, y, _ in given]
        moved = [ys[(i + 1) % shots] for i in range(shots)]  # no answer stays where it is
        order = rng.permutation(shots)
        for name, labels in (("ids", ys), ("shuffled", moved), ("bare", [])):
            pairs = [(xs[i], labels[i]) for i in order] if labels else []
            text = "".join(shown.format(x=x, y=y) for x, y in pairs) + asked.format(x=word)
            ids = tuple(encoded_text(model.tokenizer, text)["input_ids"])
            if model.limit and len(ids) > model.limit:
                raise PromptError(
                    f"a prompt of {shots} examples has {len(ids)} tokens, and {model.name} takes "
                    f"{model.limit}; give fewer examples"
                )
            parts[name].append(ids)
        answers.append(token)
    each = {name: tuple(x) for name, x in parts.items()}
    return InContext(function, answers=tuple(answers), **each)
