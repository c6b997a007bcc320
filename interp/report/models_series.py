"""Models in a row: the checkpoints of one training run, and the sizes of one family."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from markupsafe import Markup

from interp.draw.panel import sparkline
from interp.draw.svg import element
from interp.heads.checkpoints.steps import LEAST, named_step

SeriesRow = tuple[str, list[tuple[float, str]]]  # a name, and its models by their step or size
BestScores = Mapping[
    tuple[str, str], Mapping[str, object]
]  # the first head of a model and a metric
_SIZE = re.compile(r"(?<![a-z0-9])(\d+(?:[._]\d+)?)([kmbt])(?![a-z0-9])", re.I)
_LETTERS = {"k": 1e3, "m": 1e6, "b": 1e9, "t": 1e12}


def runs(models: Sequence[str]) -> list[SeriesRow]:
    """Return training runs, each with its checkpoints in order, by the ends of their names."""
    return _grouped(models, named_step)


def families(models: Sequence[str]) -> list[SeriesRow]:
    """Return families, each with its sizes in order, by a number of weights in their names."""
    return _grouped(models, named_size)


def named_size(name: str) -> tuple[str, float] | None:
    """Return the family and the number of weights that a name states, as in `pythia-160m`."""
    match = _SIZE.search(name)
    if match is None:
        return None
    size = float(match[1].replace("_", ".")) * _LETTERS[match[2].lower()]
    return f"{name[: match.start()]}\u2026{name[match.end() :]}", size


def _grouped(
    models: Sequence[str], state: Callable[[str], tuple[str, float] | None]
) -> list[SeriesRow]:
    rows: dict[str, list[tuple[float, str]]] = {}
    for name in models:
        if (stated := state(name)) is not None:
            rows.setdefault(stated[0], []).append((stated[1], name))
    return [(name, sorted(of)) for name, of in rows.items() if len({at for at, _ in of}) >= LEAST]


def series_table(
    rows: Sequence[SeriesRow], best: BestScores, units: Mapping[str, str], what: str
) -> Markup:
    """Return a row per run or family, with a line per metric; nothing without rows.

    The lines of a column share the range of its numbers, and all lines have a logarithmic axis.
    """
    if not rows:
        return Markup("")
    columns = {metric: [_points(of, best, metric) for _, of in rows] for metric in units}
    heads = [element("th", "name", scope="col"), element("th", what, scope="col")]
    ends = {}
    for metric, lines in columns.items():
        values = [v for points in lines for _, v in points]
        ends[metric] = min(values, default=0.0), max(values, default=1.0)
        unit = element("span", units[metric], class_="unit")
        heads.append(element("th", metric, unit, scope="col"))
    body = []
    for at, (name, of) in enumerate(rows):
        span = f"{of[0][0]:,.0f} to {of[-1][0]:,.0f}"
        cells = [element("td", f"{len(of)}, {span}")]
        for metric, lines in columns.items():
            cells.append(_cell(lines[at], metric, ends[metric]))
        body.append(element("tr", element("th", name, scope="row"), *cells))
    inside = element("thead", element("tr", *heads)), element("tbody", *body)
    return element("div", element("table", *inside, class_="series"), class_="scroll", tabindex=0)


def _points(
    of: Sequence[tuple[float, str]], best: BestScores, metric: str
) -> list[tuple[float, float]]:
    best_rows = ((at, best.get((name, metric))) for at, name in of)
    return [(at, float(str(row["score"]))) for at, row in best_rows if row is not None]


def _cell(points: list[tuple[float, float]], metric: str, ends: tuple[float, float]) -> Markup:
    if len(points) < LEAST:
        return element("td", "", title="measured on fewer than two of them")
    first, last = points[0][1], points[-1][1]
    return element("td", f"{first:.3g} ", sparkline(points, metric, ends), f" {last:.3g}")
