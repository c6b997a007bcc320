"""Models of interp-engine: what interp captures is what its own capture gives, and edits act."""

from __future__ import annotations

import importlib.util
from functools import cache
from typing import Any

import pytest
import torch
import zoo
from model.source_objects import build, same, tokenizer

import interp
from benchmarks.engines import CLOSE, IDS, NAMES, REASONS, Missing, difference, logits_difference
from interp.core.errors import LoadError
from interp.model.activation_names import OTHER_NAMES, name_elsewhere, name_here
from interp.model.sources.packages import wrapped

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("interp_engine") is None,
    reason="interp-engine is not installed (the extra `engine`)",
)
FOUR = ("gpt2", "qwen3", "gemma2", "mistral_sliding")  # the last two have windows, Gemma 2 a cap


@cache
def engine_of(name: str) -> Any:
    return wrapped("interp-engine", build(name, "eager"), tokenizer())


@cache
def loaded_engine(name: str) -> interp.Model:
    return interp.load(engine_of(name), name=name)


def logits(cache: Any) -> torch.Tensor:
    return cache.output.logits


@pytest.mark.parametrize("name", FOUR)
def test_captures_equal_those_of_the_engine(name: str) -> None:
    model, held = loaded_engine(name), engine_of(name)
    assert model.module is held.hf_model
    assert model.source == "interp-engine, the module"
    assert len(NAMES) == 9
    for activation in NAMES:
        assert difference(model, held, activation) <= CLOSE, activation
    assert logits_difference(model, held) <= CLOSE
    # the null: the same comparison with the next layer
    assert difference(model, held, "pattern", shift=1) > 0.5
    assert difference(model, held, "z", shift=1) > 0.5


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_an_ablated_head_is_that_of_the_engine_run_without_its_z(name: str) -> None:
    from interp_engine import capture

    model, held, head = loaded_engine(name), engine_of(name), interp.Head(1, 2)
    before = {key: x.clone() for key, x in held.hf_model.state_dict().items()}
    width = model.sites[1].d_v
    module, side = held.resolve_point("z", 1)
    assert side == "input"

    def zero(_: Any, args: tuple) -> tuple:
        z = args[0].clone()
        z[..., 2 * width : 3 * width] = 0
        return (z, *args[1:])

    plain = logits(capture(held, torch.tensor(IDS), ["z.1"]))
    handle = module.register_forward_pre_hook(zero)
    want = logits(capture(held, torch.tensor(IDS), ["z.1"]))
    handle.remove()
    same(model.run(IDS, [interp.zero(head)]), want)
    assert not torch.allclose(want, plain, atol=1e-3)
    same(model.run(IDS), plain)
    after = held.hf_model.state_dict()
    assert all(torch.equal(x, after[key]) for key, x in before.items())


def test_scores_and_gradients_are_those_of_the_plain_model() -> None:
    model, plain = loaded_engine("qwen3"), interp.load(build("qwen3", "eager"), name="qwen3")
    assert not any(p.requires_grad for p in model.module.parameters()), "the engine freezes it"
    metrics = ["induction", "entropy", "ov_norm"]
    tables = [interp.score(m, metrics, IDS, null="none").to_pandas() for m in (model, plain)]
    same(*(torch.tensor(t["score"].to_numpy()) for t in tables), tolerance=1e-6)
    text = "t09 t33 t21 t40 t33 t21"
    tokens = [
        interp.attribute(m, text, "gradient_x_input", target="token:t09").to_pandas()["score"]
        for m in (model, interp.load(plain.module, tokenizer=tokenizer(), name="qwen3"))
    ]
    got, want = (torch.tensor(x.to_numpy()) for x in tokens)
    same(got, want, tolerance=1e-6)
    assert float(want.abs().max()) > 0


@pytest.mark.parametrize("norms", [False, True])
def test_names_are_those_of_the_engine_own_translation(norms: bool) -> None:
    import interp_engine as engine

    model = engine_of("gemma2" if norms else "gpt2")
    assert bool(model.arch.quirks.sandwich_norms) is norms
    for name in NAMES:
        point = engine.to_address(name_elsewhere(name, "interp-engine", 2, output_norm=norms))
        back = name_here(engine.format_address(point), "interp-engine", output_norm=norms)
        assert back == (name, 2)
        hook = name_elsewhere(name, "transformer-lens", 2)
        assert engine.tlens_hook_to_point(hook, model) == point
        if "nnsight" in OTHER_NAMES[name] and not (norms and name.endswith("_out")):
            accessor = name_elsewhere(name, "nnsight", 2)
            assert engine.nnsight_accessor_to_point(accessor) == point
            assert engine.point_to_nnsight_accessor(point) == accessor


# --- where the two define a name differently ------------------------------------------------------


@pytest.mark.parametrize("at", REASONS)
def test_stated_differences_are_there_and_explained(at: tuple[str, str]) -> None:
    from interp_engine import capture

    family, name = at
    model, held, ids = loaded_engine(family), engine_of(family), torch.tensor(IDS)
    try:
        assert difference(model, held, name) > 0.1
    except Missing as error:
        pytest.fail(str(error))
    if family == "granite":
        scale = held.config.residual_multiplier
        same(
            model.capture(IDS, [name])[name, 1],
            scale * capture(held, ids, [f"{name}.1"])[f"{name}.1"],
        )
    else:
        plain = model.run(IDS)
        same(logits(capture(held, ids, ["attn_probs.0"])), plain)
        asked = logits(capture(held, ids, ["attn_scores.0"]))
        assert float((asked - plain).abs().max()) > 0.1


def test_gated_heads_are_those_of_the_engine_after_their_gate() -> None:
    from interp_engine import capture

    model, held, ids = loaded_engine("qwen3_next"), engine_of("qwen3_next"), torch.tensor(IDS)
    assert difference(model, held, "z") <= CLOSE
    z = model.capture(IDS, ["z"])["z", 1].transpose(1, 2)  # [batch, pos, head, width]
    gate = capture(held, ids, ["attn_gate.1"])["attn_gate.1"].unflatten(-1, (z.shape[2], -1))
    gate = gate[..., z.shape[-1] :].sigmoid()  # after each head's queries
    weights, values = (model.capture(IDS, [name])[name, 1] for name in ("pattern", "v"))
    mixed = weights @ values.repeat_interleave(weights.shape[1] // values.shape[1], 1)
    same(gate * mixed.transpose(1, 2), z)
    assert not torch.allclose(mixed.transpose(1, 2), z, atol=1e-3)


# --- what is refused ------------------------------------------------------------------------------


def test_other_backends_are_refused_with_what_is_missing() -> None:
    from interp_engine.vllm_backend import VLLMModel

    held = object.__new__(VLLMModel)  # a real one needs CUDA
    with pytest.raises(LoadError, match=r"VLLMModel .*: edits, gradients, .* backend=\"eager\"\)"):
        interp.load(held)


def test_a_model_in_the_synchronous_facade_is_read() -> None:
    from interp_engine import sync_model

    assert interp.load(sync_model(engine_of("gpt2"))).module is engine_of("gpt2").hf_model


def test_a_steered_model_is_refused_and_read_afterwards() -> None:
    from interp_engine import AddSpec, LayerSteeringSpec, SteeringSpec, steer

    held = engine_of("gpt2")
    added = LayerSteeringSpec(operations=[AddSpec(torch.ones(48), scale=2.0)])
    spec = SteeringSpec(layers={1: added})
    with steer(held, spec), pytest.raises(LoadError, match=r"interp-engine steers this model at "):
        interp.load(held)
    interp.load(held)


def test_options_of_loading_are_refused_for_a_held_model() -> None:
    with pytest.raises(LoadError, match=r"attention cannot be chosen"):
        interp.load(engine_of("gpt2"), attention="eager")
    with pytest.raises(LoadError, match=r"dtype cannot be chosen"):
        interp.load(engine_of("gpt2"), dtype="float64")


def test_a_family_that_the_engine_cannot_hold_is_refused_in_one_line() -> None:
    with pytest.raises(LoadError, match=r"cannot hold BertForMaskedLM \(Could not locate"):
        wrapped("interp-engine", build("bert"), tokenizer())


def test_a_model_without_a_tokenizer_takes_ids_and_another_tokenizer_is_unchanged() -> None:
    model = interp.load(wrapped("interp-engine", zoo.FAMILIES["gpt2"].build("eager"), None))
    assert model.tokenizer is None
    same(model.run(IDS), loaded_engine("gpt2").run(IDS))
    from copy import deepcopy

    words = deepcopy(tokenizer())
    words.pad_token = None
    assert wrapped("interp-engine", build("gpt2"), words).tokenizer.pad_token == "t02"
    assert words.pad_token is None
