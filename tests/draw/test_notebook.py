"""Figures of a notebook carry a static picture."""

from __future__ import annotations

import numpy as np
import plotly.express as px
import plotly.graph_objects as go
import pytest

from interp.draw import notebook

PLOTLY, SVG = "application/vnd.plotly.v1+json", "image/svg+xml"


@pytest.mark.parametrize("scale", [None, "Blues"])
def test_a_figure_has_its_description_and_a_picture(scale) -> None:
    figure = px.imshow(np.eye(3), title="a < b", color_continuous_scale=scale)
    bundle = notebook.static_bundle(figure)
    assert set(bundle) == {PLOTLY, SVG, "text/plain"}
    assert bundle["text/plain"] == "Figure: a < b"
    assert bundle[SVG].startswith("<svg xmlns=")
    assert bundle[SVG].count("<rect") == 1 + 9
    assert "a &lt; b" in bundle[SVG]
    assert "<style>svg.figure text{" in bundle[SVG]  # applies to the picture, not to the page


def test_a_figure_that_cannot_be_drawn_keeps_its_description() -> None:
    bundle = notebook.static_bundle(go.Figure(go.Surface(z=np.eye(3))))
    assert set(bundle) == {PLOTLY, "text/plain"}


def test_the_extension_displays_figures_and_can_be_unloaded(capsys) -> None:
    shell = pytest.importorskip("IPython").core.interactiveshell.InteractiveShell()
    shell.run_line_magic("load_ext", "interp.draw.notebook")
    found = shell.display_formatter.ipython_display_formatter.lookup(go.Figure())
    assert found is notebook._display
    shell.run_line_magic("unload_ext", "interp.draw.notebook")
    with pytest.raises(KeyError):
        shell.display_formatter.ipython_display_formatter.lookup(go.Figure())
