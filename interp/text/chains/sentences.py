"""Sentences of a text, by their character offsets."""

from __future__ import annotations

import re
from itertools import pairwise

# A full stop, question or exclamation mark, closing quotes or brackets, then space; one of a script
# that is written without spaces; or a blank line.
_END = re.compile(
    "[.?!\u3002\uff1f\uff01]+[\"'\u201d\u2019)\\]]*(?=\\s|$)\\s*"
    "|[\u3002\uff1f\uff01]+"
    "|\\n[ \\t]*\\n\\s*"
)
_SHORT = re.compile(
    r"(?:^|[\s(\[\"'])(?:Mr|Mrs|Ms|Dr|Prof|St|vs|etc|cf|Fig|Eq|No|e\.g|i\.e|[A-Z])\.$"
)
_NUMBERED = re.compile(r"(?:^|\n)[ \t]*(?:\d+|[a-zA-Z])\.$")


def sentence_spans(text: str) -> list[tuple[int, int]]:
    """Split a text into sentences, given by first and one-past-last character.

    A sentence ends at `.`, `?` or `!` before white space or at the end, or at a blank line; a stop
    after an abbreviation, an initial or the number of a list item ends none. White space belongs to
    the sentence before it, so the spans cover the text without gaps; text without any letter, digit
    or other word character (such as "...") is joined to the sentence before it.
    """
    cuts = [0]
    for match in _END.finditer(text):
        before = text[cuts[-1] : match.start() + len(match.group().rstrip())]
        stopped = match.group().startswith(".") and not match.group().startswith("..")
        lead = text[: match.start() + 1]
        short = stopped and (_SHORT.search(lead[-12:]) or _NUMBERED.search(lead[-12:]))
        if short and not re.search(r"\n[ \t]*\n", match.group()):
            continue
        if re.search(r"\w", before):
            cuts.append(match.end())
        elif len(cuts) > 1:
            cuts[-1] = match.end()
    if cuts[-1] < len(text):
        if re.search(r"\w", text[cuts[-1] :]) or len(cuts) == 1:
            cuts.append(len(text))
        else:
            cuts[-1] = len(text)
    return [(a, b) for a, b in pairwise(cuts) if text[a:b].strip()]
