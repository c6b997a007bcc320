"""TransformerLens' attribution patching of the zoo's weights, in a process of its own: it is heavy.

    python -m discovery.transformer_lens_scores OUT NAME...

It rewires the model it is given, so it gets a copy. Scores are summed over positions.
"""

from __future__ import annotations

import copy
import sys
from collections import defaultdict
from typing import Any

import torch
import zoo

CLEAN = torch.tensor([[9, 33, 21, 40, 33, 21, 21, 17, 9, 33], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]])
CORRUPTED = torch.tensor([[5, 6, 7, 8, 1, 2, 3, 4, 21, 22], [9, 33, 20, 40, 33, 21, 21, 17, 9, 33]])


def value(logits: torch.Tensor) -> torch.Tensor:
    """A difference of two logits at the end, per prompt; not a linear one."""
    return logits[:, -1, 5] - logits[:, -1, 7] + 0.1 * logits[:, -1, 11] ** 2


def name(node: Any) -> str:
    """A node as the residual graph calls it."""
    if node.kind in ("embed", "logits"):
        return node.kind
    if node.kind.startswith("mlp"):
        return f"mlp{node.layer}"
    part = "" if node.kind == "attn_head_out" else "." + node.kind[0]
    return f"L{node.layer}H{node.head}{part}"


def reference(family: str) -> dict[str, Any]:
    from transformer_lens.model_bridge.sources._bridge_builder import build_bridge_from_module
    from transformer_lens.tools.analysis.attribution_patching import (
        EdgeAttributionConfig,
        attribution_patch,
    )

    module: Any = copy.deepcopy(zoo.FAMILIES[family].model("eager"))
    module.config.architectures = [type(module).__name__]
    bridge = build_bridge_from_module(module, type(module).__name__, hf_config=module.config)
    bridge.eval()
    for p in bridge.parameters():
        p.requires_grad_(True)
    nodes: dict[str, float] = defaultdict(float)
    edges: dict[tuple[str, str], float] = defaultdict(float)
    found = attribution_patch(
        bridge, CLEAN, CORRUPTED, lambda logits: value(logits).sum(), EdgeAttributionConfig("node")
    )
    for node, score in found.node_scores.items():
        nodes[name(node)] += float(score)
    if family == "gpt2":
        found = attribution_patch(
            bridge,
            CLEAN,
            CORRUPTED,
            lambda logits: value(logits).sum(),
            EdgeAttributionConfig("edge"),
        )
        for (writer, reader), score in found.edge_scores.items():
            edges[name(writer), name(reader)] += float(score)
    return {"nodes": dict(nodes), "edges": dict(edges)}


if __name__ == "__main__":
    out, *names = sys.argv[1:]
    torch.save({family: reference(family) for family in names}, out)
