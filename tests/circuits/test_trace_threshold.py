"""The weight from which heads fire is chosen from the pairs, and an empty trace is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp import planted
from interp.circuits.find import find_circuit
from interp.circuits.methods import svd_trace
from interp.circuits.methods._threshold import choose_threshold
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError


@pytest.fixture(scope="module")
def weak():
    """An induction head that does its task with a weight far below one half.

    The planted head's queries are made smaller, so that it still attends to the right key most.
    """
    built = planted.build("induction")
    attention = built.model.model.layers[1].self_attn
    (_, head), d = built.roles["induction"][0], attention.head_dim
    with torch.no_grad():
        attention.q_proj.weight[head * d : (head + 1) * d] *= SMALLER
    model = interp.load(built.model, name="weak induction")
    task = make_contrast(model, "induction", n=12)
    (batch,) = task.batches()
    pattern = model.capture(batch.clean, ("pattern",))["pattern", 1][:, head]
    keys = [task.roles[i]["next"] for i in batch.which]
    return model, task, pattern[torch.arange(12), -1, keys].numpy()


SMALLER = 0.042


def test_heads_that_spread_their_attention_are_traced(weak) -> None:
    """At a weight of one half nothing fires; the rule finds the head that feeds the seeds' keys."""
    model, task, weights = weak
    assert 0.1 < weights.max() < 0.4
    found = find_circuit(model, task, "svd_trace", "edge")
    score = dict(zip(found.nodes, found.score, strict=True))
    assert found.top(2, heads_only=True).head_names == ("L0H3", "L1H0")
    assert score["L0H3"] > 0.3
    assert ("L0H3", "L1H0.k") in found.edges
    (note,) = [x for x in found.notes if x.startswith("heads fire from a weight of")]
    assert "reached by seeds with 70% of the effects" in note
    assert not any("were not traced" in x for x in found.notes)


def test_a_trace_that_found_nothing_is_refused(weak) -> None:
    model, task, _ = weak
    with pytest.raises(OptionError, match="svd_trace traced nothing: on none of the 12 pairs"):
        find_circuit(model, task, "svd_trace", fires=0.5)
    with pytest.raises(OptionError, match="screen_verify"):
        svd_trace(model, task, "head", fires=0.5)


def test_a_trace_is_checked_by_patching(weak) -> None:
    """What it names is patched beside what it does not name; and the edges at that level."""
    model, task, _ = weak
    found = svd_trace(model, task, "edge", check=4)
    rows = found.tables["patched"]
    traced = {row["node"]: row for row in rows if row["traced"]}
    assert traced["L0H3"]["matters"]
    assert traced["L1H0"]["matters"]
    assert not any(row["matters"] for row in rows if not row["traced"])
    assert {row["traced"] for row in rows} == {True, False}
    paths = {(row["from"], row["to"]): row for row in found.tables["patched_edges"]}
    assert paths["L0H3", "L1H0.k"]["matters"]
    assert sum("checked by patching" in note for note in found.notes) == 2
    with pytest.raises(OptionError, match="check=-1"):
        svd_trace(model, task, "head", check=-1)


def test_the_rule() -> None:
    """The weight that seeds with `reach` of the effects have, within its two bounds."""
    even = 0.05
    attends = [[(0.5, 0.4, even), (0.5, 0.2, even)], [(0.9, 0.3, even), (0.1, 0.02, even)]]
    # by weight: .4 (.25 of all effects), .3 (.70), .2 (.95), .02
    assert choose_threshold(attends, 0.2, 0).weight == pytest.approx(0.4)
    assert choose_threshold(attends, 0.7, 0).weight == pytest.approx(0.3)
    assert choose_threshold(attends, 0.9, 0).weight == pytest.approx(0.2)
    lowest = choose_threshold(attends, 1.0, 0)
    assert lowest.weight == pytest.approx(2 * even)
    assert lowest.held == pytest.approx(0.95)
    assert "times uniform attention" in lowest.why
    tied = [[(1.0, 0.3 + i * 1e-7, even)] for i in range(4)]  # equal up to rounding: all fire
    assert choose_threshold(tied, 0.5, 0).held == 1.0
    strong = choose_threshold([[(1.0, 0.97, even)]], 0.7, 0)
    assert (strong.weight, strong.held) == (0.5, 1.0)
    asked = choose_threshold(attends, 0.7, 0.35)
    assert (asked.weight, asked.why) == (0.35, "as requested")
    assert asked.held == pytest.approx(0.25)
    for fires in (-0.1, 1.0, 1.5):
        with pytest.raises(OptionError, match="a weight between 0 and 1"):
            choose_threshold(attends, 0.7, fires)


def test_heads_that_attend_to_one_key_are_traced_as_published() -> None:
    """Where one half is reached, the rule gives one half, and the trace of before."""
    model = interp.load("planted:bystander")
    task = make_contrast(model, "induction", n=6)
    chosen, published = (svd_trace(model, task, "edge", fires=f, check=0) for f in (0.0, 0.5))
    np.testing.assert_array_equal(chosen.per_prompt, published.per_prompt)
    assert chosen.edges == published.edges
