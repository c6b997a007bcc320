"""Kinds of the tokens of source code, and its pairs of brackets, as spans of characters."""

from __future__ import annotations

import io
import keyword
import re
import tokenize
from collections.abc import Iterable, Iterator
from importlib import import_module
from itertools import pairwise
from typing import Any

from interp.core.errors import PromptError
from interp.core.installed import package_error
from interp.core.text_file import lines_of_text
from interp.syntax.categories._texts import LabelledText, Span

SUFFIXES = {
    ".py": "python",
    ".js": "javascript",
    ".ts": "typescript",
    ".c": "c",
    ".h": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
    ".rb": "ruby",
    ".sh": "bash",
}
OPENING, CLOSING = "([{", ")]}"
BLOCK = 160  # characters of a text, at least, where a file is split into texts


def code_spans(source: str, language: str, where: str = "the source") -> list[Span]:
    """Return the kind of every token of source code, and `opening` or `closing` for brackets.

    Kinds of Python, from its own tokenizer: keyword, name, number, string, comment, operator,
    delimiter (`, : ; .`) and bracket. Those of other languages are keyword, operator, delimiter
    and bracket, and the grammar's names of all other leaves of the tree, such as `identifier`.
    """
    pieces = _python(source, where) if language == "python" else _tree(source, language, where)
    kinds = [Span(a, b, kind) for a, b, kind in pieces]
    return kinds + bracket_spans(source, ((a, b) for a, b, kind in pieces if kind == "bracket"))


def bracket_spans(text: str, at: Iterable[tuple[int, int]] | None = None) -> list[Span]:
    """Return the brackets that match, as spans `opening` and `closing` whose group is the pair."""
    places = at or ((i, i + 1) for i, c in enumerate(text) if c in OPENING + CLOSING)
    stack: list[int] = []
    spans: list[Span] = []
    for start, _ in places:
        if text[start] in OPENING:
            stack.append(start)
        elif stack and OPENING[CLOSING.index(text[start])] == text[stack[-1]]:
            opener = stack.pop()
            pair = f"pair {opener}"
            spans.append(Span(opener, opener + 1, "opening", pair))
            spans.append(Span(start, start + 1, "closing", pair))
    return spans


def code_texts(source: str, language: str, where: str) -> list[LabelledText]:
    """Return the blocks of a file of source code as texts: from one unindented line to another."""
    spans = code_spans(source, language, where)
    starts = [m.end() for m in re.finditer(r"\n\s*\n(?=\S)", source)]
    edges = [0]
    for start in starts:
        if start - edges[-1] >= BLOCK:
            edges.append(start)
    edges.append(len(source))
    texts = []
    for begin, end in pairwise(edges):
        inside = [s for s in spans if begin <= s.start and s.end <= end]
        moved = [s._replace(start=s.start - begin, end=s.end - begin) for s in inside]
        if moved:
            texts.append(LabelledText(source[begin:end], tuple(moved), f"{where} at {begin}"))
    return texts


def _python(source: str, where: str) -> list[tuple[int, int, str]]:
    lines = lines_of_text(source, keep_ends=True)
    begins = [0]
    for line in lines:
        begins.append(begins[-1] + len(line))
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source, newline="").readline))
    except (tokenize.TokenError, SyntaxError) as error:
        raise PromptError(f"{where} is not valid Python: {error}") from error
    pieces = []
    for token in tokens:
        kind = _kind(token)
        start, end = (begins[row - 1] + column for row, column in (token.start, token.end))
        if kind and end > start:
            pieces.append((start, end, kind))
    return pieces


def _kind(token: tokenize.TokenInfo) -> str | None:
    name, text = tokenize.tok_name[token.type], token.string
    if name == "NAME":
        return "keyword" if keyword.iskeyword(text) else "name"
    if name == "OP":
        return _kind_of_sign(text)
    if name.startswith(("FSTRING", "TSTRING")):
        return "string"
    return {"NUMBER": "number", "STRING": "string", "COMMENT": "comment"}.get(name)


def _kind_of_sign(text: str) -> str:
    if text in OPENING + CLOSING:
        return "bracket"
    return "delimiter" if text in (",", ":", ";", ".") else "operator"


def _tree(source: str, language: str, where: str) -> list[tuple[int, int, str]]:
    try:
        sitter: Any = import_module("tree_sitter")
        grammar: Any = import_module(f"tree_sitter_{language}")
    except ImportError as error:
        package = str(error.name).partition(".")[0]
        install = f"pip install tree-sitter tree-sitter-{language}"
        raise package_error(error, f"{where}: code in {language}", package, install) from error
    make = getattr(grammar, "language", None) or getattr(grammar, f"language_{language}")
    content = source.encode()
    root = sitter.Parser(sitter.Language(make())).parse(content).root_node
    if root.has_error:
        raise PromptError(f"{where} is not valid {language}, by the grammar of tree-sitter")
    pieces = []
    for node in _leaves(root):
        text = content[node.start_byte : node.end_byte].decode()
        start = len(content[: node.start_byte].decode())
        if not text.strip():
            continue
        named = "keyword" if text[0].isalpha() else _kind_of_sign(text)
        kind = node.type if node.is_named else named
        pieces.append((start, start + len(text), kind))
    return pieces


def _leaves(node: Any) -> Iterator[Any]:
    if node.child_count == 0:
        yield node
    for child in node.children:
        yield from _leaves(child)
