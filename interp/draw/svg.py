"""Elements of SVG and HTML as text; every attribute and every child is escaped here."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup, escape


def element(name: str, *children: Any, **attributes: Any) -> Markup:
    """Write one element.

    Args:
        children: texts, which are escaped, and other elements, which are not.
        attributes: an underscore stands for a hyphen, and one at the end for nothing (`class_`);
            None leaves the attribute out, and floats have two decimals.
    """
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
    """A coordinate with two decimals at most."""
    return f"{round(float(x), 2):.10g}"


def svg_picture(width: float, height: float, *children: Any, **attributes: Any) -> Markup:
    """Write an `<svg>` of this size, in pixels where the page does not shrink it."""
    size = {"viewBox": f"0 0 {number(width)} {number(height)}", "width": width, "height": height}
    return element("svg", *children, **attributes, **size)


def standing(svg: Markup, *, style: bool = False) -> str:
    """Make an `<svg>` a file of its own, on white.

    Args:
        style: bring the style that a page gives to figures.
    """
    start, _, rest = str(svg).partition(">")
    ground = element("rect", width="100%", height="100%", fill="#ffffff")
    opened = start.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    rules = element("style", Markup(_STYLE)) if style else ""
    return f"{opened}>{rules}{ground}{rest}\n"


_STYLE = (
    "text{font:12px sans-serif;fill:#1b1f23}.soft{fill:#5b6570}.grid{stroke:#d8dde2}"
    ".title{font-size:14px;font-weight:600}.error{stroke:#1b1f23;fill:none}"
)


def _value(value: Any) -> Any:
    return number(value) if isinstance(value, float) else escape(value)
