"""The page on trust is made from the benchmarks' files when the documentation is built."""

from __future__ import annotations

from importlib import import_module

import pytest

GROUPS = "calibration_geometry", "calibration_categories", "calibration_cache"
NAMES = "agreement", "sources", "flow", "calibration", "claims", "interval_coverage", *GROUPS


@pytest.fixture
def trust(docs):
    return import_module("trust")


def test_the_page_has_every_section(trust) -> None:
    for heading in ("independent computations", "other libraries", "False findings", "Intervals"):
        assert heading in trust.page()


def test_every_figure_follows_its_file(trust, monkeypatch) -> None:
    before = trust.page()
    kept = {name: trust.read(name) for name in NAMES}
    kept["agreement"]["rows"][0]["largest"] = 0.123
    monkeypatch.setattr(trust, "read", kept.__getitem__)
    assert "1.2e-01" in trust.page()
    assert "1.2e-01" not in before


def test_its_claims_are_those_of_the_files(trust) -> None:
    page, kept = trust.page(), {name: trust.read(name) for name in NAMES}
    known, found = (sum(r[k] for r in kept["calibration"]["power"]) for k in ("known", "claimed"))
    assert f"find {found} of {known} heads" in page
    short = [
        r
        for r in kept["calibration"]["coverage"]
        if r["chosen"] is not None and r["chosen"] + 2 * r["chosen_error"] < trust.NOMINAL
    ]
    assert ("Below 95 % by more than two standard errors" in page) == bool(short)
    groups = [row for name in GROUPS for row in kept[name]["familywise"]]
    whole = [r for r in kept["calibration"]["familywise"] if r["of"] != "with -m geometry"]
    for row in whole + groups:
        assert 0 <= row["low"] <= row["claimed"] / row["models"] <= row["high"] <= 1
        assert f"| {row['of']} | {row['models']} | {row['claimed']} (" in page
    for row in kept["claims"]["rows"]:
        rate = row["rate"] if row["kind"] == "claim" else row["coverage"]
        assert row["low"] <= rate <= row["high"]
        assert f"| `{row['call']}` | {row['claim']} | {row['nothing']} | {row['draws']} |" in page
        assert row["why"] or not row["off"]
    for row in kept["interval_coverage"]["kinds"]:
        # no kind of values is shown with an interval that misses in more than 5 % of all draws,
        # by three standard errors
        assert row["missed"] <= 0.05 + 3 * (0.05 * 0.95 / row["runs"]) ** 0.5
        if row["shown"] >= 0.01 and not row["clustered"]:
            assert f"{row['shown']:.0%}, {row['covered']:.3f}, t {row['t']:.2f}" in page
    worst = max(row["largest_difference"] for row in kept["sources"]["rows"].values())
    assert f"{worst:.1e}" in page
