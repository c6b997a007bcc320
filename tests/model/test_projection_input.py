"""What is called z is the input of the output projection, split by head, in every family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
import zoo
from together import over
from torch import Tensor, nn
from zoo import mixers

import interp
from interp.core.errors import UnreadableAttention
from interp.model.calls.call import first_tensor, with_tensor
from interp.model.edits import gate
from interp.model.pattern_edits import temperature

IDS = torch.randint(8, 60, (2, 12), generator=torch.Generator().manual_seed(3))
LAGUNA = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
    "eos_token_id": 0,
}
READ = [f for f in zoo.FAMILIES.values() if "refused" not in f.features]
# torch's own multi-head attention reads the weight of its projection and never calls it
UNCALLED = {"vision_model.head.attention.out_proj"}


def laguna(head_dim: int, **options: Any) -> nn.Module:
    config = transformers.AutoConfig.for_model("laguna", head_dim=head_dim, **LAGUNA | options)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = transformers.AutoModelForCausalLM.from_config(config).eval()
    for weight in module.parameters():
        weight.data.mul_(5 if weight.dim() > 1 else 1)
    return module


def named(name: str) -> tuple[nn.Module, dict[str, Tensor]]:
    if name == "laguna":
        return laguna(16), {"input_ids": IDS}
    if name.startswith("mixer "):
        return mixers.build(name.removeprefix("mixer ")), {"input_ids": IDS}
    family = zoo.FAMILIES[name]
    return family.model(family.attentions[-1]), family.inputs()


def with_inputs(model: interp.Model, inputs: Any, site: Any, see: Any) -> Tensor:
    """Run with a pre-hook on the projection in one of its runs; what it returns replaces x."""
    runs = [-1]

    def hook(_: nn.Module, args: Any, kwargs: Any) -> Any:
        runs[0] += 1
        x = first_tensor(args) if first_tensor(kwargs) is None else first_tensor(kwargs)
        new = see(x) if runs[0] == site.run else None
        return None if new is None else (with_tensor(args, x, new), with_tensor(kwargs, x, new))

    part = model.module.get_submodule(site.projection)
    handle = part.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        with torch.no_grad():
            return model.run(inputs)
    finally:
        handle.remove()


@pytest.mark.slow
@over("name", ["laguna", *(f.name for f in READ), *(f"mixer {n}" for n in mixers.FAMILIES)])
def test_z_and_its_edits_are_the_input_of_the_output_projection(name: str) -> None:
    module, inputs = named(name)
    model = interp.load(module, name=name)
    cache, own = model.capture(inputs, ["z"]), model.run(inputs).detach()
    projected = [s for s in model.sites if s.projection is not None]
    sites = {(s.stack, s.kind, s.gated): s for s in projected}.values()  # the last of each kind
    assert sites or name == "xlnet", "its projection is a parameter of the attention"
    for site in sites:
        if site.projection in UNCALLED:
            continue
        z = cache["z", site.layer, site.stack].transpose(1, 2).flatten(2)
        seen: list[Tensor] = []

        def half(x: Tensor, site: Any = site, seen: list[Tensor] = seen) -> Tensor:
            seen.append(x)
            new = x.clone().reshape(-1, site.n_heads, site.d_v)
            new[:, 1] *= 0.5
            return new.reshape(x.shape)

        by_hand = with_inputs(model, inputs, site, half)
        assert torch.equal(seen[0].reshape(z.shape), z), site.name
        head = interp.Head(site.layer, 1, site.stack)
        edited = model.run(inputs, [gate([head], 0.5, stack=site.stack)])
        assert float((by_hand - own).abs().max()) > 1e-4, site.name
        torch.testing.assert_close(edited, by_hand, atol=2e-5, rtol=1e-4)


def square(name: str) -> tuple[nn.Module, nn.Module]:
    """A model, and the same with as many features in all heads as in the stream."""
    if name == "laguna":
        return laguna(16), laguna(12)
    if name == "laguna, a gate per entry":
        return laguna(16, gating="per-element"), laguna(12, gating="per-element")
    family = zoo.FAMILIES[name]
    config = dict(family.config)
    config["head_dim"] = config["hidden_size"] // config["num_attention_heads"]
    plain = {f.name: getattr(family, f.name) for f in family.__dataclass_fields__.values()}
    return family.model(), zoo.Family(**plain | {"config": config}).build()


SQUARE = [f.name for f in READ if "head_dim" in f.config and "hidden_size" in f.config]


@over("name", ["laguna", "laguna, a gate per entry", *SQUARE])
def test_the_projection_is_found_whatever_its_width(name: str) -> None:
    """A gate that reads the stream is as wide as the heads, and is no output projection."""
    wide, narrow = (interp.load(module, name=name) for module in square(name))
    assert narrow.n_heads * narrow.sites[0].d_v == narrow.d_model
    assert [s.projection for s in narrow.sites] == [s.projection for s in wide.sites]
    assert [s.gated for s in narrow.sites] == [s.gated for s in wide.sites]


@torch.no_grad()
def test_another_pattern_passes_the_gate_and_cannot_be_put_behind_it() -> None:
    model = interp.load(laguna(16), name="gated")
    own = model.run(IDS.tolist())
    same = model.run(IDS.tolist(), [temperature(["L0H1"], 1.0)])
    torch.testing.assert_close(same, own, atol=2e-5, rtol=1e-4)
    assert float((model.run(IDS.tolist(), [temperature(["L0H1"], 0.2)]) - own).abs().max()) > 1e-4
    with pytest.raises(UnreadableAttention, match="must pass the gate or norm"):
        model.read(IDS.tolist(), lambda site, call, real: call.mix(call.pattern()))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_kernel_that_hides_its_mask_is_refused_before_it_runs() -> None:
    family = zoo.FAMILIES["llama"]
    module: Any = family.build()
    module.set_attn_implementation("flex_attention")
    with pytest.raises(UnreadableAttention, match=r"kernel 'flex_attention'.*'sdpa' or 'eager'"):
        interp.load(module, name="flex")
