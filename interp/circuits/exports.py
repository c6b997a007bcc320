"""Files and graph formats of circuits: JSON, TOML, networkx, GraphML, DOT, Mermaid and SVG."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from interp.core.documents import seal, toml_text, unseal
from interp.core.errors import StoreError
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
        from interp.circuits.result_dict import plain_data_of

        return plain_data_of(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a circuit from the output of `to_dict`, of this version or the one before."""
        from interp.circuits.result_dict import OF_EDGES, OF_NODES, fields_of

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
        from interp.circuits.result_dict import json_of

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
        from interp.circuits.result_dict import toml_of

        return cls._read(path, toml_of(Path(path)))

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

    def _graphml(self) -> str:
        return self.to_graphml()


def _written(path: str | os.PathLike | None, text: str) -> str:
    if path is not None:
        from interp.core.files import write_atomically

        write_atomically(Path(path), text.encode())
    return text
