"""Cut caches: the edit against an explicit mask, in every form of attention, padded and cached."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import interp
from interp.cache import windows as module
from interp.cache.losses import CutLosses, require_longer, token_losses
from interp.cache.windows import KVHead, Window, cut_cache, kv_heads, window_mask
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
