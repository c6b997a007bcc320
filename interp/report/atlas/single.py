"""Pages of one result in the shell of the atlas: its head map, its cards, its part, its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from interp.core.table import HeadTable
from interp.draw.page import section_contents
from interp.report.atlas.build import atlas_of
from interp.report.atlas.folder import Contents
from interp.report.atlas.mechanisms import head_of_node
from interp.report.atlas.page import atlas_page
from interp.report.atlas.profiles import profile_name

if TYPE_CHECKING:
    from interp.causal.comparison.result import Comparison
    from interp.causal.pruning.result import PruningCurve
    from interp.profiles.result import Profile

Sections = Iterable[Sequence[Any]]


def pruning_page(
    curves: PruningCurve | Sequence[PruningCurve], *, sections: Sections = ()
) -> bytes:
    """Return the page of pruning curves of one model as UTF-8.

    A head's value on the map is its place in the order of removal.

    Args:
        curves: One curve, or several.
        sections: Further sections, each a heading with its contents; see `interp.draw.page.page`.
    """
    curves = list(curves) if isinstance(curves, Sequence) else [curves]
    tables: dict[str, HeadTable] = {}
    for curve in curves:
        places = [(name, float(at + 1), None) for at, name in enumerate(curve.removed)]
        task = curve.made.get("task", "task")
        metric = f"place of removal by {curve.name}:task={task}"
        for one in table_of_values(metric, places, "place in the order", 1, curve.made):
            tables.setdefault(metric, one)
    provenance = curves[0].made
    title = f"Pruning {provenance.get('model_id', '')}: {provenance.get('task', '')}"
    return _page(Contents(curves=curves, causal=list(tables.values())), title, sections)


def comparison_page(found: Comparison, document: Mapping[str, Any], sections: Sections) -> bytes:
    """Return the page of importances that are compared as UTF-8.

    Args:
        found: The comparison.
        document: The content of `comparison.json`.
        sections: Further sections, as above.
    """
    tables: list[HeadTable] = []
    for one in found.rankings:
        values = [(x, y, None) for x, y in zip(one.labels, one.helps.tolist(), strict=True)]
        n = 1 if one.per_prompt is None else one.per_prompt.shape[1]
        provenance = dict(found.made) | {"model_id": found.made["model"]}
        tables += table_of_values(one.name, values, str(one.about.get("unit") or ""), n, provenance)
    title = f"Importances of {found.made['model']}, {len(found.players)} players"
    contents = Contents(agreements=[dict(document)], causal=tables)
    return _page(contents, title, sections)


def profile_page(found: Profile, *, title: str | None = None) -> bytes:
    """Return the page of what heads do on text as UTF-8.

    Args:
        found: The profile.
        title: The title of the page.
    """
    about = f"{profile_name(found)} on {found.provenance.get('corpus', 'text')}"
    return _page(Contents(profiles=[found]), title or f"What heads do: {about}", ())


def changes_page(a: Profile, b: Profile, *, command: str | None = None) -> bytes:
    """Return the page of two profiles and of what changed between them as UTF-8."""
    title = f"What changed: {profile_name(a)} and {profile_name(b)}"
    return _page(Contents(profiles=[a, b]), title, (), command)


def table_of_values(
    metric: str,
    values: Iterable[tuple[str, float, float | None]],
    unit: str,
    n: int,
    made: Mapping[str, Any],
) -> list[HeadTable]:
    """Return one number per head as a table; no table if none of the names is a head's."""
    model = str(made.get("model_id") or made.get("model") or "model")
    rows = []
    for name, value, sem in values:
        head = head_of_node(name)
        if head is None or value != value:  # noqa: PLR0124
            continue
        row = {"model": model, "layer": head.layer, "head": head.head, "metric": metric}
        rows.append(row | {"score": value, "sem": sem, "n": max(n, 1), "unit": unit})
    about = {"content_hash": str(made.get("content_hash") or ""), "task": str(made.get("task"))}
    return [HeadTable.from_records(rows, {(model, metric): about})] if rows else []


def _page(contents: Contents, title: str, sections: Sections, command: str | None = None) -> bytes:
    atlas = atlas_of(contents, title=title, command=command)
    return atlas_page(atlas, sections=section_contents(sections)).encode()
