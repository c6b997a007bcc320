"""Figures for papers: vector files, with letters of the size that was asked for."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import plotly.graph_objects as go
import pytest

from interp.core.errors import OptionError, UnknownName
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


def test_a_pdf_without_its_library_says_what_to_install(tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cairosvg", None)
    with pytest.raises(OptionError, match=r"pip install interp\[pdf\]"):
        save_figure(bars(), tmp_path / "a.pdf")
    assert not (tmp_path / "a.pdf").exists()


def test_wrong_requests(tmp_path) -> None:
    with pytest.raises(UnknownName, match=r"\.svg"):
        save_figure(bars(), tmp_path / "a.png")
    with pytest.raises(OptionError, match="above 0"):
        save_figure(bars(), tmp_path / "a.svg", width=0)
    with pytest.raises(OptionError, match="name of a font"):
        save_figure(bars(), tmp_path / "a.svg", font="x}</style><script>")


def test_a_caption_stays_text(tmp_path) -> None:
    path = tmp_path / "a.svg"
    save_figure(bars(), path, caption="<script>alert(1)</script>")
    assert not [*ET.parse(path).getroot().iter(f"{SVG}script")]
