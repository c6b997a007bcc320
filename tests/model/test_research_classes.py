"""Models that no table knows: written out by hand, derived, registered by an import, compiled."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from beside import FOLDER, imported, needs, real
from torch import Tensor

import interp
from interp.model.edits import zero
from interp.model.hooks.tap import tapped
from interp.model.pattern_edits import set_pattern, uniform

HERE = Path(__file__).parent
SHARED = FOLDER / "models"
IDS = torch.tensor([[3, 7, 1, 12, 7, 19], [0, 5, 5, 2, 18, 9]])
WAYS = ("softmax", "module", "einsum", "fused")


def paper(way: str) -> Any:
    classes = imported(HERE / "research_classes.py")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        module = classes.PaperForCausalLM(classes.PaperConfig(way=way))
        for p in module.parameters():
            if p.dim() > 1:
                torch.nn.init.normal_(p, std=0.5)
    return module.eval()


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_attention_is_read_from_its_folder(way, tmp_path):
    module = paper(way)
    module.save_pretrained(tmp_path)
    model = interp.load(tmp_path)
    assert model.kind == "causal"
    assert [(s.stack, s.layer, s.n_heads, s.d_head) for s in model.sites] == [
        ("decoder", 0, 4, 8),
        ("decoder", 1, 4, 8),
    ]
    assert all(site.projection == f"blocks.{site.layer}.attention.out" for site in model.sites)
    cache = model.capture(IDS, ["q", "k", "v", "pattern", "z", "result", "resid_mid", "mlp_out"])
    assert torch.equal(cache.logits, module(IDS).logits)
    for layer in range(2):
        pattern, z = imported(HERE / "research_classes.py").by_hand(model.module, IDS, layer)
        torch.testing.assert_close(cache["pattern", layer].double(), pattern, atol=2e-6, rtol=0)
        torch.testing.assert_close(cache["z", layer].double(), z, atol=5e-6, rtol=1e-5)
        scores = cache["q", layer] @ cache["k", layer].transpose(-1, -2) * 8**-0.5
        hidden = torch.ones(6, 6, dtype=torch.bool).triu(1)
        again = scores.masked_fill(hidden, -torch.inf).softmax(-1)
        torch.testing.assert_close(again, cache["pattern", layer], atol=2e-6, rtol=0)


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_writing_attention_is_edited(way):
    module = paper(way)
    model = interp.load(module)
    plain = model.run(IDS)

    def cut(m: Any, args: tuple) -> tuple:
        x = args[0].clone()
        x[..., 8:16] = 0
        return (x,)

    handle = module.blocks[0].attention.out.register_forward_pre_hook(cut)
    with torch.no_grad():
        want = module(IDS).logits
    handle.remove()
    got = model.run(IDS, edits=[zero("L0H1")])
    assert torch.equal(got, want)
    assert (got - plain).abs().max() > 1e-3
    v = model.capture(IDS, ["v"])["v", 1]
    z = model.capture(IDS, ["z"], edits=[uniform("L1H2")])["z", 1]
    torch.testing.assert_close(z[:, 2, 4], v[:, 2, :5].mean(1), atol=1e-6, rtol=1e-5)
    first = torch.zeros(6, 6).index_fill(1, torch.tensor(0), 1.0)
    z = model.capture(IDS, ["z"], edits=[set_pattern("L1H2", first)])["z", 1]
    assert torch.equal(z[:, 2], v[:, 2, :1].expand(-1, 6, -1))


def test_right_padding_changes_nothing_in_written_out_attention():
    for way in WAYS:
        model = interp.load(paper(way))
        both = model.capture([[3, 7, 1, 12], [0, 5]], ["pattern", "z"])
        alone = model.capture([[0, 5]], ["pattern", "z"])
        # a few units in the last place of float32: other shapes are added in another order
        torch.testing.assert_close(
            both["pattern", 1][1:, :, :2, :2], alone["pattern", 1], atol=3e-6, rtol=0
        )
        torch.testing.assert_close(both["z", 1][1:, :, :2], alone["z", 1], atol=1e-6, rtol=1e-5)


def test_a_class_derived_in_a_file_of_its_own_keeps_its_parents_eager_function():
    """The family's eager function is not in the file of the derived class."""
    from transformers.models.llama.modeling_llama import LlamaAttention

    class Mine(LlamaAttention):
        pass

    for attention in ("eager", "sdpa"):
        module: Any = zoo.FAMILIES["llama"].build(attention)
        plain = module(IDS).logits
        module.model.layers[1].self_attn.__class__ = Mine
        model = interp.load(module)
        assert torch.equal(model.run(IDS), plain)
        cache = model.capture(IDS, ["pattern"])
        want = interp.load(zoo.FAMILIES["llama"].model(attention)).capture(IDS, ["pattern"])
        assert torch.equal(cache["pattern", 1], want["pattern", 1])


def test_a_file_with_two_eager_functions_runs_the_one_it_passes():
    """Llama 4's pictures pass another eager function than its text; a name cannot tell them."""
    from transformers import Llama4VisionConfig, Llama4VisionModel

    config = Llama4VisionConfig(
        hidden_size=48,
        num_hidden_layers=2,
        num_attention_heads=6,
        intermediate_size=192,
        vision_output_dim=48,
        projector_input_dim=48,
        projector_output_dim=48,
        image_size=16,
        patch_size=4,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = Llama4VisionModel._from_config(config, attn_implementation="eager").eval()
    inputs = {"pixel_values": torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))}
    seen: list[Tensor] = []
    with torch.no_grad():
        plain = module(**inputs).last_hidden_state
        with tapped(module, lambda m, run, call: seen.append(call.z), watch=False):
            open_tap = module(**inputs).last_hidden_state
    assert len(seen) == 2
    assert torch.equal(plain, open_tap)


@pytest.mark.parametrize(
    ("source", "kind", "layers", "heads"),
    [
        ("bundled:induction", "causal", 2, 8),
        ("bundled:deceive", "causal", 2, 4),
        ("bundled:one-layer", "causal", 1, 8),
        ("bundled:shapes", "vision", 3, 4),
        real("toy-induction-2l1h", "causal", 2, 1),
        real("toy-induction-2l4h", "causal", 2, 4),
        real("toy-no-induction-1l4h", "causal", 1, 4),
        real("tracr-dyck1", "encoder", 6, 2),
        real("tracr-reverse", "encoder", 4, 1),
        real("vit-mnist", "vision", 6, 8),
        real("stories260k", "causal", 5, 8),
        real("nano-sort", "causal", 3, 3),
        real("tinystories-instruct-3m", "causal", 8, 16),
    ],
)
def test_trained_small_models(source, kind, layers, heads):
    """Patterns are those the models return themselves."""
    name = source.rpartition("/")[2]
    if name != source:
        imported(SHARED / "toy_transformer.py")
        imported(SHARED / "toy_vit.py")
    model = interp.load(source, attention=None if name.startswith(("t", "v")) else "eager")
    assert (model.kind, model.n_layers, model.n_heads) == (kind, layers, heads)
    draw = torch.Generator().manual_seed(0)
    if kind == "vision":
        size = model.config.image_size
        channels = getattr(model.config, "num_channels", 1)
        inputs = {"pixel_values": torch.randn(2, channels, size, size, generator=draw)}
    else:
        length = min(model.limit or 9, 9)
        inputs = {"input_ids": torch.randint(0, model.d_vocab, (2, length), generator=draw)}
    cache = model.capture(inputs, ["pattern", "z", "result", "attn_out"])
    with torch.no_grad():
        own = model.module(**inputs, output_attentions=True).attentions
    for site in model.sites:
        got = cache["pattern", site.layer]
        torch.testing.assert_close(got, own[site.layer], atol=2e-5, rtol=0)
        bias = getattr(model.module.get_submodule(site.projection), "bias", None)
        total = cache["result", site.layer].sum(2) + (0 if bias is None else bias.detach())
        torch.testing.assert_close(total, cache["attn_out", site.layer], atol=2e-5, rtol=1e-4)


@needs(SHARED / "tracr-reverse")
def test_layers_of_a_compiled_model_that_write_nothing_have_streams_too():
    """tracr leaves some attentions and MLPs without weights; their places are their like's."""
    imported(SHARED / "toy_transformer.py")
    for name in ("tracr-dyck1", "tracr-reverse"):
        model = interp.load(SHARED / name)
        names = ["resid_pre", "attn_out", "resid_mid", "mlp_out", "resid_post"]
        for ids in ([0, 1, 2, 0, 1], [2, 2, 0, 1, 0]):
            cache = model.capture([ids], names)
            for site in model.sites:
                pre, attention, mid, mlp, post = (cache[n, site.layer] for n in names)
                torch.testing.assert_close(pre + attention, mid)
                torch.testing.assert_close(mid + mlp, post)


@needs(SHARED / "tracr-reverse")
def test_ablating_a_compiled_model_breaks_what_its_program_uses():
    """The compiler says which heads the program has: zeroing one breaks it, others nothing."""
    imported(SHARED / "toy_transformer.py")
    model = interp.load(SHARED / "tracr-reverse")
    truth = json.loads((SHARED / "tracr-reverse" / "ground_truth.json").read_text())
    code, back = truth["input_encoding"], {v: k for k, v in truth["output_encoding"].items()}

    def right(*edits: Any) -> float:
        answers = []
        for asked, answer in truth["examples"][:10]:
            ids = [code["BOS"], *(code[str(x)] for x in asked)]
            given = model.capture([ids], ["pattern"], edits=edits).logits[0].argmax(-1)
            answers += [back[int(g)] == str(a) for g, a in zip(given[1:], answer[1:], strict=True)]
        return sum(answers) / len(answers)

    assert right() == 1.0
    used = {head for head in model.heads() if str(head) in truth["active_components"]}
    assert {str(head) for head in used} == {"L0H0", "L3H0"}
    for head in model.heads():
        assert (right(zero(head)) < 0.9) == (head in used), head
