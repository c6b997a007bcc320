"""Cut caches: the edit against an explicit mask, in every form of attention, padded and cached."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.bundled import texts_with
from interp.cache import windows as module
from interp.cache.cards import usual_prompts
from interp.cache.losses import CutLosses, require_longer, token_losses
from interp.cache.windows import KVHead, Window, cut_cache, kv_heads, window_mask
from interp.causal.game.verify import reuse_of
from interp.core.errors import OptionError, UnknownName
from interp.core.prompts import Prompts

WINDOW = Window(2, 3)
FAMILIES = ("llama", "gpt2", "gemma2", "gpt_oss", "mistral_sliding", "bloom", "gpt_neo", "gptj")


def some_ids(model: interp.Model, n: int = 12) -> tuple[int, ...]:
    return tuple(np.random.default_rng(0).integers(3, 15, n).tolist())


@pytest.mark.parametrize("name", FAMILIES)
def test_the_edit_is_the_mask_applied_to_the_pattern(name, loaded) -> None:
    """Kept weights over their sum, where a learned sink keeps its share of the whole."""
    model = loaded(name)
    ids = some_ids(model)
    kept = window_mask(len(ids), len(ids), WINDOW)
    assert kept.sum(1).tolist() == [min(i + 1, 5) for i in range(len(ids))]

    def masked(pattern: torch.Tensor) -> torch.Tensor:
        pattern = pattern.double()
        part = pattern * kept.to(pattern)
        rest = 1 - pattern.sum(-1, keepdim=True)
        return part / (part.sum(-1, keepdim=True) + rest.clamp_min(0))

    heads = model.heads()
    one = model.run([ids], [cut_cache(model, dict.fromkeys(kv_heads(model), WINDOW))])
    other = model.run([ids], [interp.model.set_pattern(heads, masked)])
    torch.testing.assert_close(one, other, rtol=1e-4, atol=2e-5)
    assert not torch.allclose(one, model.run([ids]), atol=1e-4)


def test_the_mask_by_hand() -> None:
    assert window_mask(5, 5, Window(1, 2)).int().tolist() == [
        [1, 0, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 0, 0],
        [1, 0, 1, 1, 0],
        [1, 0, 0, 1, 1],
    ]
    assert window_mask(1, 5, Window(0, 2)).int().tolist() == [[0, 0, 0, 1, 1]]


def test_one_group_is_cut_and_the_others_are_not(llama_model) -> None:
    head = kv_heads(llama_model)[0]
    ids = some_ids(llama_model)
    clean = llama_model.capture([ids], ["z"]).z_by_site()
    with llama_model.edited(cut_cache(llama_model, {head: WINDOW})):
        cut = llama_model.capture([ids], ["z"]).z_by_site()
    site = llama_model.site(0)
    group = site.n_heads // site.n_kv_heads
    z, was = cut[site.stack, 0], clean[site.stack, 0]
    assert group > 1
    torch.testing.assert_close(z[:, group:], was[:, group:], rtol=0, atol=0)
    for h in range(group):
        assert not torch.allclose(z[:, h], was[:, h], atol=1e-5)


def test_blocks_of_rows_equal_all_at_once(llama_model, monkeypatch) -> None:
    prompts = Prompts((some_ids(llama_model), some_ids(llama_model, 9)))
    cut = cut_cache(llama_model, dict.fromkeys(kv_heads(llama_model), WINDOW))
    whole = token_losses(llama_model, prompts, [cut])
    monkeypatch.setattr(module, "BLOCK", 1)
    np.testing.assert_allclose(token_losses(llama_model, prompts, [cut]), whole, atol=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_changes_nothing(llama_model, side) -> None:
    ids = (some_ids(llama_model), some_ids(llama_model, 8))
    cut = cut_cache(llama_model, dict.fromkeys(kv_heads(llama_model), WINDOW))
    together = token_losses(llama_model, Prompts(ids, padding=side), [cut])
    alone = [token_losses(llama_model, Prompts((x,)), [cut])[0] for x in ids]
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_losses_are_cross_entropies_and_count_the_last_tokens(llama_model) -> None:
    ids = some_ids(llama_model)
    logits = llama_model.run([ids])[0].double()
    each = torch.nn.functional.cross_entropy(
        logits[:-1], torch.tensor(ids[1:]), reduction="none"
    ).tolist()
    prompts = Prompts((ids,))
    assert token_losses(llama_model, prompts)[0] == pytest.approx(np.mean(each), abs=1e-6)
    last = token_losses(llama_model, prompts, scored=3)[0]
    assert last == pytest.approx(np.mean(each[-3:]), abs=1e-5)


@pytest.mark.parametrize("cache", [None, "static"])
def test_generation_with_a_cache_equals_the_cut_run(llama_model, cache) -> None:
    ids = some_ids(llama_model)
    cut = cut_cache(llama_model, dict.fromkeys(kv_heads(llama_model), WINDOW))
    options = {} if cache is None else {"cache_implementation": cache}
    made = llama_model.generate([ids], 4, names=["z"], edits=[cut], **options)
    written = list(ids)
    for _ in range(4):
        written.append(int(llama_model.run([tuple(written)], [cut])[0, -1].argmax()))
    new = made.ids[0, len(ids) :].tolist()  # it stops at an end of sequence
    assert len(new) >= 3
    assert new == written[len(ids) : len(ids) + len(new)]


def test_a_window_that_holds_the_prompt_changes_nothing(llama_model) -> None:
    prompts = Prompts((some_ids(llama_model),))
    losses = CutLosses(llama_model, prompts)
    assert abs(losses(dict.fromkeys(kv_heads(llama_model), Window(0, 12)))[0]) < 1e-6
    assert losses({})[0] == 0


@pytest.mark.parametrize("name", ["llama", "gemma2", "gpt_neo"])
def test_losses_of_several_cuts_are_those_of_each_alone(name, loaded) -> None:
    """Blocks below the first cut are not run again, and prompts of like length run together."""
    model = loaded(name)
    rng = np.random.default_rng(1)
    ids = tuple(tuple(rng.integers(3, 15, n).tolist()) for n in (12, 6, 11, 4, 12))
    prompts, heads = Prompts(ids), kv_heads(model)
    cuts = [{head: WINDOW} for head in heads] + [{}, dict.fromkeys(heads, WINDOW)]
    steps: list[int] = []
    found = CutLosses(model, prompts, batch_size=2).each(
        cuts, "cuts", lambda _, done, total: steps.append(done * (done <= total))
    )
    alone = [
        [
            token_losses(model, Prompts((x,)), [cut_cache(model, cut)] if cut else [])[0]
            - token_losses(model, Prompts((x,)))[0]
            for x in ids
        ]
        for cut in cuts
    ]
    np.testing.assert_allclose(found, alone, atol=1e-5)
    assert np.abs(found[0]).max() > 1e-4
    assert (found[:, 3] == 0).all(), "a prompt that the window holds"
    assert steps == sorted(steps)
    assert steps[-1] == len(cuts) * len(ids)


def test_layers_below_a_cut_run_once_for_all_cuts(loaded, monkeypatch) -> None:
    model = loaded("llama")
    losses, calls = CutLosses(model, Prompts((some_ids(model),))), [0] * len(model.sites)
    reuse_of(model)  # which runs the model to test what may be left out
    modules = dict(model.module.named_modules())
    for at, site in enumerate(model.sites):
        forward = modules[site.module].forward

        def counted(*args, _at=at, _forward=forward, **kwargs):
            calls[_at] += 1
            return _forward(*args, **kwargs)

        monkeypatch.setattr(modules[site.module], "forward", counted)
    heads = [head for head in kv_heads(model) if head.layer == len(calls) - 1]
    losses.each([{head: Window(2, n)} for head in heads for n in (2, 3, 4)])
    assert calls[0] == 1
    assert calls[-1] == 1 + 3 * len(heads)


def test_a_model_that_comes_with_texts_is_measured_on_them() -> None:
    model = interp.load("bundled:stories")
    one, again, other = (usual_prompts(model, 8, seed) for seed in (0, 0, 1))
    texts = [model.tokenizer.decode(ids, skip_special_tokens=True) for ids in one.ids]
    assert set(texts) <= set(texts_with(model))
    assert one.ids == again.ids != other.ids
    assert len({*one.ids}) == 8
    assert usual_prompts(interp.load("bundled:induction"), 3, 0).design.startswith("random")


def test_bad_windows_heads_and_models(llama_model, loaded) -> None:
    with pytest.raises(OptionError, match="at least 1 recent token"):
        Window(4, 0)
    with pytest.raises(UnknownName, match="L9KV0"):
        cut_cache(llama_model, {KVHead("decoder", 9, 0): WINDOW})
    with pytest.raises(OptionError, match="no key-value head is cut"):
        cut_cache(llama_model, {})
    with pytest.raises(OptionError, match="no cache that could be cut"):
        kv_heads(loaded("bert"))
    with pytest.raises(interp.InterpError, match="keeps all of them"):
        require_longer(Prompts((some_ids(llama_model, 5),)), WINDOW)
