"""The part of the atlas that comes from tables of scores: heads, metrics, roles and statements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.core.order import end_of
from interp.core.registry import METRICS
from interp.heads.roles.decide import base_name
from interp.heads.roles.declared import LEGEND
from interp.heads.roles.statements import NAMED, HeadNames, Statement, statements
from interp.report.atlas.document import Column, Metric, Model, Place, Role, Stack
from interp.report.atlas.document import Statement as Sentence

if TYPE_CHECKING:
    import pandas as pd
    from jaxtyping import Int

    from interp.core.table import HeadTable
    from interp.heads.roles.result import HeadRoles

_NULLS = {
    "shuffled-tokens": "the same heads on shuffled tokens",
    "random-init": "heads of the same model with random weights",
}
_CAUSAL, ON_TEXT = "causal", "text"  # groups of metrics that no declaration names
_UNITS = ["stack", "layer", "head"]
NULL_VALUES = 200  # of the distribution of a metric's null, at most


def finite(x: Any) -> float | None:
    """Return a number as plain data: None if it does not exist."""
    if x is None:
        return None
    value = float(x)
    return value if math.isfinite(value) else None


def model_of(
    name: str,
    id: str,
    scores: HeadTable | None,
    causal: HeadTable | None,
    roles: HeadRoles | None,
    named: int = NAMED,
    on_text: HeadTable | None = None,
) -> Model:
    """Return one model without cards and results."""
    groups = {None: scores, _CAUSAL: causal, ON_TEXT: on_text}
    by_group = {k: table for k, table in groups.items() if table is not None and len(table)}
    tables = list(by_group.values())
    frames = [table.to_pandas() for table in tables]
    places, stacks = _places(frames)
    if scores is None and causal is None:  # a profile does not state them
        for place in places:
            place["kv_head"] = None
    metrics = [
        metric
        for (group, table), frame in zip(by_group.items(), frames, strict=True)
        for metric in _metrics(table, frame, places, group)
    ]
    by_place: dict[tuple[str, int, int], str | None] = {}
    sentences: tuple[Statement, ...] = ()
    if roles is not None and scores is not None:
        by_place = {(x.stack, x.layer, x.head): x.role for x in roles.assigned}
        sentences = statements(scores, roles, named=named)
    names = [stack["name"] for stack in stacks]
    heads = [(names[place["stack"]], place["layer"], place["head"]) for place in places]
    return {
        "id": id,
        "name": name,
        "stacks": stacks,
        "heads": places,
        "roles": [by_place.get(place) for place in heads],
        "legend": role_legend([by_place.get(place) for place in heads]),
        "statements": [statement_data(one) for one in sentences],
        "metrics": metrics,
        "cards": {},
        "results": [],
        "provenance": _provenance([x for k, x in by_group.items() if k != ON_TEXT]),
    }


def role_legend(roles: Sequence[str | None]) -> list[Role]:
    """Return all roles in their order, with the number of heads of each."""
    return [
        {
            "id": role.id,
            "name": role.name,
            "text": role.text,
            "rule": role.rule,
            "count": sum(x == role.id for x in roles),
            "slot": role.slot,
        }
        for role in LEGEND
    ]


def statement_data(one: Statement) -> Sentence:
    """Return a statement as plain data."""
    return {
        "role": one.role,
        "text": one.text,
        "heads": list(one.heads),
        "metric": one.metric,
        "score": finite(one.score),
        "low": finite(one.low),
        "high": finite(one.high),
        "null": finite(one.null),
        "found": one.found,
        "judged": one.judged,
    }


def _kinds(frames: Sequence[pd.DataFrame]) -> str:
    """Return the layers of each kind of attention in words; empty where all are a softmax."""
    import pandas as pd

    rows: Any = pd.concat([frame[["layer", "kind"]] for frame in frames]).drop_duplicates()
    if set(rows["kind"]) <= {"softmax", "unknown"}:
        return ""
    named = rows[rows["kind"] != "unknown"].groupby("kind")["layer"].apply(sorted)
    return "; ".join(
        f"{kind}: layer{'s' * (len(layers) > 1)} {', '.join(map(str, layers))}"
        for kind, layers in named.items()
    )


def _places(frames: Sequence[pd.DataFrame]) -> tuple[list[Place], list[Stack]]:
    """Return all heads, by stack in order of appearance, layer and number, and their stacks."""
    import pandas as pd

    rows: Any = pd.concat([frame[[*_UNITS, "kv_head"]] for frame in frames])
    rows = rows.drop_duplicates(_UNITS)
    order = {stack: at for at, stack in enumerate(rows["stack"].unique())}
    rows = rows.assign(at=rows["stack"].map(order)).sort_values(["at", "layer", "head"])
    sizes: Any = rows.groupby("stack")[["layer", "head"]].max() + 1
    stacks: list[Stack] = [
        {"name": str(s), "layers": int(sizes.loc[s, "layer"]), "heads": int(sizes.loc[s, "head"])}
        for s in order
    ]
    for stack in stacks:
        inside: Any = [frame[frame["stack"] == stack["name"]] for frame in frames]
        kinds = _kinds(inside)
        if kinds:
            stack["kinds"] = kinds
    label = HeadNames(tuple(order))
    places: list[Place] = [
        {
            "label": label(stack, int(layer), int(head)),
            "stack": int(at),
            "layer": int(layer),
            "head": int(head),
            "kv_head": int(kv),
        }
        for stack, layer, head, kv, at in rows.itertuples(index=False, name=None)
    ]
    return places, stacks


def _metrics(
    table: HeadTable, frame: pd.DataFrame, places: Sequence[Place], group: str | None
) -> list[Metric]:
    """Return the columns of every metric of one table, in its order."""
    ranges, provenance = METRICS.ranges(), {m: about for (_, m), about in table.provenance.items()}
    stacks = list(frame["stack"].unique())
    at = {(p["stack"], p["layer"], p["head"]): i for i, p in enumerate(places)}
    names = {stack: place for place, stack in enumerate(stacks)}
    out: list[Metric] = []
    groups: Any = frame.groupby("metric", sort=False)
    units = frame.iloc[:0][_UNITS]
    index = np.zeros(0, dtype=int)
    for metric, rows in groups:
        name, about = base_name(str(metric)), provenance[str(metric)]
        head_rows = rows[_UNITS].reset_index(drop=True)
        if not head_rows.equals(units):  # most metrics have the same heads in the same order
            units = head_rows
            heads = head_rows.itertuples(index=False, name=None)
            index = np.array([at[names[s], int(x), int(h)] for s, x, h in heads], dtype=int)
        low, high = ranges.get(name, (None, None))
        entry = METRICS[name] if name in METRICS else None  # noqa: SIM401
        null = str(about.get("null") or "none")
        kind = None if null == "none" else _NULLS.get(null, null)
        one: Metric = {
            "name": str(metric),
            "text": entry.summary if entry else str(about.get("sign") or ""),
            "unit": str(rows["unit"].iloc[0]),
            "group": group or (entry.group if entry else "user-supplied"),
            "low": finite(low),
            "high": finite(high),
            "end": end_of(rows["score"], about.get("end")),
            "null": kind if rows["null"].notna().any() else None,
            "score": _column(rows["score"], index, len(places)),
            "sem": _column(rows["sem"], index, len(places)),
            "n": _column(rows["n"], index, len(places)),
            "null_score": _column(rows["null"], index, len(places)),
            "null_sem": _column(rows["null_sem"], index, len(places)),
            "null_sd": _column(rows["null_sd"], index, len(places)),
            "score_low": _column(rows["low"], index, len(places)),
            "score_high": _column(rows["high"], index, len(places)),
            "why_no_interval": _texts(rows["why_no_interval"], index, len(places)),
            "p": _column(rows["p"], index, len(places)),
        }
        values = np.sort(rows["null"].dropna().to_numpy(float))
        if len(values):
            some = np.linspace(0, len(values) - 1, min(len(values), NULL_VALUES)).round()
            one["null_values"] = [float(x) for x in values[some.astype(int)]]
        out.append(one)
    return out


def _column(values: pd.Series, index: Int[np.ndarray, " row"], size: int) -> Column:
    out = np.full(size, math.nan)
    out[index] = values.to_numpy(float)
    if np.isfinite(out).all():
        return out.tolist()
    return [x if math.isfinite(x) else None for x in out.tolist()]


def _texts(values: pd.Series, index: Int[np.ndarray, " row"], size: int) -> list[str]:
    out = np.full(size, "", dtype=object)
    out[index] = values.to_numpy(object)
    return out.tolist()


def _provenance(tables: Sequence[HeadTable]) -> dict:
    """Return what all metrics of a model share, and what differs, by metric."""
    each = {m: about for table in tables for (_, m), about in table.provenance.items()}
    shared: dict[str, Any] = {}
    differing: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for about in each.values() for name in about):
        values = {m: about[name] for m, about in each.items() if name in about}
        first = next(iter(values.values()))
        if len(values) == len(each) and all(x == first for x in values.values()):
            shared[name] = first
        else:
            differing[name] = values
    return shared | ({"by metric": differing} if differing else {})
