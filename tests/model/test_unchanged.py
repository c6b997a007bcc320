"""A caller's model is after load and score what it was before, whatever its forward does."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import zoo
from sampled import sampled
from torch import nn
from transformers import BigBirdConfig, BigBirdForMaskedLM, LlamaConfig, LlamaForCausalLM

import interp
from interp.core.errors import InterpError, UnreadableAttention
from interp.model.hooks.inference import unchanged

FAMILIES = [
    pytest.param(family, attention, id=f"{family.name}-{attention}")
    for family in zoo.FAMILIES.values()
    for attention in family.attentions
]
QUICK = [x for x in FAMILIES if x.values[0].name in ("llama", "bert", "t5", "vit")]
CASES = QUICK + sampled(x for x in FAMILIES if x not in QUICK)


def looks(module: nn.Module) -> dict[str, Any]:
    """All that a caller could find changed: config, modules, settings, hooks, weights, buffers."""
    plain = (bool, int, float, str, tuple, type(None))
    return {
        "config": copy.deepcopy(module.config.to_dict()),
        "attention": module.config._attn_implementation,
        "modules": [(name, id(m)) for name, m in module.named_modules()],
        "settings": {
            name: {k: x for k, x in vars(m).items() if isinstance(x, plain)}
            for name, m in module.named_modules()
        },
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in module.modules()],
        "learns": [p.requires_grad for p in module.parameters()],
        "weights": [p.detach().clone() for p in (*module.parameters(), *module.buffers())],
        "random": torch.random.get_rng_state(),
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for part, was in before.items():
        if part in ("weights", "random"):
            pairs = zip(was, after[part], strict=True)
            assert all(torch.equal(a, b) for a, b in pairs), part
        else:
            assert was == after[part], part


@pytest.mark.parametrize(("family", "attention"), CASES)
def test_load_and_score_leave_the_callers_model_alone(family, attention):
    module, inputs = family.build(attention), family.inputs()
    with torch.no_grad():
        logits = zoo.output(module(**inputs))
    before = looks(module)
    try:
        model = interp.load(module, name=family.name)
        interp.score(model, "entropy", null="random-init", null_draws=2)
        assert interp.model.check_model(model).passed
    except InterpError:
        assert "refused" in family.features
    assert_same(before, looks(module))
    with torch.no_grad():
        assert torch.equal(zoo.output(module(**inputs)), logits)


def big_bird(attention: str, positions: int = 256) -> nn.Module:
    config = BigBirdConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=positions,
        block_size=4,
        num_random_blocks=2,
        attention_type=attention,
        sep_token_id=3,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return BigBirdForMaskedLM(config).eval()


def test_a_model_that_exchanges_its_attention_is_refused_and_left_as_it_was():
    module = big_bird("block_sparse", positions=32)  # its blocks need 36 tokens
    before = looks(module)
    with pytest.raises(UnreadableAttention, match=r"replaces its block sparse .*original_full"):
        interp.load(module)
    assert module.bert.attention_type == "block_sparse"
    assert_same(before, looks(module))


def test_a_block_sparse_encoder_is_read_and_keeps_its_attention():
    module = big_bird("block_sparse")
    before = looks(module)
    assert {site.kind for site in interp.load(module).sites} == {"block sparse softmax"}
    assert module.bert.attention_type == "block_sparse"
    assert_same(before, looks(module))
    model = interp.load(big_bird("original_full"))
    assert interp.model.check_model(model).passed


def test_frequencies_that_grow_with_a_long_prompt_do_not_reach_the_next():
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=16,
        rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0},
    )
    module = LlamaForCausalLM(config).eval()
    model = interp.load(module)
    medium, long = torch.arange(5, 29)[None], torch.arange(5, 60)[None]
    before, alone = looks(module), model.run(medium)
    model.run(long)
    assert torch.equal(model.run(medium), alone)
    assert_same(before, looks(module))
    module(long)  # the caller's own run, for comparison, does reach the next
    assert not torch.equal(module(medium).logits, alone)


def test_a_snapshot_sees_and_restores_every_kind_of_change():
    module = nn.Sequential(nn.Sequential(nn.Linear(2, 2)))
    module[0].register_buffer("table", torch.zeros(2))
    module[0].max_length = 3
    kept, inner = module[0].table, module[0][0]
    with unchanged(module) as snapshot:
        module[0].max_length, module[0].kind, module[0].table = 4, "new", torch.ones(3)
        module[0][0] = nn.Linear(2, 2)
        assert snapshot.exchanged() == ["Sequential.0"]
    assert module[0].max_length == 3
    assert not hasattr(module[0], "kind")
    assert module[0].table is kept
    assert module[0][0] is inner


def test_a_cached_tensor_that_a_run_lets_go_leaves_its_attribute() -> None:
    """An attribute that held a tensor and holds None after the run is not taken for a new one."""
    module = nn.Linear(1, 1)
    holder = nn.Sequential(module)
    holder.cached = torch.ones(1)
    with unchanged(holder):
        holder.cached = None
        holder.counted = 1
    assert "cached" in holder.__dict__
    assert "counted" not in holder.__dict__
