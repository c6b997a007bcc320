"""Known heads of mixers: noise that a pair of softmaxes cancels, and a recurrence that copies."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from transformers import DiffLlamaConfig, DiffLlamaForCausalLM, Mamba2Config, Mamba2ForCausalLM

import interp
from interp.model.calls.map_call import MapCall, absolute_share
from interp.model.edits import zero

NOISE, TARGET, OTHER, BACK, PERIOD = 0, 1, 2, 3, 8


def cancelling() -> nn.Module:
    """Two pairs of heads; in pair 0 both softmaxes attend to NOISE, and one of them to TARGET."""
    config = DiffLlamaConfig(
        vocab_size=12,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        head_dim=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        rope_parameters={"rope_type": "default", "rope_theta": 1e12},
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = DiffLlamaForCausalLM(config).eval()
    attention = model.model.layers[0].self_attn
    with torch.no_grad():
        table = model.model.embed_tokens.weight
        table.zero_()
        table[:, 0] = 1.0  # the feature of every token
        table[NOISE, 1], table[TARGET, 2] = 1.0, 1.0
        q, k = (x.weight.view(4, 4, 16) for x in (attention.q_proj, attention.k_proj))
        q.zero_()
        k.zero_()
        # dimensions 1 and 3 turn with the slowest rotary frequency, which is negligible here
        for head in (0, 2):  # the two softmaxes of pair 0
            q[head, 1, 0] = 2.0
            k[head, 1, 1] = 4.0
        q[0, 3, 0], k[0, 3, 2] = 2.0, 4.0
        attention.lambda_q1.zero_()
        attention.lambda_k1.zero_()
        attention.lambda_q2.zero_()
        attention.lambda_q1[0] = attention.lambda_k1[0] = math.sqrt(math.log(1.3))
    return model


@torch.no_grad()
def test_the_noise_of_both_softmaxes_cancels_in_the_map_of_the_pair():
    model = interp.load(cancelling(), name="cancelling")
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(OTHER, 12, (4, 16), generator=generator)
    ids[:, 0], ids[:, 5] = NOISE, TARGET

    def to_target(query, key, tokens):
        return (tokens[key] == TARGET) & (key < query)

    def to_noise(query, key, tokens):
        return (tokens[key] == NOISE) & (key < query) & (query > 5)

    table = interp.score(model, [to_target, to_noise], ids.tolist(), null_draws=3, null_cache=False)
    found = table.to_pandas().set_index(["metric", "head"])
    assert found.score["to_target", 0] > 0.9
    assert found.score["to_noise", 0] < 0.05
    assert found.score["to_target", 1] < 0.2  # the bystander attends evenly
    kept: dict[int, Any] = {}
    model.read(ids.tolist(), lambda site, call, real: kept.update({site.layer: call}))
    call = kept[0]
    assert isinstance(call, MapCall)
    first, second = (call.part(name)[:, 0, 6:, 0] for name in ("first", "second"))
    assert float(first.min()) > 0.45  # each softmax alone attends to the noise
    assert float(second.min()) > 0.9
    assert float(absolute_share(call.map())[:, 0, 6:, 0].max()) < 0.05
    even = call.map()[:, 1, 10]  # equal softmaxes leave 1 - lambda of even attention
    torch.testing.assert_close(even[:, :11], torch.full_like(even[:, :11], 0.5 / 11))


def copying() -> nn.Module:
    """A Mamba-2 layer whose head 0 reads the token BACK positions back in a periodic sequence."""
    config = Mamba2Config(
        vocab_size=PERIOD,
        hidden_size=32,
        num_hidden_layers=1,
        state_size=PERIOD,
        num_heads=8,
        head_dim=8,
        n_groups=8,
        chunk_size=8,
        expand=2,
        conv_kernel=4,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = Mamba2ForCausalLM(config).eval()
    mixer, width = model.backbone.layers[0].mixer, 64
    with torch.no_grad():
        embedding = model.backbone.embeddings.weight
        embedding.zero_()
        embedding[:, :PERIOD] = torch.eye(PERIOD)
        embedding[:, 16] = 1.0
        split = mixer.in_proj.weight.split([width, width, 64, 64, 8])
        gate, u, b, c, dt = split
        for part in (gate, u):
            part[:8] = 0
        u[8:] *= 0.1
        gate[:, 16] = 2.0
        dt.zero_()
        for token in range(PERIOD):
            u[token, token] = 4.0
            b[:8][token] = 0
            c[:8][token] = 0
            b[token, token] = 4.0
            c[token, (token + BACK) % PERIOD] = 4.0
        mixer.conv1d.weight.zero_()
        mixer.conv1d.weight[:, 0, -1] = 1.0  # no mixing by the convolution
        mixer.conv1d.bias.zero_()
        mixer.D[0] = 0
        mixer.dt_bias[0] = math.log(math.e - 1)  # a step of 1
        mixer.A_log[0] = math.log(0.7)
        mixer.out_proj.weight.zero_()
        mixer.out_proj.weight[8:16, :8] = torch.eye(8)
        model.lm_head.weight.zero_()
        model.lm_head.weight[:, 8:16] = torch.eye(8)
    return model


@torch.no_grad()
def test_a_recurrence_that_copies_k_positions_back_is_found_by_a_predicate():
    model = interp.load(copying(), name="copying")
    starts = range(PERIOD)
    ids = [[(start + i) % PERIOD for i in range(24)] for start in starts]

    def copies_back(query, key):
        return key == query - BACK

    table = interp.score(
        model, [copies_back], ids, null="shuffled-tokens", null_draws=3, null_cache=False
    )
    found = table.to_pandas().set_index("head")
    assert found.score[0] > 0.95
    assert found.null[0] < 0.5  # shuffled tokens carry no positions
    assert float(found.score.drop(0).max()) < 0.5
    logits = model.run(ids)
    tokens = torch.tensor(ids)
    assert torch.equal(logits[:, BACK:].argmax(-1), tokens[:, :-BACK])
    without = model.run(ids, edits=[zero([(0, 0)])])
    right = (without[:, BACK:].argmax(-1) == tokens[:, :-BACK]).float().mean()
    assert float(right) == pytest.approx(1 / PERIOD, abs=0.05)  # as good as a guess
