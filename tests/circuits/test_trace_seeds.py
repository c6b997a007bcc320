"""Where a trace starts when no head acts on the task directly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.circuits.find import find_circuit, score_nodes
from interp.circuits.linear_scores import LinearScores
from interp.circuits.methods import _seeds
from interp.circuits.methods._gathered import helping
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError, UnknownName


@pytest.fixture(scope="module")
def bundled_task(bundled_induction):
    return make_contrast(bundled_induction, "induction", n=6)


def test_effects_through_all_that_follows_are_those_of_attribution_patching(
    bundled_induction, bundled_task
) -> None:
    """Another implementation, by hooks on the stream; it sums over positions."""
    (batch,) = bundled_task.batches()
    scores, other = (LinearScores(bundled_induction, x) for x in (batch.clean, batch.corrupted))
    found = _seeds._through_all(
        bundled_induction, batch, helping(bundled_task, batch), scores, other
    )
    want = score_nodes(bundled_induction, bundled_task, "attribution_patching")
    for name, effect in zip(want.nodes, want.per_prompt, strict=True):
        mine = found[..., scores.index[name]].sum(1).numpy()
        np.testing.assert_allclose(mine, effect if name[0] == "L" else 0 * effect, atol=2e-4)


def test_a_trace_starts_from_these_where_nothing_is_direct(
    bundled_induction, bundled_task, monkeypatch
) -> None:
    def nothing(model, batch, value) -> torch.Tensor:
        return torch.zeros(len(batch.which), len(batch.clean.ids[0]), model.d_model)

    plain = find_circuit(bundled_induction, bundled_task, "svd_trace", "edge")
    assert not any("directly" in note for note in plain.notes)
    assert (plain.made["forwards"], plain.made["backwards"]) == (40, 1)  # 36 of them patch
    bare = find_circuit(bundled_induction, bundled_task, "svd_trace", "edge", check=0)
    assert (bare.made["forwards"], bare.made["backwards"]) == (4, 1)
    assert not bare.tables["patched"]
    monkeypatch.setattr(_seeds, "_slope_at_end", nothing)
    found = find_circuit(bundled_induction, bundled_task, "svd_trace", "edge", reach=1.0)
    assert any("acts on the task directly: seeds are chosen" in note for note in found.notes)
    assert found.made["backwards"] == 2
    assert all(reader != "logits" for _, reader in found.edges)
    # in this model nothing follows the last layer but its MLP: the previous-token head leads
    assert found.top(1, heads_only=True).head_names == ("L0H3",)
    named = score_nodes(bundled_induction, bundled_task, "svd_trace", seeds="L1H4+L1H6")
    seen = {n for n, x in zip(named.nodes, named.per_prompt.mean(1), strict=True) if x > 0}
    assert {n for n in seen if n.startswith("L1")} <= {"L1H4", "L1H6"}
    assert "L0H3" in seen


def test_several_seeds_fit_a_command(bundled_induction, bundled_task) -> None:
    """There commas stand between options, so that heads are joined by other signs."""
    plus, comma, space = (
        score_nodes(bundled_induction, bundled_task, "svd_trace", seeds=s)
        for s in ("L1H4+L1H6", "L1H4,L1H6", "L1H4 L1H6")
    )
    assert plus.per_prompt.tobytes() == comma.per_prompt.tobytes() == space.per_prompt.tobytes()
    with pytest.raises(UnknownName, match="L9H9"):
        score_nodes(bundled_induction, bundled_task, "svd_trace", seeds="L1H4+L9H9")


def test_seeds_that_do_nothing_at_all_are_refused(
    bundled_induction, bundled_task, monkeypatch
) -> None:
    def nothing(model, batch, *given) -> torch.Tensor:
        found = LinearScores(model, batch.clean).written
        return torch.zeros_like(found[:, :, 0] if len(given) == 1 else found[..., 0])

    monkeypatch.setattr(_seeds, "_slope_at_end", nothing)
    monkeypatch.setattr(_seeds, "_through_all", nothing)
    with pytest.raises(OptionError, match="none of L0H3 acts on the task, directly or through"):
        score_nodes(bundled_induction, bundled_task, "svd_trace", seeds="L0H3")
