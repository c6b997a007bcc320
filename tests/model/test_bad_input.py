"""Prompts, weights and masks that cannot be used: one clear line each, before numbers come out."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import zoo
from together import over

import interp
from interp.core.errors import CheckError, InterpError, NonFiniteError, PromptError
from interp.core.prompts import Prompts, from_file, repeats, text_of
from interp.model.check import check_model

IDS = torch.tensor([[9, 33, 21, 40, 11, 52]])
READ = [f for f in zoo.FAMILIES.values() if "refused" not in f.features]
TEXT = [f for f in READ if f.kind in ("text", "seq2seq")]


def refused(error: type[InterpError], pattern: str, run: Any, *args: Any, **options: Any) -> None:
    with pytest.raises(error, match=pattern) as raised:
        run(*args, **options)
    assert "\n" not in str(raised.value)


def test_prompts_that_are_none(loaded):
    model = loaded("llama")
    refused(PromptError, "no prompts given", model.run, [])
    refused(PromptError, "no prompts given", model.run, torch.zeros(0, 4, dtype=torch.long))
    refused(PromptError, "prompt 1 is empty", model.run, [[4], []])
    refused(PromptError, "llama has no tokenizer, so it takes token ids", model.run, "a text")
    refused(PromptError, "texts, chats or lists of token ids", model.run, [[1.5, 2.0]])
    refused(PromptError, "texts, chats or lists of token ids", model.run, ["a", [1, 2]])
    refused(PromptError, "texts, chats or lists of token ids", model.run, IDS[None])
    refused(PromptError, "texts, chats or lists of token ids", model.run, IDS.float())


def test_ids_outside_the_vocabulary(loaded):
    for bad in (64, -1):
        refused(
            PromptError,
            f"prompt 1 holds the token id {bad}; llama knows 0 to 63",
            loaded("llama").run,
            [[3, 4], [5, bad]],
        )


@over("family", TEXT, ids=lambda f: f.name)
def test_the_longest_prompt_runs_and_one_more_is_refused(loaded, family):
    """Where positions come from a table its end is known; where they are computed there is none."""
    model = loaded(family.name)
    if model.limit is None:
        if family.name != "mpt":  # see the next test
            assert model.run([[9] * 70]).shape[1] == 70
        return
    assert model.limit in (62, 64)
    model.run([[9] * model.limit])
    refused(
        PromptError,
        f"has {model.limit + 1} tokens; .* has positions for {model.limit}",
        model.run,
        [[9] * (model.limit + 1)],
    )


def test_a_model_that_fails_beyond_its_context_says_so(loaded):
    """MPT computes its biases for max_seq_len positions only; no table shows it."""
    assert loaded("mpt").limit is None
    with pytest.raises(PromptError, match="a prompt has 70 tokens; mpt was made for 64"):
        loaded("mpt").run([[9] * 70])


@over("family", TEXT, ids=lambda f: f.name)
def test_one_token_is_a_prompt(loaded, family):
    model = loaded(family.name)
    cache = model.capture([[9]], ["pattern", "z"])
    for site in model.sites:
        pattern = cache["pattern", site.layer, site.stack]
        assert pattern.shape == (1, site.n_heads, 1, 1)
        if "sinks" not in family.features:
            assert torch.equal(pattern, torch.ones_like(pattern))


def test_a_mask_that_hides_every_key(loaded):
    mask = torch.tensor([[1, 1, 1], [0, 0, 0]])
    ids = IDS[:, :3].expand(2, -1)
    refused(
        PromptError,
        "attention_mask hides every key of prompt 1; keep at least one token",
        loaded("gpt2").run,
        {"input_ids": ids, "attention_mask": mask},
    )
    hidden = {"input_ids": ids, "decoder_input_ids": ids, "decoder_attention_mask": mask}
    pattern = "decoder_attention_mask hides every key of prompt 1"
    refused(PromptError, pattern, loaded("bart").run, hidden)


def test_an_additive_mask_of_zeros_hides_nothing(loaded):
    model = loaded("llama")
    causal = torch.full((6, 6), torch.finfo(torch.float32).min).triu(1)[None, None]
    run = model.run({"input_ids": IDS, "attention_mask": causal})
    torch.testing.assert_close(run, model.run(IDS), atol=1e-5, rtol=1e-5)
    everything = torch.zeros(1, 1, 6, 6)
    model.run({"input_ids": IDS, "attention_mask": everything})


def test_an_input_the_model_does_not_take(loaded):
    """transformers' forwards with **kwargs swallow it; those without are not called with less."""
    refused(
        PromptError,
        r"swin \(vision\) reads no tokens; give its tensors",
        loaded("swin").run,
        [[4, 5]],
    )
    inputs = zoo.FAMILIES["bloom"].inputs()
    module: Any = copy.copy(loaded("bloom").module)
    model = copy.copy(loaded("bloom"))
    module.forward = lambda input_ids=None, attention_mask=None, use_cache=None: None
    model.module = module
    refused(
        PromptError,
        "bloom does not take token_type_ids; it takes",
        model.run,
        inputs | {"token_type_ids": inputs["input_ids"]},
    )


def test_nan_in_the_weights_names_the_tensor():
    for bad in (float("nan"), float("inf")):
        module: Any = zoo.FAMILIES["llama"].build()
        with torch.no_grad():
            module.model.layers[1].mlp.up_proj.weight[3, 4] = bad
        refused(
            NonFiniteError,
            r"NaN or infinity in the weights model\.layers\.1\.mlp\.up_proj",
            interp.load,
            module,
        )


def overflowing(layer: int) -> Any:
    """Finite weights whose values overflow in the attention of one layer."""
    module: Any = zoo.FAMILIES["gpt2"].build()
    with torch.no_grad():
        attention = module.transformer.h[layer].attn.c_attn
        attention.weight[:, -8:] = 1e38  # the values of the last head
        attention.bias[-8:] = 3e38
    return module


def test_activations_that_overflow_name_the_layer_and_the_heads():
    refused(
        NonFiniteError,
        r"attention output of decoder layer 1 .*h\.1\.attn, heads \[5\]",
        interp.load,
        overflowing(1),
    )
    module = zoo.FAMILIES["gpt2"].build()
    model = interp.load(module)
    module.load_state_dict(overflowing(2).state_dict())
    refused(
        NonFiniteError,
        r"attention output of decoder layer 2 .*heads \[5\]",
        model.capture,
        IDS,
        ["z"],
    )


def test_nan_after_the_last_attention_is_told_too():
    module: Any = zoo.FAMILIES["gpt2"].build()
    model = interp.load(module)
    with torch.no_grad():
        module.transformer.h[2].mlp.c_proj.bias[0] = float("nan")
    refused(
        NonFiniteError,
        "NaN in the output, though every attention output is finite",
        model.capture,
        IDS,
        ["z"],
    )


@pytest.mark.parametrize("name", ["llama", "bart"])
def test_attention_that_is_scaled_afterwards_fails_the_self_check(name):
    """A kernel that scales z on its way out: the patterns are not what the model used."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry

    module: Any = zoo.FAMILIES[name].build("sdpa")
    site = interp.load(module).sites[1]
    inner = module.get_submodule(site.module)
    kernel = registry["sdpa"]

    def scaled_kernel(which, *args, **kwargs):
        out, weights = kernel(which, *args, **kwargs)
        return (out * 1.01 if which is inner else out), weights

    registry["sdpa"] = scaled_kernel
    try:
        with pytest.raises(CheckError, match=f"module {site.module} .* fails pattern·v == z"):
            interp.load(module)
        check = check_model(interp.load(module, check=False))
        assert [s.site.name for s in check.sites if not s.passed(check.tolerance)] == [site.name]
        error = next(s.pattern_error for s in check.sites if s.site == site)
        assert 0.005 < error < 0.02
    finally:
        del registry["sdpa"]


def test_a_pattern_changed_before_it_is_used_is_shown_as_used():
    """BLOOM with a dropout that multiplies by 1.5: what multiplied the values is the pattern."""

    class Louder(torch.nn.Module):
        def forward(self, x):
            return x * 1.5

    module: Any = zoo.FAMILIES["bloom"].build()
    module.transformer.h[1].self_attention.attention_dropout = Louder()
    model = interp.load(module)
    cache = model.capture(IDS, ["pattern"])
    rows = torch.ones(1, 6, 6)
    torch.testing.assert_close(cache["pattern", 0].sum(-1), rows)
    torch.testing.assert_close(cache["pattern", 1].sum(-1), 1.5 * rows)


def test_z_scaled_outside_the_interface_fails_the_self_check():
    """z is scaled between the product and the projection, which then has another input."""
    module: Any = zoo.FAMILIES["bloom"].build()
    attention = module.transformer.h[1].self_attention
    attention.dense.register_forward_pre_hook(lambda m, a: (a[0] * 1.01, *a[1:]))
    check = check_model(interp.load(module, check=False))
    # hooks on the matrix itself are part of what the matrix does: the site counts as gated
    assert [s.site.gated for s in check.sites] == [False, True]


def test_a_projection_that_is_not_linear_fails_the_self_check():
    module: Any = zoo.FAMILIES["llama"].build()
    projection = module.model.layers[2].self_attn.o_proj

    class Saturating(torch.nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.weight = torch.nn.Parameter(weight)

        def forward(self, x):
            return torch.tanh(x @ self.weight.T)

    module.model.layers[2].self_attn.o_proj = Saturating(projection.weight.detach())
    with pytest.raises(CheckError, match=r"layers\.2\.self_attn .*sum of head results"):
        interp.load(module)


def test_a_model_in_training_mode_is_read_in_evaluation_and_left_as_it_was():
    """Dropout on, some submodules frozen in evaluation mode: every one gets its own mode back."""
    family = zoo.FAMILIES["gpt2"]
    plain = interp.load(family.model()).capture(IDS, ["pattern"])
    module: Any = copy.deepcopy(family.model())
    for m in module.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.5
    module.train()
    module.transformer.h[1].eval()
    modes = [m.training for m in module.modules()]
    assert set(modes) == {True, False}
    model = interp.load(module)
    cache = model.capture(IDS, ["pattern"])
    generated = model.generate(IDS, 3)
    assert [m.training for m in module.modules()] == modes
    assert torch.equal(cache.logits, plain.logits)
    assert torch.equal(cache["pattern", 2], plain["pattern", 2])
    assert torch.equal(generated.ids, interp.load(family.model()).generate(IDS, 3).ids)
    with pytest.raises(PromptError):
        model.run([[99]])
    assert [m.training for m in module.modules()] == modes


def test_repeats_and_their_null(loaded):
    model = loaded("llama")
    prompts = repeats(model, n=8, max_length=10, seed=3)
    assert prompts == repeats(model, n=8, max_length=10, seed=3)
    assert prompts != repeats(model, n=8, max_length=10, seed=4)
    for ids in prompts.ids:
        half = (len(ids) - 1) // 2
        assert ids[0] == 1  # BOS
        assert ids[1 : half + 1] == ids[half + 1 :]
        assert len(set(ids[1 : half + 1])) == half
        assert not {0, 2} & set(ids)
        assert 5 <= half <= 10
    null = prompts.shuffled(0, keep_first=True)
    assert null.targets == prompts.ids
    assert [sorted(a) for a in null.ids] == [sorted(a) for a in prompts.ids]
    assert [a[0] for a in null.ids] == [1] * 8
    assert null.ids != prompts.ids
    assert len({prompts.hash, null.hash, prompts.shuffled(1, True).hash}) == 3
    refused(PromptError, "has room for 0 tokens|room for", repeats, model, max_length=1)


def test_files_of_text(loaded, tmp_path):
    model = loaded("llama")
    refused(PromptError, "cannot be read: No such file", from_file, tmp_path / "no.txt", model)
    path = tmp_path / "a.txt"
    path.write_text(" \n\n")
    refused(PromptError, "holds no text", from_file, path, model)
    path.write_bytes(b"\xff\xfe\x00")
    refused(PromptError, "is not UTF-8 text", from_file, path, model)
    path.write_text("a text")
    refused(PromptError, "no tokenizer", from_file, path, model)
    assert text_of([4, 5], model) == ["<4>", "<5>"]


def test_batches_are_the_prompts_in_order():
    prompts = Prompts(((1, 2), (3,), (4, 5, 6)), targets=((2, 1), (3,), (6, 5, 4)))
    parts = list(prompts.batches(2))
    assert [p.ids for p in parts] == [((1, 2), (3,)), ((4, 5, 6),)]
    assert [p.looked_at() for p in parts] == [((2, 1), (3,)), ((6, 5, 4),)]
    with pytest.raises(InterpError, match="at least 1"):
        next(prompts.batches(0))
