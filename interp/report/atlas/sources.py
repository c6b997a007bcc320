"""Sources of an atlas: what holds results, which metrics are shown, examples of models."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import InterpError, OptionError, UnknownName
from interp.core.shell_line import shell_line
from interp.profiles.headvis_read import is_headvis

if TYPE_CHECKING:
    from interp.core.table import HeadTable
    from interp.model.model import Model
    from interp.report.atlas.pack import ModelView

TABLES = (".parquet", ".csv", ".json")


def is_results(path: Path) -> bool:
    """Return True for a table of scores, a folder of results or a HeadVis tree, not for a model."""
    if path.is_file():
        if path.suffix.lower() in TABLES:
            return True
        raise OptionError(
            f"{path} is neither a table of scores ({', '.join(TABLES)}) nor a model folder"
        )
    if is_headvis(path):
        return True
    if not path.is_dir() or (path / "config.json").exists():
        return False
    from interp.report.atlas.folder import holds_results

    if holds_results(path):
        return True
    if not any(path.iterdir()):
        raise OptionError(
            f"{path} is empty; give a folder that a command wrote with --out, such as "
            f"`{shell_line('score', 'MODEL', '--out', path)}`"
        )
    return False


def only_metrics(tables: Sequence[HeadTable], names: Sequence[str]) -> list[HeadTable]:
    """Select the rows of these metrics; raises UnknownName for one that is in no table."""
    there = list(dict.fromkeys(m for table in tables for m in table.metrics))
    wanted: set[str] = set()
    for name in names:
        matching = {m for m in there if name in (m, m.partition(":")[0])}
        if not matching:
            raise UnknownName("metric", name, there)
        wanted |= matching
    chosen = [(table, [m for m in table.metrics if m in wanted]) for table in tables]
    return [table.where(metric=metrics) for table, metrics in chosen if metrics]


def add_examples(
    atlas: Any, names: Iterable[str], load: Callable[[str], Model], out: Path
) -> tuple[dict[str, ModelView], list[str]]:
    """Add the examples of models to their cards, and write their attention beside the page."""
    from interp.report.atlas.attention import write_view
    from interp.report.atlas.from_model import add_model

    views: dict[str, ModelView] = {}
    notes = []
    for name in names:
        try:
            model = load(name)
            add_model(atlas, model)
            views |= write_view(atlas, model, out)
        except InterpError as error:  # the scores are still worth a page
            notes.append(f"{name}: no examples of its heads: {error}")
    atlas.setdefault("notes", []).extend(notes)
    return views, notes
