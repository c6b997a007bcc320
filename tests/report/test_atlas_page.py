"""The atlas as a file: what it holds without scripts, its policy, its budget, its data."""

from __future__ import annotations

import json
import re
import struct
from base64 import b64decode
from importlib import import_module

import numpy as np
import pytest
from report.atlas_sample import HOSTILE, circuit, document, model, three

from interp.core.errors import OptionError
from interp.core.table import HeadTable
from interp.draw.colours import ink
from interp.draw.page import asset
from interp.heads.roles import decide, statements
from interp.report.atlas.build import build_atlas
from interp.report.atlas.pack import column
from interp.report.atlas.page import SCRIPTS, atlas_page
from interp.report.atlas.signs import (
    _COLOURED,
    _COLOURS,
    _GREY,
    sign_rules,
    signs,
)


def data_of(page: str) -> dict:
    found = re.search(r'<script type="application/json" id="atlas">(.*?)</script>', page)
    return json.loads(found[1])  # type: ignore[index]


def numbers(packed: str) -> list[float]:
    raw = b64decode(packed)
    return [struct.unpack(">f", raw[at : at + 3] + b"\0")[0] for at in range(0, len(raw), 3)]


def test_without_scripts_the_page_says_what_was_found() -> None:
    page = atlas_page(three())
    still = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert still.count('class="map"') == 4  # three models and the comparison
    assert "<b>1 induction head</b>" in still
    assert 'href="#base/L1H1"' in still
    assert 'id="base/L1H1"' in still  # the link leads to the head's row
    assert "Without L1H1: copy_loss +0.310 nats [0.220, 0.400]" in still
    assert "Not found: 1" in still
    assert "What changed: hub/base and hub/tuned" in still
    assert "L0H0, L1H1" in still
    assert "Map of the heads of hub/base, decoder, by role: 1 induction, 1 previous-token" in still


def test_equal_documents_give_equal_bytes_under_a_closed_policy() -> None:
    page = atlas_page(three())
    assert page == atlas_page(three())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]  # type: ignore[index]
    assert policy.startswith("default-src 'none'; img-src data:; style-src 'sha256-")
    assert "unsafe" not in policy
    assert page.count("<style>") == 1
    assert not re.findall(r"<[^>]* (style|onclick|onerror)=", page)
    assert "plotly" not in page.lower()


def test_markup_in_names_and_tokens_stays_text() -> None:
    bad = model("a", name=HOSTILE)
    bad["statements"][0]["text"] = HOSTILE
    bad["cards"]["L1H1"]["examples"][0]["tokens"] = [HOSTILE] * 5  # type: ignore[index]
    bad["results"][0]["title"] = HOSTILE
    page = atlas_page(document(bad, title=HOSTILE))
    assert "<img src=x" not in page
    assert "<script>alert" not in page
    assert page.count("</script>") == 2
    card = data_of(page)["models"][0]["cards"]["L1H1"]
    assert card["examples"][0]["tokens"][0] == HOSTILE


def test_columns_keep_four_digits_and_what_is_missing() -> None:
    values = [0.123456, -3.25e-9, 1e6, None, 0.0]
    found = numbers(column(values))  # type: ignore[arg-type]
    assert np.allclose(found[:3], values[:3], rtol=1e-5)  # type: ignore[arg-type]
    assert np.isnan(found[3])
    assert found[4] == 0
    assert column([0.5, 0.5]) == 0.5
    assert column([None, None]) is None


def test_the_interval_of_a_card_is_that_of_the_table_or_the_reason_for_none() -> None:
    why = "too few: all 8 prompts have the same value"
    table = HeadTable.from_scores(
        model="m",
        metric="induction",
        score=np.array([[0.5, 0.25], [0.75, 0.9]]),
        sem=0.01,
        n=8,
        low=np.array([[0.1, 0.2], [0.7, np.nan]]),
        high=np.array([[0.6, 0.9], [0.8, np.nan]]),
        why_no_interval=[["", ""], ["", why]],
        provenance={},
    )
    [metric] = data_of(atlas_page(build_atlas(table)))["models"][0]["metrics"]
    for end, want in (("score_low", [0.1, 0.2, 0.7]), ("score_high", [0.6, 0.9, 0.8])):
        *known, none = numbers(metric[end])
        assert known == pytest.approx(want, rel=1e-4)
        assert np.isnan(none)
    assert metric["reasons"] == ["", why]
    assert numbers(metric["reason"]) == [0, 0, 0, 1]


def test_names_of_metrics_are_read_once_and_not_in_every_row(monkeypatch) -> None:
    """So that a page of 10,000 heads takes seconds: 40,000 rows here, and few names."""
    calls = []
    for module in (decide, statements):
        monkeypatch.setattr(module, "base_name", lambda x: calls.append(x) or x.partition(":")[0])
    score = np.random.default_rng(0).uniform(0, 0.1, (100, 100))
    score[3, 4] = 0.9
    tables = [
        HeadTable.from_scores(
            model="m",
            metric=metric,
            score=score,
            sem=0.01,
            n=16,
            null=0.05,
            null_sem=0.004,
            unit="fraction",
            provenance={},
        )
        for metric in ("induction", "previous_token", "first_token", "recency")
    ]
    atlas = build_atlas(HeadTable.concat(tables))
    assert len(atlas["models"][0]["heads"]) == 10_000
    assert 0 < len(calls) < 2_000


def test_every_role_has_a_letter_and_a_colour_of_its_own() -> None:
    found = signs(three())
    letters = [s.letter for s in found.values() if s.role != "unclear"]
    assert len(set(letters)) == len(letters) == 4
    assert len({s.colours for s in found.values()}) == len(found)
    assert "prefers-color-scheme:dark" in sign_rules(found.values())


def test_the_roles_of_the_most_heads_have_colours_and_the_others_are_grey() -> None:
    one = model("a")
    names = [f"rule:{n}" for n in range(12)]
    first = one["legend"][0]
    one["legend"] = [first | {"id": x, "name": x, "count": n} for n, x in enumerate(names)]  # type: ignore[operator]
    found = signs(document(one))
    coloured = [name for name in names if found[name].colours != _GREY]
    assert coloured == names[-_COLOURED:]
    assert len({found[name].colours for name in coloured}) == _COLOURED
    assert len({sign.letter for sign in found.values()}) == len(names)


def luminance(colour: str) -> float:
    parts = [x / 255 for x in bytes.fromhex(colour[1:])]
    linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_letters_can_be_read_on_every_colour_of_a_role() -> None:
    ids = [r["id"] for r in model("a")["legend"]]
    one = model("a")
    known = [*_COLOURS, "other_0", "other_1"]
    one["legend"] += [one["legend"][0] | {"id": k, "name": k} for k in known if k not in ids]  # type: ignore[operator]
    for sign in signs(document(one)).values():
        for colour in sign.colours:
            pair = luminance(colour), luminance("#" + 2 * ink(colour)[1:])
            assert (max(pair) + 0.05) / (min(pair) + 0.05) >= 4.5, (sign.role, colour)


@pytest.mark.parametrize("theme", [0, 1])
def test_colours_of_roles_differ_for_every_kind_of_colour_blindness(docs, theme) -> None:
    design = import_module("design_page")
    colours = [pair[theme] for pair in design.ROLES.values()]
    for vision in design.VISIONS:
        apart = design.distances(colours, vision) + 9 * np.eye(len(colours))
        assert apart.min() > 0.1, vision


def test_a_large_page_leaves_out_details_and_says_which() -> None:
    large = document(model("large", 30, 30, metrics=5))
    whole = atlas_page(large)
    assert "left out" not in whole.partition("<script")[0]
    cut = atlas_page(large, budget=len(whole.encode()) - 1)
    assert "left out: the examples and tokens of heads whose role is unclear" not in whole
    assert "left out: " in cut.partition("<script")[0]
    with pytest.raises(OptionError, match="Give fewer models or metrics"):
        atlas_page(large, budget=10_000)


def test_ten_thousand_heads_stay_below_the_budget() -> None:
    page = atlas_page(document(model("huge", 100, 100, metrics=20)))
    assert len(page.encode()) < 4_000_000
    assert "left out: " not in page.partition("<script")[0]
    map_ = re.search(r'<svg class="map".*?</svg>', page)[0]  # type: ignore[index]
    assert map_.count("<path") == 3  # one per role


def test_scores_without_nulls_make_no_claim() -> None:
    page = atlas_page(document(model("a", nulls=False)))
    assert "Without L1H1" not in page.partition("<script")[0]
    assert data_of(page)["models"][0]["metrics"][0]["p"] is None
    assert "What its heads do" not in page
    assert "First heads by each metric" in page


def test_an_atlas_of_nothing_is_refused() -> None:
    with pytest.raises(OptionError, match="nothing to show"):
        atlas_page(document())


def test_results_without_heads_are_a_page_of_their_own() -> None:
    part = circuit("a", ["L0H0", "L0H1", "L1H0", "L1H1"])
    page = atlas_page(document(pages=[part]))
    still = re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)
    assert "Circuit of a" in still
    assert '<div class="tools" hidden>' in still
    for missing in ("Heads and roles", 'class="legend"', "Find a head"):
        assert missing not in still


def test_code_of_the_page_is_below_80_kb() -> None:
    names = [f"{name}.js" for name in ("make", *SCRIPTS)]
    size = sum(len(asset(name).encode()) for name in [*names, "atlas.css", "style.css"])
    assert size < 80_000
