"""Trained gates and the metrics of the group: planted heads, analytic values, bad input."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp import planted
from interp.cache.gates import train_gates
from interp.cache.segments import read_segments, segment_ends
from interp.cache.windows import Window
from interp.core.errors import OptionError, PromptError
from interp.heads import needle

SMALL = {"needles": 4, "lengths": 1, "depths": 2}


def instances(model: interp.Model, **options) -> list[needle.Instance]:
    return needle.ids_instances(
        model, **{"needles": 4, "lengths": (40,), "depths": (0.0, 0.5)} | options
    )


def test_only_the_planted_retrieval_head_keeps_its_gate(planted_induction) -> None:
    before = {k: v.clone() for k, v in planted_induction.module.state_dict().items()}
    gates = train_gates(planted_induction, instances(planted_induction), Window(2, 8))
    first, second = gates.values()
    [head] = [k for k in range(2) if second[k] > 0.8]
    assert planted.build("induction").role(1, 2 * head) == "induction"
    others = [*first.tolist(), float(second[1 - head])]
    assert max(others) < 0.3, "the previous-token head needs the window only"
    after = planted_induction.module.state_dict()
    assert all(torch.equal(after[k], v) for k, v in before.items())
    assert all(p.grad is None for p in planted_induction.module.parameters())


def test_gates_repeat_with_the_seed_and_move_with_the_penalty(bundled_induction) -> None:
    about = instances(bundled_induction), Window(2, 8)
    one, same = (train_gates(bundled_induction, *about, steps=8) for _ in range(2))
    free = train_gates(bundled_induction, *about, steps=8, penalty=0.0)
    for site, gates in one.items():
        assert torch.equal(gates, same[site])
        assert (free[site] >= gates - 1e-9).all()
    assert sum(float((free[s] - g).sum()) for s, g in one.items()) > 0.1


def test_a_relative_distance_does_not_depend_on_the_scale_of_the_states() -> None:
    """States three times as large change only the published loss."""
    model = planted.build("induction").model
    loaded = interp.load(model, name="scaled")
    about = instances(loaded), Window(2, 8)

    def trained(relative: bool) -> torch.Tensor:
        gates = train_gates(loaded, *about, steps=20, relative=relative)
        return torch.cat(list(gates.values()))

    relative, published = trained(True), trained(False)
    with torch.no_grad():
        model.model.norm.weight.mul_(3)
    torch.testing.assert_close(trained(True), relative, atol=1e-4, rtol=0)
    assert float((trained(False) - published).max()) > 0.1


@pytest.fixture(scope="module")
def even_model() -> interp.Model:
    """A model whose heads all attend evenly: queries are zero."""
    model = planted.build("noise", vocab=24, context=64).model
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    return interp.load(model, name="even")


def test_even_attention_has_the_analytic_scores(even_model) -> None:
    [x, *_] = instances(even_model)
    seen = read_segments(even_model, x, segment_ends(even_model, x, 8), last=1)
    for site in even_model.sites:
        torch.testing.assert_close(
            seen.context[site], torch.full((4,), 0.5).double(), atol=1e-6, rtol=0
        )
        per_token = seen.citation[site] / torch.tensor([b - a for a, b in seen.ends])
        assert float(per_token.std()) < 1e-7
    table = interp.score(even_model, "evaluator_mass", null="none")
    assert table.to_pandas()["score"].max() == pytest.approx(np.mean([4 / 32, 4 / 48]), abs=1e-6), (
        "the share of the prompt that the answer's tokens take"
    )
    for segment in (7, 8, 11):  # the last segment is shorter
        table = interp.score(even_model, f"citation:segment={segment}", null="none")
        assert table.to_pandas()["score"].abs().max() < 1e-7


def test_metrics_put_the_planted_head_first(planted_induction) -> None:
    names = ["citation", "lookback_ratio", "cache_loss"]
    table = interp.score(planted_induction, names, null="none")
    for name in names:
        frame = table.where(metric=name).to_pandas()
        score = frame.set_index(["layer", "head"])["score"]
        others = score.drop([(1, 0), (1, 1)])  # heads of one group share a cache
        assert score[(1, 0)] > 1.5 * others.max(), name


def test_bad_input_of_gates(planted_induction) -> None:
    given = instances(planted_induction)
    with pytest.raises(PromptError, match="nothing would be cut"):
        train_gates(planted_induction, given, Window(4, 60))
    with pytest.raises(PromptError, match="no needles"):
        train_gates(planted_induction, [], Window(2, 8))
    with pytest.raises(OptionError, match="steps=0"):
        train_gates(planted_induction, given, Window(2, 8), steps=0)
    with pytest.raises(OptionError, match="its own needle"):
        interp.score(planted_induction, "trained_gates:trials=9")
