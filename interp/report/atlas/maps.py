"""Static pictures of the atlas: maps of heads by class, and the bar of a statement."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from interp.draw.colours import Scale
from interp.draw.panel import LEFT, TOP, colour_bar, colour_class, map_axes
from interp.draw.svg import element, number, svg_picture
from interp.report.atlas.document import Comparison, Metric, Model, Place, Statement
from interp.report.atlas.signs import Sign, badge

_LETTERED = 12  # pixels of the smallest cell that holds a letter


def cell_size(layers: int, heads: int) -> int:
    """Return the pixels of a head; 24 is large enough for a finger (WCAG 2.2, 2.5.8)."""
    if heads <= 16 and layers <= 24:
        return 24
    return 16 if heads <= 32 and layers <= 48 else 9 if heads <= 80 else 7


def map_width(model: Model) -> int:
    """Return the pixels of a model's widest map."""
    return max(
        (LEFT + s["heads"] * cell_size(s["layers"], s["heads"]) for s in model["stacks"]), default=0
    )


def class_map(
    places: Sequence[Place],
    classes: Sequence[str],
    shape: tuple[int, int],
    *,
    letters: Mapping[str, str] | None = None,
    **attributes: Any,
) -> Markup:
    """Return a map of layers by heads, one path per class."""
    layers, heads = shape
    cell = cell_size(layers, heads)
    by_class: dict[str, list[Place]] = {}
    for place, name in zip(places, classes, strict=True):
        by_class.setdefault(name, []).append(place)
    body = [
        element("path", class_=name, d="".join(_square(p, cell) for p in members))
        for name, members in by_class.items()
    ]
    if letters and cell >= _LETTERED:
        body += [
            element(
                "text",
                letters[name] * len(members),
                class_=f"on {name}",
                x=" ".join(number(LEFT + (p["head"] + 0.5) * cell) for p in members),
                y=" ".join(number(TOP + (p["layer"] + 0.5) * cell + 4) for p in members),
            )
            for name, members in by_class.items()
            if letters.get(name)
        ]
    size = LEFT + heads * cell + 2, TOP + layers * cell + 2
    drawn = element("g", *body, class_="cells", aria_hidden="true")
    attributes |= {"data_cell": cell, "data_layers": layers, "data_heads": heads}
    axes = map_axes(layers, heads, cell)
    return svg_picture(*size, axes, drawn, class_="map", role="img", **attributes)


def _square(place: Place, cell: int) -> str:
    size = cell - 1
    return f"M{LEFT + place['head'] * cell} {TOP + place['layer'] * cell}h{size}v{size}h-{size}z"


def role_maps(model: Model, signs: Mapping[str, Sign]) -> list[Markup]:
    """Return a map per stack of a model, coloured by role."""
    letters = {sign.class_: sign.letter for sign in signs.values()}
    metric = None if has_roles(model) else first_metric(model)
    scale = None if metric is None else _scale(metric)
    out = []
    for at, stack in enumerate(model["stacks"]):
        indices = [i for i, place in enumerate(model["heads"]) if place["stack"] == at]
        roles = [model["roles"][i] for i in indices]
        if metric is None or scale is None:
            classes = [signs[r].class_ if r is not None and r in signs else "none" for r in roles]
            label = _described(model, stack["name"], roles, signs)
            bar = ""
        else:
            classes = _value_classes([metric["score"][i] for i in indices], scale)
            label = f"Map of the heads of {model['name']}, {stack['name']}, by {metric['name']}"
            about = f"{metric['name']}, {metric['unit']}"
            bar = Markup("").join((element("p", about, class_="note"), colour_bar(scale)))
        places = [model["heads"][i] for i in indices]
        drawn = class_map(
            places,
            classes,
            (stack["layers"], stack["heads"]),
            letters=letters,
            aria_label=label,
            data_model=model["id"],
            data_stack=at,
        )
        caption = [stack["name"]] * (len(model["stacks"]) > 1) + [stack.get("kinds", "")]
        name = element("figcaption", " · ".join(filter(None, caption))) if any(caption) else ""
        below = element("div", bar, class_="first-scale") if bar else ""
        output = element("output", aria_live="polite")
        out.append(element("figure", name, drawn, below, output))
    return out


def has_roles(model: Model) -> bool:
    """Tell whether the role of any head was decided, be it that it is unclear."""
    return any(role is not None for role in model["roles"])


def first_metric(model: Model) -> Metric | None:
    """Return the metric that colours a map without roles: an effect if there is one."""
    causal = [one for one in model["metrics"] if one["group"] == "causal"]
    return next(iter([*causal, *model["metrics"]]), None)


def _scale(metric: Metric) -> Scale:
    import numpy as np

    scores = np.array([math.nan if v is None else v for v in metric["score"]])
    return Scale.fit(scores, (metric["low"], metric["high"]))


def _value_classes(values: Sequence[float | None], scale: Scale) -> list[str]:
    import numpy as np

    numbers = np.array([math.nan if v is None else v for v in values], dtype=float)
    return [colour_class(int(at), scale.signed) for at in scale.bins(numbers)]


def _described(
    model: Model, stack: str, roles: Sequence[str | None], signs: Mapping[str, Sign]
) -> str:
    counts = [f"{n} {sign.name}" for key, sign in signs.items() if (n := roles.count(key))]
    unjudged = roles.count(None)
    counts += [f"{unjudged} not judged"] if unjudged else []
    return f"Map of the heads of {model['name']}, {stack}, by role: {', '.join(counts)}"


def difference_map(comparison: Comparison, model: Model, stack: int) -> Markup:
    """Return the map of a comparison's first metric, blue above zero and orange below."""
    first = comparison["metrics"][0]
    indices = [i for i, place in enumerate(model["heads"]) if place["stack"] == stack]
    values = [first["difference"][i] for i in indices]
    scale = Scale.around(max((abs(v) for v in values if v is not None), default=0), signed=True)
    classes = _value_classes(values, scale)
    about = model["stacks"][stack]
    return class_map(
        [model["heads"][i] for i in indices],
        classes,
        (about["layers"], about["heads"]),
        aria_label=f"Map of differences: {comparison['b']} minus {comparison['a']}, "
        f"{first['metric']}",
        data_compare=comparison["id"],
        data_stack=stack,
    )


def statement_bar(one: Statement, ends: tuple[float, float], width: int = 150) -> Markup:
    """Draw a score from zero with its interval, and an upright line at its null."""
    low, high = ends
    if one["score"] is None or not high > low:
        return Markup("")

    def x(v: float) -> float:
        return round(width * min(max((v - low) / (high - low), 0.0), 1.0), 1)

    left, right = sorted((x(max(low, min(0.0, high))), x(one["score"])))
    parts = [
        element(
            "rect",
            x=left,
            y=3,
            width=right - left,
            height=8,
            class_="q18" if one["found"] else "quiet",
        )
    ]
    if one["low"] is not None and one["high"] is not None:
        a, b = x(one["low"]), x(one["high"])
        parts.append(element("path", class_="error", d=f"M{a:g} 7H{b:g}M{a:g} 4v6M{b:g} 4v6"))
    if one["null"] is not None:
        parts.append(element("path", class_="null", d=f"M{x(one['null']):g} 0v14"))
    return element(
        "svg",
        *parts,
        class_="score",
        viewBox=f"-1 0 {width + 2} 14",
        width=width + 2,
        height=14,
        aria_hidden="true",
    )


def bar_ends(model: Model, metric: str) -> tuple[float, float]:
    """Return the ends of a metric's bars: of its range, or of its scores, with zero between."""
    entry = next((m for m in model["metrics"] if m["name"] == metric), None)
    return (0.0, 0.0) if entry is None else metric_ends(entry)


def metric_ends(metric: Metric) -> tuple[float, float]:
    """Return the ends of the bars of one metric; see `bar_ends`."""
    every = [*metric["score"], *metric.get("score_low", []), *metric.get("score_high", [])]
    seen = [v for v in every if v is not None and math.isfinite(v)]
    low = metric["low"] if metric["low"] is not None else min([0.0, *seen])
    high = metric["high"] if metric["high"] is not None else max([0.0, *seen])
    return (min(low, 0.0), max(high, 0.0))


def legend_list(signs: Mapping[str, Sign], models: Sequence[Model]) -> Markup:
    """Return the roles with their signs and numbers of heads."""
    items = []
    for key, sign in signs.items():
        counts = [model["roles"].count(key) for model in models]
        if not any(counts):
            continue
        text = " · ".join(f"{n:,}" for n in counts)
        items.append(
            element(
                "li",
                badge(sign),
                " ",
                sign.name,
                " ",
                element("span", text, class_="soft"),
                data_role=key,
            )
        )
    return element("ul", *items, class_="legend", aria_label="roles")
