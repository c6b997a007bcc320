"""The page of many models: a row per model, its roles and first heads, filter, order, CSV."""

from __future__ import annotations

import csv
import io
import math
import re
import urllib.parse

import pytest
from report.atlas_sample import HOSTILE, three
from report.browser import needs_browser
from report.looking import CUT, PALE

import interp
from interp.core.store import Store
from interp.core.table import HeadTable
from interp.heads.roles.decide import roles
from interp.heads.roles.declared import ROLES
from interp.report import build_atlas
from interp.report.atlas.answer import answer_line
from interp.report.models_page import models_answer, models_page
from interp.report.summary import MODELS, RunPage, write_summary

METRICS = ["induction", "previous_token", "first_token"]
NAMES = ["planted:induction", "bundled:one-layer", "planted:zoo"]


@pytest.fixture(scope="module")
def three_models() -> HeadTable:
    found = [interp.score(name, METRICS, null_draws=2) for name in NAMES]
    return HeadTable.concat(found)


@pytest.fixture(scope="module")
def models_file(three_models, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "models.html"
    page = models_page(three_models, roles(three_models), beside=["heads.html"])
    path.write_text(page, encoding="utf-8")
    return path


def rows_of(page: str, kind: str) -> list[list[str]]:
    table = re.search(rf'<table class="models {kind}">(.*?)</table>', page, re.DOTALL)[1]
    rows = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    cells = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in rows]
    return [[re.sub(r"<[^>]+>", "", c).strip() for c in row] for row in cells]


def test_rows_are_the_roles_and_the_first_heads(models_file, three_models) -> None:
    page = models_file.read_text()
    heads, *rows = rows_of(page, "roles")
    decided = roles(three_models)
    counts = decided.by_model().set_index("model")
    for row in rows:
        found = dict(zip(heads, row, strict=True))
        induction = counts.loc[found["model"], "induction"]
        assert found["induction"].split()[0] == (str(induction) if induction else "\u00b7")
        assert int(found["heads"]) == counts.loc[found["model"], "heads"]
    heads, *rows = rows_of(page, "scores")
    for row in rows:
        mine = three_models.where(model=row[0])
        for metric, cell in zip(METRICS, row[1:], strict=True):
            (best,) = mine.where(metric=metric).top(1).to_pandas().to_dict("records")
            assert cell == f"{best['score']:.3g} L{best['layer']}H{best['head']}"
    assert "<h1>Of 3 models, 2 have an induction head" in page


def test_names_of_others_stay_text_and_failures_are_listed(three_models) -> None:
    page = models_page(
        three_models, roles(three_models), failed={HOSTILE: "it <b>broke</b>"}, state="1 of 2 done"
    )
    assert HOSTILE not in page
    assert "it &lt;b&gt;broke" in page
    assert "1 could not be scored" in page
    assert "1 of 2 done" in page


def test_models_without_nulls_are_not_judged() -> None:
    table = interp.score("planted:induction", METRICS, null="none")
    page = models_page(table, roles(table))
    assert "none has a head with a role" in page
    assert rows_of(page, "roles")[1][-1] == ""


def test_a_summary_of_several_models_has_it(three_models, tmp_path, monkeypatch) -> None:
    store = Store(tmp_path)
    store.prepare()
    monkeypatch.setattr(Store, "read", lambda self: three_models)
    write_summary(store)
    page = (tmp_path / MODELS).read_text()
    assert 'href="./heads.html#planted-induction/L1H0"' in page
    assert 'id="model-0"' in (tmp_path / "heads.html").read_text()


def test_a_run_shows_how_far_it_is(three_models, tmp_path) -> None:
    page = RunPage(tmp_path, 3)
    for done, name in enumerate(NAMES[:2], 1):
        page.written = -math.inf  # the pause between two pages is over
        page.add(three_models.where(model=name))
        text = (tmp_path / MODELS).read_text()
        assert f"{done} of 3 models are done; about" in text
        assert 'http-equiv="refresh"' in text
        assert [row[0] for row in rows_of(text, "roles")[1:]] == NAMES[:done]
    before = (tmp_path / MODELS).read_text()
    page.add(three_models.where(model=NAMES[2]))  # the summary of the whole run follows
    assert (tmp_path / MODELS).read_text() == before


def test_a_command_lists_what_failed_and_why(run, tmp_path) -> None:
    (tmp_path / "broken").mkdir()
    asked = [*NAMES[:2], str(tmp_path / "broken")]
    found = run("score", *asked, "-m", "induction", "-o", tmp_path / "out")
    assert found.exit_code == 1
    page = (tmp_path / "out" / MODELS).read_text()
    assert "1 could not be scored" in page
    assert "<dt>broken</dt>" in page
    assert "config.json" in page.partition("Could not be scored")[2]
    assert "models are done" not in page


@pytest.mark.slow
@needs_browser
class TestInABrowser:
    NAMES = (
        "return [...document.querySelectorAll('table.roles tbody tr')]"
        ".filter((r) => !r.hidden).map((r) => r.dataset.model)"
    )

    def test_filter_order_and_csv(self, browser, models_file) -> None:
        browser.emulate("light", 1400)
        browser.open(models_file)
        assert browser.fetched() == {models_file.as_uri()}
        assert browser.run(self.NAMES) == NAMES
        press = "[...document.querySelectorAll('table.roles thead button')].find((b) =>"
        press += " b.textContent === arguments[0]).click()"
        browser.run(press, "heads")
        assert browser.run(self.NAMES)[0] == "planted:zoo"
        browser.run(press, "heads")
        assert browser.run(self.NAMES)[-1] == "planted:zoo"
        browser.type("#filter", "planted")
        assert sorted(browser.run(self.NAMES)) == ["planted:induction", "planted:zoo"]
        assert "2 of 3 models" in browser.text(".tools")
        browser.run("document.querySelector('.tools a').click()")
        link = browser.run("return document.querySelector('.tools a').href")
        rows = [*csv.reader(io.StringIO(urllib.parse.unquote(link.partition(",")[2])))]
        assert [row[0] for row in rows[1:]] == browser.run(self.NAMES)
        found = dict(zip(rows[0], rows[1], strict=True))
        assert found["induction"] == "1"
        assert found["induction head"] == "L1H0"
        browser.run("search.value = ''; wanted.selectedIndex = 2; sift()")  # without the first role
        assert browser.run(self.NAMES) == ["bundled:one-layer"]
        assert browser.log("browser") == []

    @pytest.mark.parametrize("theme", ["light", "dark"])
    @pytest.mark.parametrize("width", [390, 1400])
    def test_everything_can_be_read(self, browser, models_file, theme, width) -> None:
        browser.emulate(theme, width)
        browser.open(models_file)
        assert browser.run("return document.documentElement.scrollWidth") <= width
        assert browser.run(PALE) == []
        assert browser.run(CUT) == []


def test_both_pages_of_several_models_count_the_same(three_models) -> None:
    """Heads of several roles, such as one of planted:zoo, count for each of them on both."""
    decided = roles(three_models)
    document = build_atlas(three_models)
    line = answer_line(document)
    for role in ROLES:
        n = len({x.model for x in decided.assigned if role.id in x.roles})
        assert (f"{role.name} in {n}" in line) == bool(n)
    assert models_answer(decided, NAMES, {}).startswith("Of 3 models, 2 have an induction head")


def test_a_head_of_several_roles_counts_for_each() -> None:
    (base, *_) = three()["models"]
    document = three() | {"comparisons": [], "models": [base]}
    both = {**base["statements"][0], "role": "previous_token", "heads": ["L1H1", "L0H0"]}
    base["statements"].append(both)
    at = base["roles"].index("induction")
    base["roles"][at] = "several"
    base["legend"] = [r | {"count": base["roles"].count(r["id"])} for r in base["legend"]]
    line = answer_line(document)
    assert line == "hub/base: 2 of 4 heads have a role: 2 previous-token, 1 induction"


def scored(name: str, best: float) -> HeadTable:
    return HeadTable.from_scores(
        model=name,
        metric="induction",
        score=[[best, 0.01]],
        unit="attention mass",
        provenance={"end": "high"},
    )


def test_the_first_line_of_an_atlas_names_few_of_a_long_list() -> None:
    document = three()
    one = document["models"][0] | {
        "roles": [None],
        "results": [
            {
                "title": "Do they agree?",
                "text": "Correlation: a 0.1; b 0.2; c 0.3; d 0.4; e 0.5. More.",
            }
        ],
    }
    document |= {"models": [one], "comparisons": []}
    line = "Do they agree: Correlation: a 0.1; b 0.2; c 0.3; 2 more"
    assert answer_line(document) == line


def test_two_hundred_models_of_which_three_failed() -> None:
    table = HeadTable.concat([scored(f"model-{i}", i / 200) for i in range(197)])
    failed = {f"broken-{i}": f"reason {i}" for i in range(3)}
    page = models_page(table, roles(table), failed=failed)
    assert "Of 197 models" in page
    assert "3 could not be scored" in page
    assert len(rows_of(page, "scores")) == 198
    for name, why in failed.items():
        assert f"<dt>{name}</dt><dd>{why}</dd>" in page


def test_checkpoints_of_one_run_are_a_line() -> None:
    scores = {"run@step10": 0.1, "run@step1000": 0.9, "run@step100": 0.2, "other": 0.5}
    table = HeadTable.concat([scored(*each) for each in scores.items()])
    page = models_page(table, roles(table))
    section = page.partition("<h2>Over training")[2].partition("</section>")[0]
    assert '<th scope="row">run</th>' in section
    assert "other" not in section
    assert 'aria-label="induction: 0.1 at 10, 0.9 at 1,000"' in section
    xs = [float(x.partition(",")[0]) for x in re.search(r'points="([^"]*)"', section)[1].split()]
    assert xs == sorted(xs)  # in the order of the steps
    assert xs[1] - xs[0] == pytest.approx(xs[2] - xs[1], rel=0.05)  # on a logarithmic axis
    assert "Families by size" not in page


def test_a_family_is_in_the_order_of_its_sizes() -> None:
    scores = {"pythia-1.4b": 0.9, "pythia-70m": 0.1, "pythia-160m": 0.4, "gpt2": 0.2, "a1m2": 0.3}
    table = HeadTable.concat([scored(*each) for each in scores.items()])
    page = models_page(table, roles(table))
    section = page.partition("<h2>Families by size")[2].partition("</section>")[0]
    assert 'aria-label="induction: 0.1 at 70,000,000, 0.9 at 1,400,000,000"' in section
    assert section.count("<tr>") == 2  # its head, and one family
    assert "Over training" not in page


def test_one_checkpoint_is_no_line() -> None:
    table = HeadTable.concat([scored("run@step10", 0.1), scored("other-70m", 0.5)])
    page = models_page(table, roles(table))
    assert "Over training" not in page
    assert "Families by size" not in page


def test_names_from_right_to_left_and_with_markup_in_lines() -> None:
    names = [f"<b>\u202eevil</b>@step{step}" for step in (1, 2)]
    table = HeadTable.concat([scored(name, 0.5) for name in names])
    page = models_page(table, roles(table))
    assert "<b>" not in page
    assert "\u202e" not in page
    assert "Over training" in page
