"""Names of one model that several folders scored with different settings."""

from __future__ import annotations

from collections.abc import Sequence

from interp.core.merge import renamed
from interp.core.table import HeadTable
from interp.report.atlas.folder import Contents


def name_by_source(found: Contents, sources: Sequence[tuple[str, range]]) -> None:
    """Add the source to the name of each model whose scores differ between sources, with a note."""
    first: dict[tuple[str, str, str], tuple[str, HeadTable]] = {}
    twice: dict[tuple[str, str], None] = {}
    for source, tables in sources:
        for at in tables:
            table = found.scores[at]
            for (model, metric), about in table.provenance.items():
                weights = str(about.get("content_hash") or "")
                rows = table.where(model=model, metric=metric)
                before, other = first.setdefault((model, weights, metric), (source, rows))
                if before != source and other != rows:
                    twice[model, weights] = None
    if not twice:
        return
    for source, tables in sources:
        for at in tables:
            table = found.scores[at]
            models = {
                (model, str(about.get("content_hash") or ""))
                for (model, _), about in table.provenance.items()
            }
            names = {model: f"{model} ({source})" for model, weights in models & twice.keys()}
            found.scores[at] = renamed(table, names) if names else table
    which = ", ".join(dict.fromkeys(model for model, _ in twice))
    found.notes.append(f"{which}: scored with different settings, so each name includes its source")
