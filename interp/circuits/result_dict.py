"""Conversion of circuits to plain lists and numbers for files, and reading of earlier versions.

Version 1 stored a head's effect while another head is patched in the column of single-head effects.
Its table `backups` has both numbers, so the two are separated when such a file is read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from interp.circuits.toml_text import loads
from interp.core.errors import StoreError
from interp.core.files import read_bytes

FORMAT = "interp circuit 2"
EARLIER = "interp circuit 1"
OF_EDGES = ("edge_score", "edge_sem")
OF_NODES = (
    "score", "sem", "conditional", "conditional_sem", "estimate", "conditional_on", "measured",
)  # fmt: skip
NUMBERS = (*OF_NODES[:5], *OF_EDGES)
TOLD_APART = (
    "read from a file of an earlier version, in which the scores of {} were those with another head"
    " patched too; these are in a separate column now"
)


def told_of(circuit: Any) -> dict[str, Any]:
    """Return all fields of a circuit as plain data, with NaN as None."""
    same = ("model", "n_layers", "n_heads", "task", "method", "level", "n", "unit")
    from interp.core.json_document import plain

    return {
        "format": FORMAT, **{name: getattr(circuit, name) for name in same},
        "nodes": list(circuit.nodes), **{name: _plain(getattr(circuit, name)) for name in NUMBERS},
        "conditional_on": list(circuit.conditional_on), "measured": list(circuit.measured),
        "edges": [list(e) for e in circuit.edges],
        "roles": {r: list(names) for r, names in circuit.roles.items()},
        **({"edge_measured": list(circuit.edge_measured)} if circuit.edge_measured else {}),
        **({} if circuit.clusters is None else {"clusters": list(circuit.clusters)}),
        "notes": list(circuit.notes), "tables": plain(circuit.tables), "made": plain(circuit.made),
    }  # fmt: skip


def fields_of(told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a circuit from the output of `told_of`, of this or an earlier version.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: The data is not a circuit, or it is
            damaged.
    """
    if told["format"] not in (FORMAT, EARLIER):
        raise ValueError(
            f"its format is not {FORMAT!r} (or {EARLIER!r}, which can be read too); it may be of a"
            " later version of interp"
        )
    given = {k: v for k, v in told.items() if k != "format"}
    for name in NUMBERS:
        if name in given:
            given[name] = np.array([math.nan if x is None else x for x in given[name]], dtype=float)
    for name in ("nodes", "notes", "conditional_on", "measured", "edge_measured", "clusters"):
        if name in given:
            given[name] = tuple(given[name])
    given["edges"] = tuple((a, b) for a, b in given["edges"])
    given["roles"] = {r: tuple(n) for r, n in given["roles"].items()}
    return _told_apart(given) if told["format"] == EARLIER else given


def json_of(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        StoreError: The file cannot be read or is not JSON.
    """
    try:
        return json.loads(read_bytes(path))
    except ValueError as error:
        raise StoreError(f"{path} is not JSON: {error}") from error


def toml_of(path: Path) -> Any:
    """Return the content of a circuit's TOML file.

    Raises:
        StoreError: The file cannot be read, or is the file of a published circuit.
    """
    try:
        told = loads(read_bytes(path).decode())
    except ValueError as error:  # invalid TOML, or bytes that are not text
        raise StoreError(f"{path} is not TOML: {error}") from error
    if "format" not in told and "granularity" in told:
        raise StoreError(
            f"{path} is the file of a published circuit, which has no scores; read it with "
            "interp.circuits.published.read_published"
        )
    return told


def _told_apart(given: dict[str, Any]) -> dict[str, Any]:
    """Move the conditional effects of an earlier version to a separate column."""
    best: dict[str, Mapping[str, Any]] = {}
    for row in given["tables"].get("backups", ()):
        if abs(row["without_it"]) > abs(best.get(row["head"], {"without_it": 0.0})["without_it"]):
            best[row["head"]] = row
    nodes = given["nodes"]
    none = np.full(len(nodes), math.nan)
    now, now_sem, on = none.copy(), none.copy(), [""] * len(nodes)
    moved = [name for name in nodes if name in best]
    for name in moved:
        at = nodes.index(name)
        now[at], now_sem[at], on[at] = best[name]["without_it"], given["sem"][at], best[name]["for"]
        given["score"][at], given["sem"][at] = best[name]["alone"], math.nan
    notes = given["notes"]
    if moved:
        notes = (*notes, TOLD_APART.format(" ".join(moved)))
    return given | {
        "conditional": now, "conditional_sem": now_sem, "conditional_on": tuple(on), "notes": notes,
    }  # fmt: skip


def _plain(x: Sequence[float] | np.ndarray) -> list[float | None]:
    return [None if math.isnan(v) else float(v) for v in x]
