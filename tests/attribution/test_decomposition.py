"""Decompositions: against plain Hugging Face, put together again, and refused where they fail."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo
from heads.weights.perturbed import perturb
from torch import Tensor, nn

import interp
from interp.attribution import Example, decomposition
from interp.attribution.target import Target
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.registry import ATTRIBUTION_METHODS

method = ATTRIBUTION_METHODS.load

METHODS = ["norm_based", "globenc", "alti", "value_zeroing"]


def of(name: str, length: int = 9, attention: str | None = None) -> Example:
    family = zoo.FAMILIES[name]
    module = perturb(family.build(attention or family.attentions[-1]))
    target = Target("logit 3", lambda out, real: out[:, -1, 3], -1, "logit")
    return Example(interp.load(module), family.inputs(batch=1, length=length), target)


def rolled(mixings: list[Tensor]) -> np.ndarray:
    found = np.eye(len(mixings[0]))
    for c in mixings:
        rows = c.double().detach().numpy()
        found = rows / rows.sum(1, keepdims=True) @ found
    return found


def heads_of(x: Tensor, count: int) -> Tensor:
    return x.unflatten(-1, (count, -1)).movedim(-2, 0)


def bert_layers(example: Example) -> list[dict[str, Tensor]]:
    """Parts of every layer of BERT, from what the model returns about itself."""
    module = example.model.module
    with torch.no_grad():
        out = module(**example.inputs, output_attentions=True, output_hidden_states=True)
    heads, n = module.config.num_attention_heads, len(example)
    found = []
    for i, layer in enumerate(module.bert.encoder.layer):
        x, dense = out.hidden_states[i][0], layer.attention.output
        v = heads_of(layer.attention.self.value(x), heads)
        w_o = dense.dense.weight.T.unflatten(0, (heads, -1))
        mapped = torch.einsum("hjd,hdm->hjm", v, w_o)
        written = torch.einsum("hij,hjm->ijm", out.attentions[i][0], mapped)
        total = written + torch.eye(n)[:, :, None] * x
        whole = total.sum(1) + dense.dense.bias

        def norm(parts: Tensor, whole: Tensor, m: nn.LayerNorm) -> Tensor:
            scale = (whole.var(-1, unbiased=False, keepdim=True) + m.eps).sqrt()[:, None]
            return (parts - parts.mean(-1, keepdim=True)) / scale * m.weight

        after = norm(total, whole, dense.LayerNorm)
        y = dense.LayerNorm(whole)
        second = y + layer.output.dense(layer.intermediate(y))
        found.append(
            {
                "attention": written,
                "residual": total,
                "residual_norm": after,
                "block": norm(after, second, layer.output.LayerNorm),
                "y": y,
            }
        )
    return found


@pytest.fixture(scope="module")
def bert_example() -> Example:
    return of("bert", attention="eager")


@pytest.mark.parametrize("variant", ["attention", "residual", "residual_norm"])
def test_norm_based_equals_lengths_written_out(variant: str, bert_example: Example) -> None:
    want = rolled([layer[variant].norm(dim=-1) for layer in bert_layers(bert_example)])
    found = method("norm_based").of(bert_example, variant=variant)
    assert np.allclose(found.matrix, want, rtol=1e-4, atol=1e-6)
    assert np.allclose(found.scores, want[-1], rtol=1e-4, atol=1e-6)


def test_globenc_equals_the_whole_layer_written_out(bert_example: Example) -> None:
    want = rolled([layer["block"].norm(dim=-1) for layer in bert_layers(bert_example)])
    assert np.allclose(method("globenc").of(bert_example).matrix, want, rtol=1e-4, atol=1e-6)
    one = rolled([layer["residual_norm"].norm(dim=-1) for layer in bert_layers(bert_example)])
    assert abs(want - one).max() > 1e-3  # the second norm is not passed over


def test_alti_equals_distances_written_out(bert_example: Example) -> None:
    mixings = []
    for layer in bert_layers(bert_example):
        y, parts = layer["y"], layer["residual_norm"]
        left = (y[:, None] - parts).abs().sum(-1)
        mixings.append((y.abs().sum(-1, keepdim=True) - left).clamp_min(0))
    assert np.allclose(
        method("alti").of(bert_example).matrix, rolled(mixings), rtol=1e-3, atol=1e-5
    )


def test_alti_of_grouped_queries_before_a_norm() -> None:
    example = of("llama", attention="eager")
    module = example.model.module
    grabbed: dict[tuple[int, str], Tensor] = {}
    handles = []
    for i, layer in enumerate(module.model.layers):
        for name, m in (("v", layer.self_attn.v_proj), ("mid", layer.post_attention_layernorm)):

            def keep(_, args, out, key=(i, name)):
                grabbed[key] = (out if key[1] == "v" else args[0])[0]

            handles.append(m.register_forward_hook(keep))
    with torch.no_grad():
        out = module(**example.inputs, output_attentions=True, output_hidden_states=True)
    for handle in handles:
        handle.remove()
    mixings = []
    heads, groups = module.config.num_attention_heads, module.config.num_key_value_heads
    for i, layer in enumerate(module.model.layers):
        v = heads_of(grabbed[i, "v"], groups).repeat_interleave(heads // groups, 0)
        mapped = v @ layer.self_attn.o_proj.weight.T.unflatten(0, (heads, -1))
        parts = torch.einsum("hij,hjm->ijm", out.attentions[i][0], mapped)
        parts = parts + torch.eye(len(example))[:, :, None] * out.hidden_states[i][0]
        y = grabbed[i, "mid"]
        assert torch.allclose(parts.sum(1), y, atol=1e-4)
        left = (y[:, None] - parts).abs().sum(-1)
        mixings.append((y.abs().sum(-1, keepdim=True) - left).clamp_min(0))
    found = method("alti").of(example)
    assert np.allclose(found.matrix, rolled(mixings), rtol=1e-3, atol=1e-5)
    assert np.triu(found.matrix, 1).max() == 0  # type: ignore[call-overload]


@pytest.mark.parametrize("name", ["bert", "llama"])
def test_value_zeroing_equals_runs_with_a_zeroed_value(name: str) -> None:
    example = of(name, length=6)
    module = example.model.module
    blocks = module.bert.encoder.layer if name == "bert" else module.model.layers
    mixings = []
    for block in blocks:
        value = block.attention.self.value if name == "bert" else block.self_attn.v_proj
        got: list[Tensor] = []

        def run(zeroed: int | None, value=value, block=block, got=got) -> Tensor:
            def zero(_, args, out):
                out = out.clone()
                if zeroed is not None:
                    out[:, zeroed] = 0
                return out

            def keep(_, args, out):
                got.append((out[0] if isinstance(out, tuple) else out)[0].double())

            handles = [value.register_forward_hook(zero), block.register_forward_hook(keep)]
            with torch.no_grad():
                module(**example.inputs)
            for handle in handles:
                handle.remove()
            return got.pop()

        clean = run(None)
        columns = [1 - torch.cosine_similarity(run(j), clean, dim=-1) for j in range(len(example))]
        mixings.append(torch.stack(columns, 1).clamp_min(0))
    found = method("value_zeroing").of(example, batch_size=4)
    assert np.allclose(found.matrix, rolled(mixings), rtol=1e-3, atol=1e-4)
    last = rolled(mixings[-1:])
    found = method("value_zeroing").of(example, aggregate="last")
    assert np.allclose(found.matrix, last, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        "gpt_neox",
        "gemma2",
        "olmo2",
        "granite",
        "cohere",
        "phi",
        "albert",
        "modernbert",
        "distilbert",
        "bloom",
        "gptj",
        "opt",
        "deberta_v2",
    ],
)
def test_every_layer_of_every_kind_adds_up(name: str) -> None:
    example = of(name)
    for found in (decomposition.layers(example), decomposition.block_layers(example)):
        for layer in found:
            total = layer.parts.sum(1) + layer.rest
            assert float((total - layer.whole).abs().max()) < 1e-4 * float(layer.whole.abs().max())
            # the parts are not the rest alone
            assert float(layer.parts.sum(1).norm()) > 0.05 * float(layer.rest.norm())


@pytest.mark.parametrize("name", METHODS)
def test_rows_are_shares_and_the_layers_combine(name: str, bert_example: Example) -> None:
    rolled_out, mean, last = (
        method(name).of(bert_example, aggregate=a) for a in ("rollout", "mean", "last")
    )
    for found in (rolled_out, mean, last):
        assert np.allclose(found.matrix.sum(1), 1)  # type: ignore[union-attr]
        assert found.scores.min() >= 0
    assert abs(rolled_out.scores - last.scores).max() > 1e-4
    with pytest.raises(OptionError, match="known: rollout, mean, last"):
        method(name).of(bert_example, aggregate="first")


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["norm_based", "globenc", "alti"])
def test_parts_that_do_not_add_up_are_refused(
    name: str, bert_example: Example, monkeypatch: pytest.MonkeyPatch
) -> None:
    true = decomposition.writing_weights

    def wrong(model, site):
        weights = true(model, site)
        if site.layer == 1:
            weights.__dict__["added"] = weights.added * 1.01
        return weights

    monkeypatch.setattr(decomposition, "writing_weights", wrong)
    with pytest.raises(UnreadableAttention, match=r"encoder\.1 .*do not add up"):
        method(name).of(bert_example)


@pytest.mark.parametrize("name", METHODS)
def test_encoder_decoders_and_gates_are_refused(name: str) -> None:
    with pytest.raises(OptionError, match="single stack"):
        method(name).of(of("t5"))
    if name != "value_zeroing":
        with pytest.raises(UnreadableAttention, match=r"decoder\.\d: the head output is gated"):
            method(name).of(of("qwen3_next"))


def test_an_unknown_variant_is_named(bert_example: Example) -> None:
    with pytest.raises(OptionError, match="known: attention, residual, residual_norm"):
        method("norm_based").of(bert_example, variant="heads")
    with pytest.raises(OptionError, match="batch_size=0"):
        method("value_zeroing").of(bert_example, batch_size=0)
