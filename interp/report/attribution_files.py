"""Files of attributions: a page, JSON and CSV, and the warning about methods of attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from interp.attribution.evaluation.deceived import deceived
from interp.core.csv_rows import csv_text
from interp.core.files import write_atomically
from interp.core.json_document import json_document
from interp.report.tokens import attribution_page

if TYPE_CHECKING:
    from interp.attribution.declaration import BoundMethod
    from interp.attribution.evaluation.result import Faithfulness
    from interp.attribution.result import Attribution


def write_attributions(
    found: Sequence[Attribution],
    out: Mapping[str, Path],
    *,
    title: str,
    command: str,
    warning: str,
) -> None:
    """Write the requested files, each atomically."""
    if html := out.get(".html"):
        page = attribution_page(found, title=title, command=command, warning=warning)
        write_atomically(html, page.encode())
    if json_file := out.get(".json"):
        whole: dict[str, Any] = {"warning": warning, "attributions": [f.to_dict() for f in found]}
        write_atomically(json_file, json_document(whole, 1, str))
    if csv := out.get(".csv"):
        frames = [f.wide().assign(text=f.provenance.get("text", 0)) for f in found]
        write_atomically(csv, csv_text(pd.concat(frames)).encode())


def standing_warning(chosen: Sequence[BoundMethod]) -> str:
    """Return the warning from `bundled:deceive` about the chosen pattern-based methods."""
    reading = [c for c in chosen if c.method.needs == "patterns"]
    return deceived(reading, 8).warning if reading else ""


def write_tables(found: Faithfulness, frame: pd.DataFrame, out: Mapping[str, Path]) -> None:
    """Write the tokens of a text and the judgement of the methods, each atomically."""
    if csv := out.get(".csv"):
        write_atomically(csv, csv_text(frame).encode())
    if json_file := out.get(".json"):
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
        whole = {"tokens": rows, "against_random": found.against_random(), **found.to_dict()}
        write_atomically(json_file, json_document(whole, 1, str))
