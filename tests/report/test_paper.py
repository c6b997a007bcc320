"""Figures for papers: vector files, with letters of the size that was asked for."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import plotly.graph_objects as go
import pytest

from interp.core.errors import OptionError, UnknownName
from interp.heads.patterns import View
from interp.report import save_figure

SVG = "{http://www.w3.org/2000/svg}"


def bars() -> go.Figure:
    figure = go.Figure(go.Bar(x=["L0H0", "L0H1"], y=[1.0, 2.0], name="effect"))
    return figure.update_layout(title="Effects", height=300)


@pytest.mark.parametrize(("width", "size"), [(3.3, 7.0), (6.5, 9.0)])
def test_letters_have_the_size_that_was_asked_for(tmp_path, width, size) -> None:
    path = tmp_path / "a.svg"
    save_figure(bars(), path, width=width, size=size, font="Times New Roman", caption="One. " * 30)
    root = ET.parse(path).getroot()
    assert root.attrib["width"] == f"{width:g}in"
    wide = float(root.attrib["viewBox"].split()[2])
    points = 72 * width / wide  # of one unit of the picture
    text = path.read_text()
    letter = float(re.search(r"font:([\d.]+)px Times New Roman", text)[1])
    assert letter * points == pytest.approx(size, abs=0.01)
    caption = [t for t in root.iter(f"{SVG}text") if (t.text or "").startswith("One.")]
    assert len(caption) > 1
    assert float(caption[0].attrib["font-size"]) * points == pytest.approx(size, abs=0.01)
    tall = float(root.attrib["viewBox"].split()[3])
    assert max(float(t.attrib["y"]) for t in caption) < tall  # nothing is cut off below


def test_a_narrow_figure_is_laid_out_anew_and_not_shrunk(tmp_path) -> None:
    for width in (3.0, 6.0):
        save_figure(bars(), tmp_path / f"{width}.svg", width=width, size=8)
    boxes = [ET.parse(tmp_path / f"{w}.svg").getroot().attrib["viewBox"] for w in (3.0, 6.0)]
    narrow, wide = (float(box.split()[2]) for box in boxes)
    assert wide == pytest.approx(2 * narrow)


def test_pdf(tmp_path) -> None:
    pytest.importorskip(
        "cairosvg", reason="pip install interp[pdf]", exc_type=(ImportError, OSError)
    )
    path = tmp_path / "a.pdf"
    save_figure(bars(), path, width=3.3)
    content = path.read_bytes()
    assert content.startswith(b"%PDF")
    assert b"/Image" not in content  # all of it is vectors


def test_a_png_has_300_pixels_per_inch_and_the_colours_of_the_figure(tmp_path) -> None:
    pytest.importorskip(
        "cairosvg", reason="pip install interp[pdf]", exc_type=(ImportError, OSError)
    )
    from PIL import Image

    scale = [[0, "#ffff00"], [1, "#0000ff"]]
    figure = go.Figure(go.Heatmap(z=np.eye(60), colorscale=scale, showscale=False))
    save_figure(figure.update_layout(height=300), tmp_path / "a.PNG", width=3.0)
    with Image.open(tmp_path / "a.PNG") as picture:
        assert picture.width == 900
        counts = {rgba[:3]: n for n, rgba in picture.convert("RGBA").getcolors(10**6)}
    share = counts[0, 0, 255] / (counts[255, 255, 0] + counts[0, 0, 255])
    assert share == pytest.approx(1 / 60, rel=0.1)  # no cell is blurred


@pytest.mark.parametrize("form", ["pdf", "png"])
def test_without_its_library_it_is_said_what_to_install(tmp_path, monkeypatch, form) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cairosvg", None)
    with pytest.raises(OptionError, match=rf"a {form.upper()} needs.*pip install interp\[pdf\]"):
        save_figure(bars(), tmp_path / f"a.{form}")
    assert not (tmp_path / f"a.{form}").exists()


def test_every_token_of_a_short_axis_is_named_as_it_is(tmp_path) -> None:
    tokens = ["<s>", " &amp;", *(f" token{i}" for i in range(25))]
    view = View.of_patterns(np.full((1, 1, 27, 27), 1 / 27), tokens)
    view.save(tmp_path / "a.svg")
    texts = [*ET.parse(tmp_path / "a.svg").getroot().iter(f"{SVG}text")]
    shown = [t.text for t in texts if t.attrib.get("class") == "soft"]
    assert shown == tokens + tokens
    across = [t for t in texts if "rotate(-60)" in t.attrib.get("transform", "")]
    assert len(across) == 27  # aslant, since they would lie on each other


def test_wrong_requests(tmp_path) -> None:
    with pytest.raises(UnknownName, match=r"known: \.pdf, \.png, \.svg"):
        save_figure(bars(), tmp_path / "a.gif")
    with pytest.raises(OptionError, match="above 0"):
        save_figure(bars(), tmp_path / "a.svg", width=0)
    with pytest.raises(OptionError, match="name of a font"):
        save_figure(bars(), tmp_path / "a.svg", font="x}</style><script>")


def test_a_caption_stays_text(tmp_path) -> None:
    path = tmp_path / "a.svg"
    save_figure(bars(), path, caption="<script>alert(1)</script>")
    assert not [*ET.parse(path).getroot().iter(f"{SVG}script")]
