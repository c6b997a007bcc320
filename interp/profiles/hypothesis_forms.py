"""Forms in which a hypothesis is given, recognised before a model is loaded, and their readers.

    L1H0=induction           a rule of the profile or a detector, by its name
    L5H4=rules.py:owners     a function of (query, key) or (query, key, tokens) in a file
    L5H4=program.py:pattern  a function of the token ids that returns a pattern
    L5H4=names.toml          a list, of which the first entry that names a key counts
    L5H4=the name of ...     a sentence, which a language model reads
    L5H4+L6H11=task:ioi      heads that do a task, or the file of a circuit (`task_claim`)
    variables.json           a variable in a subspace (`variable_claim`)
    FOLDER:F12=names         a feature of a dictionary, which fires on tokens of a kind of query

A list is TOML or JSON with one table per entry: `keys` (a rule) or `tokens` (texts), and if they
are claimed `queries` (a kind of query) and `share` (of the attention off the sink).

All forms about one head but a sentence may be limited to a kind of query, which alone judges them:
`L1H0=previous from names`, `L1H0=previous before names` (whose next token is of the kind), or
`queries` of the list as a whole. FILE.py:FUNCTION, of the token ids, is a kind too.

Of a feature a kind of query, or FILE.py:FUNCTION of the token ids, is the claim itself; a rule or a
function of (query, key, ...) claims the tokens from which it names a key.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.documents import parse_json, parse_toml
from interp.core.errors import OptionError, UnknownName
from interp.core.registry import METRICS, run_file
from interp.core.tokens import word_with_space
from interp.profiles.entries import PLACES, QUERY_KINDS, SECOND, QueryKind, judged_kinds
from interp.profiles.hypothesis import FEATURE, Hypothesis, KeyClaim, kind_by
from interp.profiles.ordered_list import ENTRIES
from interp.profiles.rules import KeyRule, chosen_rules, declared_rules
from interp.profiles.sentence_reader import SentenceReader, plain_sentence
from interp.profiles.task_claim import TaskClaim, task_claim
from interp.profiles.variable_claim import VariableClaim, variable_claim

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.profiles.reading import Reading

LARGEST_FILE = 1_000_000  # bytes of a list
_ASKED = re.compile(r"((?:\w+\.)?L\d+H\d+|.+:F\d+)\s*=\s*(.+)", re.DOTALL)
_LIMITED = re.compile(r"(\S+)\s+(?:from\s+|(?=before\s))(.+)", re.DOTALL)
_ENTRY = {"keys", "tokens", "queries", "share"}
FORMS = (
    "give HEAD=RULE with a rule or detector by name, HEAD=FILE.py:FUNCTION with a function of"
    " (query, key), (query, key, tokens) or (ids), HEAD=FILE.toml with a list, HEAD+HEAD=task:TASK"
    " with heads that do a task, CIRCUIT.json with a circuit, PLACE=VARIABLES.json with a variable"
    " in a subspace, or FOLDER:F12=KIND with a feature of a dictionary; a rule,"
    " function or list about a head may be limited, as in HEAD=RULE from names"
)


@dataclass(frozen=True)
class StatedHypothesis:
    """Hypothesis about one head, of a form that is known, before it is read for a model.

    Args:
        head: the head.
        asked: the hypothesis as it was given; "" if not as a text.
        content: the entries of a list, a program, a rule, or the text of a sentence.
        at: kind of query to which it is limited; None if to none.
    """

    head: str
    asked: str
    content: Any
    at: QueryKind | None = None

    def named(self, what: str) -> str:
        """Return the hypothesis as it was given, or else by its head and what it says."""
        limit = "" if self.at is None else f" {self.at.limit}"
        return self.asked or f"{self.head}={what}{limit}"


def stated_hypothesis(
    given: Any, head: str | None = None, *, readable: bool = False
) -> Hypothesis | StatedHypothesis | TaskClaim | VariableClaim:
    """Tell the forms of a hypothesis apart, and refuse a malformed one without a model.

    A sentence is one only where something can read it.
    """
    if isinstance(given, (Hypothesis, StatedHypothesis, TaskClaim, VariableClaim)):
        return given
    if (claim := variable_claim(given, head) or task_claim(given, head)) is not None:
        return claim
    asked, queries = given if isinstance(given, str) else "", None
    if isinstance(given, str) and (match := _ASKED.fullmatch(given.strip())):
        head, given = match[1], match[2].strip()
    if isinstance(given, str) and (match := _LIMITED.fullmatch(given)):
        queries = _kind(match[2], readable)
        given = given if queries is None else match[1]
        asked += _digest(match[2])
    if isinstance(given, str):
        asked += _digest(given)
        given = _listed(Path(given)) if Path(given).suffix in (".toml", ".json") else given
    entries = given if isinstance(given, (list, tuple)) else None
    if isinstance(given, Mapping):
        head, entries = str(given.get("head", head or "")) or None, given.get("entries", ())
        if queries is None and "queries" in given:
            queries = _kind(given["queries"])
    if head is None:
        raise OptionError(f"the hypothesis {str(given)[:80]!r} names no head; {FORMS}")
    if FEATURE.fullmatch(head):
        return _about_feature(head, asked, given if entries is None else entries, queries)
    if entries is not None:
        _claims(entries, None)
        return StatedHypothesis(head, asked, entries, queries)
    given = _function(given)
    if isinstance(given, str) and " " in given and not given.endswith(".py"):
        if not readable:
            raise OptionError(
                f"{given[:80]!r} is a sentence; give a language model that reads it, as --with"
                f" http://HOST/v1#NAME (reader=... in Python), or another form: {FORMS}"
            )
        return StatedHypothesis(head, asked, plain_sentence(given))
    return StatedHypothesis(head, asked, given if _is_program(given) else _rule(given), queries)


def _kind(given: Any, readable: bool = False) -> QueryKind | None:
    """Return a kind of query by its words or as a function; None for words of a sentence."""
    given = _function(given)
    if callable(given):
        return kind_by(given)
    kinds = judged_kinds()
    words = " ".join(str(given).split())
    if words not in kinds and not readable:
        raise UnknownName("kind of queries", words, [*kinds])
    return kinds.get(words)


def _about_feature(
    head: str, asked: str, given: Any, queries: QueryKind | None
) -> StatedHypothesis:
    """Return a claim about a feature: a list, a rule, or a kind of query, which names itself."""
    folder = head.rpartition(":")[0]
    if queries is not None:
        raise OptionError(
            f"{head} is judged at all tokens; leave out the kind of query, or claim it: {head}=KIND"
        )
    if not Path(folder).is_dir():
        raise OptionError(f"{folder} is no folder of a dictionary, as for {head}; {FORMS}")
    if isinstance(given, (list, tuple)):
        _claims(given, None)
        return StatedHypothesis(head, asked, given)
    given = _function(given)
    code = getattr(given, "__code__", None)
    own = code is not None and code.co_argcount == 1
    kind = kind_by(given) if own else judged_kinds().get(" ".join(str(given).split()))
    if kind is None and isinstance(given, str) and " " in given:
        raise UnknownName("kind of queries", given, [*judged_kinds()])
    if kind is None:
        return StatedHypothesis(head, asked, _rule(given))

    def mask(query: Any, key: Any, text: Reading) -> Any:
        return np.asarray(kind.mask(text))[query] & (key == query)

    rule = KeyRule(kind.words, f"to {kind.words}", mask, False, kind.needs_text, "own" * own)
    return StatedHypothesis(head, asked, rule)


def read_hypothesis(
    given: Any, model: Model, head: str | None = None, reader: SentenceReader | None = None
) -> Hypothesis:
    """Read a hypothesis about one head, in any of its forms, for a model."""
    said = stated_hypothesis(given, head, readable=reader is not None)
    if isinstance(said, Hypothesis):
        return said
    if isinstance(said, TaskClaim | VariableClaim):
        raise OptionError(f"{said.asked} is a claim about a task, not about one head; {FORMS}")
    if isinstance(said.content, str):
        assert reader is not None
        claims = (KeyClaim(reader.rule(said.content)),)
        return Hypothesis(said.head, f"{said.head}={said.content}", claims, reader=reader)
    if said.at is not None and said.at.needs_text and model.tokenizer is None:
        raise OptionError(f"{said.at.words} are told by their text: the model has no tokenizer")
    if isinstance(said.content, (list, tuple)):
        claims = _claims(said.content, model, FEATURE.fullmatch(said.head) is not None)
        named = said.named("list: " + "; ".join(claim.name for claim in claims))
        return Hypothesis(said.head, named, claims, at=said.at)
    if _is_program(said.content):
        named = said.named(getattr(said.content, "__name__", "program"))
        return Hypothesis(said.head, named, program=said.content, at=said.at)
    rule = _readable(said.content, model)
    return Hypothesis(said.head, said.named(rule.name), (KeyClaim(rule),), at=said.at)


def _digest(given: str) -> str:
    """Return the hash of a file, by which a ledger tells its versions apart, if there is one."""
    path = Path(re.sub(r"(?<=\.py):\w+$", "", given))
    known = path.suffix in (".py", ".toml", ".json") and path.is_file()
    if not known or path.stat().st_size > LARGEST_FILE:
        return ""
    return f" (sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:8]})"


def _function(given: Any) -> Any:
    """Return the function that FILE.py:FUNCTION names, and any other form as it is."""
    if not isinstance(given, str) or not (match := re.fullmatch(r"(.+\.py)(?::(\w+))?", given)):
        return given
    path, name = Path(match[1]), match[2]
    if not path.is_file():
        raise OptionError(f"{path} does not exist; {FORMS}")
    if name is None:
        raise OptionError(f"{path} names no function; give {path}:FUNCTION")
    function = getattr(run_file(path, "hypothesis"), name, None)
    if not callable(function):
        raise OptionError(f"{path} defines no function {name}; {FORMS}")
    return function


def _is_program(given: Any) -> bool:
    """Return whether an object is a function of token ids, which returns a pattern."""
    code = getattr(given, "__code__", None)
    return code is not None and code.co_varnames[: code.co_argcount] == ("ids",)


def _listed(path: Path) -> Any:
    """Read a list from a file of TOML or JSON."""
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise OptionError(
                f"{path} has more than {LARGEST_FILE} bytes; give at most {ENTRIES} entries"
            )
        text = path.read_text(encoding="utf-8")
        return parse_toml(text) if path.suffix == ".toml" else parse_json(text)
    except (OSError, ValueError) as error:
        raise OptionError(f"{path} cannot be read as a list: {error}") from error


def _claims(given: Any, model: Model | None, itself: bool = False) -> tuple[KeyClaim, ...]:
    """Return the entries of a list; without a model they are only checked.

    With `itself`, texts of tokens are those of the query, which names itself.
    """
    if not isinstance(given, (list, tuple)) or not 1 <= len(given) <= ENTRIES:
        raise OptionError(f"a list has 1 to {ENTRIES} entries, each a table with keys or tokens")
    claims = []
    for number, entry in enumerate(given, 1):
        where = f"entry {number} of the list"
        if (
            not isinstance(entry, Mapping)
            or set(entry) - _ENTRY
            or not {"keys", "tokens"} & {*entry}
        ):
            raise OptionError(
                f"{where} is {str(entry)[:80]}; give a table with keys (a rule) or tokens (texts),"
                " and if you like queries (a kind of query) and share (a number from 0 to 1)"
            )
        kinds = [kind.words for kind in QUERY_KINDS]
        if (queries := entry.get("queries", "")) not in kinds:
            raise UnknownName(f"kind of queries in {where}", str(queries), kinds[1:])
        if queries and model is not None and model.tokenizer is None:
            raise OptionError(f"{where} names queries by their text: the model has no tokenizer")
        share = entry.get("share")
        number_given = isinstance(share, Real) and not isinstance(share, bool)
        if share is not None and not (number_given and 0 <= float(share) <= 1):
            raise OptionError(f"{where} claims a share of {share!r}; a share lies between 0 and 1")
        rule = _rule_of(entry, where, model, itself)
        claims.append(KeyClaim(rule, queries, None if share is None else float(share)))
    if sum(claim.share or 0 for claim in claims) > 1 + 1e-9:
        raise OptionError("the shares of the list sum to more than 1; each key counts once")
    return tuple(claims)


def _rule(given: Any) -> KeyRule:
    """Return a place or rule of the profile, or a detector, by its name or as a function."""
    places = {place.rule.name: place.rule for place in (*PLACES, SECOND)}
    if isinstance(given, str) and given in places:
        return places[given]
    if isinstance(given, str) and given.partition(":")[0] not in METRICS:
        rules = [rule.name for rule in declared_rules()]
        if given not in rules:
            raise UnknownName("rule", given, [*places, *rules])
    [rule] = chosen_rules([given], has_text=True)
    return rule


def _readable(rule: KeyRule, model: Model) -> KeyRule:
    """Return a rule that the model's tokens allow."""
    [rule] = chosen_rules([rule], model.tokenizer is not None)
    return rule


def _rule_of(entry: Mapping[str, Any], where: str, model: Model | None, itself: bool) -> KeyRule:
    """Return the keys of one entry of a list; without a model those of texts are none."""
    if "keys" in entry:
        rule = _rule(entry["keys"])
        return rule if model is None else _readable(rule, model)
    texts = entry["tokens"]
    if (
        not isinstance(texts, (list, tuple))
        or not texts
        or not all(isinstance(text, str) for text in texts)
    ):
        raise OptionError(f"{where}: tokens is {str(texts)[:60]}; give a list of texts of tokens")
    wanted = {text.strip() for text in texts}
    if model is None:
        return KeyRule("tokens", "", lambda query, key, text: key < 0)
    if model.tokenizer is None:
        raise OptionError(f"{where} names tokens by their text, and the model has no tokenizer")
    ids = [i for i in range(model.d_vocab) if word_with_space(model, i).strip() in wanted]
    if not ids:
        raise OptionError(f"{where}: no token of the model has the text {', '.join(texts)[:80]}")
    name = "tokens " + " ".join(sorted(wanted))[:40]
    known = np.array(ids)

    def mask(query: Any, key: Any, text: Reading) -> Any:
        return np.isin(text.tokens, known)[key] & ((key == query) == itself)

    return KeyRule(name, f"to {name}", mask, needs_text=False, code=repr(ids))
