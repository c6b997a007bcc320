"""Marks of the templates, and annotations that the writer makes of them.

A template is a sentence with marks:

    {a}  {a's}  {t}  {a t}  {bare t}  {in p}    a name; the thing; a thing; a thing without article
    {a.she} {a.her} {a.his} {a.self}            a pronoun: subject, object, possessive, reflexive
    {I} {me} {my} {you} {your} {we} {us} {our}  a speaker and a hearer
    {b!owner}                                   an answer, which the text before it determines
    ^{a}  ^[door]  ^+[doors]                    the subject of the verbs that follow
    =gave  =is/are/am                           a verb; its form for one, for several and for `I`
    ~said                                       a verb that stands before its subject
    <a b:Hello, {b}.>                           words in quotation marks that `a` says to `b`
    |                                           where a clause begins
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

Span = tuple[int, int]
Roles = Mapping[str, Any]
_MARKUP = re.compile(
    r"\{(?P<slot>[^}]*)\}|\^(?P<heads>\+?)\[(?P<head>[^\]]*)\]|(?P<subject>\^)"
    r"|(?P<order>[=~])(?P<verb>[A-Za-z'/]+)|<(?P<voice>\w+ \w+):|(?P<close>>)|(?P<clause>\|)"
    r"|(?P<plain>[^{}^=~<>|]+|.)",
    re.DOTALL,
)
WORD = re.compile(r"[A-Za-z0-9]+(?:['-][A-Za-z]+)*")
SENTENCE_BREAK = re.compile(r"([.?!] )([a-z])")
# The words of a speaker, and whom they stand for.
SPEECH = {
    **dict.fromkeys(["I", "me", "my"], "speaker"),
    **dict.fromkeys(["you", "your"], "hearer"),
    **dict.fromkeys(["we", "us", "our"], "both"),
}
# Subjects that no later pronoun could stand for.
NO_REFERENCE = frozenset(
    {"it", "there", "what", "who", "that", "this", "all", "somebody", "someone", "nobody"}
)


@dataclass(frozen=True, slots=True)
class Annotation:
    """A true statement about the characters of a span.

    Attributes:
        relation: one of `RELATIONS`.
        span: first character and the one after the last.
        targets: the spans that the relation leads to.
        label: kind within the relation, such as the pronoun `she`.
    """

    relation: str
    span: Span
    targets: tuple[Span, ...] = ()
    label: str = ""


@cache
def parts_of(template: str) -> tuple[tuple[str, str, str], ...]:
    """Split a template at its marks: kind, content and what stands beside it."""
    parts = []
    for match in _MARKUP.finditer(template):
        kind = match.lastgroup or ""
        beside = {"verb": match["order"], "head": match["heads"]}.get(kind, "")
        parts.append((kind, match[kind], beside or ""))
    return tuple(parts)


def next_is_plural(parts: Sequence[tuple[str, str, str]], roles: Roles) -> bool:
    """Return True if the next subject of a template is plural."""
    after = next(i for i, part in enumerate(parts) if part[0] in {"subject", "head"})
    kind, content, beside = parts[after + (parts[after][0] == "subject")]
    if kind == "head":
        return bool(beside)
    return roles[content.split(".")[0].split()[-1]].plural
