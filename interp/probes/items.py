"""Files of items for probes: prompts with labels, or contexts with labelled spans."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, PromptError
from interp.core.prompt_file import object_of_line, prompt_text
from interp.core.prompts import Prompts
from interp.core.text_file import lines_of_text
from interp.core.tokens import encoded_text
from interp.probes.context import ContextItem, last_row_features, lookback_features
from interp.probes.features import HeadFeatures, metric_features, output_features

if TYPE_CHECKING:
    from interp.model.model import Model

WHOLE = ("prompt", "label")
PARTS = ("context", "rest", "spans")
KNOWN = {*WHOLE, *PARTS, "document", "type"}
LIKE = '{"prompt": "A text", "label": 1, "document": "a"}'
KINDS = ("z", "metrics", "lookback", "last-row")


@dataclass(frozen=True)
class ProbeItems:
    """Items of a file, with the fields of each as they were given."""

    rows: tuple[dict[str, Any], ...]
    path: str

    def features(
        self, model: Model, kind: str = "z", *, position: int | str = "last", metrics: Any = None
    ) -> tuple[HeadFeatures, list[Any], list[Any], list[Any] | None]:
        """Return features, labels, documents and types (None without any) of the items."""
        if kind not in KINDS:
            raise OptionError(f"features {kind!r} are not known; known: {', '.join(KINDS)}")
        parted = "context" in self.rows[0]
        if parted != (kind in KINDS[2:]):
            need = "context, rest and spans" if kind in KINDS[2:] else "prompt and label"
            raise OptionError(f"features {kind!r} need the fields {need}, which {self.path} lacks")
        if not parted:
            texts = [row["prompt"] for row in self.rows]
            prompts = Prompts.of(texts, model)
            of_heads = (
                output_features(model, prompts, position)
                if kind == "z"
                else metric_features(model, prompts, metrics)
            )
            which, labels = list(range(len(self.rows))), [row.get("label") for row in self.rows]
        else:
            items = [
                _context(model, row, kind, f"{self.path}, item {i}")
                for i, row in enumerate(self.rows)
            ]
            read = lookback_features if kind == "lookback" else last_row_features
            of_heads, of = read(model, items)
            which = of.tolist()
            labels = [label for row in self.rows for _, _, label in row["spans"]]
        documents = [self.rows[i].get("document", f"item {i}") for i in which]
        types = [self.rows[i].get("type") for i in which]
        return of_heads, labels, documents, None if None in types else types


def read_probe_items(path: str | Path, *, labelled: bool = True) -> ProbeItems:
    """Read items from a JSONL file.

    A line is {"prompt": text or token ids, "label": L}, or {"context": text, "rest": text,
    "spans": [[start, end, L], ...]} with characters of the rest (a response: `lookback`) or of the
    context (sentences: `last-row`). Both may have "document", whose items are kept in one fold, and
    "type", for the control task. Labels are texts, numbers or booleans.

    Raises:
        PromptError: the file is missing or a line is wrong; its number is given.
    """
    path, rows = Path(path), []
    for number, line in enumerate(lines_of_text(prompt_text(path)), 1):
        if line.strip():
            rows.append(_row(f"{path}, line {number}", line, labelled))
    if len({"context" in row for row in rows}) > 1:
        raise PromptError(f"{path} mixes lines with 'prompt' and with 'context'; give one kind")
    return ProbeItems(tuple(rows), str(path))


def _row(where: str, line: str, labelled: bool) -> dict[str, Any]:
    row = object_of_line(where, line, LIKE)
    if unknown := sorted(row.keys() - KNOWN):
        raise PromptError(f"{where}: unknown field {unknown[0]!r}; known: {', '.join(KNOWN)}")
    needed = PARTS if "context" in row else WHOLE if labelled else WHOLE[:1]
    if missing := [name for name in needed if name not in row]:
        raise PromptError(f"{where}: {missing[0]!r} is missing")
    for name in ("prompt", "context", "rest"):
        value = row.get(name, "x")
        ids = name == "prompt" and isinstance(value, list)
        if not ids and not (isinstance(value, str) and value.strip()):
            raise PromptError(f"{where}: {name!r} is not a text with words")
    for span in row.get("spans", []):
        right = isinstance(span, list) and len(span) == 3 and all(type(x) is int for x in span[:2])
        if not right:
            raise PromptError(f"{where}: {span!r} is not a span [start, end, label]")
    for label in [row.get("label", ""), *(s[2] for s in row.get("spans", []))]:
        if not isinstance(label, (str, int, float, bool)):
            raise PromptError(f"{where}: the label {label!r} is neither a text nor a number")
    return row


def _context(model: Model, row: dict[str, Any], kind: str, where: str) -> ContextItem:
    """Return the tokens of a context and its rest, with the tokens of the spans."""
    tokenizer: Any = model.tokenizer
    if tokenizer is None or not getattr(tokenizer, "is_fast", False):
        raise PromptError(f"{model.name} has no fast tokenizer, so spans have no tokens")
    whole = row["context"] + row["rest"]
    encoding = encoded_text(tokenizer, whole, return_offsets_mapping=True, verbose=False)
    at = [(max(a, 0), b) for a, b in encoding["offset_mapping"]]
    shift, size = len(row["context"]), len(whole)
    start = next((i for i, (a, b) in enumerate(at) if b > max(a, shift)), len(at))
    begin, end = (shift, size) if kind == "lookback" else (0, shift)
    parts = []
    for a, b, _ in row["spans"]:
        low, high = a + begin, b + begin
        if not begin <= low < high <= end:
            raise PromptError(f"{where}: the span {a} to {b} is empty or outside of its text")
        inside = [i for i, (c, d) in enumerate(at) if min(d, high) > max(c, low)]
        inside = [i for i in inside if (i >= start) == (kind == "lookback")]
        if not inside:
            raise PromptError(f"{where}: the span {a} to {b} has no token of its own")
        parts.append((inside[0], inside[-1] + 1))
    return ContextItem(tuple(encoding["input_ids"]), start, tuple(parts))
