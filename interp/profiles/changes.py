"""Changes between two profiles: behaviours that heads gained, lost, or show more or less."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.errors import OptionError
from interp.core.intervals import half_width
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import t_test_p
from interp.core.statistics import benjamini_hochberg, holm
from interp.core.ties import ordered_by
from interp.model.content import versions
from interp.profiles.behaviours import ON
from interp.profiles.result import EXPLAINED, OFF_SINK, UNITS

if TYPE_CHECKING:
    from interp.profiles.result import Profile

LEVEL = 0.05  # of the corrected p of a change
LEAST = 0.05  # share by which a behaviour must change to be said
SAID = 3  # rules of a sentence
_APART = ("entry:", "line:", "control_", "explained_rules_part_")  # rows that are not compared
_NEAR = (0.16, 0.84)  # quantiles at one standard error


def compare_profiles(a: Profile, b: Profile) -> ResultRows:
    """Compare what heads do on text in two profiles, such as before and after a fine-tune.

    Behaviours are the shares of a head's attention off the sink on the keys of every rule, its
    attention off the sink, and the shares of its pattern that position, rules and tokens explain;
    what else both profiles measured is compared too. Where both read the same documents with the
    same seed, differences are paired over documents; otherwise the errors of both sides add up.

    Args:
        a: the first profile, such as that of the base model.
        b: the second one; differences are B minus A.

    Returns:
        A row per head and number. `score` is the difference, `sem` its bootstrap error over
        documents, `low` and `high` its 95 % interval, p of a t test, `p_holm` and `p_bh` corrected
        over all rows. Shares that depend on the fit of a description have no p, since their error
        is that of the judging documents alone. The fact `changes` holds a sentence for every head
        of which a behaviour changed by at least .05 with `p_holm` below .05; `small` counts the
        significant changes below that.

    Raises:
        OptionError: the profiles have no head in common, or lack behaviours.
    """
    for one in (a, b):
        if one.behaviours is None:
            raise OptionError(
                "a profile without behaviours cannot be compared; profile the model again"
            )
    heads = _shared_heads(a, b)
    paired = all(a.provenance.get(x) == b.provenance.get(x) for x in ("corpus_hash", "seed"))
    rows = _behaviours(a, b, heads, paired) + _others(a, b, heads)
    p = np.array([row["p"] for row in rows], float)
    for name, corrected in (("p_holm", holm(p)), ("p_bh", benjamini_hochberg(p))):
        for row, value in zip(rows, corrected.tolist(), strict=True):
            row[name] = value
    changes = [change for head in heads if (change := _change(head, rows))]
    sure = [r for r in rows if r["p_holm"] < LEVEL]
    provenances = {name: dict(one.provenance) for name, one in (("a", a), ("b", b))}
    names = [str(x.get("model_id") or x.get("model") or "") for x in provenances.values()]
    return ResultRows(
        "ProfileChanges",
        rows,
        ("stack", "layer", "head"),
        provenances
        | {"model": f"{names[1]} - {names[0]}", "paired": paired}
        | {"made_by": "interp.profiles.compare_profiles", "versions": versions()},
        {
            "changes": tuple(changes),
            "small": sum(abs(r["score"]) < LEAST for r in sure),
            "paired": paired,
            "n_heads": len(heads),
            "null": 0.0,
            "only_one": len(a.descriptions) + len(b.descriptions) - 2 * len(heads),
        },
        why_no_per_prompt="a share is a ratio of sums over documents",
        by="abs",
    )


def _shared_heads(a: Profile, b: Profile) -> list[tuple[Mapping[str, Any], int, int]]:
    """Return the heads that both describe, with their places: descriptions of A and of B."""
    places = {_key(one): at for at, one in enumerate(b.descriptions)}
    shared: list[tuple[Mapping[str, Any], int, int]] = [
        ({**one, "after": b.descriptions[places[_key(one)]]}, at, places[_key(one)])
        for at, one in enumerate(a.descriptions)
        if _key(one) in places
    ]
    if not shared:
        raise OptionError("the profiles have no head in common, so nothing can be compared")
    return shared


def _key(one: Mapping[str, Any]) -> tuple[str, int, int]:
    return str(one["stack"]), int(one["layer"]), int(one["head"])


def _behaviours(a: Profile, b: Profile, heads: list, paired: bool) -> list[dict[str, Any]]:
    """Return the differences of all behaviours that both profiles have."""
    first, second = a.behaviours, b.behaviours
    assert first is not None
    assert second is not None
    names = [name for name in first.names if name in second.names]
    ia, ib = ([x.names.index(name) for name in names] for x in (first, second))
    rows = []
    for head, i, j in heads:
        if paired:
            sem = (second.deviations(j, ib) - first.deviations(i, ia)).std(-1, ddof=1)
        else:
            sem = np.hypot(first.errors[i, ia], second.errors[j, ib])
        values = first.values[i, ia], second.values[j, ib]
        df = min(first.n, second.n, first.draws.shape[2]) - 1
        for at, name in enumerate(names):
            unit = OFF_SINK if name.startswith(ON) else UNITS.get(name, EXPLAINED)
            before, after = (float(v[at]) for v in values)
            rows.append(
                _row(head, name, before, after, float(sem[at]), df, first.n, unit)
                | {"phrase": first.phrases[ia[at]]}
            )
    return rows


def _others(a: Profile, b: Profile, heads: list) -> list[dict[str, Any]]:
    """Return the differences of the other numbers, whose draws are not kept, as unpaired."""
    from interp.profiles.judgement import PROBABILITIES

    ends = [PROBABILITIES.index(p) for p in _NEAR]
    known = {_key(head): head for head, _, _ in heads}
    assert a.behaviours is not None
    tables = []
    for one in (a, b):
        table = {}
        for row, quantiles in zip(one.rows, one.quantiles, strict=True):
            name = str(row["metric"])
            if name not in a.behaviours.names and not name.startswith(_APART):
                half = float(quantiles[ends[1]] - quantiles[ends[0]]) / 2
                table[(*_key(row), name)] = row, half
        tables.append(table)
    rows = []
    for key, (before, error) in tables[0].items():
        if key not in tables[1] or key[:3] not in known:
            continue
        after, other = tables[1][key]
        n = min(int(before["n"]), int(after["n"]))
        sem = float(np.hypot(error, other))
        scores = float(before["score"]), float(after["score"])
        rows.append(
            _row(known[key[:3]], key[3], *scores, sem, n - 1, n, before["unit"]) | {"phrase": ""}
        )
    return rows


def _row(
    head: Mapping[str, Any],
    metric: str,
    before: float,
    after: float,
    sem: float,
    df: int,
    n: int,
    unit: str,
) -> dict[str, Any]:
    """Return one difference with its t test; p is at least the chance that all n signs agree."""
    score = after - before
    p, half = np.nan, np.nan
    if np.isfinite(score) and np.isfinite(sem) and df > 0:
        half = float(half_width([(sem, df)]))
    if np.isfinite(half) and not _fitted(metric):
        p = min(1.0, max(float(t_test_p(score, sem, df)), 2.0 ** (1 - n)))
    return {
        "stack": head["stack"],
        "layer": head["layer"],
        "head": head["head"],
        "metric": metric,
        "score": score,
        "score_a": before,
        "score_b": after,
        "sem": sem,
        "low": score - half,
        "high": score + half,
        "p": p,
        "n": n,
        "unit": unit,
    }


def _fitted(metric: str) -> bool:
    """Return True for a number that depends on the fit of the description.

    Its error is that of the documents that judge; another fit would differ by more.
    """
    parts = ("explained", "causal")
    return any(part in metric for part in parts) or metric in (
        "uncovered",
        "beyond_position",
        "needs_context",
    )


def _change(head: tuple, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the sentence on one head; None if none of its behaviours changed by enough."""
    before = head[0]
    after = before["after"]
    mine = [r for r in rows if _key(r) == _key(before)]
    shares = [
        r
        for r in mine
        if r["unit"] in (OFF_SINK, EXPLAINED, UNITS["off_sink"])
        and r["p_holm"] < LEVEL
        and abs(r["score"]) >= LEAST
    ]
    if not shares:
        return None
    had, has = ({x["rule"] for x in one["entries"] if not x["avoided"]} for one in (before, after))
    rules = [r for r in shares if r["metric"].startswith(ON)]
    named = [r for r in rules if r["metric"].removeprefix(ON) in had | has] or rules
    named = ordered_by(named, lambda r: abs(r["score"]))[:SAID]
    parts = [_said(r, r["metric"].removeprefix(ON), had, has) for r in named]
    parts += [
        f"{r['phrase']} {_percent(r['score_a'])}, now {_percent(r['score_b'])} {_points(r)}"
        for r in shares
        if r["metric"] == "off_sink"
    ]
    if not parts:
        r = ordered_by(shares, lambda r: abs(r["score"]))[0]
        name = r["phrase"] or r["metric"].replace("_", " ")
        parts = [f"{name} {_percent(r['score_a'])}, now {_percent(r['score_b'])} {_points(r)}"]
    text = "; ".join(parts)
    if before["status"] != after["status"]:
        text += f"; {before['status']} before, {after['status']} now"
    place = {name: before[name] for name in ("stack", "layer", "head", "name")}
    largest = max(abs(r["score"]) for r in shares)
    return {**place, "sentence": f"{text[0].upper()}{text[1:]}.", "largest": largest}


def _said(row: Mapping[str, Any], rule: str, had: set[str], has: set[str]) -> str:
    """Return how the attention on a rule changed."""
    if rule in has and rule not in had and row["score"] > 0:
        verb = "gained"
    elif rule in had and rule not in has and row["score"] < 0:
        verb = "lost"
    else:
        verb = "more" if row["score"] > 0 else "less"
    return (
        f"{verb} {row['phrase']}: {_percent(row['score_a'])} of its attention off the sink, "
        f"now {_percent(row['score_b'])} {_points(row)}"
    )


def _percent(x: float) -> str:
    return f"{100 * x:.0f} %" if abs(x) >= 0.095 or abs(x) < 0.0005 else f"{100 * x:.1f} %"


def _points(row: Mapping[str, Any]) -> str:
    return f"({100 * row['score']:+.0f} [{100 * row['low']:+.0f}, {100 * row['high']:+.0f}] points)"


present(
    "ProfileChanges",
    summary="interp.report.printed.changes:changes_summary",
    first_line="interp.report.printed.changes:changes_line",
    text="interp.report.printed.changes:changes_text",
)
