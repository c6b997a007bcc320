"""The live view as a Jupyter widget; the only file that imports anywidget."""

from __future__ import annotations

import json
from typing import Any

import anywidget
import traitlets

from interp.core.errors import InterpError
from interp.draw.page import asset, style_sheet
from interp.report.explore.page import scripts
from interp.report.explore.session import Session, answer

_INSIDE = (
    ":host{display:block;background:var(--page);color:var(--ink);"
    "font:15px/1.5 system-ui,sans-serif}"
)


def module() -> str:
    """Return the script of the widget: one function that draws, and the view that asks."""
    body = scripts("drawnIn", "drawnPage", ["const call = drawnCall;\n"])
    return f"function drawIn(drawnIn, drawnPage, drawnCall) {{\n{body}}}\n" + asset(
        "explore_widget.js"
    )


def style() -> str:
    """Return the style of a page, for the shadow root of the widget."""
    inside = style_sheet().replace(":root", ":host").replace("\nbody {", "\n.body {")
    return f"{inside}{asset('explore.css')}{_INSIDE}"


class Live(anywidget.AnyWidget):
    """Widget that answers its view's calls in the kernel, one after the other.

    Args:
        session: The model and its prompt.
        data: What the view needs before its first call.
    """

    _esm = module()
    data = traitlets.Unicode("{}").tag(sync=True)
    style = traitlets.Unicode("").tag(sync=True)

    def __init__(self, session: Session, data: dict[str, Any]):
        super().__init__(data=json.dumps(data, allow_nan=False), style=style())
        self._session = session
        self.on_msg(self._answered)

    def _answered(self, widget: Any, content: Any, buffers: Any) -> None:
        if not isinstance(content, dict) or "id" not in content:
            return
        try:
            reply = answer(self._session, str(content.get("name")), content.get("given"))
        except InterpError as error:
            kind = type(error).__name__
            self.send({"id": content["id"], "error": str(error), "kind": kind})
            return
        self.send({"id": content["id"], "found": reply})
