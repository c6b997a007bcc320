"""Every edit holds while the module's own `generate` writes, with any cache and decoding."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
import zoo
from zoo.writing import PLAIN, difference, edits_for, left_padded

import interp
from interp.core.errors import OptionError
from interp.heads.detectors.induction import induction
from interp.model.calls.sites import softmax_sites
from interp.model.edits import mean, set_z
from interp.model.hooks.tap import PREPARE
from interp.model.key_edits import reweight, set_targets
from interp.model.pattern_edits import calibrate, set_pattern

HEADS = (1, 2)
NOT_ALIKE = {
    "deepseek_v32": "its indexer picks other keys with a cache than without one, also unedited",
    "xlnet": "it reads no cache of transformers",
}
WRITING = [
    f.name
    for f in zoo.FAMILIES.values()
    if f.name not in NOT_ALIKE and getattr(transformers, f.model_class).can_generate()
]
CACHES = ("gpt2", "llama", "mistral_sliding", "gemma3", "gpt_oss", "bloom")
DECODING: dict[str, dict[str, Any]] = {
    "static cache": {"cache_implementation": "static"},
    "no padding": {},
    "static cache, no padding": {"cache_implementation": "static"},  # the prompt has no mask
    "chunked prompt": {"prefill_chunk_size": 4},
    "beams": {"num_beams": 3},
    "beams in a static cache": {"num_beams": 3, "cache_implementation": "static"},
    "sampling": {"do_sample": True},
    "several samples": {"do_sample": True, "num_return_sequences": 2},
}


def prompts_of(model: interp.Model) -> tuple[dict[str, torch.Tensor], bool]:
    if model.kind == "encoder-decoder":
        given = zoo.FAMILIES[model.name].inputs()
        return {k: v for k, v in given.items() if not k.startswith("decoder")}, False
    if model.padding.way("left", 9) is None:
        return {"input_ids": left_padded(model, (9, 9))["input_ids"]}, False
    return left_padded(model), True


def heads_of(model: interp.Model) -> list[tuple[int, int]]:
    layer = [s for s in softmax_sites(model.sites) if s.stack == "decoder"][-1].layer
    return [(layer, h) for h in HEADS]


@pytest.mark.parametrize("name", WRITING)
def test_edited_steps_equal_edited_runs_of_the_whole_text(loaded, name) -> None:
    model = loaded(name)
    inputs, padded = prompts_of(model)
    heads, allowed = heads_of(model), 2e-5 if model.kind == "causal" else 1e-4
    plain, rows, _ = difference(model, inputs, lambda _: [])
    assert plain < allowed
    assert rows == 10
    for edit, make in edits_for(model, padded).items():
        gap, _, _ = difference(model, inputs, lambda n, make=make: [make(heads, n)])
        assert gap < allowed, edit


@pytest.mark.parametrize("decoding", DECODING)
@pytest.mark.parametrize("name", CACHES)
def test_caches_and_decoding_change_no_edit(loaded, name, decoding) -> None:
    model = loaded(name)
    padded = "no padding" not in decoding
    inputs = left_padded(model) if padded else left_padded(model, (9, 9))
    heads, options = heads_of(model), DECODING[decoding]
    if name in ("gemma3", "gpt_oss", "mistral_sliding") and decoding == "chunked prompt":
        inputs = {k: v[:, -6:][1:] for k, v in inputs.items()}  # a window of 4 takes no more
    for edit, make in edits_for(model, padded).items():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            gap, _, _ = difference(model, inputs, lambda n, make=make: [make(heads, n)], **options)
        assert gap < 2e-5, edit


def test_a_pattern_with_weight_on_dropped_keys_is_refused(loaded) -> None:
    model = loaded("mistral_sliding")
    even = torch.full((1, 1, 40, 40), 1 / 40)
    with (
        model.edited(set_pattern(heads_of(model), even)),
        pytest.raises(OptionError, match="no longer holds"),
    ):
        model.module.generate(**left_padded(model, (9, 9)), **PLAIN)


def test_every_edit_changes_what_is_written(loaded) -> None:
    model = loaded("phi")
    inputs, heads = left_padded(model), heads_of(model)
    plain = model.module.generate(**inputs, **PLAIN)
    for edit, make in edits_for(model, True).items():
        _, _, ids = difference(model, inputs, lambda n, make=make: [make(heads, n)])
        assert not torch.equal(ids, plain), edit
    assert torch.equal(model.module.generate(**inputs, **PLAIN), plain)
    assert PREPARE not in vars(model.module)


def test_nested_edits_of_two_readers_of_the_text_both_act(loaded) -> None:
    model = loaded("phi")
    inputs, heads = left_padded(model), heads_of(model)
    make = edits_for(model, True)["description"]
    both = [make([head], 40) for head in heads]
    with model.edited(*both):
        together = model.module.generate(**inputs, **PLAIN)
    with model.edited(both[0]), model.edited(both[1]):
        nested = model.module.generate(**inputs, **PLAIN)
    assert torch.equal(together, nested)


def test_a_streamer_receives_the_edited_text(loaded) -> None:
    model, heard = loaded("phi"), []

    class Streamer:
        def put(self, value: torch.Tensor) -> None:
            heard.extend(value.flatten().tolist())

        def end(self) -> None:
            pass

    ids = left_padded(model, (9,))
    with model.edited(interp.zero(heads_of(model))):
        made = model.module.generate(**ids, **PLAIN, streamer=Streamer())
    assert heard == made[0].tolist()
    assert not torch.equal(made, model.module.generate(**ids, **PLAIN))


@torch.no_grad()
@pytest.mark.parametrize("factor", [0.0, 0.3, 4.0, float("inf")])
@pytest.mark.parametrize("name", ["llama", "gpt_oss", "bloom"])
def test_reweighting_is_its_formula(loaded, name, factor) -> None:
    model, ids = loaded(name), [[5, 9, 12, 7, 6, 10, 8]]
    cache = model.capture(ids, ["pattern", "v", "z"], layers=1)
    own, v = cache["pattern", 1].double(), cache["v", 1].double()
    v = v.repeat_interleave(own.shape[1] // v.shape[1], 1)
    named = torch.tensor([0, 1, 1, 0, 1, 0, 0]).double()
    rest = 1 - own.sum(-1, keepdim=True)  # a sink
    if factor == float("inf"):
        weighed, rest = own * named, rest * 0 if name != "gpt_oss" else rest
    else:
        weighed = own * torch.where(named > 0, factor, 1.0)
    total = weighed.sum(-1, keepdim=True) + rest
    wanted = torch.where(weighed.sum(-1, keepdim=True) > 0, weighed / total.clamp_min(1e-30), own)
    got = model.run(ids, edits=[])
    with model.edited(reweight([(1, 2)], [1, 2, 4], factor)):
        z = model.capture(ids, ["z"], layers=1)["z", 1].double()
        assert not torch.allclose(model.run(ids), got)
    torch.testing.assert_close(z[:, 2], (wanted @ v)[:, 2], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(z[:, 1], cache["z", 1].double()[:, 1])


@torch.no_grad()
def test_only_a_segment_keeps_the_heads_own_order_in_16_bits() -> None:
    """Adding 10,000 to scores in bfloat16 would give the keys of the segment equal weights."""
    model = interp.load(zoo.FAMILIES["llama"].build().to(torch.bfloat16))
    ids = [[5, 9, 12, 7, 6, 10, 8]]
    own = model.capture(ids, ["pattern"], layers=1)["pattern", 1][0, 2, -1, :3].float()
    with model.edited(reweight([(1, 2)], slice(0, 3), float("inf"))):
        z = model.capture(ids, ["z", "v"], layers=1)
    v = z["v", 1][0, 2 // 3, :3].float()
    assert float(own.max() / own.min()) > 2
    got = z["z", 1][0, 2, -1].float()
    torch.testing.assert_close(got, own / own.sum() @ v, atol=2e-2, rtol=0.05)


@torch.no_grad()
def test_a_description_in_place_of_a_pattern_keeps_what_the_head_does() -> None:
    model = interp.load("bundled:induction")
    heads = list(interp.score(model, ["induction"], null="none").top(2).heads())
    prompts = interp.repeats(model, n=4)
    losses = {}
    for what, edits in {
        "own": [],
        "described": [set_targets(heads, induction)],
        "zero": [interp.zero(heads)],
        "wrong": [set_targets(heads, lambda query, key: key == 0)],
    }.items():
        losses[what] = 0.0
        for ids in map(torch.tensor, prompts.ids):
            half = len(ids) // 2
            log = model.run([ids.tolist()], edits=edits)[0, half:-1].log_softmax(-1)
            losses[what] -= float(log.gather(-1, ids[half + 1 :, None]).mean()) / len(prompts)
    assert losses["described"] < losses["own"] + 0.25 * (losses["zero"] - losses["own"]), losses
    assert losses["wrong"] > losses["described"] + 0.3 * (losses["zero"] - losses["own"])


def test_edits_that_a_step_cannot_take_are_refused(loaded) -> None:
    model, heads = loaded("llama"), [(1, 1)]
    inputs = left_padded(model, (9,))
    refused = {
        r"mean-batch\(L1H1\) reads the mean over the positions.*use_cache=False": mean(heads),
        "mean-position.*reads": mean(heads, over="position"),
        "calibrate-attention.*reads the mean attention": calibrate(heads),
        "rows for 9 tokens, and the run has reached 10": set_z(heads, torch.zeros(1, 6, 9, 8)),
        "rows for 7 tokens": set_pattern(heads, torch.ones(1, 6, 7, 7).tril()),
        "counted from the end": interp.zero(heads, positions=[-1]),
    }
    for match, edit in refused.items():
        with model.edited(edit), pytest.raises(OptionError, match=match):
            model.module.generate(**inputs, **PLAIN)
    with model.edited(mean(heads)):
        model.module.generate(**inputs, **PLAIN, use_cache=False)
    embedded = model.module.get_input_embeddings()(inputs["input_ids"])
    reads = set_targets(heads, induction)
    with model.edited(reads), pytest.raises(OptionError, match="reads the tokens of the text"):
        model.module.generate(inputs_embeds=embedded, **PLAIN)
    assert PREPARE not in vars(model.module)


def test_bad_arguments_of_edits_of_keys_are_refused() -> None:
    with pytest.raises(OptionError, match="from 0 to infinity"):
        reweight("L0H0", [1], -1.0)
    with pytest.raises(OptionError, match="counted from the end"):
        reweight("L0H0", slice(-3, None), 2.0)
    with pytest.raises(OptionError, match="bool mask"):
        reweight("L0H0", torch.ones(3), 2.0)
    with pytest.raises(OptionError, match=r"predicate|function|detector"):
        set_targets("L0H0", lambda key, query: key == query)


def test_a_predicate_that_fails_is_named(loaded) -> None:
    model = loaded("llama")

    def broken(query, key):
        raise ZeroDivisionError("no")

    with pytest.raises(OptionError, match="broken raised ZeroDivisionError: no"):
        model.run([[5, 6, 7]], edits=[set_targets("L0H0", broken)])
    with pytest.raises(OptionError, match="returned int; expected a bool tensor"):
        model.run([[5, 6, 7]], edits=[set_targets("L0H0", lambda query, key: 1)])
