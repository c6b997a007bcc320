"""One table of many models: their heads by role, and the first head of every metric."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from markupsafe import Markup

from interp.core.order import first
from interp.core.table import HeadTable
from interp.core.ties import ordered_by
from interp.draw.page import asset, render
from interp.draw.parts import anchor
from interp.draw.svg import element
from interp.heads.roles.declared import ROLES, UNCLEAR, role_named
from interp.heads.roles.result import HeadRoles
from interp.report.models_series import families, runs, series_table

HEADS = "heads.html"
NAMED = 3  # roles of the first line


def models_page(
    table: HeadTable,
    roles: HeadRoles,
    *,
    command: str | None = None,
    beside: Sequence[str] = (),
    state: str = "",
    failed: Mapping[str, str] | None = None,
) -> str:
    """Return the page of many models, which can be read without scripts."""
    models, failed = list(table.models), dict(failed or {})
    taken: set[str] = set()
    links = {name: anchor(name, taken) for name in models} if HEADS in beside else {}
    best, units = _best(table)
    shown = {
        "roles": _roles(roles, models, table, links),
        "scores": _scores(table, models, links, best, units),
        "runs": series_table(runs(models), best, units, "checkpoints"),
        "families": series_table(families(models), best, units, "weights"),
        "state": state,
        "failed": failed,
        "n": len(models),
    }
    return render(
        "models",
        "Models and their heads",
        heading=models_answer(roles, models, failed),
        command=command,
        beside=beside,
        scripts=["models"],
        styles=asset("models.css"),
        **shown,
    )


def models_answer(roles: HeadRoles, models: Sequence[str], failed: Mapping[str, str]) -> str:
    """Return the first line: in how many models each role was found."""
    count = {
        role.noun: len({x.model for x in roles.assigned if role.id in x.roles}) for role in ROLES
    }
    order = sorted(((n, noun) for noun, n in count.items() if n), key=lambda x: -x[0])
    listed = ", ".join(f"{n} {'has' if n == 1 else 'have'} {_a(noun)}" for n, noun in order[:NAMED])
    text = f"Of {len(models)} models, {listed or 'none has a head with a role'}"
    return f"{text}; {len(failed)} could not be scored" if failed else text


def _a(noun: str) -> str:
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def _roles(
    roles: HeadRoles, models: Sequence[str], table: HeadTable, links: Mapping[str, str]
) -> Markup:
    """Return a row per model: the number of heads of each role, and the strongest of them."""
    there = [role for role in ROLES if any(role.id in x.roles for x in roles.assigned)]
    by_model: dict[str, list[Any]] = {name: [] for name in models}
    for x in roles.assigned:
        by_model[x.model].append(x)
    sizes = _sizes(table)
    rows = []
    for name in models:
        heads = by_model[name]
        judged = any(x.role is not None for x in heads)
        cells = [*sizes[name]]
        for role in there:
            mine = [x for x in heads if role.id in x.roles]
            best = next(iter(ordered_by(mine, lambda x, role=role: _size(x, role.id))), None)
            cells.append(_cell(len(mine), judged, best and best.label, name, links))
        unclear = sum(x.role == UNCLEAR.id for x in heads)
        rows.append(_row(name, [*cells, _cell(unclear, judged, None, name, links)], links))
    heads = [("layers", ""), ("heads", ""), *((role.name, role.text) for role in there)]
    return _table("roles", [*heads, (UNCLEAR.name, role_named(UNCLEAR.id).text)], rows)


def _size(head: Any, role: str) -> float:
    evidence = head.first(role)
    return float("-inf") if evidence is None or evidence.size != evidence.size else evidence.size


def _sizes(table: HeadTable) -> dict[str, list[Markup]]:
    """Return the numbers of layers and heads of each model."""
    frame: Any = table.to_pandas()
    places = frame[["model", "stack", "layer", "head"]].drop_duplicates()
    sizes = {}
    for name, mine in places.groupby("model", sort=False):
        layers = len(mine[["stack", "layer"]].drop_duplicates())
        sizes[str(name)] = [_number(layers), _number(len(mine))]
    return sizes


def _number(value: int) -> Markup:
    return element("td", f"{value:,}", data_value=value)


def _cell(n: int, judged: bool, head: str | None, name: str, links: Mapping[str, str]) -> Markup:
    """Return the cell of a role: the number, and a link to the first head; a dot for none."""
    if not judged:
        return element("td", "", data_value=-1, title="not judged: no score has a null")
    if not n:
        return element("td", "\u00b7", data_value=0, class_="none")
    return element("td", f"{n:,} ", _head(head, name, links), data_value=n)


def _head(head: str | None, name: str, links: Mapping[str, str]) -> Markup:
    if not head:
        return Markup("")
    if name not in links:
        return element("small", head)
    address = f"./{HEADS}#{quote(links[name], safe='')}/{quote(head, safe='')}"
    return element("a", head, href=address)


def _best(table: HeadTable) -> tuple[dict[tuple[str, str], dict[str, Any]], dict[str, str]]:
    """Return the first head of each model and metric, at the end it declares, and the units."""
    frame: Any = table.to_pandas()
    ends = {metric: about.get("end") for (_, metric), about in table.provenance.items()}
    cells: dict[tuple[str, str], dict[str, Any]] = {}
    known = frame[(frame["n"] > 0) & frame["score"].notna()]
    for (name, metric), mine in known.groupby(["model", "metric"], sort=False):
        (cells[str(name), str(metric)],) = first(mine, 1, "end", ends[metric]).to_dict("records")
    return cells, dict(zip(frame["metric"], frame["unit"], strict=True))


def _scores(
    table: HeadTable,
    models: Sequence[str],
    links: Mapping[str, str],
    cells: Mapping[tuple[str, str], Mapping[str, Any]],
    units: Mapping[str, str],
) -> Markup:
    """Return a row per model: the first head of each metric."""
    frame: Any = table.to_pandas()
    several = set(frame.groupby("model")["stack"].nunique().loc[lambda n: n > 1].index)
    rows = []
    for name in models:
        row_cells = []
        for metric in units:
            row = cells.get((name, metric))
            if row is None:
                row_cells.append(element("td", "", data_value="", title="not measured"))
                continue
            label = f"L{row['layer']}H{row['head']}"
            label = f"{row['stack']}.{label}" if name in several else label
            ends = "" if row["low"] != row["low"] else f" [{row['low']:.3g}, {row['high']:.3g}]"
            null = "" if row["null"] != row["null"] else f", null {row['null']:.3g}"
            row_cells.append(
                element(
                    "td",
                    f"{row['score']:.3g} ",
                    _head(label, name, links),
                    data_value=float(row["score"]),
                    title=f"{row['score']:.3g}{ends}{null}",
                )
            )
        rows.append(_row(name, row_cells, links))
    return _table("scores", list(units.items()), rows)


def _row(name: str, cells: Sequence[Markup], links: Mapping[str, str]) -> Markup:
    address = f"./{HEADS}#{quote(links[name], safe='')}" if name in links else None
    named = element("a", name, href=address) if address else name
    return element("tr", element("th", named, scope="row"), *cells, data_model=name)


def _table(kind: str, columns: Sequence[tuple[str, str]], rows: Sequence[Markup]) -> Markup:
    """Return a table; the second part of a column is its unit, or what it means."""
    heads = [element("th", "model", scope="col")]
    for name, about in columns:
        under = element("span", about, class_="unit") if kind == "scores" and about else ""
        heads.append(element("th", name, under, scope="col", title=about or None))
    inside = element("thead", element("tr", *heads)), element("tbody", *rows)
    return element(
        "div", element("table", *inside, class_=f"models {kind}"), class_="scroll", tabindex=0
    )
