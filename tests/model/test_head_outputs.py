"""What heads add to the stream is what arrives there, in every family that is read."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
import zoo
from together import over
from zoo import mixers

import interp
from interp.core.errors import UnreadableAttention
from interp.model.calls.sites import POOLING, Site
from interp.model.locate.head_outputs import head_outputs, of_no_head, writing_weights

IDS = torch.tensor([[5, 9, 3, 11, 7, 2, 8]])
#: families with a norm between attention and the stream; the zoo has Gemma 2 and 3, and OLMo 2
BEHIND_NORM: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo3": ("Olmo3ForCausalLM", {}),
    "glm4": ("Glm4ForCausalLM", {"head_dim": 8}),
    "exaone4": ("Exaone4ForCausalLM", {"layer_types": ["full_attention"] * 2}),
}
#: what attention adds is not a tensor of the block, or several modules stand in between
UNKNOWN = {
    "xlnet": "no module takes",
    "minimax": "was not found",
    "rwkv": "was not found",
    "zamba": "was not found",
    "zamba2": "was not found",
}
EVERY = [
    *(f.name for f in zoo.FAMILIES.values() if "refused" not in f.features),
    *(f"mixer {name}" for name in (*mixers.FAMILIES, *mixers.HYBRIDS)),
    *BEHIND_NORM,
    "layer scale",
    "layer scale of equal entries",
]
FEW = ["llama", "granite", "gemma3", "olmo2", "layer scale"]


def made(family: str) -> tuple[torch.nn.Module, Any]:
    """A model, and its inputs."""
    if family.startswith("mixer "):
        return mixers.build(family.removeprefix("mixer ")), {"input_ids": IDS}
    if family.startswith("layer scale"):  # one number in all entries is a factor
        module = zoo.FAMILIES["dinov2"].build()
        for name, weight in module.named_parameters():
            if "lambda1" in name:
                weight.data.fill_(0.3)
                weight.data[::2].mul_(1.0 if "equal" in family else 2.0)
        return module, zoo.FAMILIES["dinov2"].inputs()
    if family in zoo.FAMILIES:
        return zoo.FAMILIES[family].build(), zoo.FAMILIES[family].inputs()
    name, config = BEHIND_NORM[family]
    cls = getattr(transformers, name)
    base = mixers.BASE | {"pad_token_id": 0}
    return cls(cls.config_class(**base | config)).eval(), {"input_ids": IDS}


@over("family", FEW)
def test_parts_of_all_heads_and_of_none_are_what_arrives_in_the_stream(family: str) -> None:
    _compared(family)


@pytest.mark.slow
@over("family", [family for family in EVERY if family not in FEW])
def test_so_are_those_of_every_family_that_is_read(family: str) -> None:
    _compared(family)


def _compared(family: str) -> None:
    torch.manual_seed(0)
    module, inputs = made(family)
    _drawn(module)
    model = interp.load(module)
    unknown = UNKNOWN.get(family.removeprefix("mixer "))
    read = 0
    for site in model.sites:
        if site.stack == POOLING:
            continue
        try:
            weights = writing_weights(model, site)
            of = {"stack": site.stack, "layers": site.layer}
            cache = model.capture(inputs, ["result", "attn_out", "z"], **of)
        except UnreadableAttention as error:
            reasons = () if unknown is None else (unknown, "more than one module")
            if not any(reason in str(error) for reason in reasons):
                raise
            continue
        read += 1
        at = site.layer, site.stack
        result, arrived = cache["result", *at].double(), cache["attn_out", *at].double()
        if result.shape[:2] != arrived.shape[:2]:  # in windows, whose tokens have another order
            rows = result.sum(2) + of_no_head(weights, result, torch.zeros_like(result[:, :, 0]))
            assert torch.allclose(rows.sum((0, 1)), arrived.sum((0, 1)), atol=1e-4)
            continue
        close = {"atol": 5e-6 * float(arrived.abs().max()), "rtol": 0}
        parts = result.sum(2) + of_no_head(weights, result, arrived)
        torch.testing.assert_close(parts, arrived, **close)
        mid = site.streams.get("resid_mid")
        if mid is not None and mid.side == "in":  # the difference of the module's own tensors
            ends = model.capture(inputs, ["resid_mid", "attn_out"], **of)
            base = _base(model, inputs, site)
            if base is not None:
                own = ends["resid_mid", *at].double() - base.double()
                torch.testing.assert_close(parts, own, atol=1e-4, rtol=0)
        z = cache["z", *at].transpose(1, 2)
        if site.gated:
            with pytest.raises(UnreadableAttention, match="gated"):
                head_outputs(weights, z)
            continue
        alone = head_outputs(weights, z)  # the norm is run again
        torch.testing.assert_close(alone.added(z).double(), result, **close)
        torch.testing.assert_close(alone.total(z).double(), arrived, **close)
        towards = torch.randn(arrived.shape[-1])
        along = (alone.along(towards.expand(arrived.shape)) * z).sum(-1).double()
        torch.testing.assert_close(along, result @ towards.double(), atol=1e-4, rtol=0)
    assert read or unknown


def _drawn(module: torch.nn.Module) -> None:
    """Draw norms and biases, which start as ones and zeros."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if weight.dim() == 1 and ("norm" in name or name.endswith("bias")):
                weight.add_(0.2 * torch.randn_like(weight))


def _base(model: interp.Model, inputs: Any, site: Site) -> torch.Tensor | None:
    """The stream that attention adds to, where it is the one that enters the block."""
    out = site.streams["attn_out"]
    if out.base != site.streams["resid_pre"]:
        return None
    cache = model.capture(inputs, ["resid_pre"], stack=site.stack, layers=site.layer)
    return cache["resid_pre", site.layer, site.stack]
