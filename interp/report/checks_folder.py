"""Folder of `interp importance verify`: the causal checks of all its models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from interp.core.csv_rows import csv_text
from interp.core.files import read_bytes, set_aside, write_atomically
from interp.core.json_document import json_document, stored_document
from interp.heads.causal_check.head_transfer import restored_transfers
from interp.report.checks import check_page

if TYPE_CHECKING:
    from interp.heads.causal_check.result import Confirmation


def write_checks(found: Sequence[Confirmation], folder: Path, command: str) -> list[str]:
    """Write verify.csv, verify.json and a page of all models in a folder; return their names."""
    documents = [stored_document(one.to_json()) for one in found]
    documents = with_others(documents, folder / "verify.json")
    rows = [
        row | {"heads": " ".join(row["heads"]), "transfers": _transfers(row)}
        for d in documents
        for row in d["checks"]
    ]
    frame = pd.DataFrame(rows)
    unknown = frame.columns[frame.isna().all()]
    frame[unknown] = frame[unknown].astype(float)
    contents = {
        "verify.csv": csv_text(frame),
        "verify.json": json_document(documents, indent=1).decode(),
        "verify.html": check_page(frame, [d["provenance"] for d in documents], command),
    }
    for name, content in contents.items():
        write_atomically(folder / name, content.encode())
    return [*contents]


def with_others(documents: list[dict[str, Any]], path: Path) -> list[dict[str, Any]]:
    """Return documents followed by those of other models, scores and tasks in a file.

    Models with the same name but other weights get distinct names; a damaged file is moved aside.
    """
    others: list[dict[str, Any]] = []
    if path.exists():
        try:
            others = stored_document(read_bytes(path))
            if not all(
                "conclusions" in d and "transfers" in x for d in others for x in d["checks"]
            ):
                raise ValueError("its rows are of another version of interp")
            taken = {_of(d, row) for d in documents for row in d["checks"]}
            others = [
                d | {"checks": [row for row in d["checks"] if _of(d, row) not in taken]}
                for d in others
            ]
        except (ValueError, KeyError, TypeError) as error:
            set_aside(path, error)
            others = []
    every = [d for d in [*documents, *others] if d["checks"]]
    weights: dict[str, set[str]] = {}
    for d in every:
        weights.setdefault(_of(d, d["checks"][0])[0], set()).add(_weights(d))
    for d in every:
        name = _of(d, d["checks"][0])[0]
        if len(weights[name]) > 1:
            d["checks"] = [row | {"model": f"{name}@{_weights(d)}"} for row in d["checks"]]
    return every


def _transfers(row: Mapping[str, Any]) -> str:
    return "; ".join(one.summary() for one in restored_transfers(row["transfers"]))


def _of(document: dict[str, Any], row: dict[str, Any]) -> tuple[str, ...]:
    """Return the identity of a row: the model by name and weights, the score, and the task."""
    name = str(row["model"]).removesuffix(f"@{_weights(document)}")
    return name, _weights(document), row["metric"], row["purpose"], row["task"]


def _weights(document: dict[str, Any]) -> str:
    return str(document["provenance"].get("content_hash"))[:8]
