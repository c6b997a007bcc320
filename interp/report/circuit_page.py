"""The page of a circuit: its answer, a graph to explore, its first pair, and how sure it is."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.draw.page import asset, render, section_contents
from interp.report.atlas.graph import pair_figure
from interp.report.circuit_graph import circuit_answer, graph_document

if TYPE_CHECKING:
    from interp.circuits.published import Published
    from interp.circuits.result import Circuit

STILL = 60  # edges or nodes of the picture that is shown without scripts


def circuit_page(
    found: Circuit,
    evaluation: Mapping[str, Any] | None = None,
    *,
    explained: Mapping[str, Mapping[str, Any]] | None = None,
    against: Published | None = None,
    sections: Iterable[Sequence[Any]] = (),
    title: str | None = None,
    command: str | None = None,
) -> bytes:
    """Return the page of one circuit as UTF-8.

    Args:
        found: The circuit.
        evaluation: Its evaluation, as `evaluation.json` states it.
        explained: What its nodes do; see `interp.circuits.explained`.
        against: A published circuit to compare with.
        sections: Further sections, each a heading with its contents; see `interp.draw.page.page`.
        title: The title of the page, above which its answer stands.
        command: The command line.
    """
    document = graph_document(found, evaluation, explained=explained, against=against)
    data = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    pair = document["pair"]
    return render(
        "circuit",
        title or f"{found.task} in {found.model}",
        heading=circuit_answer(found, evaluation),
        scripts=["circuit_graph", "circuit_panel", "circuit_files"],
        styles=asset("circuit.css"),
        command=command,
        method=found.method,
        n=found.n,
        unit=found.unit,
        notes=found.notes,
        ways=list(dict.fromkeys(filter(None, found.measured))),
        still=Markup(found.to_svg(k=STILL) if len(found) else ""),
        pair=pair_figure(pair) if pair else "",
        made=dict(found.provenance),
        sections=section_contents(sections),
        data=Markup(data.replace("<", "\\u003c")),
    ).encode()
