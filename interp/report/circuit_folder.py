"""Output folder of a circuit and its evaluation: data files, pictures and one HTML page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.csv_rows import csv_text
from interp.core.errors import StoreError, UnreadableAttention
from interp.core.ties import ranked

if TYPE_CHECKING:
    import pandas as pd

    from interp.circuits.edge_evaluation import EdgeEvaluation
    from interp.circuits.head_evaluation import Evaluation
    from interp.circuits.published import Published
    from interp.circuits.result import Circuit
    from interp.circuits.set_evaluation import SetEvaluation
    from interp.core.result_rows import ResultRows
    from interp.model.model import Model

SHOWN = 100  # edges in the page's table
DRAWN = ("smallest_nodes", "smallest_edges")  # tables that the page's graph shows
TABLES = {
    "smallest": "The set",
    "forwards": "Forward passes by stage",
    "backups": "Heads that stand in for others",
    "groups": "Groups of heads that stand in for each other",
    "matters": "What matters for the task",
}
"""Headings of a circuit's tables."""


def write_found(found: Circuit, folder: Path, model: Model) -> None:
    """Write a circuit in all formats, before it is evaluated."""
    from interp.core.files import write_atomically

    found.to_json(folder / "circuit.json")
    with suppress(UnreadableAttention):  # a model without a residual graph has no edges to list
        found.to_mib(model, folder / "circuit_mib.json")
    found.to_toml(folder / "circuit.toml")
    found.to_graphml(folder / "circuit.graphml")
    found.to_dot(folder / "circuit.dot")
    found.to_mermaid(folder / "circuit.mmd")
    found.to_svg(folder / "circuit.svg")
    frames = {"nodes": found.nodes_to_pandas()}
    if found.edges:
        frames["edges"] = _largest_first(found.edges_to_pandas())
    for name, frame in frames.items():
        write_atomically(folder / f"{name}.csv", csv_text(frame).encode())


def write_evaluation(
    found: Circuit,
    measured: Evaluation,
    folder: Path,
    *,
    command: str,
    held_out: str,
    edges: EdgeEvaluation | str | None = None,
    against: Published | None = None,
    patched: ResultRows | str | None = None,
    of_set: SetEvaluation | str | None = None,
    maps: Sequence[ResultRows] = (),
    explained: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Write the evaluation of a circuit and the page of both, each file whole or not at all."""
    import pandas as pd
    from markupsafe import Markup

    from interp.circuits.published_comparison import published_figures
    from interp.core.files import write_atomically
    from interp.core.json_document import json_document
    from interp.core.presenter import drawn
    from interp.draw.figure import svg
    from interp.draw.svg import element, standing

    curve, figures = measured.wide(), measured.figures()
    frames = {"evaluation": curve}
    if patched is not None and not isinstance(patched, str):
        frames["patched"] = patched.wide()
    if of_set is not None and not isinstance(of_set, str):
        frames["set"] = of_set.wide()
        figures += [
            row | {"figure": f"{row['figure']} of the set", "ablation": "corrupted"}
            for row in of_set.figures()
        ]
    frames |= {f"map_{each.site}": each.wide() for each in maps}
    for name, frame in frames.items():
        write_atomically(folder / f"{name}.csv", csv_text(frame).encode())
    facts = _summary_of(measured, edges, held_out)
    facts |= {"figures": figures, "curve": curve.to_dict("list")}
    write_atomically(folder / "evaluation.json", json_document(facts))
    if explained is not None:
        write_atomically(folder / "explained.json", json_document(explained))
    pictured = svg(measured.plot())
    write_atomically(folder / "evaluation.svg", standing(pictured, style=True).encode())
    parts: list[tuple[Any, ...]] = [
        ("Evaluation", held_out, _short_table(figures)),
        ("The first heads alone, over sizes", pictured, curve),
    ]
    if against is not None:
        stated = pd.DataFrame([published_figures(against.compared(found))])
        theirs = element("div", Markup(against.to_svg()), class_="scroll", tabindex=0)
        parts.insert(0, (f"Published: {against.name}", against.source, stated, theirs))
    parts += _of_edges(found, edges)
    parts.append(("Nodes", _nodes(found)))
    if "patched" in frames:
        parts.append(
            ("The first nodes patched on held-out pairs", _shown_columns(frames["patched"]))
        )
    if "set" in frames:
        parts.append(("The smallest set, node by node", _shown_columns(frames["set"])))
    parts += [
        (TABLES.get(name, name.replace("_", " ").capitalize()), pd.DataFrame(rows))
        for name, rows in found.tables.items()
        if rows and name not in DRAWN
    ]
    parts.append(("Notes", *(found.notes or ["none"])))
    explained = _with_sentences(explained or {}, found, folder)
    content = drawn(
        "page",
        found,
        facts,
        explained=explained,
        against=against,
        sections=parts,
        command=command,
    )
    write_atomically(folder / "circuit.html", content)


def _short_table(figures: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return the figures of an evaluation in two columns, which fit a phone."""
    import pandas as pd

    rows = []
    for row in figures:
        value, low, high, random = (
            f"{round(row[k], 2) + 0.0:.2f}" for k in ("value", "low", "high", "random")
        )
        text = f"{value} [{low}, {high}]"
        text += "" if math.isnan(row["random"]) else f"; random ones {random}"
        others = f"; others {row['ablation']}" if row["ablation"] else ""
        rows.append((row["figure"], f"{text}: {row['what']}{others}"))
    return pd.DataFrame(rows, columns=["figure", "value with its 95 % interval"])


def _with_sentences(
    explained: Mapping[str, Mapping[str, Any]], found: Circuit, folder: Path
) -> dict[str, dict[str, Any]]:
    """Add what heads do on text, where `interp profile` wrote to the folder for these weights."""
    from interp.profiles.result import Profile

    out = {name: dict(one) for name, one in explained.items()}
    path = folder / "profile.json"
    if not path.is_file():
        return out
    try:
        stored = Profile.load(path)
    except StoreError as error:  # the circuit's page says so
        out.setdefault("", {})["says"] = str(error)
        return out
    if stored.provenance.get("content_hash") == found.made.get("content_hash"):
        for one in stored.descriptions:
            out.setdefault(str(one["name"]), {})["says"] = one["sentence"]
    return out


def _of_edges(found: Circuit, edges: EdgeEvaluation | str | None) -> list[tuple[Any, ...]]:
    """Return the sections of the page about edges; none without edges."""
    from interp.draw.figure import svg

    if not found.edges:
        return []
    of = edges if isinstance(edges, str) or edges is None else edges.summary()
    shown: list[Any] = [str(of)]
    if not isinstance(edges, str) and edges is not None:
        shown += [svg(edges.plot()), edges.wide()]
    first = _largest_first(found.top(SHOWN).edges_to_pandas())
    return [("Evaluation of edges", *shown), ("Edges", first)]


def _nodes(found: Circuit) -> pd.DataFrame:
    """Return all nodes in the order of the circuit, without columns that are empty throughout."""
    frame = found.nodes_to_pandas().set_index("node").loc[list(found.ranking)].reset_index()
    return _shown_columns(frame)


def _shown_columns(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.loc[:, [bool((frame[c].notna() & (frame[c] != "")).any()) for c in frame]]


def _largest_first(frame: pd.DataFrame) -> pd.DataFrame:
    return ranked(frame, "score", absolute=True)


def _summary_of(
    measured: Evaluation, edges: EdgeEvaluation | str | None, held_out: str
) -> dict[str, Any]:
    """Return the figures that are not in the curve."""
    of_edges: Any = edges
    if edges is not None and not isinstance(edges, str):
        of_edges = {
            "truth": [list(e) for e in edges.truth],
            "against_truth": edges.against_truth() if edges.truth else None,
            "edges": edges.edges,
            "ablation": "corrupted",
            "n": edges.per_prompt.shape[1],
            "curve": edges.wide().to_dict("list"),
        }
    return {
        "pairs": held_out,
        "edges": of_edges,
        "seen": measured.seen,
        "made": dict(measured.made),
    }
