"""Every attention variant of the zoo keeps the contract of maps; a new class needs no edit here."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from together import over
from torch import Tensor

import interp
from interp.core.errors import CheckError, LoadError, OptionError, UnknownName
from interp.model.calls import map_call
from interp.model.calls.map_call import MapCall, absolute_share
from interp.model.edits import zero
from training import forms
from training.forms.rule import Rule

IDS = torch.randint(4, 60, (2, 23), generator=torch.Generator().manual_seed(3))
EVERY = forms.variant_names("text")
# Two scores of each form take most of the time: every third form is scored in the tiers.
REST = (pytest.mark.slow, pytest.mark.exhaustive)
SCORED = [n if i % 3 == 0 else pytest.param(n, marks=REST) for i, n in enumerate(EVERY)]
SUMS = {"1", "at most 1", "constant", "absolute 1", "any"}
METRICS = ["induction", "previous_token", "entropy", "largest_weight", "first_token"]


@cache
def loaded(name: str) -> Any:
    return forms.load(name)


def calls_of(model: Any, ids: Tensor = IDS) -> dict[int, MapCall]:
    found: dict[int, Any] = {}
    model.read(ids.tolist(), lambda site, call, real: found.update({site.layer: call}))
    return found


def test_the_zoo_is_large_and_described():
    assert len(EVERY) >= 45
    for name in EVERY:
        assert forms.summary(name).endswith(".")
        assert 20 < len(forms.summary(name)) < 100
    with pytest.raises(UnknownName, match="no_such_attention"):
        forms.load("no_such_attention")
    with pytest.raises(LoadError, match=r"not part of the package.*training.forms.load\('top_k'\)"):
        interp.load("variant:top_k")


@over("name", EVERY)
def test_the_map_times_values_is_what_the_module_computes(name):
    model = loaded(name)
    assert [s.kind for s in model.sites] == [name.replace("_", " ")] * 2
    assert not model.unread
    for s in interp.model.check_model(model).sites:
        assert s.pattern_error < 1e-5
        assert s.result_error is not None
        assert s.output_error is not None
        assert max(s.result_error, s.output_error) < 1e-5
        assert s.heads_apart in (None, True)


@torch.no_grad()
@over("name", EVERY)
def test_sign_row_sum_and_mask_are_as_stated(name):
    model, signs = loaded(name), []
    rule = forms.rule_class(name)
    assert rule.row_sum in SUMS
    for call in calls_of(model).values():
        rows = call.map()
        signs.append(bool((rows < 0).any()))
        total = rows.sum(-1)
        if rule.causal:
            assert not rows.triu(1).any()
        else:
            assert bool(rows.triu(1).any())
        assert not rows.masked_fill(call.visible(), 0).any()
        if rule.row_sum == "1":
            # a pseudoinverse (nystrom) rounds coarsely
            torch.testing.assert_close(total, torch.ones_like(total), atol=1e-4, rtol=0)
        elif rule.row_sum == "at most 1":
            assert float(total.max()) < 1 + 1e-5
            assert float(total.min()) < 0.99
        elif rule.row_sum == "absolute 1":
            torch.testing.assert_close(rows.abs().sum(-1), torch.ones_like(total))
            assert float(total.min()) < 0.99
        elif rule.row_sum == "constant":
            torch.testing.assert_close(total, total[:, :, :1].expand_as(total))
            assert float((total - 1).abs().max()) > 1e-3
        else:
            assert float((total - total[:, :, -1:]).abs().max()) > 1e-3
    assert any(signs) == rule.signed


@torch.no_grad()
@pytest.mark.parametrize("name", SCORED)
def test_rows_in_blocks_are_rows_of_the_whole_map(name, monkeypatch):
    model = loaded(name)
    for call in calls_of(model).values():
        some, whole = torch.tensor([20, 3, 11]), call.map()
        torch.testing.assert_close(call.map(some), whole[:, :, some], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(call.pattern(), absolute_share(whole))
    dense = interp.score(model, METRICS, IDS.tolist(), null="none")
    with monkeypatch.context() as small:
        small.setattr(map_call, "ENTRIES", 700)
        streamed = interp.score(model, METRICS, IDS.tolist(), null="none", engine="streamed")
    one, two = (
        t.to_pandas().set_index(["metric", "layer", "head"]).score for t in (dense, streamed)
    )
    assert one.index.equals(two.index)
    assert float((one - two).abs().max()) < 2e-5
    assert len(one) == len(METRICS) * sum(s.n_heads for s in model.sites)
    about = dense.provenance[model.name, "entropy"]["maps"]
    assert all("absolute shares" in text for text in about.values())


@torch.no_grad()
@pytest.mark.parametrize("name", SCORED)
def test_ablating_a_head_takes_its_part_from_the_projections_input(name):
    """Independent of the edit: the projection's own input, with the part of a head at zero."""
    model = loaded(name)
    heads = model.sites[0].n_heads
    head = min(1, heads - 1)

    def without(module, args):
        given = args[0].clone()
        given.unflatten(-1, (heads, -1))[..., head, :] = 0
        return (given,)

    handle = model.module.blocks[0].attention.out.register_forward_pre_hook(without)
    try:
        expected = model.run(IDS.tolist())
    finally:
        handle.remove()
    found = model.run(IDS.tolist(), edits=[zero([(0, head)])])
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)
    # a head of Hydra is one feature of a norm-1 vector, hence the small bound
    assert float((found - model.run(IDS.tolist())).abs().max()) > 1e-5


@over("name", EVERY)
def test_gradients_reach_every_trained_weight(name):
    model = forms.build(name)
    model(IDS).logits.square().mean().backward()
    for key, weight in model.named_parameters():
        if weight.requires_grad:
            assert weight.grad is not None, key
            assert bool(weight.grad.isfinite().all()), key
            assert bool(weight.grad.any()), key


@torch.no_grad()
def test_a_saved_variant_loads_as_a_folder(tmp_path):
    model = forms.build("talking_heads", seed=1)
    model.save_pretrained(tmp_path)
    again = interp.load(tmp_path)
    torch.testing.assert_close(again.run(IDS.tolist()), model(IDS).logits)
    assert {p.suffix for p in tmp_path.iterdir()} == {".json", ".safetensors"}


@torch.no_grad()
def test_prompts_of_two_lengths_score_as_each_alone():
    ids = [IDS[0].tolist(), IDS[1, :15].tolist()]

    def per_prompt(prompts: list[list[int]]) -> Any:
        return interp.score(model, ["previous_token"], prompts, null="none").per_prompt

    for name in ("sigmoid", "delta_rule", "score_convolution", "memory_slots"):
        model = loaded(name)
        alone = np.concatenate([per_prompt([prompt]) for prompt in ids], 1)
        np.testing.assert_allclose(per_prompt(ids), alone, atol=1e-5)
    mask = torch.ones_like(IDS)
    mask[1, :3] = 0
    with pytest.raises(OptionError, match="padding on the right"):
        loaded("sigmoid").module(IDS, attention_mask=mask)


@torch.no_grad()
def test_a_map_that_is_not_the_modules_is_refused_by_name(monkeypatch):
    model: Any = forms.build("retention")
    rule: Any = type(model.blocks[0].attention.rule)
    own = rule.rows

    def wrong(self: Rule, given: Any, rows: Tensor) -> Tensor:
        return own(self, given, rows) * 1.01

    monkeypatch.setattr(rule, "rows", wrong)
    with pytest.raises(CheckError, match="map·v == z"):
        interp.load(model, name="wrong")


@torch.no_grad()
def test_what_no_token_wrote_is_kept_apart_from_the_map():
    for name in ("memory_slots", "key_value_bias"):
        for call in calls_of(loaded(name)).values():
            assert call.rest is not None
            assert float((call.map() @ call.v - call.z).abs().max()) > 1e-3
            torch.testing.assert_close(call.map() @ call.v + call.rest, call.z)
