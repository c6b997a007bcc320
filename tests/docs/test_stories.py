"""Notebooks as pages: what cells put out is shown, whatever it says, and nothing of it runs."""

from __future__ import annotations

import json
import shutil
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

for needed in ("pdoc", "nbclient"):
    pytest.importorskip(needed, reason=f"the pages need {needed}: pip install 'interp[docs]'")

HOSTILE = "<script>alert(1)</script><img src=http://x.example/ onerror=alert(2)>"
ROOT = Path(__file__).parents[2]


@pytest.fixture
def stories_script(docs):
    return import_module("stories")


def book_of(*outputs, source="1 + 1"):
    told = new_markdown_cell("# 9. A story\n\nIt does not claim much.")
    return new_notebook(cells=[told, new_code_cell(source, outputs=list(outputs))])


def page_of(stories, tmp_path, book):
    path = ROOT / "notebooks" / "1_find_the_induction_heads.ipynb"  # where it is said to lie
    stories.page(book, path, tmp_path, run=True)
    return (tmp_path / "notebooks" / f"{path.stem}.html").read_text(encoding="utf-8")


def shows(kind, content):
    return new_output("display_data", data={kind: content})


def test_outputs_of_every_kind_are_text(stories_script, tmp_path) -> None:
    printed = new_output("stream", name="stdout", text=f"\x1b[31mred\x1b[0m {HOSTILE}")
    warned = new_output("stream", name="stderr", text=HOSTILE)
    failed = new_output("error", ename="E", evalue="v", traceback=[HOSTILE])
    table = f"<table onclick=alert(3)><tr><td title='a\"b'>7 &lt; 8 {HOSTILE}</td></table>"
    outputs = [printed, warned, failed, shows("text/html", table), shows("text/plain", HOSTILE)]
    page = page_of(stories_script, tmp_path, book_of(*outputs, source=f"print('{HOSTILE}')"))
    assert "<script" not in page
    assert "<img" not in page
    assert "onclick" not in page
    assert "\x1b" not in page
    assert ">red &lt;script&gt;alert(1)" in page
    assert '<td title="a&quot;b">7 &lt; 8 </td>' in page
    # the code, and four outputs: what the table would have run is gone
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") == 5
    assert "script-src" not in page  # no figure, so nothing may run


def test_markup_is_closed_where_its_author_forgot(docs) -> None:
    kept = import_module("markup").kept
    assert kept("<table><tr><td>a<b>c</table>d</div>") == (
        "<table><tr><td>a<b>c</b></td></tr></table>d"
    )
    assert kept("<style>p{x}</style><p class=a id=b>c<svg><a href=d>e</a></svg><br>") == (
        "<p>ce<br></p>"
    )


def figure(**trace):
    told = {"title": {"text": HOSTILE}, "xaxis": {"title": {"text": "head"}}, "height": 321}
    return {"data": [trace], "layout": told}


def test_a_figure_is_data_and_its_numbers_are_a_table(stories_script, tmp_path) -> None:
    import plotly.graph_objects as go

    z = np.array([[0.123456, 2.0], [3.0, np.nan]], dtype=np.float32)
    typed = json.loads(go.Figure(go.Heatmap(z=z)).to_json())["data"][0]
    assert "bdata" in typed["z"]  # how numpy arrays travel
    drawn = figure(**typed, name=HOSTILE)
    page = page_of(stories_script, tmp_path, book_of(shows(stories_script._FIGURE, drawn)))
    assert page.count("<script") == 3  # the description, plotly, and what calls it
    described = page.partition('<script type="application/json">')[2].partition("</script>")[0]
    assert json.loads(described) == drawn
    assert "min-height:321px" in page
    numbers = page.partition("<details>")[2]
    assert "<th>" not in numbers
    assert '<th scope="col">y \\ head</th><th scope="col">0</th><th scope="col">1</th>' in numbers
    assert "<td>0</td><td>0.1235</td><td>2</td></tr><tr><td>1</td><td>3</td><td></td>" in numbers
    assert "script-src 'self' file:;" not in page  # no more than that
    assert "script-src 'self' file:\"" in page


def test_lines_and_bars_are_rows_and_many_are_cut(docs) -> None:
    numbers = import_module("figures").numbers
    bars = {"data": [{"x": ["L0H1", HOSTILE], "y": [0.5, None], "name": "a & b"}]}
    assert numbers(bars) == (
        '<table><caption>a &amp; b</caption><thead><tr><th scope="col">x</th>'
        '<th scope="col">y</th></tr></thead><tbody><tr><td>L0H1</td><td>0.5</td></tr><tr><td>'
        "&lt;script&gt;alert(1)&lt;/script&gt;&lt;img src=http://x.example/ onerror=alert(2)&gt;"
        "</td><td></td></tr></tbody></table>"
    )
    long = {"data": [{"y": list(range(1_000))}]}
    assert numbers(long).count("<tr>") == 401
    assert "600 more rows" in numbers(long)
    assert "no numbers" in numbers({"data": [{"labels": ["a"]}]})


def test_an_output_without_text_is_no_empty_page(stories_script, tmp_path) -> None:
    with pytest.raises(ValueError, match="video/mp4 cannot be shown"):
        page_of(stories_script, tmp_path, book_of(shows("video/mp4", "AAAA")))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's client, which is not ours
def test_a_notebook_is_run_and_its_figure_drawn_in_a_browser(stories_script, tmp_path) -> None:
    book = book_of(source=f"import plotly.express as px\npx.bar(x=['a'], y=[1], title={HOSTILE!r})")
    stories_script.execute(book)
    page = page_of(stories_script, tmp_path, book)
    assert "plotly.min.js" in page
    stories_script.scripts(tmp_path)
    if not (shutil.which("chromium") and shutil.which("chromedriver")):
        pytest.skip("needs chromium and chromedriver (apt-get install chromium chromium-driver)")
    from report.browser import started

    [path] = (tmp_path / "notebooks").glob("*.html")
    with started() as browser:
        browser.emulate("dark", 390)
        browser.open(path)
        browser.wait("return document.querySelector('.plot .bars path')")
        assert browser.log("browser") == []
        folder = path.parent.as_uri()
        assert browser.fetched() == {
            path.as_uri(), f"{folder}/plotly.min.js", f"{folder}/figures.js"
        }  # fmt: skip
        assert browser.run("return document.documentElement.scrollWidth") <= 390
