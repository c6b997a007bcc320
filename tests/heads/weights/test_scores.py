"""Scores from weights: naive whole matrices, known answers, planted heads, nulls, invariances."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo
from heads.weights.families import NAMES, scores, together
from heads.weights.perturbed import perturb

import interp
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.registry import METRICS
from interp.heads.declaration import Analysis
from interp.heads.scoring import score, why_not
from interp.heads.weights import composition_scores
from interp.heads.weights._composition import composition_matrices
from interp.model.calls.sites import circuit_sites
from interp.model.random_weights import RandomWeights

# --- an implementation of its own: whole matrices in float64

Circuits = tuple[list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]
"""QK and OV `[layer][head, d_model, d_model]`, W_E and W_U."""


def gpt2_circuits(model: torch.nn.Module) -> Circuits:
    """Read by the names GPT-2 uses and folded by hand."""
    d, heads = 48, 6
    centre = np.eye(d) - 1 / d
    as_numpy = {k: v.double().numpy() for k, v in model.state_dict().items()}
    qk, ov = [], []
    for layer in range(3):
        p = f"transformer.h.{layer}."
        read = centre @ np.diag(as_numpy[p + "ln_1.weight"]) @ as_numpy[p + "attn.c_attn.weight"]
        out = as_numpy[p + "attn.c_proj.weight"] @ centre
        q, k, v = (x.reshape(d, heads, 8) for x in np.split(read, 3, axis=1))
        qk.append(np.stack([q[:, h] @ k[:, h].T / 8**0.5 for h in range(heads)]))
        ov.append(np.stack([v[:, h] @ out[8 * h : 8 * h + 8] for h in range(heads)]))
    unembed = centre @ np.diag(as_numpy["transformer.ln_f.weight"]) @ as_numpy["lm_head.weight"].T
    return qk, ov, as_numpy["transformer.wte.weight"], unembed


def llama_circuits(model: torch.nn.Module) -> Circuits:
    """The same, with two key-value heads for six query heads and no centring."""
    as_numpy = {k: v.double().numpy() for k, v in model.state_dict().items()}
    qk, ov = [], []
    for layer in range(3):
        p = f"model.layers.{layer}."
        gain = np.diag(as_numpy[p + "input_layernorm.weight"])
        q, k, v = (gain @ as_numpy[f"{p}self_attn.{x}_proj.weight"].T for x in "qkv")
        o = as_numpy[p + "self_attn.o_proj.weight"].T
        own = [slice(8 * (h // 3), 8 * (h // 3) + 8) for h in range(6)]
        head = [slice(8 * h, 8 * h + 8) for h in range(6)]
        qk.append(np.stack([q[:, head[h]] @ k[:, own[h]].T / 8**0.5 for h in range(6)]))
        ov.append(np.stack([v[:, own[h]] @ o[head[h]] for h in range(6)]))
    unembed = np.diag(as_numpy["model.norm.weight"]) @ as_numpy["lm_head.weight"].T
    return qk, ov, as_numpy["model.embed_tokens.weight"], unembed


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def beside_by_hand(request):
    module = perturb(zoo.FAMILIES[request.param].build())
    by_hand = {"gpt2": gpt2_circuits, "llama": llama_circuits}[request.param](module)
    return interp.load(module, name=request.param), by_hand


def test_copying_is_the_balance_of_the_whole_circuits_eigenvalues(beside_by_hand):
    model, (_, ov, embed, unembed) = beside_by_hand
    unembed = unembed - unembed.mean(1, keepdims=True)
    for (_, layer), found in scores(model, "ov_copying").items():
        for head in range(6):
            values = np.linalg.eigvals(embed @ ov[layer][head] @ unembed)  # 64 x 64
            expected = values.real.sum() / np.abs(values).sum()
            assert found[head] == pytest.approx(expected, abs=2e-5)


@pytest.mark.parametrize("tokens", [10, 64])
def test_copying_score_is_the_share_by_hand(beside_by_hand, tokens):
    model, (_, ov, embed, unembed) = beside_by_hand
    found = scores(model, "copying_score", tokens=tokens, samples=2, draw=5)
    generator = torch.Generator().manual_seed(5)
    draws = [torch.randperm(64, generator=generator)[:tokens].numpy() for _ in range(2)]
    for (_, layer), row in found.items():
        for head in range(6):
            shares = []
            for ids in draws:
                logits = (embed @ ov[layer][head] @ unembed)[np.ix_(ids, ids)]
                for token in range(tokens):
                    raised = np.maximum(logits[token] - logits[token].mean(), 0)
                    # the embedding of padding is zero in Llama: such a token raises nothing
                    shares.append(raised[token] / raised.sum() if raised.any() else 0.0)
            assert row[head] == pytest.approx(2 * np.mean(shares) - 1, abs=1e-5)


@pytest.mark.parametrize("kind", "qkv")
def test_composition_is_that_of_whole_matrices(beside_by_hand, kind):
    model, (qk, ov, _, _) = beside_by_hand
    found = composition_matrices(model, kind)
    assert len(found) == 3  # pairs of layers
    for (earlier, later), (matrix, _) in found.items():
        for i in range(6):
            for j in range(6):
                a = ov[earlier.layer][i]
                scored, moved = qk[later.layer][j], ov[later.layer][j]
                b = {"q": scored, "k": scored.T, "v": moved}[kind]
                expected = np.linalg.norm(a @ b) / np.linalg.norm(a) / np.linalg.norm(b)
                assert float(matrix[i, j]) == pytest.approx(expected, rel=1e-5)
    best = scores(model, f"{kind}_composition", subtract_baseline=False)
    last = [m.amax(0).numpy() for (_, b), (m, _) in found.items() if b.layer == 2]
    np.testing.assert_allclose(best["decoder", 2], np.max(last, 0), rtol=1e-6)
    assert (best["decoder", 0] == 0).all()
    above = scores(model, f"{kind}_composition")
    baseline = next(iter(found.values())).baseline
    np.testing.assert_allclose(best["decoder", 2] - baseline, above["decoder", 2], rtol=1e-6)


def test_norms_and_ranks_are_those_of_whole_matrices(beside_by_hand):
    model, (qk, ov, _, _) = beside_by_hand
    for circuit, matrices in (("qk", qk), ("ov", ov)):
        norms, stable = scores(model, f"{circuit}_norm"), scores(model, f"{circuit}_rank")
        entropy = scores(model, f"{circuit}_rank", by_entropy=True)
        for key in norms:
            values = np.linalg.svd(matrices[key[1]], compute_uv=False)[:, :8]
            share = values / values.sum(1, keepdims=True)
            size = (values**2).sum(1)
            np.testing.assert_allclose(norms[key], np.sqrt(size), rtol=1e-5)
            np.testing.assert_allclose(stable[key], size / values[:, 0] ** 2, rtol=1e-5)
            by_hand = np.exp(-(share * np.log(share)).sum(1))
            np.testing.assert_allclose(entropy[key], by_hand, rtol=1e-4)


# --- known answers


def with_heads_that_copy(sign: float) -> interp.Model:
    """Embedding and unembedding alike, W_O the transpose of W_V, times sign."""
    module = zoo.FAMILIES["llama"].build()
    with torch.no_grad():
        module.lm_head.weight.copy_(module.model.embed_tokens.weight)
        for layer in module.model.layers:
            attention = layer.self_attn
            values = attention.v_proj.weight.reshape(2, 8, 48)
            for head in range(6):
                at = slice(8 * head, 8 * head + 8)
                attention.o_proj.weight[:, at] = sign * values[head // 3].T
    return interp.load(module, name=f"copies {sign:+.0f}")


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_a_head_that_writes_what_it_reads_copies_and_one_that_writes_minus_that_does_not(sign):
    """W_OV is a projection, W_U the transpose of W_E: every eigenvalue has the sign."""
    model = with_heads_that_copy(sign)
    np.testing.assert_allclose(together(model, "ov_copying"), sign, atol=2e-2)
    assert (sign * (together(model, "copying_score") + 0.92) > 0.05).all()


def test_whole_identity_copies_exactly():
    """One head as wide as the stream, W_OV = I and -I, an orthogonal vocabulary."""
    from transformers import LlamaConfig, LlamaForCausalLM

    size = {"hidden_size": 16, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16}
    config = LlamaConfig(vocab_size=16, num_hidden_layers=1, intermediate_size=8, **size)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = LlamaForCausalLM(config).eval()
        basis = torch.linalg.qr(torch.randn(16, 16)).Q
    with torch.no_grad():
        module.model.embed_tokens.weight.copy_(basis)
        module.lm_head.weight.copy_(basis)
        attention = module.model.layers[0].self_attn
        attention.v_proj.weight.copy_(torch.eye(16).repeat(2, 1))
        attention.o_proj.weight.copy_(torch.cat([torch.eye(16), -torch.eye(16)], 1))
    model = interp.load(module, name="identity")
    np.testing.assert_allclose(together(model, "ov_copying"), [1, -1], atol=1e-5)
    np.testing.assert_allclose(together(model, "copying_score"), [1, -1], atol=1e-4)
    np.testing.assert_allclose(together(model, "ov_rank"), [16, 16], rtol=1e-5)
    np.testing.assert_allclose(together(model, "ov_rank", by_entropy=True), [16, 16], rtol=1e-5)
    np.testing.assert_allclose(together(model, "ov_norm"), [4, 4], rtol=1e-5)
    assert "no two attentions in sequence" in str(
        why_not(model, METRICS.load("k_composition").bind())
    )


# --- what cannot be scored, and bad options


@pytest.mark.parametrize(
    ("family", "name", "why"),
    [
        ("deepseek_v3", "ov_norm", "a latent"),
        ("deepseek_v3", "qk_rank", "a latent"),
        ("bert", "ov_copying", "nonlinear layer"),
        ("vit", "copying_score", "not logits"),
        ("qwen3_next", "ov_copying", "gated"),
        ("jamba", "k_composition", "no two attentions"),
    ],
)
def test_what_cannot_be_scored_is_refused_in_one_line(family, name, why):
    model = interp.load(zoo.FAMILIES[family].model(), name=family)
    with pytest.raises(OptionError, match=why) as caught:
        METRICS.load(name)(model)
    assert "\n" not in str(caught.value)
    assert name in str(caught.value)
    assert family in str(caught.value)
    with pytest.raises(UnreadableAttention, match=why):
        METRICS.load(name).bind().from_weights(model)
    if name == "ov_norm":  # a run of all metrics leaves it out
        assert name not in score(model, null="none").metrics


@pytest.mark.parametrize(
    "name", [n for n, f in zoo.FAMILIES.items() if "refused" not in f.features]
)
def test_every_metric_is_finite_or_refused_on_every_family(name):
    model = interp.load(zoo.FAMILIES[name].model(zoo.FAMILIES[name].attentions[-1]), name=name)
    for metric in NAMES:
        bound = METRICS.load(metric).bind()
        if why_not(model, bound) is not None:
            continue
        found = bound.from_weights(model)
        entry = METRICS[metric]
        assert found
        for site, x in found.items():
            assert x.shape == (site.n_heads,)
            assert x.isfinite().all()
            assert entry.low is None or float(x.min()) >= entry.low - 1e-6
            assert entry.high is None or float(x.max()) <= entry.high + 1e-6
        left_out = {s.stack for s in circuit_sites(model.sites)} - {s.stack for s in found}
        copies = metric in ("ov_copying", "copying_score")
        translates = "encoder-decoder" in zoo.FAMILIES[name].features
        assert left_out <= ({"encoder", "cross"} if copies and translates else set())


def test_streams_of_encoder_decoders_do_not_mix():
    model = interp.load(zoo.FAMILIES["bart"].model(), name="bart")
    pairs = {k: {(a.stack, b.stack) for a, b in composition_matrices(model, k)} for k in "qk"}
    own = {("encoder", "encoder"), ("decoder", "decoder"), ("cross", "decoder")}
    assert pairs["q"] == own | {("decoder", "cross"), ("cross", "cross")}
    assert pairs["k"] == own | {("encoder", "cross")}
    in_order = {(a.name, b.name) for a, b in composition_matrices(model, "q")}
    assert ("decoder.0", "cross.0") in in_order  # of one layer, self attention comes first
    assert not {("cross.0", "decoder.0"), ("cross.1", "decoder.0")} & in_order
    assert all((b, a) not in in_order for a, b in in_order)


def test_bad_options_are_refused():
    model = interp.load(zoo.FAMILIES["gpt2"].model(), name="gpt2")
    with pytest.raises(OptionError, match="tokens=1"):
        METRICS.load("copying_score").bind(tokens=1).from_weights(model)
    with pytest.raises(OptionError, match="known: q, k, v"):
        composition_scores(model, "x")  # type: ignore[arg-type]
    assert (model.sites[2], model.sites[0]) not in composition_matrices(model, "q")


def test_random_init_of_every_metric_is_the_null():
    model = interp.load(zoo.FAMILIES["gpt2"].model(), name="gpt2")
    nulls = list(RandomWeights(model, 3))
    declared: Analysis = METRICS.load("ov_norm")
    frame = declared(model, seed=3).to_pandas()
    mean = np.mean([together(x, "ov_norm") for x in nulls], 0)
    np.testing.assert_allclose(frame["null"], mean, rtol=1e-6)
