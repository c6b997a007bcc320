"""Pages that results write of themselves: their data, their origin, and how they look."""

from __future__ import annotations

import csv
import io
import re
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
from report.browser import needs_browser, started
from report.looking import CUT, PALE, SQUEEZED

from interp import draw
from interp.attribution.result import Attribution
from interp.core.display import Displayed
from interp.draw.svg import element
from interp.report import checks

HOSTILE = "<script>alert(1)</script>"
COMMAS = 'a,"b"\n</a>'


class Rows(Displayed):
    def __init__(self, n: int, columns: int = 1) -> None:
        self.n, self.columns = n, columns

    def to_pandas(self) -> pd.DataFrame:
        names = [HOSTILE, COMMAS] * (self.n // 2)
        value = np.linspace(0, 1, self.n) / 3
        more = {f"another value, number {i}": value for i in range(1, self.columns)}
        return pd.DataFrame({"name": names, "value": value} | more)

    def __repr__(self) -> str:
        return f"Rows({'long_and_without_a_space:' * 12})"


def rows_of(page: str) -> list[list[str]]:
    """The link's CSV, read as a browser saves it."""
    [(file, data)] = re.findall(
        r'<a class="data" download="([^"]*)" href="data:text/csv;charset=utf-8,([^"]*)">', page
    )
    assert file.endswith(".csv")
    return list(csv.reader(io.StringIO(unquote(data))))


def test_the_rows_are_there_as_csv(tmp_path) -> None:
    Rows(4).save_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert rows_of(page) == [
        ["name", "value"],
        [HOSTILE, "0.0"],
        [COMMAS, "0.1111111111111111"],
        [HOSTILE, "0.2222222222222222"],
        [COMMAS, "0.3333333333333333"],
    ]
    assert HOSTILE not in page


def test_a_page_of_many_rows_says_what_it_leaves_out(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(draw.page, "ROWS", 6)
    monkeypatch.setattr(draw.page, "CSV", 1_000)
    Rows(6).save_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert "not on this page" not in page
    assert len(rows_of(page)) == 7
    Rows(60).save_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert page.count("<tr>") == 7
    assert "54 more rows are not on this page" in page
    assert "exceed 0.001 MB and are omitted" in page


def some_attribution() -> Attribution:
    made = {
        "model_id": "hub/m",
        "content_hash": "c" * 64,
        "dtype": "float32",
        "versions": {"interp": HOSTILE},
        "unit": "logit",
    }
    return Attribution(
        method="occlusion:how=mean",
        target="logit of 'a'",
        value=1.0,
        unit="logit",
        signed=True,
        tokens=(HOSTILE, "b", COMMAS, " word" * 30),
        outputs=(),
        scores=np.array([-1.0, 0.5, 0.25, 1.0]),
        special=np.zeros(4, bool),
        total=0.75,
        provenance=made,
    )


def test_an_attribution_says_what_made_it_and_has_all_its_numbers(tmp_path) -> None:
    some_attribution().save_html(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text(encoding="utf-8")
    for said in ("hub/m", "c" * 64, "float32", "How it was made"):
        assert said in page
    assert HOSTILE not in page
    assert rows_of(page)[:3] == [
        ["position", "token", "score"],
        ["0", HOSTILE, "-1.0"],
        ["1", "b", "0.5"],
    ]


def checks_page() -> str:
    row = {
        "model": HOSTILE,
        "metric": "induction",
        "heads": "L1H0 L1H5 L1H6",
        "task": "copy_loss",
        "purpose": "own",
        "unit": "nats/token",
        "clean": 0.004,
        "out": 0.307,
        "random": 0.239,
        "random_low": 0.05,
        "random_high": 0.4,
        "ratio": 1.29,
        "ratio_low": 0.929,
        "ratio_high": 1.56,
        "p": 0.38,
        "least_p": 1 / 56,
        "n_random": 55,
        "n_possible": 55,
        "any_random": 0.2,
        "any_p": 0.3,
        "any_least_p": 1 / 56,
        "n_any": 55,
        "n_any_possible": 400,
        "n_prompts": 16,
        "n_clusters": 11,
        "doubts": HOSTILE,
        "verdict": "redundant",
        "conclusion": f"Redundant: {HOSTILE}",
        "transfers": f"{HOSTILE} fails: damage 1 with another answer",
    }
    return checks.check_page(
        pd.DataFrame([row, row]), [{"model_id": HOSTILE}], "interp importance verify x"
    )


def test_the_page_of_checks_can_fetch_and_run_nothing() -> None:
    page = checks_page()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "script-src" not in policy
    assert "<script" not in page
    assert HOSTILE not in page


def drawing_page() -> bytes:
    """Pictures that are drawn in dark ink, in a section and in what scrolls."""
    svg = element("svg", element("text", "drawn", x=5, y=20, fill="#111"), width=640, height=30)
    parts = [("Drawn", svg), ("Too", element("div", svg, class_="scroll", tabindex=0))]
    return draw.page.page("Drawings", None, parts, {}, heading="Two drawings")


@pytest.mark.slow
@needs_browser
def test_pages_of_results_can_be_read_on_screens_and_on_paper(tmp_path) -> None:

    Rows(40, columns=9).save_html(tmp_path / "rows.html")
    some_attribution().save_html(tmp_path / "attribution.html")
    (tmp_path / "checks.html").write_text(checks_page(), encoding="utf-8")
    (tmp_path / "drawing.html").write_bytes(drawing_page())
    media = "Emulation.setEmulatedMedia"
    with started() as browser:
        for path in tmp_path.glob("*.html"):
            for theme, width in (("light", 390), ("dark", 390), ("light", 1400), ("dark", 1400)):
                browser.emulate(theme, width)
                browser.open(path)
                assert browser.fetched() == {path.as_uri()}
                assert browser.log("browser") == []
                browser.run("for (const d of document.querySelectorAll('details')) d.open = true")
                for question in (PALE, CUT, SQUEEZED):
                    assert browser.run(question) == [], (path.name, theme, width)
            browser.emulate("light", 718)
            asked = {"cmd": media, "params": {"media": "print"}}
            browser.call("POST", "/goog/cdp/execute", asked)
            browser.open(path)
            assert browser.run(CUT) == [], path.name
            asked["params"] = {"media": ""}
            browser.call("POST", "/goog/cdp/execute", asked)
