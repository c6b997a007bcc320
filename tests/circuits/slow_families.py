"""Decoders run reader by reader with plain hooks, to hold edge forwards to.

Only modules of transformers are called: the norm before attention on what one reader reads, the
attention with the queries, keys and values that each head makes of its own input, the output
projection on one head alone, and the norm (or factor) behind the sum of all heads.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
import transformers
from torch import Tensor, nn

Edge = Callable[[str, str], Any]
HEADS = 4
BASE: dict[str, Any] = {
    "vocab_size": 48,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "intermediate_size": 40,
    "max_position_embeddings": 32,
    "initializer_range": 0.3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Names:
    """Where a family keeps the modules of a block, from the block on."""

    model_class: str
    config: dict[str, Any] = field(default_factory=dict)
    blocks: str = "model.layers"
    final: str = "model.norm"
    attention: str = "self_attn"
    output: str = "o_proj"
    queries: tuple[str, str, str] = ("q_proj", "k_proj", "v_proj")
    before: str | None = "input_layernorm"
    behind: str | None = None
    before_mlp: str | None = "post_attention_layernorm"
    behind_mlp: str | None = None
    parallel: bool = False
    factor: float = 1.0

    def build(self) -> nn.Module:
        """A random model in float64; its norms have random gains."""
        cls = getattr(transformers, self.model_class)
        config = cls.config_class(**copy.deepcopy(BASE | self.config))
        config._attn_implementation = "eager"
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(3)
            model = cls(config)
            for name, weight in model.named_parameters():
                if "norm" in name or "ln_" in name:
                    weight.data.normal_(1.0, 0.4)
        return model.eval().double()


GEMMA = {
    "behind": "post_attention_layernorm",
    "before_mlp": "pre_feedforward_layernorm",
    "behind_mlp": "post_feedforward_layernorm",
}
OLMO: dict[str, Any] = {
    "before": None,
    "behind": "post_attention_layernorm",
    "before_mlp": None,
    "behind_mlp": "post_feedforward_layernorm",
}
NORMED_KEYS = {"queries": ("q_norm", "k_norm", "v_proj")}
SHARED = {"before_mlp": "input_layernorm", "parallel": True}
WINDOWS = {"sliding_window": 4, "query_pre_attn_scalar": 16, "head_dim": 12}
#: one of each way in which what heads write is changed before it is added
FAMILIES = {
    "gemma2": Names(
        "Gemma2ForCausalLM",
        WINDOWS | {"attn_logit_softcapping": 1.5, "final_logit_softcapping": 5.0},
        **GEMMA,
    ),
    "gemma3": Names("Gemma3ForCausalLM", WINDOWS, **GEMMA),
    "olmo2": Names("Olmo2ForCausalLM", **NORMED_KEYS, **OLMO),
    "olmo3": Names("Olmo3ForCausalLM", {"sliding_window": 4}, **NORMED_KEYS, **OLMO),
    "glm4": Names(
        "Glm4ForCausalLM",
        {"head_dim": 8, "attention_bias": True},
        behind="post_self_attn_layernorm",
        behind_mlp="post_mlp_layernorm",
    ),
    "exaone4": Names("Exaone4ForCausalLM", {"layer_types": ["full_attention"] * 3}, **OLMO),
    "granite": Names(
        "GraniteForCausalLM", {"residual_multiplier": 0.7, "embedding_multiplier": 3.0}, factor=0.7
    ),
    "cohere": Names("CohereForCausalLM", **SHARED),
    "phi": Names("PhiForCausalLM", final="model.final_layernorm", output="dense", **SHARED),
    "gptj": Names(
        "GPTJForCausalLM",
        {"n_embd": 32, "n_layer": 3, "n_head": HEADS, "n_positions": 32, "rotary_dim": 4},
        blocks="transformer.h",
        final="transformer.ln_f",
        attention="attn",
        output="out_proj",
        before="ln_1",
        before_mlp="ln_1",
        parallel=True,
    ),
    "gpt_neox": Names(
        "GPTNeoXForCausalLM",
        blocks="gpt_neox.layers",
        final="gpt_neox.final_layer_norm",
        attention="attention",
        output="dense",
        queries=("query_key_value",) * 3,
        parallel=True,
    ),
}


class Stop(Exception):
    """Everything that was asked for has been seen."""


def forward(
    names: Names,
    model: nn.Module,
    ids: Tensor,
    live: Edge,
    other: dict[str, Tensor] | None = None,
) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits and what every node writes; an edge carries its share of this run, and of `other`."""
    blocks = list(model.get_submodule(names.blocks).children())
    options = _options(model, blocks, names, ids)
    first = _seen(blocks[0], lambda: model(ids), inputs=True)
    out, behind = {"embed": first}, []

    def read(reader: str) -> Tensor:
        def mixed(writer: str) -> Tensor:
            if other is None:
                return out[writer]
            share = live(writer, reader)
            return share * out[writer] + (1 - share) * other[writer]

        total = mixed("embed")
        for i in range(len(blocks)):
            if i < len(behind):
                total = total + behind[i](sum(mixed(f"L{i}H{h}") for h in range(HEADS)))
            if f"mlp{i}" in out:
                total = total + mixed(f"mlp{i}")
        return total

    for i, block in enumerate(blocks):
        attention = block.get_submodule(names.attention)
        taps = [attention.get_submodule(name) for name in names.queries]
        made: dict[tuple[nn.Module, int], Tensor] = {}
        for h in range(HEADS):
            for j, part in enumerate("qkv"):
                x = _call(block, names.before, read(f"L{i}H{h}.{part}"))
                seen = _seen(taps[j], partial(attention, x, **options[i]))
                where, columns = (taps[j], j), _columns(names, seen, h, j)
                made[where] = made.get(where, torch.zeros_like(seen))
                made[where][columns] = seen[columns]
        by_module = {}
        for (tap, _), value in made.items():
            by_module[tap] = by_module.get(tap, 0) + value  # parts of one matrix do not overlap
        parallel = names.parallel and _mlp(block, names, read(f"mlp{i}"))
        project = attention.get_submodule(names.output)
        with ExitStack() as stack:
            for tap, value in by_module.items():
                hook = tap.register_forward_hook(lambda *_, value=value: value)
                stack.callback(hook.remove)
            z = _seen(project, partial(attention, torch.zeros_like(first), **options[i]), True)
        size = z.shape[-1] // HEADS
        for h in range(HEADS):
            alone = torch.zeros_like(z)
            alone[..., h * size : (h + 1) * size] = z[..., h * size : (h + 1) * size]
            out[f"L{i}H{h}"] = project(alone) - project(torch.zeros_like(z))

        behind.append(partial(_added, names, block, project(torch.zeros_like(z))))
        out[f"mlp{i}"] = parallel if names.parallel else _mlp(block, names, read(f"mlp{i}"))
    end = model.get_submodule(names.final)
    hook = end.register_forward_pre_hook(lambda *_: (read("logits"),))
    try:
        return model(ids).logits, out
    finally:
        hook.remove()


def _columns(names: Names, x: Tensor, head: int, part: int) -> tuple[Any, ...]:
    """Where a head's queries, keys or values stand in what their module returns."""
    if len(set(names.queries)) == 1:  # one matrix for all three, head by head
        size = x.shape[-1] // (3 * HEADS)
        return (..., slice((3 * head + part) * size, (3 * head + part + 1) * size))
    size = x.shape[-1] // HEADS
    return (..., slice(head * size, (head + 1) * size))


def _added(names: Names, block: nn.Module, bias: Tensor, total: Tensor) -> Tensor:
    return names.factor * _call(block, names.behind, total + bias)


def _mlp(block: Any, names: Names, x: Tensor) -> Tensor:
    written = block.mlp(_call(block, names.before_mlp, x))
    return names.factor * _call(block, names.behind_mlp, written)


def _call(block: nn.Module, name: str | None, x: Tensor) -> Tensor:
    return x if name is None else block.get_submodule(name)(x)


def _options(model: nn.Module, blocks: list[nn.Module], names: Names, ids: Tensor) -> list[dict]:
    """What each attention is given beside its input: positions and masks."""
    found: list[dict] = []
    hooks = [
        block.get_submodule(names.attention).register_forward_pre_hook(
            lambda _, args, kwargs: found.append(
                {k: v for k, v in kwargs.items() if k != "hidden_states"}
            ),
            with_kwargs=True,
        )
        for block in blocks
    ]
    model(ids, use_cache=False)
    for hook in hooks:
        hook.remove()
    return found


def _seen(module: nn.Module, run: Callable[[], Any], inputs: bool = False) -> Tensor:
    """What a module reads, or returns, in a run that ends there."""
    found: list[Tensor] = []

    def on_input(_: nn.Module, args: tuple, kwargs: dict) -> None:
        found.append((args[0] if args else kwargs["hidden_states"]).clone())
        raise Stop

    def on_output(_: nn.Module, args: tuple, output: Tensor) -> None:
        found.append(output.clone())
        raise Stop

    if inputs:
        hook = module.register_forward_pre_hook(on_input, with_kwargs=True)
    else:
        hook = module.register_forward_hook(on_output)
    try:
        run()
    except Stop:
        return found[0]
    finally:
        hook.remove()
    raise AssertionError("the module did not run")
