"""Published circuits as data: one TOML file each in `circuits/`, loaded, checked and compared."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.head_evaluation import marked
from interp.circuits.nodes import layer_of, node_of
from interp.circuits.published_comparison import comparison_rows
from interp.core.documents import parse_toml
from interp.core.errors import OptionError, PromptError, StoreError, UnknownName
from interp.core.head import Head
from interp.core.resources import folder
from interp.core.result_rows import ResultRows
from interp.core.text_file import read_text

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.circuits.result import Circuit
    from interp.model.model import Model

FIELDS = {
    "model",
    "aliases",
    "n_layers",
    "n_heads",
    "task",
    "granularity",
    "uncertain",
    "source",
    "roles",
    "positions",
    "groups",
    "edges",
    "mlps",
    "variants",
    "claims",
    "content_hash",
}
NEEDED = ("model", "n_layers", "n_heads", "task", "granularity", "source", "roles")


_ENDS = {"INPUT": "embed", "OUTPUT": "logits"}  # names of published ends -> nodes


@dataclass(frozen=True)
class Published:
    """Published circuit with its source.

    Args:
        name: Name of its file.
        model: Name of the model.
        aliases: Other names of the model.
        n_layers, n_heads: Size of the model.
        task: The task that the circuit does.
        granularity: Level of the circuit, such as heads or edges.
        source: The publication.
        roles: Heads by the role that the publication gives them.
        edges: (writer, reader) names, where single edges are published.
        groups: Edges between whole roles.
        positions: Token positions by role.
        mlps: Layers of MLPs by role.
        variants: Heads of other lists of the same circuit, with their sources.
        claims: Quantitative claims about the circuit.
        uncertain: Why the list is not reliable; empty where it is.
        content_hash: sha256 of the weights that it was found on, where that is known; then the
            model's name does not matter.
    """

    name: str
    model: str
    aliases: tuple[str, ...]
    n_layers: int
    n_heads: int
    task: str
    granularity: str
    source: str
    roles: Mapping[str, tuple[str, ...]]
    edges: tuple[tuple[str, str], ...] = ()
    groups: tuple[Mapping[str, str], ...] = ()
    positions: Mapping[str, str] = field(default_factory=dict)
    mlps: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    variants: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    claims: tuple[Mapping[str, Any], ...] = ()
    uncertain: str = ""
    content_hash: str = ""

    @property
    def heads(self) -> tuple[str, ...]:
        """All heads, in the order of their roles."""
        return tuple(dict.fromkeys(h for heads in self.roles.values() for h in heads))

    def require(self, model: Model) -> None:
        """Raise OptionError unless the model has the size and the weights of the circuit's model.

        If the weights of the circuit's model are unknown, the names are compared.
        """
        size = (model.n_layers, model.n_heads)
        if size != (self.n_layers, self.n_heads):
            raise OptionError(
                f"{self.name} is a circuit of {self.model} ({self.n_layers} layers of "
                f"{self.n_heads} heads); {model.name} has {size[0]} of {size[1]}"
            )
        if self.content_hash:
            if self.content_hash != model.content_hash:
                raise OptionError(
                    f"{self.name} is a circuit of {self.model} with the weights sha256"
                    f" {self.content_hash[:12]}; {model.name} has {model.content_hash[:12]}, so it"
                    " is another model; compare with a circuit found on these weights"
                )
            return
        known = {self.model, *self.aliases}
        if model.name not in known and Path(model.name).name not in {Path(k).name for k in known}:
            raise OptionError(
                f"{self.name} is a circuit of {' or '.join(sorted(known))}, and this model is "
                f"called {model.name}; if it is the same model, add"
                f' content_hash = "{model.content_hash}" to a copy of the circuit\'s file and give'
                " that, or give the model that name (a folder of that name, or"
                " interp.load(name=...))"
            )

    def circuit(self, variant: str | None = None) -> Circuit:
        """Return its nodes and edges as a `Circuit`, with groups expanded, to draw or store.

        Every score is 1, or -1 for heads that are reported to work against the task.
        """
        from interp.circuits.result import Circuit

        if variant is not None and variant not in self.variants:
            raise UnknownName("variant", variant, self.variants or ["(none)"])
        heads = self.heads if variant is None else self.variants[variant]
        edges = _edges(self, set(heads))
        names = {*heads, *(f"mlp{i}" for group in self.mlps.values() for i in group)}
        names |= {node_of(end) for edge in edges for end in edge} - {"logits"}
        nodes = sorted(names, key=lambda name: (layer_of(name, self.n_layers), _number(name)))
        against = {h for role, of in self.roles.items() if role.startswith("negative") for h in of}
        roles = {r: tuple(h for h in of if h in heads) for r, of in self.roles.items()}
        roles = {r: kept for r, kept in roles.items() if kept}
        score = np.array([-1.0 if name in against else 1.0 for name in nodes])
        return Circuit(
            self.model,
            self.n_layers,
            self.n_heads,
            self.task,
            "publication",
            self.granularity,
            tuple(nodes),
            score,
            np.full(len(nodes), np.nan),
            1,
            "marks",
            edges,
            np.array([-1.0 if a in against else 1.0 for a, _ in edges]),
            roles,
            tuple(x for x in (self.source, self.uncertain) if x),
            made={"made_by": f"circuits/{self.name}.toml", "variant": variant or ""},
        )

    def plot(self, variant: str | None = None) -> go.Figure:
        """Draw the circuit with layers from bottom to top; see `Circuit.plot`."""
        from interp.circuits.exports import DRAWN

        return self.circuit(variant).plot(DRAWN)

    def to_svg(self, path: str | os.PathLike | None = None) -> str:
        """Draw a static picture; see `Circuit.to_svg`."""
        from interp.circuits.exports import DRAWN

        return self.circuit().to_svg(path, k=DRAWN)

    def compared(self, circuit: Circuit, variant: str | None = None) -> ResultRows:
        """Compare the absolute scores of a circuit with these heads: AUROC, precision and recall.

        Precision is that of the top heads, as many as are published.
        """
        if variant is not None and variant not in self.variants:
            raise UnknownName("variant", variant, self.variants or ["(none)"])
        truth = self.heads if variant is None else self.variants[variant]
        names = circuit.head_names
        mask = marked(names, truth)
        if not mask.any():
            raise OptionError(
                f"{circuit!r} has none of the heads of {self.name}, so the two cannot be compared"
            )
        if mask.all():
            raise OptionError(
                f"{self.name} has all {len(names)} heads of {circuit!r}, so there is nothing to"
                " compare with; keep only the first heads: circuit.top(k).to_toml(path)"
            )
        size = np.abs([circuit.largest[circuit.nodes.index(h)] for h in names])
        first = set(circuit.top(len(truth), heads_only=True).head_names)
        provenance = dict(circuit.provenance) | {"published": self.name, "source": self.source}
        provenance |= {"variant": variant or "", "made_by": "interp.circuits.Published.compared"}
        return comparison_rows(
            self.name, size, mask, len(first & set(truth)), len(truth), provenance
        )


def published_names() -> list[str]:
    """Return the names of the published circuits."""
    return sorted(path.stem for path in folder("circuits").glob("*.toml"))


def published(name: str) -> Published:
    """Load a published circuit by name, or from a path that ends in .toml.

    Raises:
        UnknownName: There is no circuit of that name.
        StoreError: The file is not a circuit.
    """
    if name.endswith(".toml"):
        return read_published(Path(name))
    if name not in published_names():
        raise UnknownName("published circuit", name, published_names())
    return read_published(folder("circuits") / f"{name}.toml")


def read_published(path: Path) -> Published:
    """Read the circuit of a file."""
    try:
        document = parse_toml(read_text(path))
    except (PromptError, ValueError) as error:
        raise StoreError(f"{path} cannot be read as a circuit: {error}") from error
    if "format" in document:
        return _found(path)
    missing, odd = [k for k in NEEDED if k not in document], sorted(set(document) - FIELDS)
    if missing or odd:
        wrong = f"lacks {', '.join(missing)}" if missing else f"has the field {odd[0]!r}"
        raise StoreError(f"{path} {wrong}; fields: {', '.join(sorted(FIELDS))}")
    roles = {role: _heads(path, document, heads) for role, heads in document["roles"].items()}
    heads = tuple(dict.fromkeys(h for names in roles.values() for h in names))
    return Published(
        path.stem,
        document["model"],
        tuple(document.get("aliases", ())),
        document["n_layers"],
        document["n_heads"],
        document["task"],
        document["granularity"],
        document["source"],
        roles,
        tuple((a, b) for a, b in document.get("edges", ())),
        tuple(document.get("groups", ())),
        dict(document.get("positions", {})),
        {k: tuple(v) for k, v in document.get("mlps", {}).items()},
        {k: _variant(path, document, heads, v) for k, v in document.get("variants", {}).items()},
        tuple(document.get("claims", ())),
        str(document.get("uncertain", "")),
        str(document.get("content_hash", "")),
    )


def _found(path: Path) -> Published:
    """Read a circuit that `Circuit.to_toml` wrote; heads without a role get one role."""
    from interp.circuits.result import Circuit

    circuit = Circuit.from_toml(path)
    named = {
        r: tuple(n for n in names if n in circuit.head_names) for r, names in circuit.roles.items()
    }
    rest = tuple(h for h in circuit.head_names if all(h not in names for names in named.values()))
    return Published(
        path.stem,
        circuit.model,
        (),
        circuit.n_layers,
        circuit.n_heads,
        circuit.task,
        circuit.level,
        f"found by {circuit.method} on {circuit.made.get('n_prompts', circuit.n)} pairs",
        {r: names for r, names in (named | {"found": rest}).items() if names},
        circuit.edges,
        content_hash=str(circuit.made.get("content_hash") or ""),
    )


def _heads(path: Path, values: Mapping[str, Any], given: Any) -> tuple[str, ...]:
    heads = []
    for text in given:
        head = Head.parse(text)
        if head.layer >= values["n_layers"] or head.head >= values["n_heads"]:
            raise StoreError(
                f"{path}: {text} is beyond {values['n_layers']} layers of {values['n_heads']} heads"
            )
        heads.append(str(head))
    if len(set(heads)) != len(heads):
        raise StoreError(f"{path}: a head is listed twice in one role; list it once")
    return tuple(heads)


def _variant(
    path: Path, values: Mapping[str, Any], heads: tuple[str, ...], given: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the heads of a variant: a list of its own, or changes to the published list."""
    if "source" not in given:
        raise StoreError(f"{path}: a variant does not name its source; add the field source")
    if "heads" in given:
        return _heads(path, values, given["heads"])
    out, more = (_heads(path, values, given.get(k, ())) for k in ("without", "with"))
    return tuple(h for h in heads if h not in out) + tuple(h for h in more if h not in heads)


def _number(name: str) -> int:
    digits = re.findall(r"\d+$", name)
    return int(digits[0]) if digits else -1


def _edges(stated: Published, heads: set[str]) -> tuple[tuple[str, str], ...]:
    """Return the listed edges and those of groups, only between nodes that are in the circuit."""
    edges = dict.fromkeys(stated.edges)
    for group in stated.groups:
        start, end = group["from"], group["to"]
        if start.startswith("mlp_"):  # from each to the later ones of its group
            for of in stated.mlps.values():
                pairs = itertools.combinations(sorted(of), 2)
                edges |= dict.fromkeys((f"mlp{i}", f"mlp{j}") for i, j in pairs)
            continue
        for (a, _), (b, part) in itertools.product(_nodes(stated, start), _nodes(stated, end)):
            if layer_of(a, stated.n_layers) < layer_of(b, stated.n_layers):
                parts = (part or group.get("inputs", "")) if b.startswith("L") else ""
                edges |= dict.fromkeys((a, f"{b}.{p}" if p else b) for p in parts or [""])
    other = {"embed", "logits"}
    return tuple(
        e for e in edges if all(n in heads or n in other or n[0] == "m" for n in map(node_of, e))
    )


def _nodes(stated: Published, end: str) -> list[tuple[str, str]]:
    """Return the nodes of one end of a group, each with the input that is named."""
    ends: list[tuple[str, str]] = []
    for text in end.split(","):
        name, _, part = text.strip().partition(".")
        if name in _ENDS:
            nodes = [_ENDS[name]]
        elif name in stated.roles:
            nodes = list(stated.roles[name])
        elif name.endswith("_mlps") or name.startswith("all_mlps"):
            of = [stated.mlps[name.removesuffix("_mlps")]] if name.endswith("_mlps") else ()
            nodes = [f"mlp{i}" for group in of or stated.mlps.values() for i in group]
        else:
            nodes = [name]
        ends += [(node, part) for node in nodes]
    return ends
