"""Every layer of a hybrid model is a depth of the lens and a part of direct logit attribution."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from together import over
from zoo import mixers

from interp.core.errors import UnreadableAttention
from interp.lens import direct_logit_attribution, direct_logits, logit_lens
from interp.lens.finish import finish
from interp.model.load import load

IDS = torch.tensor([[5, 9, 3, 11, 7, 2, 8]])
#: parts that are whole layers: without heads, or where it is not known what heads add
WHOLE = {name: parts for name, (*_, parts) in mixers.HYBRIDS.items()} | {
    "rwkv": ["L0 softmax per channel"],
    "zamba": ["L1 hybrid", "L3 hybrid"],
    "zamba2": ["L1 hybrid", "L3 hybrid"],
}
#: families whose hidden states begin behind the first layer
FROM_FIRST_LAYER = ("mamba", "mamba2", "falcon_mamba", "rwkv")
#: the stream that MiniMax adds to is not what its layers are given, but a norm of it
POST_NORM = ("minimax",)
FEW = ["lfm2", "nemotron_mlp", "granite"]


@over("family", FEW)
def test_depths_and_parts_are_those_of_the_model(family: str) -> None:
    _compared(family)


@pytest.mark.slow
@over("family", [x for x in (*mixers.HYBRIDS, *mixers.FAMILIES) if x not in FEW])
def test_so_are_those_of_every_hybrid_family(family: str) -> None:
    _compared(family)


def _compared(family: str) -> None:
    module: Any = mixers.build(family)
    model = load(module, name=family)
    with torch.no_grad():
        out = module(IDS, output_hidden_states=True)
    found = logit_lens(model, IDS, target=6)
    end = finish(model, model.capture(IDS.tolist(), ("resid_post",), stack="decoder"), "decoder")
    streams = out.hidden_states[:-1]  # the last of them is behind the final norm
    if family in FROM_FIRST_LAYER:
        streams = (module.get_input_embeddings()(IDS), *streams)
    with torch.no_grad():
        wanted = [*(end(x)[0, :, 6] for x in streams), out.logits[0, :, 6]]
    if family in FROM_FIRST_LAYER:
        del wanted[-2]
    assert found.depths == ("embedding", *(f"layer {i}" for i in range(len(wanted) - 1)))
    for depth, logits, want in zip(found.depths, found.target_logits, wanted, strict=True):
        assert torch.allclose(torch.as_tensor(logits).float(), want, atol=1e-5), depth
    if family in POST_NORM:
        with pytest.raises(UnreadableAttention, match="what its attention adds was not found"):
            direct_logit_attribution(model, IDS)
        return
    parts = direct_logit_attribution(model, IDS, 6)
    cap = parts.notes.get("soft cap")
    logit = float(out.logits[0, -1, 6])
    value = logit if cap is None else cap * float(torch.tensor(logit / cap).atanh())
    assert sum(parts.parts.values()) == pytest.approx(value, abs=1e-5)
    bare = [x for x in parts.to_pandas().part if x.startswith("L") and "H" not in x]
    assert bare == WHOLE.get(family, [])
    if len(model.stacks) == 1:
        many = direct_logits(model, IDS.tolist() * 2, 6, n_random=1).to_pandas()
        assert dict(zip(many.part, many.score, strict=True)) == pytest.approx(parts.parts, abs=1e-6)
