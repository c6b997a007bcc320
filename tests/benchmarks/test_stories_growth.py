"""Growth of bundled:stories: what is first there when, and the page is that of the record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks import stories_growth
from benchmarks.stories_growth import first_moments, moments, stories_growth_page
from benchmarks.stories_truth_counts import RELATIONS
from interp import bundled
from training.stories.questions import ABILITIES

KEPT = Path(stories_growth.__file__).with_suffix(".json")


def moment(low: float = 0.0, heads: tuple[str, ...] = ()) -> dict[str, Any]:
    found = {name: [0.5, 0.0, 1.0, 10, 0.4] for name in ABILITIES}
    relations = {name: {"heads": [], "largest": 0.0} for name in RELATIONS}
    return {
        "abilities": found | {"owner": [0.5, low, 1.0, 10, 0.4]},
        "relations": relations | {"mark": {"heads": [*heads], "largest": 0.5}},
    }


def test_what_comes_and_goes_is_there_once_it_stays() -> None:
    one = {"0": moment(), "10": moment(0.5), "20": moment(), "30": moment(0.41, ("L0H1",))}
    assert [*first_moments(one)] == [(30, "ability", "owner"), (30, "relation", "mark")]
    always = {"5": moment(0.5, ("L0H0",)), "100": moment(0.5, ("L0H1",))}
    assert [*first_moments(always)] == [(5, "ability", "owner"), (5, "relation", "mark")]
    at_the_guess = {"0": moment(0.4)}
    assert [*first_moments(at_the_guess)] == [], "the interval has to be above the guess"


def test_moments_are_in_the_order_of_their_steps() -> None:
    home = bundled.path("stories")
    steps = [*moments(home)]
    assert steps == [0, 250, 500, 750, 1000, 1500, 2000, 3000, 4596]
    assert moments(home)[4596] == home


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return json.loads(KEPT.read_text(encoding="utf-8"))


def test_the_page_is_that_of_the_record(kept) -> None:
    page = KEPT.with_suffix(".md").read_text(encoding="utf-8")
    assert page == stories_growth_page(kept)


def test_seeds_are_the_bundled_models_and_checkpoints(kept) -> None:
    record = json.loads((bundled.path("stories") / "training.json").read_text())
    whole = kept["models"]["0"]
    assert whole["4596"]["weights"] == record["weights_sha256"]
    stored = json.loads((bundled.path("stories") / "checkpoints/checkpoints.json").read_text())
    for each in stored["checkpoints"]:
        assert whole[str(each["step"])]["weights"] == each["weights_sha256"]
    sibling = json.loads((bundled.path("stories-seed2") / "training.json").read_text())
    assert kept["models"]["2"]["4596"]["weights"] == sibling["weights_sha256"]
    exam = record["abilities"]["losses"]["unseen texts"]["nats_per_token"]
    assert whole["4596"]["loss"]["nats_per_token"] == pytest.approx(exam, abs=0.02)


def test_bold_cells_are_counted_by_the_rule_that_shows_them() -> None:
    """Of the random accuracies .3 is .1 below the others, and the heads' .2 below all by .1."""
    one = [0.5] * len(ABILITIES)
    sets = {"without": [0.2, *one[1:]], "random": [[0.3, *one[1:]], [0.4, *one[1:]], one]}
    last = moment() | {"ablated": {"questions": [], "whole": one, "mark": sets}}
    kept = {"models": {"0": {"0": moment(0.45), "9": last}}}
    assert stories_growth.false_ones(kept) == {
        "untrained": (1, len(ABILITIES)),
        "random": (1, 3 * len(ABILITIES)),
        "heads": (1, len(ABILITIES)),
    }
