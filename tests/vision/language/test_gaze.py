"""Gaze heads: the planted head looks at the panel that is asked about, and loses it if shuffled."""

from __future__ import annotations

import numpy as np
import pytest

import interp
from interp.core.errors import OptionError, PromptError
from interp.planted.with_picture import SIDE, SLOTS, image_text
from interp.vision.language import gaze_heads
from interp.vision.language.gaze import panel_of_tokens


@pytest.fixture(scope="module")
def asked_pictures():
    """A picture's question is about its object, so the panel of the object is the one asked for."""
    planted = image_text()
    inputs, objects, _ = planted.layout(16, 0)
    panels = [at % SIDE // (SIDE // 2) for _, at in objects]
    assert 4 <= sum(panels) <= 12
    return planted, interp.load(planted.model, name="picture"), inputs, panels


def test_only_heads_that_look_at_the_object_follow_the_question(asked_pictures) -> None:
    planted, model, inputs, panels = asked_pictures
    frame = gaze_heads(model, inputs, panels, n_panels=2).to_pandas().set_index(["layer", "head"])
    looking = [planted.image_head, planted.decoy, planted.early]
    assert (frame.loc[looking, "score"] > 0.95).all()
    assert (frame.loc[looking, "null"] < 0.05).all()
    rest = frame.drop(index=[*looking, planted.sink_head])
    np.testing.assert_allclose(rest["score"], SLOTS / 2 / (SLOTS + 5), atol=1e-6)
    np.testing.assert_allclose(rest["null"], rest["score"], atol=1e-6)
    sink = frame.loc[planted.sink_head]  # on the marker, whatever is asked
    assert abs(sink["score"] - sink["null"]) < 3 * 2 * sink["sem"]


def test_another_panel_than_the_one_asked_about_gets_nothing(asked_pictures) -> None:
    planted, model, inputs, panels = asked_pictures
    found = gaze_heads(model, inputs, [1 - p for p in panels], n_panels=2)
    frame = found.to_pandas().set_index(["layer", "head"])
    assert frame.loc[planted.image_head, "score"] < 0.05


def test_panels_are_columns_of_the_grid() -> None:
    assert panel_of_tokens(16, 2).tolist() == [0, 0, 1, 1] * 4
    assert panel_of_tokens(12, 3, columns=6).tolist() == [0, 0, 1, 1, 2, 2] * 2


@pytest.mark.parametrize(
    ("asked", "options", "error", "words"),
    [
        ([0], {"n_panels": 2}, PromptError, "1 panels for 16 prompts"),
        ([2] * 16, {"n_panels": 2}, OptionError, "there are 0 to 1"),
        ([0] * 16, {"n_panels": 1}, OptionError, "at least 2 panels"),
        ([0] * 16, {"n_panels": 3}, PromptError, "4 columns of tokens cannot be divided into 3"),
        ([0] * 16, {"n_panels": 2, "columns": 5}, PromptError, "not a grid of 5 columns"),
    ],
)
def test_what_does_not_fit_is_refused(asked_pictures, asked, options, error, words) -> None:
    _, model, inputs, _ = asked_pictures
    with pytest.raises(error, match=words):
        gaze_heads(model, inputs, asked, **options)
