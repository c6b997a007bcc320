"""Maps of layers and positions: where the planted mechanism moves what it knows."""

from __future__ import annotations

import numpy as np
import pytest

import interp
from interp.circuits.methods import exact_patching
from interp.circuits.position_map import patching_map
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError, UnknownName


@pytest.fixture(scope="module")
def map_setting():
    model = interp.load("planted:induction")
    return model, make_contrast(model, "induction", n=6)


def table(found):
    return found.wide().set_index(["layer", "place"])["share"]


def test_what_is_known_moves_from_the_first_token_to_the_end(map_setting) -> None:
    """Clean and corrupted prompts differ where `a b` first stands, and layer 1 reads it there."""
    model, task = map_setting
    stream = table(patching_map(model, task))
    # the embeddings differ at one of the first two roles only; restoring that restores everything
    assert max(stream[0, "first"], stream[0, "next"]) == pytest.approx(1, abs=0.02)
    assert stream[0, "end"] == pytest.approx(0, abs=1e-6)
    # after the previous-token head the token after it knows what comes before it
    assert stream[1, "next"] == pytest.approx(1, abs=0.02)
    attention = table(patching_map(model, task, "attention"))
    assert attention[0, "next"] == pytest.approx(1, abs=0.02)
    assert attention[1, "end"] == pytest.approx(1, abs=0.02)
    assert abs(attention[0, "end"]) < 0.02
    assert abs(attention[1, "next"]) < 1e-6
    mlp = table(patching_map(model, task, "mlp"))
    assert mlp.abs().max() < 1e-4  # the MLPs of this model do nothing


def test_the_other_direction_and_single_positions(map_setting) -> None:
    model, task = map_setting
    found = patching_map(model, task, "attention", by="position", denoise=False)
    assert len(found) == 2 * len(task.clean.ids[0])
    assert found.forwards == len(found) + 2
    shares = table(found)
    assert shares[0, "0"] == shares[1, "0"] == 0  # both prompts start alike
    frame = found.to_pandas()
    assert (frame["share_low"] <= frame["share"] + 1e-12).all()
    assert (frame["share"] <= frame["share_high"] + 1e-12).all()
    # all heads of layer 1 at the end carry what its one induction head carries as a whole
    nodes = exact_patching(model, task)
    head = nodes.per_prompt[nodes.nodes.index("L1H0")]
    end = [
        i
        for i, (layer, place) in enumerate(zip(found.layer, found.place, strict=True))
        if (layer, place) == (1, str(task.roles[0]["end"]))
    ]
    same = [i for i, roles in enumerate(task.roles) if roles["end"] == task.roles[0]["end"]]
    np.testing.assert_allclose(found.per_prompt[end[0]][same], head[same], atol=0.05)
    assert "first layer" in repr(found)
    assert found.plot().data[0].z is not None


def test_what_cannot_be_mapped_is_said(map_setting) -> None:
    from dataclasses import replace

    model, task = map_setting
    with pytest.raises(UnknownName, match="query"):
        patching_map(model, task, "query")
    with pytest.raises(UnknownName, match="token"):
        patching_map(model, task, by="token")
    with pytest.raises(OptionError, match="does not name the same roles"):
        patching_map(model, replace(task, roles=()))
    from circuits.contrasts import induction_pairs

    mixed = induction_pairs(model, 6, previous_token=["L0H3"], induction=["L1H0"])
    with pytest.raises(OptionError, match="whose positions do not correspond"):
        patching_map(model, mixed, by="position")
