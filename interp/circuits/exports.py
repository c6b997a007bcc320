"""Files and graph formats of circuits: JSON, TOML, networkx, GraphML, DOT, Mermaid and SVG.

JSON and TOML hold plain lists and numbers, with null or nan for NaN.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from interp.core.documents import parse_json, seal, toml_data, toml_text, unseal
from interp.core.errors import StoreError
from interp.core.files import read_bytes, write_atomically, write_page
from interp.core.presenter import drawn
from interp.core.result_files import FORMAT, read_result

if TYPE_CHECKING:
    import networkx as nx

    from interp.model.model import Model

DRAWN = 300  # edges or nodes in a drawing at most


class CircuitFiles:
    """Export of a circuit to files and graph formats, and reading of circuit files."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain lists and numbers, with NaN as None."""
        return plain_data_of(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a circuit from the output of `to_dict`, of this version or the one before."""
        make: Any = cls
        try:
            circuit = make(**fields_of(values))
            if {len(getattr(circuit, name)) for name in OF_NODES} != {len(circuit.nodes)}:
                raise ValueError("the numbers of nodes and scores differ")
            if {len(getattr(circuit, name)) for name in OF_EDGES} != {len(circuit.edges)}:
                raise ValueError("the numbers of edges and their scores differ")
            for size in ("n_layers", "n_heads", "n"):
                if not isinstance(getattr(circuit, size), int):
                    raise ValueError(f"{size} is {getattr(circuit, size)!r}, not a whole number")
            return circuit
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StoreError(f"this is not a circuit, or it is damaged: {error}") from error

    def to_json(self, path: str | os.PathLike | None = None) -> str:
        """Return one JSON document, and write it to `path` if given, completely or not at all."""
        from interp.core.json_document import json_document

        return _written(path, json_document(self.to_dict(), indent=1).decode())

    @classmethod
    def from_json(cls, path: str | os.PathLike) -> Self:
        """Read a JSON file, written by `to_json` or by saving as .json, or a circuit of MIB.

        A file of the MIB benchmark names no model and no task; it is read by its sizes.
        """
        return cls._read(path, json_of(Path(path)))

    @classmethod
    def _read(cls, path: str | os.PathLike, stated: Any) -> Self:
        from interp.circuits.mib import is_mib, mib_fields

        if isinstance(stated, Mapping) and stated.get("format") == FORMAT:
            return read_result(cls, path)
        try:
            if is_mib(stated):
                return cls(**mib_fields(stated))
            ours = isinstance(stated, Mapping) and "format" in stated
            return cls.from_dict(unseal(stated) if ours else stated)
        except (StoreError, ValueError) as error:
            raise StoreError(f"{path}: {error}") from error

    def to_mib(self, model: Model, path: str | os.PathLike | None = None) -> str:
        """Return the JSON document of the MIB benchmark; see `interp.circuits.mib`."""
        from interp.circuits.mib import to_mib

        circuit: Any = self
        return to_mib(circuit, model, path)

    def to_toml(self, path: str | os.PathLike | None = None) -> str:
        """Return the content of `to_json` as TOML, with nan for null.

        Such a file can be compared with like a published circuit (`interp circuit --against FILE`):
        all of its heads are the circuit, so store only the first ones
        (`circuit.top(k).to_toml(path)`).
        """
        return _written(path, toml_text(seal(self.to_dict())))

    @classmethod
    def from_toml(cls, path: str | os.PathLike) -> Self:
        """Read a TOML file, written by `to_toml` or by saving as .toml."""
        return cls._read(path, toml_of(Path(path)))

    @classmethod
    def load(cls, path: str | os.PathLike) -> Self:
        """Read a file that `save`, `to_json` or `to_toml` wrote.

        Raises StoreError for a file that cannot be read, is damaged or holds something else, and
        UnknownName for an unknown suffix.
        """
        if Path(path).suffix.lower() in (".json", ".toml"):
            json = Path(path).suffix.lower() == ".json"
            return cls.from_json(path) if json else cls.from_toml(path)
        return read_result(cls, path)

    def to_networkx(self) -> nx.MultiDiGraph:
        """Return a directed graph: nodes with score and role, edges with score and input.

        The key of an edge is the input of its head, `q`, `k` or `v`, and `in` where a node has only
        one input; so a writer may enter several inputs of one head.
        """
        return drawn("networkx", self)

    def to_graphml(self, path: str | os.PathLike | None = None) -> str:
        """Return GraphML, for yEd, Gephi and Cytoscape; every edge has a unique id."""
        return _written(path, drawn("graphml", self))

    def to_dot(self, path: str | os.PathLike | None = None) -> str:
        """Return DOT, for Graphviz; blue helps, orange hurts, and width is the absolute score."""
        return _written(path, drawn("dot", self))

    def to_mermaid(self, path: str | os.PathLike | None = None) -> str:
        """Return Mermaid, for Markdown pages."""
        return _written(path, drawn("mermaid", self))

    def to_svg(self, path: str | os.PathLike | None = None, *, k: int = 60) -> str:
        """Draw a static picture of the top k edges (or nodes), at most 300, with their share."""
        return _written(path, drawn("svg", self, min(k, DRAWN)))

    def save_html(self, path: str | os.PathLike, *, title: str | None = None) -> None:
        """Write a page: the map of its heads, the circuit, its rows and its provenance.

        The file appears whole or not at all; raises StoreError.
        """
        from interp.draw.page import data_table

        circuit: Any = self
        parts = [("In numbers", data_table(circuit.shown(), "circuit"))]
        write_page(path, drawn("page", self, sections=parts, title=title))

    def _graphml(self) -> str:
        return self.to_graphml()


def _written(path: str | os.PathLike | None, text: str) -> str:
    if path is not None:
        write_atomically(Path(path), text.encode())
    return text


CIRCUIT_FORMAT = "interp circuit 2"
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
        "format": CIRCUIT_FORMAT,
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
    if values["format"] != CIRCUIT_FORMAT:
        raise ValueError(
            f"its format is not {CIRCUIT_FORMAT!r}; it is of another version of interp"
        )
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
