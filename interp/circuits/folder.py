"""A circuit and its evaluation as a folder of files and one page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

    from interp.circuits.edge_evaluation import EdgeEvaluation
    from interp.circuits.evaluation import Evaluation
    from interp.circuits.patched import Patched
    from interp.circuits.published import Published
    from interp.circuits.result import Circuit

SHOWN = 100  # edges in the page's table


def write_circuit(
    found: Circuit,
    measured: Evaluation,
    folder: Path,
    *,
    command: str,
    held_out: str,
    edges: EdgeEvaluation | str | None = None,
    against: Published | None = None,
    patched: Patched | str | None = None,
) -> None:
    """All forms of a circuit and its evaluation, each file whole or not at all.

    Args:
        against: a published circuit of the model, to be shown beside.
        patched: its first nodes patched on the held-out pairs, or why they were not.
    """
    import pandas as pd

    from interp.core.files import write_atomically
    from interp.draw.curve_picture import curve as picture
    from interp.draw.page import html_table, json_document, page, text

    found.to_json(folder / "circuit.json")
    found.to_toml(folder / "circuit.toml")
    found.to_graphml(folder / "circuit.graphml")
    found.to_dot(folder / "circuit.dot")
    found.to_mermaid(folder / "circuit.mmd")
    drawn = found.to_svg(folder / "circuit.svg")
    curve, figures = measured.to_pandas(), measured.figures()
    frames = {"nodes": found.to_pandas(), "evaluation": curve}
    if found.edges:
        frames["edges"] = _largest_first(found.edges_to_pandas())
    if patched is not None and not isinstance(patched, str):
        frames["patched"] = patched.to_pandas()
    for name, frame in frames.items():
        write_atomically(folder / f"{name}.csv", frame.to_csv(index=False).encode())
    write_atomically(
        folder / "evaluation.json",
        json_document(_told(measured, edges, held_out) | {"figures": figures}),
    )
    pictured = picture(curve, "heads")
    write_atomically(folder / "evaluation.svg", pictured.encode())
    summary = html_table(pd.DataFrame(figures))
    parts = [
        ("The same without a script", f'<div class="scroll">{drawn}</div>'),
        ("Evaluation", f"<p>{text(held_out)}</p>{summary}"),
        ("The first heads alone, over sizes", f"{pictured}{html_table(curve)}"),
        ("Nodes", html_table(_nodes(found))),
        *(
            [("The first nodes patched on held-out pairs", html_table(_told_columns(frame)))]
            if (frame := frames.get("patched")) is not None
            else []
        ),
        *(
            (f"Table: {name}", html_table(pd.DataFrame(rows)))
            for name, rows in found.tables.items()
            if rows
        ),
        ("Notes", "".join(f"<p>{text(note)}</p>" for note in found.notes) or "<p>none</p>"),
    ]
    if found.edges:
        parts.insert(4, ("Edges", html_table(_largest_first(found.top(SHOWN).edges_to_pandas()))))
        shown = f"<p>{text(edges if isinstance(edges, str) or edges is None else edges.told())}</p>"
        if not isinstance(edges, str) and edges is not None:
            shown += picture(edges.to_pandas(), "edges") + html_table(edges.to_pandas())
        parts.insert(4, ("Evaluation of edges", shown))
    if against is not None:
        told = against.compared(found)
        shown = f"<p>{text(against.source)}</p>" + html_table(pd.DataFrame([told]))
        drawn = f'<div class="scroll">{against.to_svg()}</div>'
        parts.insert(1, (f"Published: {against.name}", shown + drawn))
    made = dict(found.made) | {"command": command}
    title = f"{found.task} in {found.model}"
    write_atomically(
        folder / "circuit.html", page(title, found.plot(), parts, made, file_name="circuit")
    )


def _nodes(found: Circuit) -> pd.DataFrame:
    """All nodes in the order of the circuit, without columns that are empty for all of them."""
    frame = found.to_pandas().set_index("node").loc[list(found.ranking)].reset_index()
    return _told_columns(frame)


def _told_columns(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.loc[:, [bool((frame[c].notna() & (frame[c] != "")).any()) for c in frame]]


def _largest_first(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.sort_values("score", key=abs, ascending=False, kind="stable")


def _told(
    measured: Evaluation, edges: EdgeEvaluation | str | None, held_out: str
) -> dict[str, Any]:
    """What the curve in evaluation.csv does not say."""
    of_edges: Any = edges
    if edges is not None and not isinstance(edges, str):
        of_edges = {
            "cmd": edges.cmd, "cpr": edges.cpr, "random_cmd": edges.random_cmd,
            "truth": [list(e) for e in edges.truth],
            "against_truth": edges.against_truth() if edges.truth else None,
            "edges": edges.edges, "ablation": "corrupted", "n": edges.per_prompt.shape[1],
            "curve": edges.to_pandas().to_dict("list"),
        }  # fmt: skip
    return {
        "pairs": held_out, "one_out": dict(measured.one_out), "edges": of_edges,
        "random_cmd": measured.random_cmd, "found_on": measured.found_on, "seen": measured.seen,
        "made": dict(measured.made),
    }  # fmt: skip
