"""RelP: against the linear model that its rules state, patched without any gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from circuits.contrasts import induction_pairs
from transformers import GPT2Config, GPT2LMHeadModel

import interp
from interp.circuits.methods import exact_patching, relevance_patching


@pytest.fixture(scope="module")
def small_gpt2():
    torch.manual_seed(2)
    config = GPT2Config(
        n_layer=2,
        n_head=2,
        n_embd=16,
        vocab_size=24,
        n_positions=12,
        bos_token_id=0,
        eos_token_id=None,
        initializer_range=0.4,
        activation_function="relu",
    )
    model = interp.load(GPT2LMHeadModel(config).eval(), name="gpt2")
    pairs = induction_pairs(model, 8, length=5)
    return model, pairs.some(range(0, 8, 2))


def run(module, ids, frozen=None, swap=None):
    """Logits of GPT-2 with norms' scales, patterns and the slopes f(x)/x of a run kept constant.

    `swap` gives (writer, reader, value): what that reader reads of the writer.
    """
    kept = {} if frozen is None else frozen
    body = module.transformer
    out = {"embed": body.wte(ids) + body.wpe(torch.arange(ids.shape[1]))}
    biases = []

    def hold(name, value):
        if frozen is None:
            kept[name] = value
        return kept.get(name, value)

    def read(reader, norm):
        total = sum(out.values()) + sum(biases, torch.zeros(16))
        if swap is not None and swap[1] == reader:
            total = total - out[swap[0]] + swap[2]
        x = total - total.mean(-1, keepdim=True)
        scale = hold(reader, (x.square().mean(-1, keepdim=True) + norm.eps).sqrt())
        return x / scale * norm.weight + norm.bias

    hidden = torch.full((ids.shape[1], ids.shape[1]), -math.inf).triu(1)
    for i, block in enumerate(body.h):
        written = {}
        for h in range(2):
            q, k, v = (
                read(f"L{i}H{h}.{part}", block.ln_1)
                @ block.attn.c_attn.weight[:, j * 16 + h * 8 : j * 16 + h * 8 + 8]
                + block.attn.c_attn.bias[j * 16 + h * 8 : j * 16 + h * 8 + 8]
                for j, part in enumerate("qkv")
            )
            made = (q @ k.transpose(1, 2) / math.sqrt(8) + hidden).softmax(-1)
            pattern = hold(f"pattern {i} {h}", made)
            written[f"L{i}H{h}"] = pattern @ v @ block.attn.c_proj.weight[h * 8 : h * 8 + 8]
        out |= written
        biases.append(block.attn.c_proj.bias)
        x = block.mlp.c_fc(read(f"mlp{i}", block.ln_2))
        slope = hold(f"slope {i}", torch.where(x != 0, block.mlp.act(x) / x, 0.0))
        out[f"mlp{i}"] = block.mlp.c_proj(slope * x)
    return module.lm_head(read("logits", body.ln_f)), out, kept


def test_every_edge_is_what_patching_the_linear_model_gives(small_gpt2) -> None:
    model, task = small_gpt2
    found = relevance_patching(model, task, "edge", freeze_patterns=True)
    (batch,) = task.batches()
    clean, corrupted = (
        torch.tensor([list(x) for x in p.ids]) for p in (batch.clean, batch.corrupted)
    )
    with torch.no_grad():
        whole, _, kept = run(model.module, clean)
        torch.testing.assert_close(whole, model.run(batch.clean), atol=1e-5, rtol=1e-4)
        _, other, _ = run(model.module, corrupted)
        for (writer, reader), row in zip(found.edges, found.edges_per_prompt, strict=True):
            logits, _, _ = run(model.module, clean, kept, (writer, reader, other[writer]))
            want = (batch.value(whole) - batch.value(logits)).double().numpy()
            np.testing.assert_allclose(row, want, atol=1e-4, err_msg=f"{writer} {reader}")
    size = np.abs(found.edges_per_prompt).max(1)
    into = {
        name: max(s for (_, b), s in zip(found.edges, size, strict=True) if b.endswith(name))
        for name in (".q", ".k", ".v", "mlp1")
    }
    assert into[".q"] == into[".k"] == 0  # the pattern is a constant
    assert into[".v"] > 1e-3
    assert into["mlp1"] > 1e-3


def test_attention_is_differentiated_as_published(small_gpt2) -> None:
    """With one pattern changed a little, the score of a query is the slope of the task."""
    model, task = small_gpt2
    found = relevance_patching(model, task, "edge")
    frozen = relevance_patching(model, task, "edge", freeze_patterns=True)
    (batch,) = task.batches()
    clean, corrupted = (
        torch.tensor([list(x) for x in p.ids]) for p in (batch.clean, batch.corrupted)
    )
    small = 1e-2
    with torch.no_grad():
        _, own, kept = run(model.module, clean)
        _, other, _ = run(model.module, corrupted)
        held = {name: x for name, x in kept.items() if not name.startswith("pattern 1")}
        at = dict(zip(found.edges, found.edges_per_prompt, strict=True))
        for writer, reader in (("L0H0", "L1H1.q"), ("mlp0", "L1H0.k"), ("embed", "L1H1.k")):
            step = small * (other[writer] - own[writer])
            sides = [
                batch.value(run(model.module, clean, held, (writer, reader, own[writer] + x))[0])
                for x in (-step, step)
            ]
            want = ((sides[0] - sides[1]) / (2 * small)).double().numpy()
            np.testing.assert_allclose(at[writer, reader], want, atol=2e-3, rtol=0.02)
            assert np.abs(want).max() > 0.01
    last = dict(zip(frozen.edges, frozen.edges_per_prompt, strict=True))
    np.testing.assert_allclose(at["L0H0", "L1H0.v"], last["L0H0", "L1H0.v"], atol=1e-5)


def test_nodes_are_sums_of_edges(small_gpt2) -> None:
    model, task = small_gpt2
    edges, nodes = (relevance_patching(model, task, level) for level in ("edge", "head"))
    np.testing.assert_allclose(edges.per_prompt, nodes.per_prompt, atol=1e-5)
    assert np.abs(nodes.per_prompt).max() > 1e-2


def test_heads_that_write_the_answer_are_seen_and_those_that_move_keys_are_not(
    planted_bystander,
) -> None:
    from interp.circuits.tasks import make_contrast

    task = make_contrast(planted_bystander, "planted:bystander", n=6)
    both = (
        relevance_patching(planted_bystander, task, freeze_patterns=True),
        exact_patching(planted_bystander, task),
    )
    score, effect = (dict(zip(x.nodes, x.per_prompt.mean(1), strict=True)) for x in both)
    assert score["L1H0"] == pytest.approx(effect["L1H0"], rel=0.01)
    assert abs(score["L0H3"]) < 1e-3 < effect["L0H3"]
    assert abs(score["L1H2"]) < 1e-3
