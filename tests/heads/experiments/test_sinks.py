"""Sinks, dormant heads and no-ops: planted heads first, analytic values where there are some."""

from __future__ import annotations

import copy
import math
import re

import numpy as np
import pytest
import torch
import zoo
from sklearn.metrics import roc_auc_score

import interp
from interp import planted
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import random_tokens
from interp.heads.one_call import equal_lengths, seen_by, visible_mean
from interp.heads.outliers import (
    active_dormant_sinks,
    sink_mass,
    value_shortfall,
    written_share,
)
from interp.heads.per_head import by_site
from interp.model.calls.call import ComputedCall, RecordedCall

RESTING = ("sink", "backup", "induction", "bystander", "copy_suppression")
METRICS = ("sink", "sink:copies=8", "active_dormant", "no_op_value", "no_op_written")
H_64, H_48 = (math.fsum(1 / k for k in range(1, n + 1)) for n in (64, 48))


@pytest.fixture(scope="module")
def default_zoo() -> planted.Planted:
    return planted.zoo()


@pytest.fixture(scope="module")
def default_zoo_model(default_zoo) -> interp.Model:
    return interp.load(default_zoo.model, name="zoo")


@pytest.fixture(scope="module")
def sink_table(default_zoo_model) -> interp.HeadTable:
    names = [m if ":" in m else f"{m}:n=4" for m in METRICS[2:]]
    return interp.score(default_zoo_model, ["sink:n=4", "sink:copies=8,n=4", *names])


def rows(table, metric):
    return next(table.where(metric=m).to_pandas() for m in table.metrics if m.startswith(metric))


@pytest.mark.parametrize(
    ("metric", "roles", "sign"),
    [
        # On tokens of which none comes twice every resting head rests on the first token.
        ("sink:n", RESTING, 1),
        # On repeats only those rest that have nothing to do there.
        ("sink:copies", ("sink", "backup"), 1),
        ("active_dormant", ("induction", "bystander", "copy_suppression"), 1),
        ("no_op_value", RESTING, 1),
        ("no_op_written", RESTING, -1),
    ],
)
def test_planted_heads_are_found_and_no_others(
    sink_table, default_zoo, metric, roles, sign
) -> None:
    frame = rows(sink_table, metric)
    mine = [default_zoo.role(r.layer, r.head) in roles for r in frame.itertuples()]
    assert sum(mine) == sum(len(default_zoo.roles[r]) for r in roles)
    assert roc_auc_score(mine, sign * frame["score"]) == 1.0
    inside, outside = frame["score"][mine], frame["score"][[not m for m in mine]]
    if sign > 0:
        assert inside.min() > 0.8
        assert outside.max() < 0.2
    else:
        assert inside.max() < 1e-3
        assert outside.min() > 0.01


def test_the_null_sits_at_the_analytic_chance(sink_table) -> None:
    """Random weights attend evenly: H_T / T on the first token, values of the usual size."""
    for metric in ("sink:n", "sink:copies"):
        np.testing.assert_allclose(rows(sink_table, metric)["null"], H_48 / 48, rtol=0.02)
    np.testing.assert_allclose(rows(sink_table, "active_dormant")["null"], 0, atol=2e-3)
    np.testing.assert_allclose(rows(sink_table, "no_op_value")["null"], 0, atol=2e-3)


def test_notes_tell_the_published_number(sink_table, default_zoo) -> None:
    notes = sink_table.provenance["zoo", "sink:n=4"]["notes"]
    heads = sum(map(len, default_zoo.roles.values()))
    share = sum(len(default_zoo.roles[r]) for r in RESTING) / heads
    [told] = re.findall(r"share of heads and prompts with a sink above 0\.3: ([0-9.]+)", str(notes))
    assert float(told) == pytest.approx(share, abs=1e-6)
    assert "of these on the first token: 1.0" in notes


def uniform_call(tokens: int, heads: int = 2, kind: str = "computed"):
    q, k = torch.zeros(1, heads, tokens, 4), torch.randn(1, 1, tokens, 4)
    v = torch.randn(1, 1, tokens, 3, generator=torch.Generator().manual_seed(1))
    call = ComputedCall(q, k, v, torch.zeros(1, heads, tokens, 3), 1.0, causal=True)
    if kind == "computed":
        return call
    return RecordedCall(v, call.z, call.scores(), call.pattern())


@pytest.mark.parametrize("kind", ["computed", "recorded"])
def test_how_many_see_a_key_and_the_mean_of_what_is_seen(kind) -> None:
    call = uniform_call(6, kind=kind)
    assert seen_by(call).reshape(-1, 6)[0].tolist() == [6, 5, 4, 3, 2, 1]
    x = torch.arange(6.0).expand(1, 2, 6)
    assert visible_mean(call, x)[0, 0].tolist() == [0, 0.5, 1, 1.5, 2, 2.5]


@pytest.fixture(scope="module")
def even() -> interp.Model:
    """A llama whose queries are zero: it attends evenly to all it sees."""
    module = copy.deepcopy(zoo.FAMILIES["llama"].model("sdpa"))
    with torch.no_grad():
        for layer in module.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    return interp.load(module, name="even")


def prompt_of(length: int) -> list[list[int]]:
    return [[3 + i % 20 for i in range(length)]]


@pytest.mark.parametrize("engine", ["stored", "streamed"])
def test_even_attention_has_the_mass_of_the_table(even, engine) -> None:
    """heads.md, section 0: alpha_1 of uniform causal attention over 64 tokens is H_64 / 64."""
    found = sink_mass(even, prompt_of(64), engine=engine)
    for site in even.sites:
        np.testing.assert_allclose(by_site(even, found)[site], H_64 / 64, rtol=1e-5)
    assert (found.positions == 0).all()
    assert pytest.approx(0.074123, abs=1e-6) == H_64 / 64
    assert found.sink_metric == 0.0
    assert math.isnan(found.at_first)
    at_ten = sink_mass(even, prompt_of(64), position=10)
    want = math.fsum(1 / i for i in range(11, 65)) / 54
    np.testing.assert_allclose(by_site(even, at_ten)[even.sites[0]], want, rtol=1e-5)
    short = value_shortfall(even, prompt_of(64))
    for x in short.values():
        np.testing.assert_allclose(x, 0, atol=1e-5)


@pytest.mark.parametrize("at", [0, 5, 20])
def test_a_sink_is_found_wherever_it_stands(default_zoo_model, default_zoo, at) -> None:
    """Planted sinks rest on token 0, so they do where it stands in the middle of a prompt."""
    ids = random_tokens(default_zoo_model, n=2, max_length=32)
    moved = [[*p[1 : at + 1], 0, *p[at + 1 :]] for p in ids.ids]
    found = sink_mass(default_zoo_model, moved)
    for layer, head in default_zoo.roles["sink"]:
        site = default_zoo_model.site(layer)
        np.testing.assert_allclose(by_site(default_zoo_model, found)[site][:, head], 1, atol=0.01)
        row = (found.layer == layer) & (np.asarray(found.columns["head"]) == head)
        assert (found.positions[row] == at).all()
    elsewhere = sink_mass(default_zoo_model, moved, position=at + 1)
    layer, head = default_zoo.roles["sink"][0]
    site = default_zoo_model.site(layer)
    assert float(by_site(default_zoo_model, elsewhere)[site][:, head].max()) < 0.05


def test_the_last_tokens_are_no_sinks_although_they_see_themselves(default_zoo_model) -> None:
    """A token that one query sees has all of that query's attention, if it is its own."""
    frame = sink_mass(
        default_zoo_model, random_tokens(default_zoo_model, n=2, max_length=32)
    ).to_pandas()
    assert frame["position"].max() <= 24


def test_prompts_of_other_lengths_change_nothing(default_zoo_model) -> None:
    long, short = (
        random_tokens(default_zoo_model, n=3, max_length=40),
        random_tokens(default_zoo_model, n=2, max_length=24),
    )
    mixed = interp.Prompts((long.ids[0], short.ids[0], long.ids[1], short.ids[1], long.ids[2]))
    assert [which for which, _ in equal_lengths(mixed)] == [[0, 2, 4], [1, 3]]
    for measure in (
        lambda p: by_site(default_zoo_model, sink_mass(default_zoo_model, p)),
        lambda p: written_share(default_zoo_model, p),
    ):
        together, first, second = measure(mixed), measure(long), measure(short)
        for site in default_zoo_model.sites:
            np.testing.assert_allclose(together[site][[0, 2, 4]], first[site], rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(together[site][[1, 3]], second[site], rtol=1e-4, atol=1e-6)


def test_written_share_is_the_norm_of_the_result_over_that_of_the_stream(even) -> None:
    ids = prompt_of(9)
    cache = even.capture(ids, ["z", "resid_pre"])
    found = written_share(even, ids)
    for site in even.sites:
        matrix = even.module.get_submodule(site.projection).weight.detach().T
        z = cache["z", site.layer]
        size = site.d_v
        for h in range(site.n_heads):
            written = z[0, h] @ matrix[h * size : (h + 1) * size]
            want = (written.norm(dim=-1) / cache["resid_pre", site.layer][0].norm(dim=-1)).mean()
            assert float(found[site][0, h]) == pytest.approx(float(want), rel=1e-5)


def test_random_prompts(default_zoo_model) -> None:
    fresh = random_tokens(default_zoo_model, n=3, max_length=20)
    assert all(len(set(p)) == 20 and p[0] == 0 for p in fresh.ids)
    again = random_tokens(default_zoo_model, n=3, max_length=20, period=4)
    assert all(p[1:5] == p[5:9] == p[9:13] for p in again.ids)
    assert {len(p) for p in again.ids} == {20}
    assert (
        random_tokens(default_zoo_model, seed=1).ids != random_tokens(default_zoo_model, seed=2).ids
    )
    with pytest.raises(PromptError, match="two copies of a block of 12 tokens do not fit into 19"):
        random_tokens(default_zoo_model, max_length=20, period=12)


def test_bad_input(default_zoo_model) -> None:
    same = random_tokens(default_zoo_model, n=2, max_length=16)
    with pytest.raises(
        PromptError, match="2 prompts are in both sets, so they do not separate two domains"
    ):
        active_dormant_sinks(default_zoo_model, same, same)
    with pytest.raises(
        OptionError, match="position 16 does not exist in every prompt: the shortest has 16 tokens"
    ):
        sink_mass(default_zoo_model, same, position=16)
    with pytest.raises(OptionError, match="epsilon=1"):
        sink_mass(default_zoo_model, same, epsilon=1.5)
    with pytest.raises(OptionError, match="copies=40"):
        interp.score(default_zoo_model, "sink:copies=40")
    with pytest.raises(PromptError, match="no prompts given"):
        sink_mass(default_zoo_model, interp.Prompts(()))


def test_its_frame(default_zoo_model, default_zoo) -> None:
    frame = sink_mass(
        default_zoo_model, random_tokens(default_zoo_model, n=2, max_length=16)
    ).to_pandas()
    assert len(frame) == len(default_zoo_model.heads())
    layer, head = default_zoo.roles["sink"][0]
    row = frame[(frame["layer"] == layer) & (frame["head"] == head)].iloc[0]
    assert (row["sink_share"], row["position"]) == (1.0, 0)
    assert row["sink_mass"] > 0.99
