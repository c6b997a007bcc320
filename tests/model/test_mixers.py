"""Mixers are linear maps: each reproduces its module, streams, and is edited as the module is."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn
from zoo.mixers import BASE, FAMILIES, build

import interp
from interp.core.errors import CheckError, OptionError, UnreadableAttention
from interp.core.prompts import Prompts
from interp.heads.declaration import bound
from interp.heads.engine import reduce_patterns
from interp.model.calls import map_call
from interp.model.calls.call import Call
from interp.model.calls.map_call import MapCall, absolute_share
from interp.model.calls.sites import Site
from interp.model.edits import mean, zero
from interp.model.mixers.mixer import Forward, Mixer, register_mixer
from interp.model.pattern_edits import set_pattern

IDS = torch.randint(5, 60, (2, 21), generator=torch.Generator().manual_seed(3))
MAPS = [f for f in FAMILIES if f != "diffllama_wide"]


@cache
def loaded(family: str):
    return interp.load(build(family), name=family)


def calls_of(model, ids: Tensor = IDS) -> dict[Site, Call]:
    """Every call of one forward."""
    found: dict[Site, Call] = {}
    model.read(ids.tolist(), lambda site, call, real: found.update({site: call}), stage="mix")
    return found


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_is_read_with_its_identity(family, attention):
    model = interp.load(build(family, attention), name=family)
    kinds = FAMILIES[family][2]
    assert [site.kind for site in model.sites] == kinds
    beside = family.startswith(("falcon_h1", "zamba"))  # two mixers in one layer
    assert beside or [site.layer for site in model.sites] == list(range(len(kinds)))
    assert not model.unread
    checked = interp.model.check_model(model)
    for s in checked.sites:
        assert s.pattern_error < 1e-5
        assert s.result_error is not None
        assert s.result_error < 1e-5
        if s.site.kind != "softmax":
            assert s.heads_apart
            assert s.output_error is not None
            assert s.output_error < 1e-5


@torch.no_grad()
@pytest.mark.parametrize("family", MAPS)
def test_maps_times_values_are_what_the_module_returns(family):
    """Independent of the check: the module's own output from map, values and `to_projection`."""
    model = loaded(family)
    outputs: dict[str, Tensor] = {}
    maps = [s for s in model.sites if s.kind != "softmax"]

    def keep(name):
        def hook(module, args, output):
            outputs[name] = (output[0] if isinstance(output, tuple) else output).clone()

        return hook

    handles = [
        model.module.get_submodule(s.module).register_forward_hook(keep(s.module)) for s in maps
    ]
    try:
        calls = calls_of(model)
    finally:
        for handle in handles:
            handle.remove()
    for site in maps:
        call = calls[site]
        assert isinstance(call, MapCall)
        rows = call.map()
        assert not rows.triu(1).any()
        assert bool((rows < 0).any()) is call.signed
        v = call.v.repeat_interleave(site.n_heads // site.n_kv_heads, 1)
        z = rows @ v if rows.dim() == 4 else call.mapped()
        out = model.module.get_submodule(str(site.projection))(call.to_projection(z))
        own = outputs[site.module]
        assert float((out - own).abs().max()) < 1e-5 * float(own.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("family", MAPS)
def test_rows_on_demand_are_rows_of_the_whole_map(family):
    for site, call in calls_of(loaded(family)).items():
        if site.kind == "softmax":
            continue
        some = torch.tensor([20, 3, 11])
        whole, share = call.map(), call.pattern()
        kept = whole.index_select(-2, some)
        torch.testing.assert_close(call.map(some), kept, atol=1e-6, rtol=1e-5)
        mine = absolute_share(whole)
        torch.testing.assert_close(share, mine if mine.dim() == 4 else mine.mean(2))
        torch.testing.assert_close(share.sum(-1), torch.ones_like(share.sum(-1)))
        assert torch.equal(call.visible()[0, 0], torch.ones(21, 21, dtype=torch.bool).tril())


def test_a_share_of_nothing_is_nothing():
    assert torch.equal(absolute_share(torch.zeros(2, 3)), torch.zeros(2, 3))
    assert absolute_share(torch.tensor([-1.0, 3.0])).tolist() == [0.25, 0.75]


@torch.no_grad()
def test_differential_rows_sum_to_one_minus_lambda():
    model = loaded("diffllama_wide")
    for site, call in calls_of(model).items():
        assert isinstance(call, MapCall)
        module: Any = model.module.get_submodule(site.module)
        lam = (
            torch.exp(module.lambda_q1 @ module.lambda_k1)
            - torch.exp(module.lambda_q2 @ module.lambda_k2)
            + module.lambda_init
        )
        first, second = call.part("first"), call.part("second")
        torch.testing.assert_close(call.map(), first - lam * second)
        torch.testing.assert_close(first.sum(-1), torch.ones_like(first.sum(-1)))
        total = call.map().sum(-1)
        torch.testing.assert_close(total, torch.ones_like(total) * (1 - lam))
        assert site.n_heads == 4  # pairs of eight


@torch.no_grad()
@pytest.mark.parametrize("family", ["diffllama", "mamba2", "bamba", "qwen3_next", "minimax"])
def test_statistics_in_blocks_are_those_of_the_whole_map(family, monkeypatch):
    """The same numbers from one block, from blocks of few rows, and by hand."""
    model = loaded(family)
    names = ["entropy", "largest_weight", "induction", "previous_token", "attention_distance"]

    def scores(engine: str = "auto"):
        table = interp.score(model, names, IDS.tolist(), null="none", engine=engine)
        return table, table.to_pandas().set_index(["metric", "layer", "head"]).score

    table, whole = scores()
    monkeypatch.setattr(map_call, "ENTRIES", 700)
    blocks = scores()[1]
    streamed = scores("streamed")[1]
    for other in (blocks, streamed):
        assert float((whole - other).abs().max()) < 1e-6
    calls = calls_of(model)
    for site, call in calls.items():
        share = absolute_share(call.map()) if site.kind != "softmax" else call.pattern()
        entropy = -(share * share.clamp_min(1e-30).log()).sum(-1).mean((0, 2))
        previous = share.diagonal(-1, 2, 3).mean((0, 2))
        for head in range(site.n_heads):
            assert whole["entropy", site.layer, head] == pytest.approx(float(entropy[head]), 1e-4)
            found = whole["previous_token", site.layer, head]
            assert found == pytest.approx(float(previous[head]), abs=1e-6)
    about = table.provenance[model.name, "entropy"]
    named = {s.name for s in model.sites if s.kind != "softmax"}
    assert set(about["maps"]) == named
    assert all("absolute shares" in text for text in about["maps"].values())
    assert "rows of maps in blocks" in about["engine"]
    assert set(table.to_pandas().layer) == {s.layer for s in model.sites}  # one table of all kinds


@torch.no_grad()
@pytest.mark.parametrize("family", MAPS)
def test_edits_change_logits_as_editing_the_projections_input_does(family):
    model = loaded(family)
    own = model.run(IDS.tolist())
    for site in (s for s in model.sites if s.kind != "softmax"):
        part = model.module.get_submodule(str(site.projection))

        def without(module, args, site=site):
            given = args[0].clone(memory_format=torch.contiguous_format)
            given.view(-1, site.n_heads, site.d_v)[:, 1] = 0
            return (given,)

        handle = part.register_forward_pre_hook(without)
        try:
            expected = model.run(IDS.tolist())
        finally:
            handle.remove()
        head = (site.layer, 1)
        found = model.run(IDS.tolist(), edits=[zero([head], stack=site.stack)])
        torch.testing.assert_close(found, expected)
        assert float((found - own).abs().max()) > 1e-4
        averages = model.mean_z(IDS.tolist())
        changed = model.run(IDS.tolist(), edits=[mean([head], over="batch", stack=site.stack)])
        assert float((changed - own).abs().max()) > 1e-4
        assert averages[site.stack, site.layer].shape == (site.n_heads, site.d_v)
    torch.testing.assert_close(model.run(IDS.tolist()), own)


@torch.no_grad()
@pytest.mark.parametrize("family", ["diffllama", "bamba"])
def test_nested_edits_act_once_each_and_captures_see_them(family):
    model = loaded(family)
    site = model.sites[0]
    twice = model.run(IDS.tolist(), edits=[zero([(0, 0), (0, 1)])])
    with model.edited(zero([(0, 0)])), model.edited(zero([(0, 1)])):
        torch.testing.assert_close(model.run(IDS.tolist()), twice)
        cache = model.capture(IDS.tolist(), ["z", "result"], layers=0)
    assert not cache["z", 0][:, :2].any()
    assert not cache["result", 0][:, :, :2].any()
    own = model.capture(IDS.tolist(), ["result", "map", "pattern", "attn_out"], layers=0)
    bias = getattr(model.module.get_submodule(str(site.projection)), "bias", None)
    total = own["result", 0].sum(2) + (0 if bias is None else bias)
    torch.testing.assert_close(total, own["attn_out", 0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(own["pattern", 0], absolute_share(own["map", 0]))


@torch.no_grad()
@pytest.mark.parametrize("family", MAPS)
def test_left_and_right_padding_change_no_map(family):
    """A short prompt beside a long one has the map that it has alone, or is not padded at all."""
    model = loaded(family)
    short, long = IDS[0, :8].tolist(), IDS[1].tolist()
    alone = calls_of(model, torch.tensor([short]))
    names = [bound("entropy"), bound("first_token")]
    for side in ("left", "right"):
        both = reduce_patterns(
            model, Prompts(tuple(map(tuple, (short, long))), padding=side), names
        )
        single = reduce_patterns(model, Prompts((tuple(short),)), names)
        for padded, mine in zip(both, single, strict=True):
            for site in alone:
                difference = padded.of(site)[0] - mine.of(site)[0]
                assert float(difference.abs().max()) < 1e-5, (side, site.name)


@pytest.mark.parametrize(("name", "why"), [("scores", "not one softmax"), ("q", "not one softmax")])
def test_what_a_map_does_not_have_is_refused(name, why):
    with pytest.raises(UnreadableAttention, match=why):
        loaded("bamba").capture(IDS.tolist(), [name], layers=0)
    with pytest.raises(UnreadableAttention, match=why):
        loaded("mamba2").capture(IDS.tolist(), [name])
    assert [layer for _, layer, _ in loaded("bamba").capture(IDS.tolist(), [name])] == [1]
    with pytest.raises(UnreadableAttention, match="absolute share"):
        loaded("diffllama").run(IDS.tolist(), edits=[set_pattern([(0, 0)], lambda p: p)])


def test_fused_runs_weights_and_measures_are_refused_where_they_are_not_defined():
    with pytest.raises(OptionError, match="is not one softmax"):
        interp.score(loaded("bamba"), ["induction"], engine="fused", null="none")
    with pytest.raises(OptionError, match="no softmax attention"):
        interp.score(loaded("mamba2"), ["qk_norm"], null="none")
    with pytest.raises(OptionError, match="softmax attention"):
        interp.score(loaded("mamba2"), ["pattern_rank"], null="none")
    with pytest.raises(OptionError, match="not one softmax"):
        interp.score(loaded("diffllama"), ["sink"], null="none")


@torch.no_grad()
def test_weights_of_a_hybrid_are_those_of_its_softmax_layers():
    table = interp.score(loaded("bamba"), ["qk_norm"], null="none").to_pandas()
    assert set(table.layer) == {1}


@torch.no_grad()
def test_generation_works_for_pairs_and_is_refused_for_states():
    made = loaded("diffllama").generate([IDS[0, :6].tolist()], 4, names=["map"])
    assert made is not None
    with pytest.raises(UnreadableAttention, match="cached state"):
        loaded("mamba2").generate([IDS[0, :6].tolist()], 4, names=["map"])


def test_wrong_maps_are_refused_by_name(monkeypatch):
    from interp.model.mixers.state_space import StateSpace

    read = StateSpace.read

    def wrong(self, module, forward):
        call = read(self, module, forward)
        rows = call.of_rows
        call.of_rows = lambda r: 1.01 * rows(r)
        return call

    monkeypatch.setattr(StateSpace, "read", wrong)
    with pytest.raises(CheckError, match=r"mixer \(decoder.0\) fails map·v == z \(state space\)"):
        interp.load(build("mamba2"))

    def shifted(self, module, forward):
        call = read(self, module, forward)
        to_projection = call.to_projection
        call.to_projection = lambda z: 1.1 * to_projection(z)
        return call

    monkeypatch.setattr(StateSpace, "read", shifted)
    with pytest.raises(CheckError, match="projection of z == module output"):
        interp.load(build("mamba2"))


class MeanOfPast(nn.Module):
    """A research module: every head averages the past with a signed weight."""

    def __init__(self, inner: Any):
        super().__init__()
        self.value, self.out = nn.Linear(32, 32), nn.Linear(32, 32)
        self.weight = nn.Parameter(torch.tensor([1.0, -0.5, 2.0, -3.0]))

    def forward(self, hidden_states, **_):
        length = hidden_states.shape[1]
        v = self.value(hidden_states).unflatten(-1, (4, 8))
        count = torch.arange(1, length + 1)[:, None, None]
        z = self.weight[:, None] * v.cumsum(1) / count
        return self.out(z.flatten(2)), None


class ReadMean(Mixer):
    """The adapter that a user writes for it."""

    classes = ("MeanOfPast",)
    needs = ("value", "weight")
    projection = "out"
    watched = ("value",)

    def read(self, module: Any, forward: Forward) -> MapCall:
        v = forward.returned["value"].unflatten(-1, (4, 8)).transpose(1, 2)
        length = v.shape[2]

        def of_rows(rows: Tensor) -> Tensor:
            seen = torch.arange(length) <= rows[:, None]
            even = seen / (rows[:, None] + 1)
            return (module.weight[:, None, None] * even).expand(len(v), -1, -1, -1)

        z = of_rows(torch.arange(length)) @ v
        return MapCall(
            v=v,
            z=z,
            kind="mean of the past",
            of_rows=of_rows,
            signed=True,
            row_sum="any",
            to_projection=lambda z: z.transpose(1, 2).flatten(2),
        )


@torch.no_grad()
def test_a_research_module_is_read_through_an_adapter():
    def built() -> nn.Module:
        torch.manual_seed(0)
        module = transformers.LlamaForCausalLM(transformers.LlamaConfig(**BASE)).eval()
        for layer in module.model.layers:
            layer.self_attn = MeanOfPast(layer.self_attn)
        return module

    with pytest.raises(UnreadableAttention):
        interp.load(built())
    register_mixer(ReadMean)
    assert register_mixer(ReadMean) is ReadMean  # a file may be imported twice
    model = interp.load(built(), name="mine")
    assert {s.kind for s in model.sites} == {"mean of the past"}
    table = interp.score(model, ["entropy"], IDS.tolist(), null="none").to_pandas()
    rows = torch.arange(1.0, 22)
    assert table.score.to_numpy() == pytest.approx(float(rows.log().mean()), rel=1e-5)


def test_registration_of_something_else_is_one_clear_error():
    class Same(ReadMean):
        classes = ("Mamba2Mixer",)

    interp.load(build("mamba2"))
    with pytest.raises(OptionError, match="already read by StateSpace"):
        register_mixer(Same)
    with pytest.raises(OptionError, match="not a class derived from Mixer"):
        register_mixer(Mixer)
    with pytest.raises(OptionError, match="does not define"):
        register_mixer(type("Bare", (Mixer,), {"read": lambda self, module, forward: None}))
