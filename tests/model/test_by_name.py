"""What the toolkit promises to read, one explicit test each, against a computation of its own."""

from __future__ import annotations

import math

import pytest
import torch
import zoo
from torch import Tensor

import interp
from interp.model.calls.sites import softmax_sites

LENGTH = 12


def captured(model: interp.Model, name: str, padding: zoo.Padding = None, **options):
    names = ["q", "k", "v", "scores", "pattern", "z"]
    return model.capture(zoo.FAMILIES[name].inputs(padding), names, **options)


def lower(n: int = LENGTH) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).tril()


def softmax_of(q: Tensor, k: Tensor, scale: float, seen: Tensor, bias: Tensor | float = 0.0):
    """Attention written out head by head, in float64; k has a head per group."""
    group = q.shape[1] // k.shape[1]
    rows = []
    for head in range(q.shape[1]):
        s = torch.einsum("bqd,bkd->bqk", q[:, head].double(), k[:, head // group].double()) * scale
        s = s + (bias[:, head] if isinstance(bias, Tensor) else bias)
        rows.append(s.masked_fill(~seen, -torch.inf).softmax(-1))
    return torch.stack(rows, 1)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_grouped_queries_read_their_own_groups_keys(loaded, attention):
    cache = captured(loaded("llama", attention), "llama")
    for layer in range(3):
        q, k, v = (cache[name, layer] for name in "qkv")
        assert q.shape[1] == 6
        assert k.shape[1] == v.shape[1] == 2
        want = softmax_of(q, k, 8**-0.5, lower())
        torch.testing.assert_close(cache["pattern", layer].double(), want, atol=2e-6, rtol=0)
        for head in range(6):
            z = cache["pattern", layer][:, head] @ v[:, head // 3]
            torch.testing.assert_close(cache["z", layer][:, head], z, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("name", ["gpt_bigcode", "falcon"])
def test_multi_query_heads_share_one_key(loaded, name):
    model = loaded(name)
    assert model.n_kv_heads == 1
    assert [model.sites[0].kv_head(h) for h in range(6)] == [0] * 6
    cache = captured(model, name)
    assert cache["k", 1].shape[1] == cache["v", 1].shape[1] == 1
    want = softmax_of(cache["q", 1], cache["k", 1], 8**-0.5, lower())
    torch.testing.assert_close(cache["pattern", 1].double(), want, atol=2e-6, rtol=0)


def test_multi_head_latent_attention_has_values_of_another_width(loaded):
    model = loaded("deepseek_v3")
    cache = captured(model, "deepseek_v3")
    assert cache["q", 0].shape[-1] == cache["k", 0].shape[-1] == 16
    assert cache["v", 0].shape[-1] == cache["z", 0].shape[-1] == 12
    want = softmax_of(cache["q", 0], cache["k", 0], 16**-0.5, lower())
    torch.testing.assert_close(cache["pattern", 0].double(), want, atol=2e-6, rtol=0)
    result = model.capture(zoo.FAMILIES["deepseek_v3"].inputs(), ["result"])["result", 0]
    assert result.shape == (2, LENGTH, 6, 48)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_a_sliding_window_shows_the_last_four_keys(loaded, attention):
    cache = captured(loaded("mistral_sliding", attention), "mistral_sliding")
    window = lower() & ~lower().tril(-4)
    for layer in range(3):
        pattern = cache["pattern", layer]
        assert not pattern[..., ~window].any()
        assert (pattern[..., window] > 0).all()
        want = softmax_of(cache["q", layer], cache["k", layer], 8**-0.5, window)
        torch.testing.assert_close(pattern.double(), want, atol=2e-6, rtol=0)


def test_windows_of_some_layers_only(loaded):
    for name, windowed in (("gemma3", [0, 1]), ("qwen2_sliding", [1, 2]), ("gpt_neo", [1])):
        model = loaded(name)
        cache = captured(model, name)
        for site in model.sites:
            far = bool(cache["pattern", site.layer][..., LENGTH - 1, 0].any())
            assert far == (site.layer not in windowed), (name, site.layer)


def test_the_soft_cap_bounds_the_scores(loaded):
    cache = captured(loaded("gemma2"), "gemma2")
    q, k, scores = cache["q", 1], cache["k", 1], cache["scores", 1]  # the layer without a window
    raw = torch.einsum("bhqd,bhkd->bhqk", q, k.repeat_interleave(3, 1)) * 16**-0.5
    assert raw[..., lower()].abs().max() > 1.5  # the cap bites
    assert scores[..., lower()].abs().max() <= 1.5
    want = 1.5 * torch.tanh(raw / 1.5)
    torch.testing.assert_close(scores[..., lower()], want[..., lower()], atol=2e-6, rtol=1e-5)


def test_sinks_take_the_rest_of_a_row(loaded):
    model = loaded("gpt_oss")
    cache = captured(model, "gpt_oss")
    for layer in range(3):
        pattern, scores = cache["pattern", layer].double(), cache["scores", layer].double()
        total = pattern.sum(-1)
        assert (total < 1).all()
        sink = model.module.get_parameter(f"model.layers.{layer}.self_attn.sinks").double()
        rest = sink.exp()[:, None] / (scores.exp().sum(-1) + sink.exp()[:, None])
        torch.testing.assert_close(1 - total, rest, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_relative_bias_is_part_of_the_scores(loaded, attention):
    """T5: no scale, one table of biases in layer 0, both in the encoder and the decoder."""
    model = loaded("t5", attention)
    inputs = zoo.FAMILIES["t5"].inputs()
    cache = model.capture(inputs, ["q", "k", "scores", "pattern"])
    encoder = model.module.get_submodule("encoder.block.0.layer.0.SelfAttention")
    with torch.no_grad():
        bias = encoder.compute_bias(LENGTH, LENGTH, device=torch.device("cpu"))
    assert bias.std() > 0.05
    for layer in range(model.n_layers):
        q, k = cache["q", layer, "encoder"], cache["k", layer, "encoder"]
        want = q @ k.transpose(-1, -2) + bias
        torch.testing.assert_close(cache["scores", layer, "encoder"], want, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["t5", "bart", "whisper"])
@pytest.mark.parametrize("padding", [None, "right"])
def test_cross_attention_reads_the_encoder(loaded, name, padding):
    model, inputs = loaded(name), zoo.FAMILIES[name].inputs(padding)
    cache = model.capture(inputs, ["k", "v", "pattern", "z"])
    encoded = model.module.get_encoder()(
        **{k: v for k, v in inputs.items() if not k.startswith("decoder_")}
    ).last_hidden_state
    modules = {site.layer: site.module for site in model.sites if site.stack == "cross"}
    assert sorted(modules) == list(range(model.n_layers))
    for layer, path in modules.items():
        attention = model.module.get_submodule(path)
        make_v = attention.v if name == "t5" else attention.v_proj
        v = cache["v", layer, "cross"]
        with torch.no_grad():
            want = make_v(encoded).view(2, -1, 6, v.shape[-1]).transpose(1, 2)
        torch.testing.assert_close(v, want, atol=1e-5, rtol=1e-5)
        z = cache["pattern", layer, "cross"] @ v
        torch.testing.assert_close(cache["z", layer, "cross"], z, atol=1e-5, rtol=1e-5)
        if padding and name != "whisper":
            assert not cache["pattern", layer, "cross"][-1, ..., -3:].any()


def alibi_slopes(heads: int) -> Tensor:
    """Press et al. 2022: a geometric series from 2^(-8/n); more beyond a power of 2."""
    power = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-8 * (i + 1) / power) for i in range(power)]
    more = [2 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return torch.tensor(first + more, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("bloom", 1.0),
        # transformers 5.23 adds Falcon's bias twice under eager attention: once to the products and
        # once more with the mask; each time divided by sqrt(d_head). What ran is what is read.
        ("falcon_alibi", 2 * 8**-0.5),
    ],
)
def test_alibi_falls_off_with_distance(loaded, name, factor):
    """Scores minus scaled q·k rise by the head's slope from key to key."""
    cache = captured(loaded(name), name)
    q, k = cache["q", 1].double(), cache["k", 1].double()
    products = torch.einsum("bhqd,bhkd->bhqk", q, k)
    bias = cache["scores", 1].double() - products * 8**-0.5
    slopes = alibi_slopes(6) * factor
    for query in range(1, LENGTH):
        row = bias[:, :, query, : query + 1]
        steps = row[..., 1:] - row[..., :-1]
        want = slopes[None, :, None].expand_as(steps)
        torch.testing.assert_close(steps, want, atol=2e-5, rtol=0)


def test_heads_wider_than_the_model_divided_by_heads(loaded):
    for name in ("gemma", "qwen3", "gpt_oss", "t5"):
        model = loaded(name)
        assert model.d_head == 12 != model.d_model // model.n_heads
        stack = model.stacks[0]
        cache = model.capture(zoo.FAMILIES[name].inputs(), ["z", "result"], layers=0, stack=stack)
        assert cache["z", 0].shape[-1] == 12
        assert cache["result", 0].shape[-2:] == (6, 48)


def test_bidirectional_heads_see_the_future(loaded):
    for name in ("bert", "modernbert", "roformer", "deberta"):
        model = loaded(name)
        pattern = captured_pattern(model, name)
        assert pattern.triu(1).sum() > 1
        assert model.kind == "encoder"


def captured_pattern(model: interp.Model, name: str) -> Tensor:
    return model.capture(zoo.FAMILIES[name].inputs(), ["pattern"], layers=0)["pattern", 0]


def test_sparse_attention_shows_the_picked_keys(loaded):
    """DeepSeek-V3.2 goes on picking three keys while it is read."""
    for attention in ("eager", "sdpa"):
        pattern = captured_pattern(loaded("deepseek_v32", attention), "deepseek_v32")
        assert (pattern > 0).sum(-1).amax() == 3


def test_chunks_hide_what_lies_before_them(loaded):
    pattern = captured_pattern(loaded("llama4_text"), "llama4_text")
    place = torch.arange(LENGTH)
    seen = lower() & (place[:, None] // 4 == place // 4)
    assert ((pattern > 0) == seen).all()


def test_windows_on_the_batch_axis(loaded):
    """Swin: 2 pictures of 8x8 patches in windows of 4x4 are 8 items of 16 tokens."""
    model = loaded("swin")
    cache = model.capture(zoo.FAMILIES["swin"].inputs(), ["pattern"])
    assert [cache["pattern", layer].shape for layer in range(4)] == [
        (8, 3, 16, 16),
        (8, 3, 16, 16),
        (2, 6, 16, 16),
        (2, 6, 16, 16),
    ]


def test_one_module_called_for_every_layer(loaded):
    """ALBERT: three layers are three runs of one module, told apart by their order."""
    model = loaded("albert")
    assert len({site.module for site in model.sites}) == 1
    assert [site.run for site in model.sites] == [0, 1, 2]
    cache = model.capture(zoo.FAMILIES["albert"].inputs(), ["pattern"])
    patterns = [cache["pattern", layer] for layer in range(3)]
    assert not torch.allclose(patterns[0], patterns[1], atol=1e-3)
    assert torch.equal(
        patterns[2],
        model.capture(zoo.FAMILIES["albert"].inputs(), ["pattern"], layers=2)["pattern", 2],
    )


def test_z_of_a_gated_attention_is_the_input_of_the_projection(loaded):
    model = loaded("qwen3_next")
    (site,) = softmax_sites(model.sites)
    assert site.gated
    cache = model.capture(zoo.FAMILIES["qwen3_next"].inputs(), ["z", "result", "attn_out"])
    matrix = model.module.get_parameter("model.layers.1.self_attn.o_proj.weight")
    added = torch.einsum("bhpd,mhd->bphm", cache["z", 1], matrix.view(48, 6, 12))
    torch.testing.assert_close(added, cache["result", 1], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(
        cache["result", 1].sum(2), cache["attn_out", 1], atol=1e-5, rtol=1e-5
    )
