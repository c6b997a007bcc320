"""Elements of SVG and HTML as text, with all attributes and children escaped."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape


def element(name: str, *children: Any, **attributes: Any) -> Markup:
    """Write one element."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(map(escape, children))
    if not inside and name in _EMPTY:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{inside}</{name}>")


_EMPTY = {"rect", "path", "circle", "line", "polyline", "polygon", "image", "img"}


def number(x: float) -> str:
    """Return a coordinate with at most two decimals."""
    return f"{round(float(x), 2):.10g}"


def svg_picture(width: float, height: float, *children: Any, **attributes: Any) -> Markup:
    """Write an `<svg>` of this size in pixels."""
    size = {"viewBox": f"0 0 {number(width)} {number(height)}", "width": width, "height": height}
    return element("svg", *children, **attributes, **size)


def standing(svg: Markup, *, style: bool = False) -> str:
    """Make an `<svg>` a complete file on white."""
    start, _, rest = str(svg).partition(">")
    ground = element("rect", width="100%", height="100%", fill="#ffffff")
    opened = start.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    rules = element("style", Markup(_STYLE)) if style else ""
    return f"{opened}>{rules}{ground}{rest}\n"


_STYLE = "".join(
    f"svg.figure {rule}"  # a style inside an SVG applies to the whole page that it is put into
    for rule in (
        "text{font:12px sans-serif;fill:#1b1f23}",
        ".soft{fill:#5b6570}",
        ".grid{stroke:#d8dde2}",
        "text.title{font-size:14px;font-weight:600}",
        ".error{stroke:#1b1f23;fill:none}",
    )
)


def _value(value: Any) -> Any:
    return number(value) if isinstance(value, float) else escape(value)
