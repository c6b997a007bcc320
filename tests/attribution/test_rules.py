"""The engine of the gradient rules: against models written out, its promises, its manners."""

from __future__ import annotations

from threading import Thread

import pytest
import torch
import zoo
from attribution import toy
from attribution.by_hand import By, bert_parts, llama
from heads.weights.perturbed import perturb
from torch import nn
from torch.nn import functional as F
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import interp
from interp.attribution import Example
from interp.attribution.gradients import gradient
from interp.attribution.roles import find_roles
from interp.attribution.rules import Rules, ruled
from interp.attribution.target import Target
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.registry import ATTRIBUTION_METHODS

method = ATTRIBUTION_METHODS.load

NO_BIASES = [
    "llama",
    "gemma",
    "gemma2",
    "gemma3",
    "qwen3",
    "olmo2",
    "granite",
    "phi3",
    "cohere",
    "smollm3",
    "mixtral",
    "mpt",
]
RULES = {
    "cp_lrp": By(freeze=True, norm=True, split=True),
    "decompx": By(freeze=True, norm=True, identity=True, split=True),
    "attn_lrp": By(norm=True, identity=True, split=True),
    "gim": By(temperature=2.0, norm=True, split=True),
    "gradient_x_input": By(),
}


def logit(index: int = 3) -> Target:
    def read(output, real):
        return output[:, -1, index] if output.dim() == 3 else output[:, index]

    return Target(f"logit {index} of the last position", read, -1, "logit")


def of(name: str, attention: str = "eager", *, dtype=torch.float32, **options) -> Example:
    module = perturb(zoo.FAMILIES[name].build(attention)).to(dtype)
    inputs = zoo.FAMILIES[name].inputs(batch=1, length=9, **options)
    return Example(interp.load(module), inputs, logit())


def scores(name: str, example: Example, **options):
    return method(name).of(example, **options).scores


# --- against models written out -------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_rules_equal_a_llama_written_out(name: str, attention: str) -> None:
    example = of("llama", attention)
    module = example.model.module
    x = module.model.embed_tokens(example.inputs["input_ids"])[0].detach().double()
    x.requires_grad_()
    logits, _ = llama(module, x, RULES[name])
    assert float((logits - example.model.run(example.inputs)[0]).detach().abs().max()) < 1e-4
    (grad,) = torch.autograd.grad(logits[-1, 3], x)
    want = (grad * x).sum(-1).detach().numpy()
    assert abs(scores(name, example) - want).max() < 5e-6 * abs(want).max()


@pytest.mark.parametrize("activation", ["gradient", "identity"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_cp_lrp_with_stopped_gates_equals_a_llama_written_out(attention, activation) -> None:
    example = of("llama", attention)
    module = example.model.module
    x = module.model.embed_tokens(example.inputs["input_ids"])[0].detach().double()
    x.requires_grad_()
    logits, _ = llama(module, x, By(freeze=True, norm=True, gate_stops=True))
    (grad,) = torch.autograd.grad(logits[-1, 3], x)
    want = (grad * x).sum(-1).detach().numpy()
    found = method("cp_lrp").of(example, gate="stop", activation=activation)
    assert abs(found.scores - want).max() < 5e-6 * abs(want).max()
    assert abs(found.residual) < 1e-5 * abs(want).sum()  # linear: nothing is left to bend
    half = method("cp_lrp").of(example)
    assert abs(half.scores - want).max() > 1e-3 * abs(want).max()
    assert found.provenance["options"]["gate"] == "stop"
    assert half.provenance["options"]["gate"] == "half"
    assert "gate=stop" in found.method


@pytest.mark.parametrize(
    "name", ["gemma", "phi3", "qwen3", "olmo2", "cohere", "smollm3", "granite"]
)
def test_stopped_gates_leave_nothing_out_in_other_families(name: str) -> None:
    """Fused gate and up projections too: without biases, what is frozen is linear and complete."""
    found = method("cp_lrp").of(of(name, zoo.FAMILIES[name].attentions[-1]), gate="stop")
    assert abs(found.residual) < 1e-5 * abs(found.scores).sum()  # type: ignore[arg-type]


def test_a_gate_is_what_an_activation_gives() -> None:
    """Either order of the factors, moved or converted; without a gate nothing changes."""
    for f in (F.silu, torch.sigmoid, lambda x: F.gelu(x).double().float()[..., :]):
        block = toy.Gated(f)
        example = toy.example(block)
        module = example.model.module
        x = module.embed(example.inputs["input_ids"]).detach().requires_grad_()
        scale = (x.square().mean(-1, keepdim=True) + torch.finfo(x.dtype).eps).rsqrt().detach()
        h = x * scale * block.norm.weight
        y = x + block.down(f(block.gate(h)).detach() * block.up(h))
        (grad,) = torch.autograd.grad(module.out(y.sum(1))[0, 2], x)
        want = (grad * x).sum(-1)[0].detach().numpy()
        found = method("cp_lrp").of(example, gate="stop").scores
        assert abs(found - want).max() < 1e-5 * abs(want).max()
    plain = of("gpt2")
    assert (scores("cp_lrp", plain, gate="stop") == scores("cp_lrp", plain)).all()


@pytest.mark.parametrize(
    ("f", "line"),
    [(lambda x: 2 * x, "neither factor is an output"), (F.silu, "both factors are outputs")],
)
def test_a_product_without_one_gate_is_refused_by_name(f, line: str) -> None:
    block = toy.Gated(f)
    if "both" in line:
        block.up = nn.Sequential(block.up, nn.SiLU())  # type: ignore[assignment]
    with pytest.raises(UnreadableAttention, match=rf"module block: {line} of an activation"):
        scores("cp_lrp", toy.example(block), gate="stop")
    with pytest.raises(OptionError, match="known: half, stop"):
        scores("cp_lrp", toy.example(block), gate="open")


def test_decompx_is_the_forward_decomposition_of_llama() -> None:
    example = of("llama")
    x = example.model.module.model.embed_tokens(example.inputs["input_ids"])[0].detach().double()
    parts = torch.eye(len(x), dtype=torch.double)[:, :, None] * x
    with torch.no_grad():
        logits, carried = llama(example.model.module, x, RULES["decompx"], parts)
    assert carried is not None
    assert torch.allclose(carried.sum(0), logits, atol=1e-9)  # nothing is lost without biases
    want = carried[:, -1, 3].numpy()
    assert abs(scores("decompx", example) - want).max() < 1e-6 * max(1, abs(want).max())


def test_decompx_is_the_forward_decomposition_of_bert() -> None:
    example = of("bert")
    logits, carried = bert_parts(example.model.module, example.inputs["input_ids"][0])
    assert float((logits - example.model.run(example.inputs)[0]).detach().abs().max()) < 1e-4
    want = carried[:, -1, 3].numpy()
    found = method("decompx").of(example)
    assert abs(found.scores - want).max() < 1e-6 * max(1, abs(want).max())
    share = float(logits[-1, 3] - carried[:, -1, 3].sum())  # biases, positions, types
    assert abs(share) > 0.01
    assert found.residual == pytest.approx(share, abs=1e-5)


# --- promises -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NO_BIASES)
def test_decompx_adds_up_without_biases(name: str) -> None:
    found = method("decompx").of(of(name, zoo.FAMILIES[name].attentions[-1]))
    assert found.total == pytest.approx(found.value, abs=1e-6)
    assert abs(found.residual) < 1e-5 * abs(found.scores).sum()  # type: ignore[arg-type]


def test_an_encoder_decoder_adds_up_with_the_decoders_share() -> None:
    found = method("decompx").of(of("t5"))
    assert found.total == pytest.approx(found.value - found.notes["decoder_share"])
    assert abs(found.notes["decoder_share"]) > 0.01 * abs(found.value)
    assert abs(found.residual) < 1e-5 * abs(found.value)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["gpt2", "llama", "bert", "bloom"])
def test_gim_without_its_rules_is_the_plain_gradient(name: str) -> None:
    example = of(name)
    plain = scores("gradient_x_input", example)
    found = scores("gim", example, temperature=1.0, norm="exact", split=False)
    assert abs(found - plain).max() < 1e-5 * abs(plain).max()
    for changed in ({"temperature": 2.0}, {"norm": "freeze"}, {"split": True}):
        options = {"temperature": 1.0, "norm": "exact", "split": False} | changed
        assert abs(scores("gim", example, **options) - plain).max() > 1e-2 * abs(plain).max()


@pytest.mark.parametrize("name", ["attn_lrp", "decompx", "gim", "cp_lrp"])
def test_in_a_linear_model_every_rule_is_gradient_x_input(name: str) -> None:
    example = toy.example(nn.Linear(toy.WIDTH, toy.WIDTH, bias=False))
    want = scores("gradient_x_input", example)
    assert abs(scores(name, example) - want).max() < 1e-6 * abs(want).max()
    assert want.sum() == pytest.approx(example.value, rel=1e-5)


@pytest.mark.parametrize("f", [F.silu, F.gelu, torch.tanh, F.relu, lambda x: F.relu(x) * 0 + x])
def test_attn_lrp_adds_up_where_no_softmax_is(f) -> None:
    found = method("attn_lrp").of(toy.example(toy.Gated(f)))
    assert abs(found.residual) < 1e-5 * abs(found.scores).sum()  # type: ignore[arg-type]


def test_cp_lrp_with_the_identity_rule_is_decompx() -> None:
    example = of("gemma")
    assert (scores("cp_lrp", example, activation="identity") == scores("decompx", example)).all()
    assert abs(scores("cp_lrp", example) - scores("decompx", example)).max() > 1e-3


def test_a_cosine_keeps_its_length_fixed_under_rules() -> None:
    example = of("llama")
    other = torch.randn(zoo.FAMILIES["llama"].config["vocab_size"])
    target = Target(
        "cosine",
        lambda out, real: torch.cosine_similarity(out[:, -1], other[None].to(out), dim=-1),
        -1,
        "cosine",
    )
    again = Example(example.model, example.inputs, target)
    assert method("decompx").of(again).residual == pytest.approx(0, abs=1e-6)
    assert abs(again.value) > 1e-3


def test_a_target_that_is_not_linear_says_so() -> None:
    example = of("llama")
    target = Target("log", lambda out, real: out[:, -1].log_softmax(-1)[:, 3], -1, "nat")
    told = method("decompx").of(Example(example.model, example.inputs, target))
    assert "not linear" in told.completeness
    assert "not linear" not in method("decompx").of(example).completeness


# --- manners --------------------------------------------------------------------------------------


def _state(module: nn.Module) -> tuple:
    hooks = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules())
    flags = tuple(p.requires_grad for p in module.parameters())
    grads = tuple(p.grad is None for p in module.parameters())
    modes = tuple(m.training for m in module.modules())
    return hooks, flags, grads, modes, dict(ALL_ATTENTION_FUNCTIONS), module.state_dict().keys()


@pytest.mark.parametrize("breaks", [False, True])
def test_nothing_is_left_changed(breaks: bool) -> None:
    example = of("gpt2")
    module = example.model.module
    module.train()
    next(module.parameters()).requires_grad_(False)
    weights = {k: w.clone() for k, w in module.state_dict().items()}
    before = _state(module)
    if breaks:

        def stop(*_: object) -> None:
            raise KeyError("stop")

        handle = module.transformer.h[1].mlp.register_forward_hook(stop)
        with pytest.raises(KeyError, match="stop"):
            gradient(example, Rules("freeze", norm="freeze", activation="identity", split=True))
        handle.remove()
    else:
        scores("attn_lrp", example)
        scores("chefer", example)
    assert _state(module) == before
    assert all(torch.equal(w, module.state_dict()[k]) for k, w in weights.items())
    module.eval()
    x = module.transformer.wte.weight.detach()[:4][None].requires_grad_()
    a = F.silu(x) * x  # no rule is left in force
    (g,) = torch.autograd.grad(a.sum(), x)
    s = x.sigmoid()
    assert torch.allclose(g, 2 * s * x + x * x * s * (1 - s), atol=1e-5)


def test_other_threads_keep_their_own_gradients() -> None:
    example = of("llama")
    module = example.model.module

    def plain() -> torch.Tensor:
        x = module.model.embed_tokens(example.inputs["input_ids"]).detach().requires_grad_()
        (g,) = torch.autograd.grad(module(inputs_embeds=x).logits[0, -1, 3], x)
        return g

    before, found = plain(), []
    rules = Rules("freeze", norm="freeze", activation="identity", split=True)
    with ruled(example.model, rules, find_roles(example.model, example.inputs)):
        thread = Thread(target=lambda: found.append(plain()))
        thread.start()
        thread.join()
        assert not torch.allclose(plain(), before, rtol=1e-2)  # in this one they hold
    assert torch.equal(found[0], before)


@pytest.mark.parametrize(
    ("block", "name", "rule"),
    [
        (toy.Gated(torch.sigmoid), "block", "Sigmoid"),
        (toy.Gated(torch.exp), "block", "Exp"),
        (nn.Sequential(nn.Linear(toy.WIDTH, toy.WIDTH), nn.Sigmoid()), "block.1", "Sigmoid"),
        (nn.Sequential(nn.Linear(toy.WIDTH, toy.WIDTH), nn.Softmax(-1)), "block.1", "Softmax"),
        (toy.OwnNorm(), "block", "Rsqrt"),
    ],
)
def test_what_has_no_rule_is_refused_by_name(block: nn.Module, name: str, rule: str) -> None:
    example = toy.example(block)
    with pytest.raises(UnreadableAttention, match=rf"module {name}: .*{rule}"):
        scores("attn_lrp", example)
    assert scores("gradient_x_input", example).any()  # it needs no rule


@pytest.mark.parametrize(
    ("family", "name"), [("qwen3_next", r"self_attn: Sigmoid"), ("mixtral", r"mlp\.gate: \w+")]
)
def test_gates_and_routers_are_refused_and_named(family: str, name: str) -> None:
    with pytest.raises(UnreadableAttention, match=rf"module model\.layers\.\d\.{name} has no rule"):
        scores("attn_lrp", of(family))


@pytest.mark.parametrize(
    "bad", [{"temperature": 0.0}, {"norm": "melted"}, {"softmax": "none"}, {"activation": "relu"}]
)
def test_bad_rules_are_named(bad: dict) -> None:
    with pytest.raises(OptionError, match=next(iter(bad))):
        Rules(**bad)


def test_embeddings_that_are_no_tokens_are_refused() -> None:
    with pytest.raises(UnreadableAttention, match="embeds its tokens with shape"):
        scores("decompx", of("xlnet"))


@pytest.mark.parametrize("name", ["llama", "bert"])
@pytest.mark.parametrize("rule", ["decompx", "attn_lrp", "gim"])
def test_half_precision_gives_the_same_to_its_rounding(name: str, rule: str) -> None:
    full, half = (scores(rule, of(name, dtype=d)) for d in (torch.float32, torch.bfloat16))
    assert abs(full - half).max() < 0.05 * abs(full).max()
