"""Folder of `interp study safety`: tables, one JSON document and a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from interp.core.csv_rows import csv_text
from interp.core.files import write_atomically
from interp.core.json_document import json_document
from interp.draw.page import page
from interp.draw.svg import element

if TYPE_CHECKING:
    from interp.core.result_rows import ResultRows


def write_safety(found: ResultRows, folder: Path, command: str) -> None:
    """Write tables, one JSON document and a page, each atomically."""
    heads = found.wide()
    directions, curves = found.search.to_pandas(), found.curves.wide()
    provenance = dict(found.provenance) | {"command": command}
    document = {
        "heads": heads.to_dict("records"),
        "directions": directions.to_dict("records"),
        "curves": curves.to_dict("records"),
        "sahara": {s.form: list(s.taken) for s in found.sahara},
        "spread": {name: vars(one) for name, one in found.spread.items()},
        "refused": list(found.search.refused),
        "provenance": provenance,
    }
    parts = [
        ("In short", element("pre", str(found))),
        ("Heads", heads.drop(columns=["model", "kv_head"])),
        ("Candidate directions", directions),
        ("Heads out, one after another", curves),
    ]
    title = f"Refusal of {found.facts['model']}"
    content = page(title, found.curves.plot(), parts, provenance, heading=found.first_line())
    for name, frame in (("heads", heads), ("directions", directions), ("curves", curves)):
        write_atomically(folder / f"{name}.csv", csv_text(frame).encode())
    write_atomically(folder / "safety.json", json_document(document))
    write_atomically(folder / "safety.html", content)
