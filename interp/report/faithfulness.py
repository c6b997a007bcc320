"""The page of a faithfulness run: the warning first, then what is better than what."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from interp.draw.colours import Scale
from interp.draw.page import Table, fold
from interp.draw.page import render as fill
from interp.draw.panel import bar

if TYPE_CHECKING:
    from interp.attribution.evaluation.result import Faithfulness


def faithfulness_page(
    found: Faithfulness, *, title: str = "Faithfulness of attributions", command: str | None = None
) -> str:
    """Make one HTML page, offline and without scripts; the same result gives the same bytes."""
    made = dict(found.provenance)
    targets = list(dict.fromkeys(made.pop("targets", [])))
    versions = made.pop("versions", {})
    made |= versions if isinstance(versions, dict) else {}
    model = made.pop("model_id", "")
    more = f" and {len(targets) - 3} more" if len(targets) > 3 else ""
    made["targets"] = ", ".join(map(str, targets[:3])) + more
    return fill(
        "faithfulness", title, command=command, model=model, about=made,
        warnings=[w for w in (found.warning, found.incomplete_warning) if w],
        measures=list(_measures(found)), failures=found.failures, deceived=_deceived(found),
    )  # fmt: skip


page = faithfulness_page


def _measures(found: Faithfulness) -> Iterator[tuple[str, Table, str]]:
    """Each measure's name, its table, and why nothing can be told apart, if so."""
    for measure, (what, better) in found.measures.items():
        rows = [r for r in found.summary(measure) if r[3]]
        if not rows:
            continue
        beats, limit = found.better_than(measure), found.limit(measure)
        size = max(abs(mean) + (0 if math.isnan(sem) else sem) for _, mean, sem, _ in rows) or 1.0
        signed = any(mean < 0 for _, mean, _, _ in rows)
        scale = Scale(-size if signed else 0.0, size, signed)
        lines = [
            [
                method, bar(mean, scale, sem=sem),
                f"{mean:.3f}{'' if math.isnan(sem) else f' ± {sem:.3f}'}", n,
                _beaten(beats[method], len(rows)) if limit.can_show else "not testable",
            ]
            for method, mean, sem, n in rows
        ]  # fmt: skip
        lower = "" if better else "; lower is better"
        caption = f"{what}{lower}; bars from {scale.low:.3g} to {scale.high:.3g}"
        columns = ["method", ("", "wide"), "mean", "texts", ("better than", "token")]
        yield measure, Table(columns, lines, caption), str(limit)


def _beaten(names: list[str], of: int) -> Any:
    lines = Markup("<br>").join(names)
    return fold(f"{len(names)} of {of - 1}", lines) if len(names) > 4 else lines or "none"


def _deceived(found: Faithfulness) -> Table | None:
    rows = sorted(found.warned, key=lambda d: (math.isnan(d.rank), d.rank))
    if not rows:
        return None
    lines = [
        [d.method, d.needs, d.error, ""]
        if d.error
        else [d.method, d.needs, f"{d.rank:.2f} ± {d.sem:.2f}", f"{d.first:.0%}"]
        for d in rows
    ]
    caption = (
        f"Mean rank of the word that decides in bundled:deceive, {rows[0].n} sentences; chance is"
        f" {rows[0].chance:.1f}"
    )
    return Table(["method", "needs", "rank", "first"], lines, caption)
