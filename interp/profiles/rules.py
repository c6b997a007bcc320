"""Rules: which keys a description says that a query attends to, and the words for it.

Every declared detector of one sequence is a rule, named by its docstring; the rules of this file
read the text. A user's detector function is one too. A rule states keys, not weights: the row model
finds how strongly each counts for a head.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import OptionError
from interp.heads.declaration import BoundAnalysis, Metric, bound
from interp.model.source_code import code_of
from interp.profiles.reading import Reading

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

Mask = Callable[[Any, Any, Reading], Any]
RECENT = 12  # tokens back that count as recent


@dataclass(frozen=True)
class KeyRule:
    """One rule.

    Args:
        name: its name in tables.
        phrase: the words after "attention goes", such as "to the previous token".
        mask: function of `(query, key, reading)`, broadcasting positions, that returns a boolean
            mask.
        positional: its mask depends on the positions alone.
        needs_text: it reads the text of tokens, so it needs a tokenizer.
        code: what tells it from another rule of its name, in stored runs.
    """

    name: str
    phrase: str
    mask: Mask
    positional: bool = False
    needs_text: bool = True
    code: str = ""

    @property
    def identity(self) -> list[str]:
        """Everything that changes its masks, as plain data."""
        return [self.name, self.code or code_of([self.mask])]


def _of_key(kind: str) -> Mask:
    return lambda query, key, text: text.kinds[kind][key] & (key != query)


def _both(kind: str) -> Mask:
    return lambda query, key, text: text.kinds[kind][key] & text.kinds[kind][query] & (key != query)


def _latest(kind: str) -> Mask:
    """Return the mask of the last key of a kind before the query."""

    def mask(query: Any, key: Any, text: Reading) -> Any:
        return text.kinds[kind][key] & (key == _last(text.kinds[kind])[query])

    return mask


def _last(marked: Bool[np.ndarray, " pos"]) -> Int[np.ndarray, " pos"]:
    """Return the last marked position before each position; -1 if there is none."""
    at = np.where(marked, np.arange(len(marked)), -1)
    return np.r_[-1, np.maximum.accumulate(at)[:-1]]


def _recent(kind: str) -> Mask:
    """Return the mask of keys of a kind among the last tokens, behind the last one of the kind."""

    def mask(query: Any, key: Any, text: Reading) -> Any:
        near = (key < query) & (key >= query - RECENT)
        return text.kinds[kind][key] & near & (key != _last(text.kinds[kind])[query])

    return mask


def _in_sentence(number: int) -> Mask:
    """Return the mask of one place of every sentence, counted from 0, in the query's own."""

    def mask(query: Any, key: Any, text: Reading) -> Any:
        start = np.r_[True, text.sentence[1:] != text.sentence[:-1]]
        first = np.maximum.accumulate(np.where(start, np.arange(len(text)), 0))
        place = np.arange(len(text)) - first
        return (
            (place[key] == number) & (text.sentence[key] == text.sentence[query]) & (key != query)
        )

    return mask


def names_in(text: Reading) -> Bool[np.ndarray, " pos"]:
    """Return names: words that the corpus capitalises nearly wherever they are inside sentences."""
    return text.kinds["name"]


def main_name(text: Reading) -> Bool[np.ndarray, " pos"]:
    """Return the first name of a text wherever it stands."""
    at = np.flatnonzero(names_in(text))
    first = text.words[at[0]] if len(at) else None
    return names_in(text) & np.array([word == first for word in text.words], bool)


def _in_speech(text: Reading) -> Bool[np.ndarray, " pos"]:
    """Return the positions after an opening quotation mark, up to the closing one."""
    marks = text.kinds["quote"]
    return (np.cumsum(marks) - marks) % 2 == 1


def closing_quotes(text: Reading) -> Bool[np.ndarray, " pos"]:
    """Return the quotation marks that close a speech."""
    return text.kinds["quote"] & _in_speech(text)


def _open_quote(query: Any, key: Any, text: Reading) -> Any:
    """Return the quotation mark that opens the speech in which a query stands."""
    marks = text.kinds["quote"]
    return marks[key] & (key == _last(marks)[query]) & _in_speech(text)[query]


def repeated_in(text: Reading) -> Bool[np.ndarray, " pos"]:
    """Return tokens whose text, without case and spaces, occurred before."""
    _, first = np.unique(text.same, return_index=True)
    repeated = np.ones(len(text), bool)
    repeated[first] = False
    return repeated


def _before(labels: Int[np.ndarray, " pos"]) -> Int[np.ndarray, " pos"]:
    return np.r_[-(10**9), labels[:-1]]


def _after_same_form(query: Any, key: Any, text: Reading) -> Any:
    exact = _before(text.tokens)[key] == text.tokens[query]
    return (_before(text.same)[key] == text.same[query]) & ~exact & (key <= query)


def _other_form(query: Any, key: Any, text: Reading) -> Any:
    other = text.tokens[key] != text.tokens[query]
    return (text.same[key] == text.same[query]) & other & (key != query)


def _same_before(query: Any, key: Any, text: Reading) -> Any:
    previous = _before(text.same)
    return (previous[key] == previous[query]) & (key < query) & (key > 0)


def _before_copy(query: Any, key: Any, text: Reading) -> Any:
    following = np.r_[text.tokens[1:], -1]
    return (following[key] == text.tokens[query]) & (key < query - 1)


def _first_of_sentence(query: Any, key: Any, text: Reading) -> Any:
    start = text.kinds["sentence_start"][key]
    return start & (text.sentence[key] == text.sentence[query]) & (key != query)


def _earlier_sentence_start(query: Any, key: Any, text: Reading) -> Any:
    return text.kinds["sentence_start"][key] & (text.sentence[key] < text.sentence[query])


def _previous_word(query: Any, key: Any, text: Reading) -> Any:
    letters = text.kinds["letters"][key]
    return (text.word[key] == text.word[query] - 1) & letters & (key < query - 1)


TEXT_RULES = (
    KeyRule(
        "same_word",
        "to other pieces of the same word",
        lambda q, k, t: (t.word[k] == t.word[q]) & (k != q),
    ),
    KeyRule("previous_word", "to earlier pieces of the word before", _previous_word),
    KeyRule("other_form", "to the same word with another case or space", _other_form),
    KeyRule(
        "after_same_form",
        "to the token after an earlier copy of the word in another form",
        _after_same_form,
    ),
    KeyRule(
        "same_before",
        "to earlier tokens that follow the same token",
        _same_before,
        needs_text=False,
    ),
    KeyRule(
        "sentence",
        "to the same sentence",
        lambda q, k, t: (t.sentence[k] == t.sentence[q]) & (k != q),
    ),
    KeyRule(
        "last_sentence",
        "to the sentence before",
        lambda q, k, t: t.sentence[k] == t.sentence[q] - 1,
    ),
    KeyRule("sentence_first", "to the first token of the sentence", _first_of_sentence),
    KeyRule("sentence_starts", "to the first tokens of earlier sentences", _earlier_sentence_start),
    KeyRule("stops", "to ends of sentences", _of_key("stop")),
    KeyRule("last_stop", "to the end of the sentence before", _latest("stop")),
    KeyRule("delimiters", "to delimiters", _of_key("delimiter")),
    KeyRule("last_delimiter", "to the last delimiter", _latest("delimiter")),
    KeyRule("delimiter_pairs", "from delimiters to delimiters", _both("delimiter")),
    KeyRule("quotes", "to quotation marks", _of_key("quote")),
    KeyRule("last_quote", "to the last quotation mark", _latest("quote")),
    KeyRule("newlines", "to line ends", _of_key("newline")),
    KeyRule(
        "line_start",
        "to the first token of the line",
        lambda q, k, t: (t.line[k] == t.line[q]) & (t.line[k] != _before(t.line)[k]) & (k != q),
    ),
    KeyRule("brackets", "to opening brackets", _of_key("opening")),
    KeyRule("numbers", "to numbers", _of_key("number")),
    KeyRule("open_quote", "to the quotation mark that opened the speech", _open_quote),
    KeyRule(
        "main_name",
        "to the main name (the first of the text)",
        lambda q, k, t: main_name(t)[k] & (k != q),
    ),
    KeyRule(
        "other_names",
        "to names other than the main one",
        lambda q, k, t: (names_in(t) & ~main_name(t))[k] & (k != q),
    ),
    KeyRule(
        "before_names",
        "to the token before a name",
        lambda q, k, t: np.r_[names_in(t)[1:], False][k] & (k != q),
    ),
    KeyRule(
        "names",
        "to names",
        lambda q, k, t: names_in(t)[k] & (k != q),
    ),
    KeyRule(
        "last_name",
        "to the last name",
        lambda q, k, t: names_in(t)[k] & (k == _last(names_in(t))[q]),
    ),
    KeyRule("function_words", "to function words", _of_key("function")),
    KeyRule("last_function", "to the last function word", _latest("function")),
    KeyRule("function_pairs", "from function words to function words", _both("function")),
    KeyRule("content_words", "to content words", _of_key("content")),
    KeyRule("last_content", "to the last content word", _latest("content")),
    KeyRule("content_pairs", "from content words to content words", _both("content")),
    KeyRule("articles", "to articles", _of_key("article")),
    KeyRule("pronouns", "to pronouns", _of_key("pronoun")),
    KeyRule("pronoun_pairs", "from pronouns to pronouns", _both("pronoun")),
    KeyRule(
        "pronoun_names",
        "from pronouns to names",
        lambda q, k, t: names_in(t)[k] & t.kinds["pronoun"][q],
    ),
    KeyRule("possessives", "to possessives and demonstratives", _of_key("possessive")),
    KeyRule("conjunctions", "to conjunctions", _of_key("conjunction")),
    KeyRule("prepositions", "to prepositions", _of_key("preposition")),
    KeyRule("auxiliaries", "to auxiliary verbs and negations", _of_key("auxiliary")),
    KeyRule("past_forms", "to words in -ed", _of_key("past")),
    KeyRule("ing_forms", "to words in -ing", _of_key("present")),
    KeyRule("plurals", "to words in -s", _of_key("plural")),
    KeyRule("recent_content", "to content words among the last 12 tokens", _recent("content")),
    KeyRule("recent_function", "to function words among the last 12 tokens", _recent("function")),
    KeyRule("recent_delimiters", "to delimiters among the last 12 tokens", _recent("delimiter")),
    KeyRule("sentence_second", "to the second token of the sentence", _in_sentence(1)),
    KeyRule("sentence_third", "to the third token of the sentence", _in_sentence(2)),
    KeyRule(
        "first_names",
        "to first mentions of names",
        lambda q, k, t: ~repeated_in(t)[k] & names_in(t)[k] & (k != q),
    ),
    KeyRule("rare", "to words beyond the 500 most frequent tokens", _of_key("rare")),
    KeyRule(
        "frequent",
        "to the 30 most frequent tokens",
        _of_key("frequent"),
        needs_text=False,
    ),
    KeyRule("before_copy", "to the token before an earlier copy", _before_copy, needs_text=False),
    KeyRule(
        "repeated",
        "to words that occurred before",
        lambda q, k, t: repeated_in(t)[k] & t.kinds["letters"][k] & (k != q),
    ),
    KeyRule(
        "first_mentions",
        "to first mentions of content words",
        lambda q, k, t: ~repeated_in(t)[k] & t.kinds["content"][k] & (k != q),
    ),
)
"""Rules that read the text."""


def of_metric(metric: Metric) -> KeyRule:
    """Return the rule of a detector, given as in `interp.score`."""
    declared: BoundAnalysis = bound(metric)
    analysis = declared.analysis
    if analysis.kind != "detector" or analysis.sequences != "one" or analysis.reads_segments:
        raise OptionError(
            f"{declared.label} is not a rule: a rule is a detector of keys in one sequence, a "
            "function of (query, key) or (query, key, tokens)"
        )

    def mask(query: Any, key: Any, text: Reading) -> Any:
        return analysis.predicate(query, key, text.tokens, None, **declared.options)

    reads = "tokens" in analysis.inputs
    code = json.dumps(declared.identity())
    return KeyRule(declared.label, _phrase(analysis), mask, not reads, needs_text=False, code=code)


def _phrase(analysis: Any) -> str:
    """Return the words after "attention goes", from the first sentence of a docstring."""
    doc = " ".join((getattr(analysis.function, "__doc__", None) or "").split("\n\n")[0].split())
    match = re.match(r"Attends? (?:only )?(.+?)(?:[.,;]|$)", doc)
    return match[1] if match else f"where {analysis.name} says"


def declared_rules() -> list[KeyRule]:
    """Return all rules of the package: detectors of one sequence, then those that read the text."""
    from interp.core.registry import METRICS

    detectors = []
    for name, entry in METRICS.items():
        if entry.kind == "detector" and entry.about.get("sequences", "one") == "one":
            analysis = bound(name)
            if not analysis.analysis.reads_segments:
                detectors.append(of_metric(analysis))
    return [*detectors, *TEXT_RULES]


def chosen_rules(rules: Iterable[str | KeyRule | Metric] | None, has_text: bool) -> list[KeyRule]:
    """Return the rules that a user names, or all that the model's tokens allow."""
    if rules is None:
        return [rule for rule in declared_rules() if has_text or not rule.needs_text]
    known = {rule.name: rule for rule in TEXT_RULES}
    asked: Sequence[Any] = (
        [rules] if isinstance(rules, (str, KeyRule)) or callable(rules) else [*rules]
    )
    chosen = []
    for rule in asked:
        if isinstance(rule, str) and rule in known:
            chosen.append(known[rule])
        else:
            chosen.append(rule if isinstance(rule, KeyRule) else of_metric(rule))
    names = [rule.name for rule in chosen]
    if twice := {name for name in names if names.count(name) > 1}:
        raise OptionError(f"rules named twice: {', '.join(sorted(twice))}; give each once")
    if unread := [rule.name for rule in chosen if rule.needs_text and not has_text]:
        raise OptionError(
            f"{', '.join(unread)} read the text of tokens, and the model has no tokenizer; give "
            "rules of positions and token ids"
        )
    return chosen


def masks_of(
    rules: Sequence[KeyRule], reading: Reading, rows: Int[np.ndarray, " row"]
) -> Bool[np.ndarray, "rule row pos"]:
    """Evaluate rules on the sampled queries of one document."""
    query, key = np.asarray(rows)[:, None], np.arange(len(reading))[None]
    shape = (len(rows), len(reading))
    masks = np.zeros((len(rules), *shape), bool)
    for at, rule in enumerate(rules):
        masks[at] = np.broadcast_to(np.asarray(rule.mask(query, key, reading), bool), shape)
    return masks
