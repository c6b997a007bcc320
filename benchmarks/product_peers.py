"""Four statistics of every head as users of other tools write them, for the product's benchmark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.product_cases import SHAPES, Case, Size, build

PEERS = {
    "eager": "Hugging Face eager, output_attentions, four statistics by hand",
    "transformer_lens": "TransformerLens, run_with_cache of patterns, four statistics by hand",
    "nnsight": "nnsight, patterns saved, four statistics by hand",
}


def four_statistics(patterns: Sequence[Tensor], ids: Tensor) -> Tensor:
    """Previous token, first token, induction and entropy: `[statistic, layer, head]`."""
    n = ids.shape[1]
    at = torch.arange(n)
    before = torch.cat([torch.full_like(ids[:, :1], -1), ids[:, :-1]], 1)
    target = (before[:, None, :] == ids[:, :, None]) & (at[None, :] <= at[:, None])
    rows = target.any(-1).sum(-1).clamp_min(1)
    layers = []
    for p in patterns:
        previous = p.diagonal(-1, -2, -1).mean(-1)
        induction = torch.einsum("bhij,bij->bh", p, target.to(p.dtype)) / rows[:, None]
        entropy = torch.special.entr(p).sum(-1).mean(-1)
        four = torch.stack([previous, p[..., 0].mean(-1), induction, entropy])
        layers.append(four.mean(1))
    return torch.stack(layers, 1)


def prepare_peer(
    name: str, case: Case, size: Size, *, quick: bool
) -> Callable[[list[list[int]]], Tensor]:
    """A function of the prompts that runs the tool once."""
    module = build(case.shape, size, quick=quick, kernel="eager")
    patterns = {"eager": _eager, "transformer_lens": _bridge, "nnsight": _nnsight}[name](module)

    @torch.no_grad()
    def run(prompts: list[list[int]]) -> Tensor:
        ids = torch.tensor(prompts)
        return four_statistics(patterns(ids), ids)

    return run


Patterns = Callable[[Tensor], Sequence[Tensor]]


def _eager(module: Any) -> Patterns:
    keep = {"use_cache": False, "output_attentions": True, "logits_to_keep": 1}
    return lambda ids: module(input_ids=ids, **keep).attentions


def _bridge(module: Any) -> Patterns:
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    kind = type(module).__name__
    module.config.architectures = [kind]
    bridge = build_bridge_from_module(module, kind, hf_config=module.config, tokenizer=None)

    def patterns(ids: Tensor) -> list[Tensor]:
        cache = bridge.run_with_cache(ids, names_filter=lambda n: n.endswith("hook_pattern"))[1]
        layers = module.config.num_hidden_layers
        return [cache[f"blocks.{i}.attn.hook_pattern"] for i in range(layers)]

    return patterns


def _nnsight(module: Any) -> Patterns:
    import nnsight

    held = nnsight.NNsight(module)
    gpt2 = hasattr(module, "transformer")
    layers = module.config.num_hidden_layers

    def patterns(ids: Tensor) -> list[Tensor]:
        kept = []
        with held.trace(input_ids=ids, use_cache=False, logits_to_keep=1):
            for i in range(layers):
                block = held.transformer.h[i].attn if gpt2 else held.model.layers[i].self_attn
                kept.append(nnsight.save(block.source.attention_interface_1.output[1]))
        return kept

    return patterns


def peers_of(case: Case) -> list[str]:
    """The tools that are run beside a case: without nulls, on the shapes that all of them read."""
    return list(PEERS) if case.asked == "score" and SHAPES[case.shape].kernel == "sdpa" else []
