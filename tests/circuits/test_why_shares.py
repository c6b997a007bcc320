"""Scores split over pairs of writers: exact sums, written-out terms, planted heads, ablations."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from zoo import FAMILIES

import interp
from interp import planted
from interp.circuits import check_shares, qk_shares
from interp.circuits.why import score_parts
from interp.circuits.why.stream_parts import StreamParts
from interp.core.errors import OptionError, PromptError, UnknownName, UnreadableAttention
from interp.core.prompts import repeats

QUICK = ("gpt2", "llama", "qwen3", "gemma2", "falcon_alibi", "gpt_oss", "gptj", "opt", "cohere")
READ = {
    *QUICK,
    "qwen2",
    "qwen2_sliding",
    "mistral_sliding",
    "mixtral",
    "qwen3_moe",
    "phi3",
    "olmo2",
    "stablelm",
    "starcoder2",
    "granite",
    "smollm3",
    "gemma",
    "gemma3",
    "gpt_bigcode",
    "gpt_neox",
    "phi",
    "biogpt",
    "ctrl",
    "modernbert",
    "bloom",
    "falcon",
    "falcon_gqa",
    "gpt_neo",
    "codegen",
    "mpt",
    "xglm",
}
PAIRS = [(7, 2), (5, 5), (11, 10), (1, 0)]


def tokens(rows: int = 3, n: int = 12) -> list[list[int]]:
    return torch.randint(4, 60, (rows, n), generator=torch.Generator().manual_seed(0)).tolist()


def of_family(name: str) -> interp.Model:
    return interp.load(FAMILIES[name].model(FAMILIES[name].attentions[0]))


def assert_sums_to_scores(name: str) -> None:
    """Rows of every head sum to the score, with a soft-cap to the capped one."""
    model, ids = of_family(name), tokens()
    pairs = [p for p in PAIRS if "sliding" not in name and name not in ("gpt_oss", "gemma2")]
    pairs = pairs or [(7, 6), (5, 5), (11, 10), (1, 0)]  # a window of four keys
    if name in ("gemma3", "gpt_neo", "modernbert"):
        pairs = [(7, 6), (5, 5), (11, 10), (1, 0)]
    found = qk_shares(model, model.heads(), ids, at=pairs, null="none")
    cache = model.capture(ids, ("scores",))
    for head in found.names:
        mine = found.of(head)
        layer, h = mine.layers[0], mine.heads_of[0]
        true = cache["scores", layer][:, h].double()
        score = torch.stack([true[:, q, k] for q, k in pairs]).mean(0).numpy()
        size = max(1.0, float(true[true > -1e4].abs().max()))
        if mine.capped is not None:
            assert abs(mine.capped.sum() - score.mean()) <= 1e-5 * size
            assert not np.allclose(mine.per_prompt.sum(0), score, atol=1e-4)
        else:
            assert np.abs(mine.per_prompt.sum(0) - score).max() <= 1e-5 * size


@pytest.mark.parametrize("name", QUICK)
def test_terms_sum_to_the_scores_of_the_model(name: str) -> None:
    assert_sums_to_scores(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(FAMILIES) - set(QUICK)))
def test_every_family_is_exact_or_refused_by_name(name: str) -> None:
    if name in READ:
        assert_sums_to_scores(name)
        return
    with pytest.raises((UnreadableAttention, PromptError)) as raised:
        qk_shares(FAMILIES[name].model(FAMILIES[name].attentions[0]), "L0H0", tokens())
    assert len(str(raised.value)) > 40


def test_a_term_is_that_of_gpt2_written_out() -> None:
    model, ids = of_family("gpt2"), tokens(1)
    head, query, key = 2, 7, 3
    row = qk_shares(model, f"L1H{head}", ids, at=[(query, key)])
    block, first = model.module.transformer.h[1], model.module.transformer.h[0]
    d, width = block.attn.head_dim, block.attn.embed_dim
    cache = model.capture(ids, ("z", "mlp_out", "resid_pre"))
    z = cache["z", 0][0, 3].double()  # [pos, d]
    from_head = z @ first.attn.c_proj.weight.double()[3 * d : 4 * d]
    from_mlp = cache["mlp_out", 0][0].double()
    x = cache["resid_pre", 1][0].double()
    scale = ((x - x.mean(-1, keepdim=True)).square().mean(-1, keepdim=True) + 1e-5).rsqrt()

    def side(part: torch.Tensor, start: int) -> torch.Tensor:
        normed = (part - part.mean(-1, keepdim=True)) * scale * block.ln_1.weight.double()
        return normed @ block.attn.c_attn.weight.double()[:, start + head * d :][:, :d]

    expected = (side(from_head, 0)[query] @ side(from_mlp, width)[key] / d**0.5).item()
    frame = row.to_pandas().set_index(["query_writer", "key_writer"])["score"]
    assert frame["L0H3", "mlp0"] == pytest.approx(expected, rel=1e-4, abs=1e-7)
    assert abs(expected) > 1e-4
    position = model.module.transformer.wpe.weight[:12].double()
    token = model.module.transformer.wte.weight[ids[0]].double()
    expected = (side(position, 0)[query] @ side(token, width)[key] / d**0.5).item()
    assert frame["pos_embed", "embed"] == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_rotary_positions_and_grouped_keys_act_on_each_part() -> None:
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    model, ids = of_family("llama"), tokens(1)
    inner = model.module.model
    layer, head, query, key = inner.layers[1], 4, 9, 2
    x = model.capture(ids, ("resid_pre",))["resid_pre", 1]
    part = inner.embed_tokens.weight[ids[0]][None].detach()
    scale = (x.square().mean(-1, keepdim=True) + layer.input_layernorm.variance_epsilon).rsqrt()
    normed = part * scale * layer.input_layernorm.weight
    attention = layer.self_attn
    d = attention.head_dim
    q = attention.q_proj(normed).unflatten(-1, (-1, d)).transpose(1, 2)
    k = attention.k_proj(normed).unflatten(-1, (-1, d)).transpose(1, 2)
    cos, sin = inner.rotary_emb(x, torch.arange(12)[None])
    q, k = apply_rotary_pos_emb(q, k, cos, sin)
    expected = (q[0, head, query] @ k[0, head // 3, key] * attention.scaling).item()
    found = qk_shares(model, (1, head), ids, at=[(query, key)]).to_pandas()
    value = found.set_index(["query_writer", "key_writer"])["score"]["embed", "embed"]
    assert value == pytest.approx(expected, rel=1e-4)


def test_relative_terms_are_those_less_their_mean_over_visible_keys() -> None:
    model, ids = of_family("falcon_alibi"), tokens(1)
    each = [qk_shares(model, "L1H2", ids, at=[(7, j)]) for j in range(8)]
    terms = np.stack([x.per_prompt[:, 0] for x in each])
    for j, one in enumerate(each):
        assert np.allclose(one.relative[:, 0], terms[j] - terms.mean(0), atol=1e-10)
        assert np.allclose(one.nulls, terms.mean(0), atol=1e-10)
    assert "position bias" in each[0].key_writers
    slope = [t[-1] for t in terms]
    assert np.allclose(np.diff(slope, 2), 0, atol=1e-5)  # ALiBi falls linearly with distance
    assert abs(slope[0] - slope[7]) > 0.05


def test_terms_that_are_equal_for_all_keys_are_named() -> None:
    found = qk_shares(of_family("gpt2"), "L0H1", tokens())
    same = found.constant()
    assert set(same.key_writers) == {"bias"}  # without rotary positions
    assert np.allclose(same.relative, 0, atol=1e-9)
    assert np.abs(same.per_prompt).max() > 0.01


def test_a_planted_induction_head_reads_the_previous_token_head() -> None:
    made = planted.bystander()
    model = interp.load(made.model, name=made.name)
    prompts = repeats(model, n=8, max_length=12)
    [(_, before)] = made.roles["previous_token"]
    for role in ("induction", "bystander"):
        head = made.roles[role][0]
        found = qk_shares(model, head, prompts, at="induction")
        first = found.top(1).to_pandas().iloc[0]
        assert (first["query_writer"], first["key_writer"]) == ("embed", f"L0H{before}")
        whole = found.relative.sum(0).mean()
        assert first["relative"] > 0.9 * whole
        assert abs(first["null"]) < 0.2 * first["score"]
        assert first["low"] > 0


def test_random_weights_are_a_null() -> None:
    model = interp.load("bundled:induction")
    prompts = repeats(model, n=4, max_length=12)
    found = qk_shares(model, "L1H0", prompts, at="induction", null="random-weights")
    first = found.top(1).to_pandas().iloc[0]
    assert abs(first["null"]) < 0.1 * first["score"]
    assert found.nulls.shape == (len(found),)
    assert np.isfinite(found.nulls).all()


def test_sums_that_miss_a_writer_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = StreamParts.before

    def missing(self, site):
        parts = whole(self, site)
        return type(parts)(parts.names[1:], parts.x[:, :, 1:])

    monkeypatch.setattr(StreamParts, "before", missing)
    with pytest.raises(UnreadableAttention, match="the terms of L1H2 differ from its scores"):
        qk_shares(of_family("llama"), "L1H2", tokens())


def test_half_precision_is_refused_with_the_remedy() -> None:
    model = interp.load(FAMILIES["llama"].build("eager").bfloat16(), check=False)
    with pytest.raises(UnreadableAttention):
        qk_shares(model, "L1H2", tokens())


def test_features_stand_in_place_of_earlier_writers() -> None:
    model, ids = of_family("llama"), tokens()
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(20, 48, generator=generator)
    made = SimpleNamespace(
        W_dec=weight,
        b_dec=torch.randn(48, generator=generator),
        layer=1,
        site="resid_pre",
        encode=lambda x: torch.relu(x @ weight.T),
    )
    plain = qk_shares(model, "L2H3", ids, at=PAIRS)
    for most in (100, 5):
        found = qk_shares(model, "L2H3", ids, at=PAIRS, dictionaries=[made], features=most)
        assert np.allclose(found.per_prompt.sum(0), plain.per_prompt.sum(0), atol=1e-5)
        assert not {"embed", "L0H0", "mlp0"} & set(found.key_writers)
        assert {"L1H0", "mlp1", "L1 error"} <= set(found.key_writers)
        assert ("L1 other features" in found.key_writers) == (most == 5)
    early = qk_shares(model, "L0H3", ids, at=PAIRS, dictionaries=[made])
    assert set(early.key_writers) == {"embed", "bias"}
    value = found.to_pandas().set_index(["query_writer", "key_writer"])["score"]
    later = plain.to_pandas().set_index(["query_writer", "key_writer"])["score"]
    assert value["mlp1", "L1H2"] == pytest.approx(later["mlp1", "L1H2"])
    made.site = "z"
    with pytest.raises(OptionError, match="resid_pre or resid_post"):
        qk_shares(model, "L2H3", ids, dictionaries=[made])


@torch.no_grad()
def test_removing_a_writer_is_measured_by_the_models_own_norm() -> None:
    made = planted.bystander()
    model = interp.load(made.model, name=made.name)
    prompts = repeats(model, n=8, max_length=12)
    layer, head = made.roles["induction"][0]
    found = check_shares(model, (layer, head), prompts, at=[(-1, 3)], top=1)
    row = found.to_pandas().set_index("side").loc["key"]
    [(_, before)] = made.roles["previous_token"]
    assert row["writer"] == f"L0H{before}"
    # by hand: queries as they are, keys of the stream without what the head wrote
    changes = []
    for ids in prompts.ids[1::2]:
        cache = model.capture([ids], ("resid_pre", "z", "q", "k"))
        w = model.weights_of(model.sites[0])
        part = cache["z", 0][0, before] @ w.added[before]
        block = model.module.model.layers[layer]
        x = block.input_layernorm(cache["resid_pre", layer][0] - part)
        kv = model.sites[layer].kv_head(head)
        d = model.d_head
        k = block.self_attn.k_proj(x)[3, kv * d : (kv + 1) * d]
        cos, sin = model.module.model.rotary_emb(x[None], torch.arange(len(ids))[None])
        half = torch.cat([-k[d // 2 :], k[: d // 2]])
        k = k * cos[0, 3] + half * sin[0, 3]
        old = cache["k", layer][0, kv, 3]
        changes.append(float(cache["q", layer][0, head, -1] @ (k - old)) * block.self_attn.scaling)
    assert np.allclose(found.per_prompt[-1, 1::2], changes, rtol=1e-3, atol=1e-3)
    assert np.isnan(found.per_prompt[:, ::2]).all()
    assert found.random.shape == found.per_prompt.shape


def test_predictions_go_with_measurements_and_not_with_random_directions() -> None:
    model = interp.load("bundled:induction")
    found = check_shares(model, "L1H0,L1H1", repeats(model, n=12), at="induction")
    for name in ("score", "attention"):
        value, low, high = found.correlations[name]
        assert 0.7 < low <= value <= high
    assert found.correlations["random"][0] < 0.3


def test_bad_requests_say_what_to_give() -> None:
    model, ids = of_family("llama"), tokens()
    with pytest.raises(UnknownName, match="rule of positions"):
        qk_shares(model, "L1H0", ids, at="entropy")
    with pytest.raises(OptionError, match="outside a prompt of 12 tokens"):
        qk_shares(model, "L1H0", ids, at=[(12, 0)])
    with pytest.raises(OptionError, match="does not see"):
        qk_shares(model, "L1H0", ids, at=[(2, 5)])
    with pytest.raises(OptionError, match="no head L7H0"):
        qk_shares(model, "L7H0", ids)
    with pytest.raises(OptionError, match="no prompt has a position"):
        qk_shares(model, "L1H0", [[5, 6, 7, 8]], at=lambda query, key: query < key)
    with pytest.raises(OptionError, match="at least 4"):
        check_shares(model, "L1H0", ids)
    assert score_parts.IDENTITY == 1e-5


def test_prompts_of_several_lengths_and_predicates_are_averaged_by_prompt() -> None:
    model = of_family("gpt2")
    ids = [tokens()[0], tokens()[1][:7]]

    def two_back(query, key):
        return query - key == 2

    found = qk_shares(model, "L1H1", ids, at=two_back)
    assert found.pairs["L1H1"] == (10, 5)
    alone = [qk_shares(model, "L1H1", [x], at=two_back) for x in ids]
    assert np.allclose(found.per_prompt, np.hstack([x.per_prompt for x in alone]), atol=1e-6)
    typed = qk_shares(model, "L1H1", [ids[0]], at=[(5, 3), (-1, 0)])
    assert "at query:key 5:3, -1:0 of 1 prompt" in repr(typed)
    both = found.compare(qk_shares(model, "L1H1", ids, at=two_back))
    assert np.allclose(both.to_pandas()["score"], 0)
    side = found.side("key")
    assert side["score"].sum() == pytest.approx(found.to_pandas()["score"].sum())
