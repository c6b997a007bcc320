"""Known heads of channel maps: a scan that copies k tokens back, and a softmax of known decay.

The outputs of a Mamba-1 layer are also compared with the parallel scan of `mambapy`.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn
from transformers import MambaConfig, MambaForCausalLM, RwkvConfig, RwkvForCausalLM

import interp
from interp.model.edits import zero
from interp.model.mixers.channel_call import ChannelCall

BACK, PERIOD = 3, 8


def copying() -> nn.Module:
    """A Mamba-1 layer whose first 8 channels read the token BACK positions back in a cycle."""
    config = MambaConfig(
        vocab_size=PERIOD,
        hidden_size=32,
        num_hidden_layers=1,
        state_size=PERIOD,
        conv_kernel=4,
        time_step_rank=2,
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = MambaForCausalLM(config).eval()
    mixer = model.backbone.layers[0].mixer
    with torch.no_grad():
        embedding = model.backbone.embeddings.weight
        embedding.zero_()
        embedding[:, :PERIOD] = torch.eye(PERIOD)
        embedding[:, 16] = 1.0
        u, gate = mixer.in_proj.weight.split(64)
        u[8:] *= 0.1
        u[:8], gate[:8] = 0, 0
        gate[:8, 16] = 2.0
        for token in range(PERIOD):
            u[token, token] = 4.0
        mixer.conv1d.weight.zero_()
        mixer.conv1d.weight[:, 0, -1] = 1.0  # no mixing by the convolution
        mixer.conv1d.bias.zero_()
        weight = mixer.x_proj.weight
        weight.zero_()
        for token in range(PERIOD):  # states are tokens: written by one, read BACK later
            weight[2 + token, token] = 2.0
            weight[2 + PERIOD + (token - BACK) % PERIOD, token] = 2.0
        mixer.dt_proj.bias[:] = math.log(math.e - 1)  # a step of 1
        mixer.A_log[:8] = math.log(0.7)
        mixer.A_log[8:] = math.log(10.0)  # all channels share B and C: the others forget at once
        mixer.D[:8] = 0
        mixer.out_proj.weight.zero_()
        mixer.out_proj.weight[8:16, :8] = torch.eye(8)
        model.lm_head.weight.zero_()
        model.lm_head.weight[:, 8:16] = torch.eye(8)
    return model


@torch.no_grad()
def test_a_scan_that_copies_k_tokens_back_is_found_by_its_offset():
    model = interp.load(copying(), name="copying")
    ids = [[(start + i) % PERIOD for i in range(24)] for start in range(PERIOD)]

    def copies_back(query, key):
        return key == query - BACK

    table = interp.score(
        model, [copies_back], ids, null="shuffled-tokens", null_draws=3, null_cache=False
    )
    found = table.to_pandas().set_index("head")
    assert found.score[0] > 0.8
    assert found.null[0] < 0.5
    assert float(found.score.drop(0).max()) < 0.5
    tokens = torch.tensor(ids)

    def right(logits):
        return float((logits[:, BACK:].argmax(-1) == tokens[:, :-BACK]).float().mean())

    assert right(model.run(ids)) == 1.0
    assert right(model.run(ids, edits=[zero([(0, 0)])])) == pytest.approx(1 / PERIOD, abs=0.05)


@torch.no_grad()
def test_a_known_decay_is_the_ratio_of_neighbouring_weights():
    """Equal keys leave weights that shrink by exp(-exp(decay)) per step back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = RwkvConfig(
            vocab_size=16,
            hidden_size=32,
            num_hidden_layers=2,
            context_length=32,
            attention_hidden_size=32,
            bos_token_id=0,
            eos_token_id=0,
        )
        module: Any = RwkvForCausalLM(config).eval()
    attention = module.rwkv.blocks[0].attention
    rates = torch.linspace(0.1, 1.5, 32)
    attention.key.weight.zero_()
    attention.time_decay.copy_(rates.log())
    attention.time_first.fill_(math.log(2.0))
    model = interp.load(module, name="decay")
    kept: list[ChannelCall] = []
    model.read([list(range(12))], lambda site, call, real: kept.append(call))
    rows = kept[0].map()[0].flatten(0, 1)  # channel query key
    ratio = rows[:, 11, :10] / rows[:, 11, 1:11]
    torch.testing.assert_close(ratio, torch.exp(-rates)[:, None].expand(-1, 10))
    own = rows[:, 11, 11] / rows[:, 11, 10]  # the bonus of the token itself
    torch.testing.assert_close(own, torch.full_like(own, 2.0))


@torch.no_grad()
def test_maps_give_the_output_of_another_scan():
    """The parallel scan of mambapy on the same tensors; skipped where it is not installed."""
    pscan = pytest.importorskip("mambapy.pscan", reason="mambapy is not installed").pscan
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        config = MambaConfig(vocab_size=32, hidden_size=32, num_hidden_layers=1, state_size=8)
        module: Any = MambaForCausalLM(config).eval()
    model = interp.load(module, name="scan")
    kept: list[ChannelCall] = []
    ids = torch.arange(16)[None]
    model.read(ids.tolist(), lambda site, call, real: kept.append(call))
    mixer = module.backbone.layers[0].mixer
    hidden = module.backbone.layers[0].norm(module.backbone.embeddings(ids))
    x = mixer.in_proj(hidden).chunk(2, -1)[0].mT
    u = torch.nn.functional.silu(mixer.conv1d(x)[..., :16]).mT
    dt, b, c = mixer.x_proj(u).split([mixer.time_step_rank, 8, 8], -1)
    dt = torch.nn.functional.softplus(mixer.dt_proj(dt))
    decay = torch.exp(dt[..., None] * -torch.exp(mixer.A_log))
    states = pscan(decay, dt[..., None] * b[:, :, None] * u[..., None])
    y = (states @ c[..., None])[..., 0] + mixer.D * u
    call = kept[0]
    torch.testing.assert_close(call.mapped().transpose(1, 2).flatten(2), y, atol=1e-5, rtol=1e-4)
