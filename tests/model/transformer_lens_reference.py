"""What TransformerLens says about the zoo's weights, in a process of its own: it is heavy.

    python -m model.transformer_lens_reference OUT NAME...

It rewires the model it is given, so it gets a copy.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
import zoo

IDS = [9, 33, 21, 40, 33, 21, 21, 17, 9, 33]
HEADS = ("previous_token_head", "duplicate_token_head", "induction_head")


def reference(name: str) -> dict[str, Any]:
    from transformer_lens import head_detector
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module

    module: Any = copy.deepcopy(zoo.FAMILIES[name].model("eager"))
    module.config.architectures = [type(module).__name__]
    bridge = build_bridge_from_module(module, type(module).__name__, hf_config=module.config)
    with torch.no_grad():
        logits, cache = bridge.run_with_cache(torch.tensor([IDS]))
    layers = range(module.config.num_hidden_layers)
    patterns = [cache[f"blocks.{i}.attn.hook_pattern"] for i in layers]
    tokens = torch.tensor([IDS])
    scores = {}
    for head in HEADS:
        target = getattr(head_detector, f"get_{head}_detection_pattern")(tokens)
        scores[head] = torch.tensor(
            [
                [
                    head_detector.compute_head_attention_similarity_score(
                        pattern[0, h],
                        target,
                        exclude_bos=False,
                        exclude_current_token=False,
                        error_measure="mul",
                    )
                    for h in range(pattern.shape[1])
                ]
                for pattern in patterns
            ]
        )
        scores[f"{head} targets"] = target
    return {
        "logits": logits,
        "pattern": patterns,
        "z": [cache[f"blocks.{i}.attn.hook_z"] for i in layers],
        "q": [cache[f"blocks.{i}.attn.hook_q"] for i in layers],
        "scores": scores,
    }


if __name__ == "__main__":
    out, *names = sys.argv[1:]
    torch.save({name: reference(name) for name in names}, out)
