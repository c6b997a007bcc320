"""Head outputs of long prompts in blocks: those of stored patterns, with their gradients."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import zoo

import interp
from interp.causal import custom, leave_one_out
from interp.circuits.attention_parts import attention_tensors, set_parts
from interp.circuits.contrast import ContrastTask
from interp.core.registry import CIRCUIT_METHODS
from interp.model.calls.call import ComputedCall
from interp.model.hooks import long_output
from interp.model.hooks.long_output import uniform_output

FAMILIES = ["bert", "gpt2", "llama", "mistral_sliding", "gemma2", "gpt_oss", "t5"]


def calls_of(family: str) -> list:
    """Model, site and call of every layer of a padded batch."""
    chosen = zoo.FAMILIES[family]
    model = interp.load(chosen.model(chosen.attentions[-1]), name=family)
    found = []
    model.read(chosen.inputs(), lambda site, call, real: found.append((model, site, call, real)))
    return found


def draw(like: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).to(like)


@pytest.mark.parametrize("family", FAMILIES)
def test_other_queries_keys_and_values_in_blocks(monkeypatch, family) -> None:
    for model, site, call, real in calls_of(family):
        parts = attention_tensors(call, site)
        other = replace(parts, q=draw(parts.q, 0), k=draw(parts.k, 1), v=draw(parts.v, 2))
        set_parts(model, site, call, other)
        stored = call.z
        monkeypatch.setattr(long_output, "STORED_BYTES", 0)
        set_parts(model, site, call, other)
        monkeypatch.undo()
        # a padded query is no output of the model
        rows = real[:, None, :, None] if real.shape[1] == stored.shape[2] else True
        torch.testing.assert_close(
            torch.where(rows, call.z, 0), torch.where(rows, stored, 0), rtol=1e-4, atol=1e-5
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_uniform_attention_in_blocks(monkeypatch, family) -> None:
    for _, _, call, real in calls_of(family):
        stored = uniform_output(call)
        monkeypatch.setattr(long_output, "STORED_BYTES", 0)
        found = uniform_output(call)
        monkeypatch.undo()
        rows = real[:, None, :, None] if real.shape[1] == stored.shape[2] else True
        torch.testing.assert_close(
            torch.where(rows, found, 0), torch.where(rows, stored, 0), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("family", ["gpt2", "llama", "qwen3", "gpt_neox"])
@pytest.mark.parametrize(
    ("method", "level"),
    [
        ("attribution_patching", "head"),
        ("attribution_patching", "edge"),
        ("exact_patching", "head"),
        ("exact_patching", "edge"),
    ],
)
def test_circuit_methods_give_the_stored_scores(monkeypatch, family, method, level) -> None:
    chosen = zoo.FAMILIES[family]
    model = interp.load(chosen.model(chosen.attentions[-1]), name=family)
    clean = [[5, 6, 7, 8, 9, 10, 11, 12], [9, 5, 7, 5, 13, 12, 6, 8]]
    corrupted = [[5, 6, 14, 8, 9, 10, 11, 12], [9, 5, 7, 15, 13, 12, 6, 8]]
    task = custom(
        model,
        clean,
        lambda logits, _: logits[0, 5] - logits[0, 6],
        name="difference",
        unit="logits",
        higher_is_better=True,
        corrupted=corrupted,
    )
    run = CIRCUIT_METHODS.load(method)
    stored = run(model, ContrastTask(task), level)
    monkeypatch.setattr(long_output, "STORED_BYTES", 0)
    found = run(model, ContrastTask(task), level)
    pairs = [(found.per_prompt, stored.per_prompt)]
    pairs += [] if level == "head" else [(found.edges_per_prompt, stored.edges_per_prompt)]
    for mine, theirs in pairs:
        size = abs(theirs).max()
        assert size > 0
        assert abs(mine - theirs).max() <= 1e-4 * size


def test_uniform_ablation_gives_the_stored_scores(monkeypatch) -> None:
    chosen = zoo.FAMILIES["llama"]
    model = interp.load(chosen.model("sdpa"), name="llama")
    task = custom(
        model,
        [[5, 6, 7, 8, 9, 10]],
        lambda logits, _: logits[0, 5],
        name="one",
        unit="logits",
        higher_is_better=True,
    )
    options = {"kind": "uniform-attention", "null": "none"}
    stored = leave_one_out(model, task, **options)
    monkeypatch.setattr(long_output, "STORED_BYTES", 0)
    found = leave_one_out(model, task, **options)
    assert abs(found.per_prompt - stored.per_prompt).max() <= 1e-5
    assert abs(stored.per_prompt).max() > 1e-4


def test_only_calls_that_follow_from_queries_and_keys_are_long(monkeypatch) -> None:
    q = torch.zeros(1, 1, 4, 2)
    call = ComputedCall(q=q, k=q, v=q, z=q, scale=1.0)
    assert not long_output.is_long(call)
    monkeypatch.setattr(long_output, "STORED_BYTES", 63)
    assert long_output.is_long(call)
    monkeypatch.setattr(long_output, "STORED_BYTES", 64)
    assert not long_output.is_long(call)
