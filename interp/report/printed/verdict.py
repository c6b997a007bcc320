"""The verdict of `interp score`: what was found in a model and what was not, in ten lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.core.table import HeadTable

LINES = 10  # of one model, its name included
WIDTH = 78  # of the table of models and roles, without its indent
_VERBOSE = "--verbose lists the heads of every metric"


def verdict_text(table: HeadTable, *, hint: bool = True) -> str:
    """Return what was found in each model, and what was looked for and not found."""
    return "\n".join(filter(None, (_of_model(table.where(model=m), hint) for m in table.models)))


def _of_model(table: HeadTable, hint: bool) -> str:
    from interp.heads.roles.decide import roles
    from interp.heads.roles.statements import statements

    head_roles = roles(table)
    sentences = statements(table, head_roles)
    if not any(one.role for one in sentences):
        return ""
    judged = [one for one in sentences if one.judged]
    lines = [one.text for one in judged]
    if len(judged) < len(sentences):
        lines += _unjudged([one for one in sentences if not one.judged])
    missing = _without_score(table)
    lines += [missing] if missing else []
    unclear = sum(x.role == "unclear" for x in head_roles.assigned)
    heads = f"{len(head_roles):,} head{'s' * (len(head_roles) != 1)}"
    about = f"{heads}, {len(table.metrics)} metric{'s' * (len(table.metrics) != 1)}"
    if judged:
        about += f"; {unclear:,} without a clear role"
    shown = _cut(lines, LINES - 1)
    header = f"{table.models[0]}: {about}" + (f" ({_VERBOSE})" if hint else "")
    return "\n".join([header, *(f"  {line}" for line in shown), ""])


def models_text(table: HeadTable) -> str:
    """Return one table of models and roles, or nothing for one model or where no head has a role.

    Models are rows, or columns where rows are too wide.
    """
    from interp.heads.roles.decide import roles

    if len(table.models) < 2:
        return ""
    frame = roles(table).by_model().set_index("model")
    if len(frame.columns) < 3:
        return ""
    forms = frame.to_string(), frame.T.to_string()
    shown = forms[0] if _width(forms[0]) <= WIDTH else min(forms, key=_width)
    lines = [line.rstrip() for line in shown.split("\n") if line.strip() != "model"]
    return "\n".join(["Heads of each role, by model:", *(f"  {line}" for line in lines), ""])


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _unjudged(said: list) -> list[str]:
    """Return one line on scores without a null, of which nothing is claimed."""
    best = [f"{one.metric} {one.heads[0]} {one.score:.3f}" for one in said]
    first = "Nothing is claimed of scores without a null. The highest: "
    return [f"{first}{', '.join(best)}."]


def _without_score(table: HeadTable) -> str:
    """Name the metrics in which no head has a score, with the reason if it is known."""
    frame = table.to_pandas()
    scored = set(frame.loc[frame["n"] > 0, "metric"])
    provenance = {metric: about for (_, metric), about in table.provenance.items()}
    why = [
        f"{metric} ({provenance[metric].get('headline', 'no prompt had a row with a target')})"
        for metric in table.metrics
        if metric not in scored
    ]
    return f"Without a score: {'; '.join(why)}." if why else ""


def _cut(lines: list[str], most: int) -> list[str]:
    """Join what was not found in one line if there are too many lines."""
    if len(lines) <= most:
        return lines
    none = [line for line in lines if line.startswith("No ")]
    others = [line for line in lines if line not in none]
    joined = " ".join(line.partition(":")[0] + "." for line in none)
    return [*others[: most - 1], *([joined] if joined else others[most - 1 : most])]
