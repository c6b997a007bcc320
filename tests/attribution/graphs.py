"""Examples whose rollout and flow are known: patterns by hand, and tiny models with their own."""

from __future__ import annotations

import numpy as np
import torch
import zoo

import interp
from interp.attribution import Example
from interp.attribution.target import Target


def last_row(position: int | None = -1) -> Target:
    """A target that reads one output position (None: all alike)."""
    return Target("a number", lambda output, real: output[:, -1].mean(-1), position, "logit")


def example_of(
    family: str, *, length: int = 10, position: int | None = -1, attention: str | None = None
) -> tuple[Example, dict[tuple[str, int], np.ndarray]]:
    """One input of a tiny model, and the patterns that the model itself returns in eager mode."""
    chosen = zoo.FAMILIES[family]
    module = chosen.model(attention or chosen.attentions[-1])
    inputs = chosen.inputs(batch=1, length=length)
    inputs = {name: x for name, x in inputs.items() if not name.endswith("mask")}
    patterns = {
        (stack, layer): p[0].double().numpy() for stack, layer, p in chosen.expected(module, inputs)
    }
    return Example(interp.load(module, name=family), inputs, last_row(position)), patterns


def random_patterns(seed: int, layers: int, heads: int, n: int, causal: bool = False) -> np.ndarray:
    """Row-stochastic patterns, peaked and flat rows mixed."""
    draw = np.random.default_rng(seed)
    scores = draw.normal(size=(layers, heads, n, n)) * draw.uniform(0.3, 4, (layers, heads, 1, 1))
    if causal:
        scores = np.where(np.tril(np.ones((n, n), bool)), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def tiny_llama(layers: int = 2, positions: int = 20_000) -> torch.nn.Module:
    """A random model with rotary positions, grouped queries and a context of any length."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=positions,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = LlamaForCausalLM._from_config(config, attn_implementation="sdpa")
        with torch.no_grad():
            for layer in model.model.layers:  # peaked patterns, unlike those of a fresh model
                layer.self_attn.q_proj.weight.mul_(20)
                layer.self_attn.k_proj.weight.mul_(20)
    return model.eval()
