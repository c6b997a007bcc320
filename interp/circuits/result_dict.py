"""Conversion of circuits to plain lists and numbers for files."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interp.core.documents import parse_json, toml_data
from interp.core.errors import StoreError
from interp.core.files import read_bytes

FORMAT = "interp circuit 2"
OF_EDGES = ("edge_score", "edge_sem")
OF_NODES = (
    "score",
    "sem",
    "conditional",
    "conditional_sem",
    "estimate",
    "conditional_on",
    "measured",
)
NUMBERS = (*OF_NODES[:5], *OF_EDGES)


def plain_data_of(circuit: Any) -> dict[str, Any]:
    """Return all fields of a circuit as plain data, with NaN as None."""
    same = ("model", "n_layers", "n_heads", "task", "method", "level", "n", "unit")
    from interp.core.json_document import plain

    return {
        "format": FORMAT,
        **{name: getattr(circuit, name) for name in same},
        "nodes": list(circuit.nodes),
        **{name: _plain(getattr(circuit, name)) for name in NUMBERS},
        "conditional_on": list(circuit.conditional_on),
        "measured": list(circuit.measured),
        "edges": [list(e) for e in circuit.edges],
        "roles": {r: list(names) for r, names in circuit.roles.items()},
        **({"edge_measured": list(circuit.edge_measured)} if circuit.edge_measured else {}),
        **({} if circuit.clusters is None else {"clusters": list(circuit.clusters)}),
        "notes": list(circuit.notes),
        "tables": plain(circuit.tables),
        "made": plain(circuit.made),
    }


def fields_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a circuit from the output of `plain_data_of`."""
    if values["format"] != FORMAT:
        raise ValueError(f"its format is not {FORMAT!r}; it is of another version of interp")
    given = {k: v for k, v in values.items() if k != "format"}
    for name in NUMBERS:
        if name in given:
            given[name] = np.array([math.nan if x is None else x for x in given[name]], dtype=float)
    for name in ("nodes", "notes", "conditional_on", "measured", "edge_measured", "clusters"):
        if name in given:
            given[name] = tuple(given[name])
    given["edges"] = tuple((a, b) for a, b in given["edges"])
    given["roles"] = {r: tuple(n) for r, n in given["roles"].items()}
    return given


def json_of(path: Path) -> Any:
    """Return the content of a JSON file."""
    try:
        return parse_json(read_bytes(path))
    except ValueError as error:
        raise StoreError(f"{path} is not JSON: {error}") from error


def toml_of(path: Path) -> Any:
    """Return the content of a circuit's TOML file."""
    try:
        document = toml_data(read_bytes(path).decode())
    except ValueError as error:  # invalid TOML, or bytes that are not text
        raise StoreError(f"{path} is not TOML: {error}") from error
    if "format" not in document and "granularity" in document:
        raise StoreError(
            f"{path} is the file of a published circuit, which has no scores; read it with "
            "interp.circuits.published.read_published"
        )
    return document


def _plain(x: Sequence[float] | np.ndarray) -> list[float | None]:
    return [None if math.isnan(v) else float(v) for v in x]
