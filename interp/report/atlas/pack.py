"""The document as compact JSON: columns of numbers are three bytes per head, as base64.

A number keeps the upper 24 bits of its 32: at least four digits. Three bytes are four letters of
base64, so a script reads them without any padding.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from interp.report.atlas.document import Atlas, Card, Metric, Model
from interp.report.atlas.signs import UNCLEAR, Sign

_COLUMNS = ("score", "null_score", "score_low", "score_high", "null_sd", "p", "n")
_NULLS = 256  # values of the distribution of a null, evenly chosen from the sorted ones
# What is left out of a page that exceeds its budget, in this order.
CUTS = (
    "",
    "the examples and tokens of heads whose role is unclear",
    "the examples and tokens of heads",
    "the examples, tokens and neighbours of heads, and the errors of their scores",
    "the cards of heads, except for their scores",
)


ModelView = Mapping[str, Any]
"""The `file` of an attention view; `texts` and `stacks` with the attention of heads on its text."""


def packed(
    document: Atlas, found: dict[str, Sign], cut: int, views: Mapping[str, ModelView]
) -> str:
    """Return a document as JSON that can stand in a script element."""
    data: dict[str, Any] = {
        "roles": [[s.role, s.name, s.letter, s.class_] for s in found.values()],
        "models": [_model(one, list(found), cut) for one in document["models"]],
        "comparisons": [
            {
                "id": x["id"],
                "a": x["a"],
                "b": x["b"],
                "metrics": [
                    {"metric": m["metric"], "unit": m["unit"]}
                    | {k: column(m[k]) for k in ("difference", "low", "high", "p")}
                    for m in x["metrics"]
                ],
            }
            for x in document["comparisons"]
        ],
        "parts": {part["id"]: part["title"] for part in _parts(document)},
        "graphs": {
            part["id"]: part["figure"]
            for part in _parts(document)
            if "nodes" in part.get("figure", {})
        },
        "views": views,
    }
    text = json.dumps(_finite(data), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    # `</script>` and `<!--` would end or comment out the element
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _parts(document: Atlas) -> list[Any]:
    return [*(p for m in document["models"] for p in m["results"]), *document["pages"]]


def _model(model: Model, roles: list[str], cut: int) -> dict[str, Any]:
    number = {name: at for at, name in enumerate(roles)}
    places = model["heads"]
    return {
        "id": model["id"],
        "name": model["name"],
        "stacks": model["stacks"],
        "labels": [p["label"] for p in places],
        "places": [x for p in places for x in (p["stack"], p["layer"], p["head"])],
        "kv": _same([p["kv_head"] for p in places]),
        "roles": [number[r] if r is not None else -1 for r in model["roles"]],
        "metrics": [_metric(m, cut) for m in model["metrics"]],
        "cards": _cards(model, cut),
    }


def _same(values: list[Any]) -> list[Any] | None:
    return None if all(v is None for v in values) else values


def _metric(metric: Metric, cut: int) -> dict[str, Any]:
    fields: dict[str, Any] = {
        k: metric[k] for k in ("name", "text", "unit", "group", "low", "high", "end", "null")
    }
    none: list[float | None] = [None] * len(metric["score"])
    shown = _COLUMNS[: 2 if cut >= 3 else None]
    fields |= {name: column(metric.get(name) or none) for name in shown}
    if cut < 3 and any(why := metric.get("why_no_interval", [])):
        fields["reasons"] = reasons = list(dict.fromkeys(why))
        fields["reason"] = column([reasons.index(x) for x in why])
    nulls = metric.get("null_values") or []
    if len(nulls) > _NULLS:
        nulls = [nulls[round(i * (len(nulls) - 1) / (_NULLS - 1))] for i in range(_NULLS)]
    drawn = metric.get("drawn_values") or []
    return fields | {
        "null_values": column(nulls, constant=False),
        "nulls": len(nulls),
        "drawn_values": column(drawn, constant=False),
        "drawn": len(drawn),
        "draws": metric.get("draws", 0),
        **({"shared": 1} if metric.get("draws_shared") else {}),
    }


def _cards(model: Model, cut: int) -> dict[str, Card]:
    if cut >= 4:
        return {}
    left = ("examples", "writes", *(("nearest",) if cut >= 3 else ())) if cut else ()
    roles = dict(zip((p["label"] for p in model["heads"]), model["roles"], strict=True))
    out: dict[str, Any] = {}
    for label, card in model["cards"].items():
        whole = not cut or (cut == 1 and roles.get(label) not in (None, UNCLEAR))
        out[label] = card if whole else {k: v for k, v in card.items() if k not in left}
        if not whole and "profile" in card:
            out[label]["profile"] = {**card["profile"], "examples": [], "by_entry": []}
    return {label: card for label, card in out.items() if card}


def column(values: Sequence[float | None], *, constant: bool = True) -> str | float | None:
    """Return numbers as base64 of three bytes each, or one number where all are equal."""
    wide = np.array([math.nan if v is None else v for v in values], dtype=np.float64)
    numbers = wide.astype(np.float32)
    if constant and len(numbers) and (np.isnan(numbers).all() or (numbers == numbers[0]).all()):
        return None if np.isnan(numbers[0]) else float(f"{wide[0]:.6g}")
    bits = numbers.view(np.uint32)
    rounded = np.where(np.isfinite(numbers), bits.astype(np.uint64) + 0x80, bits)
    three = (rounded >> 8).astype(np.uint32).astype(">u4").view(np.uint8).reshape(-1, 4)[:, 1:]
    return base64.b64encode(three.tobytes()).decode()


def _finite(x: Any) -> Any:
    """Round the numbers of a document, and replace those that JSON does not have."""
    if isinstance(x, float):
        return float(f"{x:.5g}") if math.isfinite(x) else None
    if isinstance(x, dict):
        return {key: _finite(value) for key, value in x.items()}
    return [_finite(value) for value in x] if isinstance(x, (list, tuple)) else x
