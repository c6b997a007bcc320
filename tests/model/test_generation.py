"""Generation with a cache: what every step sees is a row of the full forward."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import zoo
from torch import Tensor
from transformers import DynamicCache
from zoo.mixers import build as build_mixer

import interp
from interp.core.errors import OptionError, PromptError, UnreadableAttention
from interp.core.prompts import Prompts
from interp.model.calls.sites import softmax_sites
from interp.model.inputs import cache_argument, forward_inputs, given_cache

NEW = 5
NAMES = ("gpt2", "llama", "mistral_sliding", "gpt_oss", "gemma3", "jamba", "bloom", "falcon")
SEQ2SEQ = ("t5", "bart", "whisper")
PROMPT = (9, 33, 21, 40, 11, 52, 17)


def untouched(model: interp.Model, inputs: dict[str, Tensor], new: int = NEW) -> Tensor:
    module: Any = model.module
    pad = getattr(model.config, "pad_token_id", None) or 0
    return module.generate(**inputs, max_new_tokens=new, do_sample=False, pad_token_id=pad)


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_a_row_of_the_full_forward(loaded, name):
    model = loaded(name)
    ids = torch.tensor([PROMPT])
    out = model.generate(ids, NEW, names=["pattern", "z"])
    assert torch.equal(out.ids, untouched(model, {"input_ids": ids}))
    new = out.ids.shape[1] - len(PROMPT)
    assert len(out.steps) == new >= 3
    full = model.capture(out.ids, ["pattern", "z"])
    read = {(site.stack, site.layer) for site in softmax_sites(model.sites)}
    assert set(out.steps[0].by_site("pattern")) == read <= set(full.by_site("pattern"))
    narrow = 0
    for step, cache in enumerate(out.steps):
        rows = slice(0, len(PROMPT)) if step == 0 else slice(len(PROMPT) + step - 1, None)
        last = len(PROMPT) + step
        for site in softmax_sites(model.sites):
            got = cache["pattern", site.layer]
            want = full["pattern", site.layer][:, :, rows, :last][:, :, : got.shape[2]]
            kept = got.shape[-1]  # a sliding cache holds the last keys only; the others had nothing
            narrow += kept < last
            torch.testing.assert_close(got, want[..., last - kept :], atol=2e-5, rtol=0)
            assert not want[..., : last - kept].any()
            z = full["z", site.layer][:, :, rows][:, :, : got.shape[2]]
            torch.testing.assert_close(cache["z", site.layer], z, atol=2e-5, rtol=1e-4)
    # Documented: the key axis of a sliding cache counts what the cache holds, not text positions.
    assert bool(narrow) == (name in ("mistral_sliding", "gpt_oss", "gemma3"))


@pytest.mark.parametrize("name", SEQ2SEQ)
def test_every_step_of_a_decoder_reads_the_encoder(loaded, name):
    model = loaded(name)
    given = zoo.FAMILIES[name].inputs()
    inputs = {k: v[1:] for k, v in given.items() if not k.startswith("decoder")}
    out = model.generate(inputs, NEW, names=["pattern"])
    assert torch.equal(out.ids, untouched(model, inputs))
    start = torch.full((1, 1), model.config.decoder_start_token_id)
    ids = torch.cat([start, out.ids], 1) if name == "whisper" else out.ids  # it strips the start
    assert len(out.steps) == ids.shape[1] - 1 >= 3
    full = model.capture(inputs | {"decoder_input_ids": ids[:, :-1]}, ["pattern"])
    assert {s for s, _ in out.steps[0].by_site("pattern")} == {"encoder", "decoder", "cross"}
    assert {s for s, _ in out.steps[1].by_site("pattern")} == {"decoder", "cross"}
    for step, cache in enumerate(out.steps):
        for stack, layer in cache.by_site("pattern"):
            got, want = cache["pattern", layer, stack], full["pattern", layer, stack]
            if stack != "encoder":
                want = want[:, :, step : step + 1]
                want = want[..., : step + 1] if stack == "decoder" else want
            torch.testing.assert_close(got, want, atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "llama", "bloom", "opt"])
def test_prompts_of_unequal_length_go_on_as_each_alone(loaded, name):
    model = loaded(name)
    prompts = [list(PROMPT), list(PROMPT[2:5])]
    together = model.generate(prompts, NEW, names=["z"])
    for row, prompt in enumerate(prompts):
        alone = model.generate([prompt], NEW, names=["z"])
        new = alone.ids.shape[1] - len(prompt)
        got = together.ids[row, len(PROMPT) : len(PROMPT) + new]
        assert got.tolist() == alone.ids[0, len(prompt) :].tolist()
        for step in range(1, new):
            z = together.steps[step]["z", 1][row]
            torch.testing.assert_close(z, alone.steps[step]["z", 1][0], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral_sliding", "bloom"])
def test_edits_act_at_every_step_and_positions_count_on(loaded, name):
    model = loaded(name)
    plain = model.generate([PROMPT], NEW, names=["z"])
    edit = interp.zero("L1H2", positions=slice(len(PROMPT) + 1, None))
    edited = model.generate([PROMPT], NEW, names=["z"], edits=[edit])
    for step in range(len(edited.steps)):
        z = edited.steps[step]["z", 1]
        silent = not z[:, 2].any()
        assert silent == (step >= 2), step
        assert z[:, 1].any()
    everywhere = model.generate([PROMPT], 3, names=["z"], edits=[interp.zero("L1H2")])
    assert not any(s["z", 1][:, 2].any() for s in everywhere.steps)
    one = model.generate([PROMPT], NEW, names=["z"], edits=[interp.zero("L1H2", positions=[8])])
    assert [bool(s["z", 1][:, 2].any()) for s in one.steps][:4] == [True, True, False, True]
    assert edited.steps[0].edits == (edit.name,)
    torch.testing.assert_close(plain.steps[0]["z", 1], edited.steps[0]["z", 1])


def test_positions_skip_left_padding_while_generating(loaded):
    """Prompts of 7 and 3 tokens: position 4 is the second one's second new token."""
    model = loaded("llama")
    prompts = Prompts((PROMPT, PROMPT[:3]))
    edit = interp.zero("L1H2", positions=[4])
    out = model.generate(prompts, 4, names=["z"], edits=[edit])
    zeroed = [~s["z", 1][:, 2].any(-1) for s in out.steps]
    assert zeroed[0][0].tolist() == [False] * 4 + [True] + [False] * 2
    assert not zeroed[0][1, 4:].any()  # its tokens 0 to 2 stand in columns 4 to 6
    assert [z.flatten().tolist() for z in zeroed[1:]] == [
        [False, False],
        [False, True],
        [False] * 2,
    ]


@pytest.mark.parametrize("name", ["t5", "bart"])
def test_padding_of_the_source_enters_no_mean_while_generating(loaded, name):
    """generate runs the encoder by itself, without the model's own forward and its mask."""
    model, seen = loaded(name), []
    inputs = {
        k: v for k, v in zoo.FAMILIES[name].inputs("right").items() if not k.startswith("decoder")
    }

    def visit(site, call, real):
        if site.stack == "encoder":
            seen.append(real)

    with model.visited(visit):
        untouched(model, inputs)
    assert len(seen) == sum(s.stack == "encoder" for s in model.sites)
    assert all(torch.equal(real, inputs["attention_mask"].bool()) for real in seen)


def test_the_callers_own_generate_is_edited(loaded):
    model = loaded("llama")
    ids = torch.tensor([PROMPT])
    heads = [(1, h) for h in range(6)] + [(0, h) for h in range(6)]
    plain = untouched(model, {"input_ids": ids}, 8)
    with model.edited(interp.zero(heads)):
        edited = untouched(model, {"input_ids": ids}, 8)
    assert not torch.equal(plain, edited)
    ours = model.generate(ids, 8, edits=[interp.zero(heads)])
    assert torch.equal(ours.ids, edited)
    assert torch.equal(untouched(model, {"input_ids": ids}, 8), plain)


def test_a_static_caches_unfilled_slots_are_hidden(loaded):
    model, steps = loaded("llama"), []
    with model.visited(
        lambda site, call, real: steps.append(call.pattern()) if site.layer == 0 else None
    ):
        module: Any = model.module
        ids = module.generate(
            torch.tensor([PROMPT]),
            max_new_tokens=4,
            do_sample=False,
            cache_implementation="static",
            disable_compile=True,
        )
    full = model.capture(ids, ["pattern"], layers=0)["pattern", 0]
    for step, pattern in enumerate(steps[1:], start=1):
        place = len(PROMPT) + step - 1
        got, want = pattern[0, :, 0], full[0, :, place]
        torch.testing.assert_close(got[:, : place + 1], want[:, : place + 1], atol=2e-5, rtol=0)
        assert not got[:, place + 1 :].any()


def test_a_token_with_the_paddings_id_is_read_like_any_other(loaded):
    model = loaded("llama")
    ids = [0, 5, 0, 7, 9]
    for _ in range(4):
        ids.append(int(model.run([ids])[0, -1].argmax()))
    assert model.generate([[0, 5, 0, 7, 9]], 4).ids[0].tolist() == ids


def test_refusals(loaded):
    with pytest.raises(OptionError, match=r"bert.*no language-model head to generate"):
        loaded("bert").generate([PROMPT], 2)
    with pytest.raises(OptionError, match="resid_pre cannot be captured"):
        loaded("llama").generate([PROMPT], 2, names=["resid_pre"])
    with pytest.raises(PromptError, match="no prompts"):
        loaded("llama").generate([], 2)


def test_a_recurrent_model_generates_and_captures_nothing():
    model = interp.load(build_mixer("mamba"), name="tiny-mamba")
    ids = torch.tensor([PROMPT])
    out = model.generate(ids, 3)
    assert torch.equal(out.ids, untouched(model, {"input_ids": ids}, 3))
    assert not out.steps
    with pytest.raises(UnreadableAttention, match="cached state"):
        model.generate(ids, 3, names=["pattern"])


def test_the_cache_is_found_by_what_it_is_whatever_its_argument_is_called():
    """transformers 5.24 calls it `cache`, earlier releases by two names, the next may differ."""
    cache = DynamicCache()
    ids = torch.tensor([PROMPT])
    for name in ("cache", "past_key_values", "cache_params", "a_name_of_tomorrow"):
        assert given_cache({"input_ids": ids, "other": None, name: cache}) is cache
    legacy = ((ids, ids),)
    assert given_cache({"past_key_values": legacy}) is legacy  # of code that has its own class
    assert given_cache({"input_ids": ids, "past_key_values": None, "kept": legacy}) is None


def test_positions_count_on_from_a_cache_of_any_name():
    def forward(input_ids, kept=None):
        """A forward whose cache has a name of its own."""

    cache = DynamicCache()
    cache.update(torch.zeros(1, 2, 7, 4), torch.zeros(1, 2, 7, 4), 0)
    found = forward_inputs(inspect.signature(forward), (torch.tensor([PROMPT]), cache), {})
    assert found.past == 7


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_prompt_is_continued_under_the_name_that_the_model_has(loaded, name):
    module: Any = loaded(name).module
    ids = torch.tensor([PROMPT])
    with torch.no_grad():
        first = module(ids[:, :4], use_cache=True)
        rest = module(ids[:, 4:], **{cache_argument(module): given_cache(first)})
        whole = module(ids).logits[:, 4:]
    torch.testing.assert_close(rest.logits, whole, atol=1e-5, rtol=1e-5)


def test_a_model_without_a_cache_is_named():
    with pytest.raises(UnreadableAttention, match=r"Linear takes no cache under a known name \("):
        cache_argument(torch.nn.Linear(2, 2))


def test_a_generation_has_its_texts_and_a_short_form(bundled_induction, loaded) -> None:
    model = bundled_induction
    texts = ["The cat sat on the mat. The cat", "A dog ran."]
    one, both = model.generate(texts[0], NEW), model.generate(texts, NEW, names=["pattern", "z"])
    plain = untouched(model, dict(model.inputs(texts[0])))
    start = len(model.tokenizer(texts[0])["input_ids"])
    assert one.text == model.tokenizer.decode(plain[0, start:], skip_special_tokens=True)
    assert (one.start, both.start) == (start, start)  # the shorter one is padded on the left
    assert both.texts == (one.text, model.generate(texts[1], NEW).text)
    with pytest.raises(OptionError, match="2 rows were generated; see `texts`"):
        _ = both.text
    assert repr(one) == f"Generation(1 row of {NEW} new tokens after {start}: {one.text!r})"
    assert f"2 rows of {NEW} new tokens after {start}, {NEW} steps with pattern, z: " in repr(both)
    assert len(repr(model.generate(texts, 60, names=["z"]))) < 400
    ids = loaded("gpt2").generate([list(PROMPT)], NEW)
    assert ids.texts is ids.text is None
    assert "has no tokenizer, so its tokens have no text" in repr(ids)
    for name, start in (("t5", 1), ("whisper", 0)):  # of the decoder
        given = zoo.FAMILIES[name].inputs()
        given = {k: v[1:] for k, v in given.items() if not k.startswith("decoder")}
        assert loaded(name).generate(given, NEW).start == start
