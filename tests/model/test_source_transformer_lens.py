"""A TransformerLens bridge passed to `interp.load`, and what is known to go wrong with one.

Importing the package takes about six seconds, once; what it holds is checked on few families here
and on all of them in the slow tests.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import zoo
from model.source_objects import NO_ATTENTION, NO_BRIDGE, NOT_OURS, TEXT, bridge_of
from zoo.mixers import build as build_mixer

import interp
from interp.core.errors import CheckError, LoadError, UnreadableAttention
from interp.model.check import check_model
from interp.model.hooks.hook_points import HookedBridge
from interp.model.locate.probe import probe
from interp.model.sources.packages import wrapped

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("transformer_lens") is None,
        reason="transformer-lens is not installed (the extra `tl`)",
    ),
    *map(pytest.mark.filterwarnings, NOT_OURS),
]

IDS = torch.tensor([[9, 33, 21, 40, 33, 21, 21, 17, 9, 33]])
FEW = ("gpt2", "llama", "t5")
OTHERS = [n for n in zoo.FAMILIES if n not in (*NO_BRIDGE, *NO_ATTENTION, *TEXT)]
TOLERANCE = {"atol": 3e-6, "rtol": 0}


@pytest.fixture(scope="module")
def bridged() -> Callable[[str], Any]:
    made: dict[str, Any] = {}

    def get(name: str) -> Any:
        if name not in made:
            made[name] = bridge_of(name)
        return made[name]

    return get


def same_captures(mine: interp.Model, plain: interp.Model, inputs: Any) -> None:
    names = ["pattern", "z", *(["q", "k"] if all(s.has_qk for s in plain.sites) else []), "v"]
    got, want = mine.capture(inputs, names), plain.capture(inputs, names)
    # What stands at padding is anybody's, and another for another implementation of attention.
    mask = None if mine.attention == plain.attention else inputs.get("attention_mask")

    def close(a: torch.Tensor, b: torch.Tensor, axis: int) -> None:
        if mask is not None and a.shape[axis] == mask.shape[1]:
            shape = [len(mask), *[1] * (a.dim() - 1)]
            shape[axis] = mask.shape[1]
            a, b = (x * mask.reshape(shape) for x in (a, b))
        torch.testing.assert_close(a, b, **TOLERANCE)

    close(got.logits, want.logits, 1)
    assert [s.name for s in mine.sites] == [s.name for s in plain.sites]
    for name in names:
        for site in plain.sites:
            at = name, site.layer, site.stack
            close(got[at], want[at], 2)


@pytest.mark.parametrize("name", FEW)
def test_a_bridge_gives_the_numbers_of_the_model_it_holds(name, bridged, loaded) -> None:
    model, plain = interp.load(bridged(name), name=name), loaded(name)
    assert model.source == "transformer-lens, the Hugging Face model it holds"
    assert model.content_hash == plain.content_hash
    same_captures(model, plain, zoo.FAMILIES[name].inputs())


def test_nothing_of_the_bridges_size_is_copied(bridged) -> None:
    bridge = bridged("llama")
    theirs = {x.data_ptr() for x in bridge.original_model.parameters()}
    model = interp.load(bridge)
    assert {x.data_ptr() for x in model.module.parameters()} <= theirs
    assert model.attention == "sdpa", "no fused kernel, where the bridge alone has none"


def test_the_callers_bridge_stays_as_it_was(bridged) -> None:
    bridge = bridged("gpt2")
    keys = list(bridge.original_model.state_dict())
    with torch.no_grad():
        before = bridge(IDS)
        model = interp.load(bridge)
        interp.score(model, ["induction", "ov_norm"], IDS, null="none")
        assert torch.equal(bridge(IDS), before)
    assert list(bridge.original_model.state_dict()) == keys
    assert not [n for n, p in bridge.hook_dict.items() if p.fwd_hooks]
    assert bridge.original_model.config._attn_implementation == "eager"


def test_edits_act_as_on_the_model_it_holds(bridged, loaded) -> None:
    model, plain = interp.load(bridged("llama")), loaded("llama")
    for edit in (interp.zero("L1H2"), interp.model.uniform("L0H3")):
        got, want = model.run(IDS, [edit]), plain.run(IDS, [edit])
        torch.testing.assert_close(got, want, **TOLERANCE)
        assert not torch.allclose(got, plain.run(IDS), atol=1e-3)


def test_scores_with_their_nulls_are_the_same(bridged, loaded) -> None:
    metrics = ["induction", "entropy", "previous_token", "ov_copying", "k_composition"]
    got = interp.score(interp.load(bridged("gpt2"), name="m"), metrics, IDS).to_pandas()
    plain = interp.score(loaded("gpt2"), metrics, IDS).to_pandas()
    for column in ("score", "null"):
        torch.testing.assert_close(
            torch.tensor(got[column]),
            torch.tensor(plain[column]),
            atol=1e-6,
            rtol=0,
            equal_nan=True,
        )


# --- processed weights: what the bridge computes is read as it runs ---------------------------


@pytest.fixture(scope="module")
def processed() -> Any:
    """Folded norms, centred writing and folded value biases: only the bridge has these weights."""
    bridge = bridge_of("gpt2")
    bridge.enable_compatibility_mode()
    return bridge


def test_processed_weights_are_read_where_they_are(processed, loaded) -> None:
    model, plain = interp.load(processed), loaded("gpt2")
    assert model.source == "transformer-lens, its rewired model"
    got, want = model.capture(IDS, ["pattern", "z", "v"]), plain.capture(IDS, ["pattern", "z", "v"])
    with torch.no_grad():
        torch.testing.assert_close(got.logits, processed(IDS), atol=1e-6, rtol=0)
    torch.testing.assert_close(
        got.logits.log_softmax(-1), want.logits.log_softmax(-1), atol=1e-5, rtol=0
    )
    for layer in range(3):
        at = "pattern", layer
        torch.testing.assert_close(got[at], want[at], **TOLERANCE)
        # value biases were folded into the output's: z is not the original's, and must not be
        _, cache = processed.run_with_cache(IDS)
        theirs = cache[f"blocks.{layer}.attn.hook_z"].transpose(1, 2)
        torch.testing.assert_close(got["z", layer], theirs, atol=1e-6, rtol=0)
        assert (got["z", layer] - want["z", layer]).abs().max() > 0.01


def test_scores_from_processed_weights_are_those_of_the_circuits(processed, loaded) -> None:
    metrics = ["ov_copying", "qk_norm", "induction"]
    got = interp.score(interp.load(processed), metrics, IDS, null="none").to_pandas()
    want = interp.score(loaded("gpt2"), metrics, IDS, null="none").to_pandas()
    torch.testing.assert_close(
        torch.tensor(got.score), torch.tensor(want.score), atol=1e-5, rtol=1e-4
    )


def test_a_kernel_that_a_processed_bridge_cannot_have_is_refused(processed) -> None:
    with pytest.raises(LoadError, match="attention='sdpa' cannot be had"):
        interp.load(processed, attention="sdpa")


def test_no_run_of_ours_leaves_patterns_or_graphs_behind(processed) -> None:
    """Trap: joint-QKV attentions keep every layer's last pattern with its graph."""
    keeping = [m for m in processed.original_model.modules() if "_pattern" in m.__dict__]
    assert len(keeping) == 3
    processed(IDS)
    assert all(m._pattern.grad_fn is not None for m in keeping), "the trap is gone: drop the guard"
    model = interp.load(processed)
    model.capture(IDS, ["pattern"], grad=True)
    assert all(m._pattern is None for m in keeping)
    model.run(IDS)
    assert all(m._pattern is None for m in keeping)


def test_hooks_of_the_callers_are_told_not_run_through(processed) -> None:
    processed.add_hook("blocks.1.attn.hook_z", lambda x, hook: x * 0)
    try:
        with pytest.raises(LoadError, match=r"hooks on blocks\.1\.attn.*reset_hooks"):
            interp.load(processed)
    finally:
        processed.reset_hooks()


def test_hooks_set_later_do_not_reach_the_original(bridged, loaded) -> None:
    bridge = bridged("llama")
    model = interp.load(bridge)
    bridge.add_hook("blocks.1.attn.hook_z", lambda x, hook: x * 0)
    try:
        same_captures(model, loaded("llama"), {"input_ids": IDS})
    finally:
        bridge.reset_hooks()


# --- through hooks, where modules cannot be watched -------------------------------------------


def test_where_nothing_else_shows_the_attention_hooks_do(bridged, loaded, monkeypatch) -> None:
    """Its sinks hide gpt-oss's softmax from the watch, once the original modules are out."""
    monkeypatch.setattr("interp.model.sources.transformer_lens._unwired", lambda *_: None)
    model, plain = interp.load(bridged("gpt_oss")), loaded("gpt_oss", "eager")
    assert model.source == "transformer-lens, by its hooks"
    names = ["pattern", "scores", "z"]
    got, want = model.capture(IDS, names), plain.capture(IDS, names)
    for layer in range(3):
        torch.testing.assert_close(got["pattern", layer], want["pattern", layer], **TOLERANCE)
        torch.testing.assert_close(got["z", layer], want["z", layer], atol=1e-5, rtol=0)
        # trap: rows of a model with sinks sum to less than one, and nothing makes them
        assert got["pattern", layer].sum(-1).max() < 0.999
    edit = interp.zero("L1H2")
    after, before = model.run(IDS, [edit]), model.run(IDS)
    assert not torch.allclose(after, before, atol=1e-3)
    want_change = plain.run(IDS, [edit]).log_softmax(-1)
    torch.testing.assert_close(after.log_softmax(-1), want_change, atol=1e-4, rtol=0)
    metrics = ["induction", "entropy", "previous_token"]
    scores = [interp.score(m, metrics, IDS).to_pandas().score for m in (model, plain)]
    torch.testing.assert_close(*map(torch.tensor, scores), atol=1e-6, rtol=0)


def by_hooks(bridge: Any) -> interp.Model:
    model = probe(HookedBridge(bridge.original_model, bridge), "by hooks")
    check_model(model).require()
    return model


def test_hooks_and_modules_agree_where_both_can_be_read(bridged, loaded) -> None:
    model, plain = by_hooks(bridged("llama")), loaded("llama")
    got, want = model.capture(IDS, ["pattern", "z"]), plain.capture(IDS, ["pattern", "z"])
    for name, layer in [(n, i) for n in ("pattern", "z") for i in range(3)]:
        torch.testing.assert_close(got[name, layer], want[name, layer], **TOLERANCE)
    edit = interp.model.mean("L2H1", over="position")
    torch.testing.assert_close(model.run(IDS, [edit]), plain.run(IDS, [edit]), **TOLERANCE)


def test_queries_before_their_rotary_embedding_are_not_offered(bridged) -> None:
    with pytest.raises(UnreadableAttention, match=r"no single q"):
        by_hooks(bridged("llama")).capture(IDS, ["q"])


def test_hooks_that_never_fire_are_told_by_name(bridged) -> None:
    with pytest.raises(UnreadableAttention, match=r"encoder_blocks\.0\.attn\.hook_pattern never"):
        by_hooks(bridged("t5"))


def test_scores_that_are_the_pattern_are_refused(bridged, monkeypatch) -> None:
    bridge = bridged("llama")
    model = by_hooks(bridge)
    from interp.model.hooks import hook_points

    make = hook_points._call

    def after_softmax(place: str, given: dict) -> Any:
        return make(place, given | {"hook_attn_scores": given["hook_pattern"].clone()})

    monkeypatch.setattr(hook_points, "_call", after_softmax)
    with pytest.raises(UnreadableAttention, match=r"hook_attn_scores holds the pattern"):
        model.capture(IDS, ["scores"])
    model.capture(IDS, ["pattern"])


@pytest.mark.slow
def test_wrongly_split_heads_are_refused(bridged) -> None:
    with pytest.raises(UnreadableAttention, match="heads are split wrongly"):
        by_hooks(bridged("deepseek_v3"))
    with pytest.raises(CheckError, match="pattern·v == z"):  # queries and gates interleaved
        by_hooks(bridged("qwen3_next"))


# --- padding, native models, and what is refused ----------------------------------------------


@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_prompts_score_as_they_do_alone(bridged, loaded, side) -> None:
    """Trap: a bridge given left-padded tokens without a mask is silently off by units."""
    prompts = interp.Prompts((tuple(IDS[0].tolist()), (9, 33, 21, 9, 33)), padding=side)
    tables = [
        interp.score(m, ["previous_token", "entropy"], prompts, null="none").to_pandas().score
        for m in (interp.load(bridged("gpt2")), loaded("gpt2"))
    ]
    torch.testing.assert_close(*map(torch.tensor, tables), atol=1e-6, rtol=0)


@pytest.fixture(scope="module")
def native() -> Any:
    from transformer_lens.model_bridge import TransformerBridge

    sizes = {"n_layers": 2, "d_model": 32, "n_heads": 4, "d_head": 8, "d_mlp": 64}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return TransformerBridge.boot_native(
            sizes | {"n_ctx": 32, "d_vocab": 50, "act_fn": "gelu", "initializer_range": 0.5}
        )


def test_its_native_model_is_read_too(native) -> None:
    model = interp.load(native, name="native")
    assert (model.n_layers, model.n_heads, model.d_head, model.d_vocab) == (2, 4, 8, 50)
    _, cache = native.run_with_cache(IDS)
    got = model.capture(IDS, ["pattern", "z", "resid_post"])
    for layer in range(2):
        pattern = cache[f"blocks.{layer}.attn.hook_pattern"]
        torch.testing.assert_close(got["pattern", layer], pattern, **TOLERANCE)
        z = cache[f"blocks.{layer}.attn.hook_z"].transpose(1, 2)
        torch.testing.assert_close(got["z", layer], z, **TOLERANCE)
    table = interp.score(model, ["induction", "entropy", "ov_norm"]).to_pandas()
    assert len(table) == 3 * 8
    assert table.null.notna().all()


def test_a_family_without_a_bridge_is_refused_by_name() -> None:
    with pytest.raises(LoadError, match=r"cannot make a bridge of DistilBert.*'transformers'"):
        bridge_of("distilbert")


def test_a_bridge_to_a_recurrent_model_gives_the_maps_of_the_model_it_holds() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bridge = wrapped("transformer-lens", build_mixer("mamba"), None)
    mine, plain = interp.load(bridge), interp.load(build_mixer("mamba"))
    assert {site.kind for site in mine.sites} == {"state space per channel"}
    ids = [[9, 33, 21, 40, 11, 52, 17]]
    got, want = mine.capture(ids, ["map", "z"]), plain.capture(ids, ["map", "z"])
    for layer in range(2):
        for name in ("map", "z"):
            torch.testing.assert_close(got[name, layer], want[name, layer], **TOLERANCE)


def test_a_bridge_to_elsewhere_holds_nothing_to_read(bridged) -> None:
    from interp.model.sources.transformer_lens import unwrap

    class Elsewhere:
        cfg = SimpleNamespace(model_name="m")

        @property
        def original_model(self) -> Any:
            raise AttributeError("no local module")

    with pytest.raises(LoadError, match=r"holds no model on this machine"):
        unwrap(Elsewhere())


def test_options_of_loading_are_not_dropped(bridged) -> None:
    with pytest.raises(LoadError, match="dtype cannot be chosen for a model held by transformer-"):
        interp.load(bridged("gpt2"), dtype="bfloat16")
    assert interp.load(bridged("llama"), attention="eager").attention == "eager"


def test_a_model_that_a_bridge_has_rewired_can_still_be_passed_itself(bridged, loaded) -> None:
    """Trap: the caller's own model is changed by the bridge."""
    model = interp.load(bridged("gpt2").original_model)
    got = model.capture(IDS, ["pattern"])
    want = loaded("gpt2").capture(IDS, ["pattern"])
    for layer in range(3):
        torch.testing.assert_close(got["pattern", layer], want["pattern", layer], **TOLERANCE)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_families_that_read_no_text_alone(name, loaded) -> None:
    """Every family of text is in test_source_conformance.py."""
    family = zoo.FAMILIES[name]
    model, plain = interp.load(bridge_of(name), name=name), loaded(name)
    assert model.source == "transformer-lens, the Hugging Face model it holds"
    if model.attention in family.attentions:
        plain = loaded(name, model.attention)
    for padding in family.paddings:
        same_captures(model, plain, family.inputs(padding=padding))


@pytest.mark.slow
@pytest.mark.parametrize("name", NO_BRIDGE)
def test_every_family_that_it_does_not_bridge(name) -> None:
    with pytest.raises(LoadError, match="cannot make a bridge of"):
        bridge_of(name)


def test_weights_changed_in_the_bridge_are_the_weights_read() -> None:
    """Parameters are shared, so what is scored is what the bridge holds when it is scored."""
    bridge = bridge_of("llama")
    model = interp.load(bridge)
    before = model.run(IDS)
    with torch.no_grad():
        bridge.original_model.get_submodule(
            "model.layers.0._original_component.mlp._original_component.down_proj"
        )._original_component.weight.mul_(2)
    assert not torch.allclose(model.run(IDS), before, atol=1e-3)
