"""Small caches: decode steps against a masked full cache, padding, beams, memory, bad input."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest
import torch
from transformers import DynamicCache
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import interp
from interp.cache.budgets import Budget, read_budgets, write_budgets
from interp.cache.plan import cache_plan
from interp.cache.small_cache import FAMILIES, BudgetLayer, small_cache
from interp.cache.windows import KVHead, Window, cut_cache, kv_heads
from interp.core.errors import OptionError, StoreError, UnknownName, UnreadableAttention
from interp.model.inputs import cache_argument

ZOO = (
    "llama",
    "gpt2",
    "qwen3",
    "gemma2",
    "mistral_sliding",
    "phi",
    "gpt_neox",
    "qwen2",
    "gemma3",
    "olmo2",
    "phi3",
)
PADS = torch.tensor([0, 5])


def some_windows(model: interp.Model) -> dict[KVHead, Window]:
    """Two windows within every layer, and one head that keeps everything."""
    return {
        h: Window(2, 4) if h.kv_head % 2 else Window(1, 3)
        for h in kv_heads(model)
        if h.layer or h.kv_head
    }


def some_ids(rows: int = 2, n: int = 20) -> torch.Tensor:
    return torch.randint(3, 15, (rows, n), generator=torch.Generator().manual_seed(0))


def named(model: interp.Model, cache: Any) -> dict[str, Any]:
    """The cache under the name that this version of transformers gives it."""
    return {cache_argument(model.module): cache}


def steps(model: interp.Model, ids: torch.Tensor, cache: Any, parts: list[int], **more: Any) -> Any:
    """Logits of all tokens, given in several calls."""
    found, start = [], 0
    for n in parts:
        given = {k: v[:, : start + n] for k, v in more.items() if k == "attention_mask"}
        if "position_ids" in more:
            given["position_ids"] = more["position_ids"][:, start : start + n]
        part = ids[:, start : start + n]
        with torch.no_grad():
            given |= named(model, cache)
            found.append(model.module(part, use_cache=True, **given).logits)
        start += n
    return torch.cat(found, 1)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("name", ZOO)
def test_every_token_sees_what_the_mask_lets_it(name, attention, loaded) -> None:
    if (name, attention) == ("gemma2", "sdpa"):
        attention = "eager"  # transformers refuses the soft cap under sdpa
    model = loaded(name, attention)
    windows, ids = some_windows(model), some_ids()
    wanted = model.run({"input_ids": ids}, [cut_cache(model, windows)])
    assert not torch.allclose(wanted, model.run({"input_ids": ids}), atol=1e-4)
    for parts in ([12] + [1] * 8, [5, 7, 8]):
        found = steps(model, ids, small_cache(model, windows), parts)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def test_every_family_is_one_of_those_tested(loaded) -> None:
    assert {loaded(name).module.config.model_type for name in ZOO} >= set(FAMILIES)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_prompts_padded_on_the_left(loaded, attention) -> None:
    """The sink of each prompt is its own first tokens, in chunks too."""
    for name in ("llama", "gpt2", "gemma2", "mistral_sliding"):
        model = loaded(name, "eager" if name == "gemma2" else attention)
        windows, ids = some_windows(model), some_ids()
        mask = (torch.arange(20) >= PADS[:, None]).long()
        order = (mask.cumsum(1) - 1).clamp_min(0)
        for parts in ([12] + [1] * 8, [9, 8, 3]):
            found = steps(
                model,
                ids,
                small_cache(model, windows),
                parts,
                attention_mask=mask,
                position_ids=order,
            )
            for row, pads in enumerate(PADS.tolist()):
                alone = {"input_ids": ids[row : row + 1, pads:]}
                wanted = model.run(alone, [cut_cache(model, windows)])
                torch.testing.assert_close(
                    found[row : row + 1, pads:], wanted, rtol=1e-4, atol=1e-5
                )


def test_blocks_of_a_long_prompt_equal_one_call(loaded, monkeypatch) -> None:
    model = loaded("llama", "sdpa")
    windows, ids = some_windows(model), some_ids(2, 30)
    whole = steps(model, ids, small_cache(model, windows), [30])
    monkeypatch.setattr("interp.cache.kept_attention.ROWS", 7)
    blocks = steps(model, ids, small_cache(model, windows), [30])
    torch.testing.assert_close(blocks, whole, rtol=1e-4, atol=1e-6)


class Reference:
    """Attention over a full cache in which hidden keys are masked, and tails rounded, per head."""

    def __init__(self, budgets: dict[KVHead, Budget], pads: torch.Tensor) -> None:
        self.budgets, self.pads = budgets, pads
        self.best: dict[KVHead, torch.Tensor] = {}

    def __call__(self, module, query, key, value, attention_mask, scaling=None, **_: Any) -> Any:
        heads, layer = key.shape[1], module.layer_idx
        group, total, rows = query.shape[1] // heads, key.shape[2], query.shape[2]
        at, rank = torch.arange(total), torch.arange(total) - self.pads[:, None]
        causal = at <= torch.arange(total - rows, total)[:, None]
        seen = causal[None] & (rank >= 0)[:, None]
        outs = []
        for h in range(heads):
            budget = self.budgets.get(KVHead("decoder", layer, h))
            k, v, kept = key[:, h], value[:, h], seen
            if budget is not None and rows == 1:
                core = (rank < budget.sink) | (total - 1 - at < budget.recent)
                tail = self.best[KVHead("decoder", layer, h)] if budget.top else at >= 0
                tail = torch.nn.functional.pad(tail, (0, total - tail.shape[-1]))
                kept = seen & (core | tail if budget.reads_prompt else core)[:, None]
                if budget.bits:
                    k, v = (
                        torch.where(core[..., None], x, rounded(x, budget.bits)) for x in (k, v)
                    )
            each = []
            for q in range(h * group, (h + 1) * group):
                scores = query[:, q] @ k.transpose(1, 2) * scaling
                weights = scores.masked_fill(~kept, -1e30).softmax(-1)
                each.append(weights)
                outs.append(weights @ v)
            if budget is not None and budget.top and rows > 1:
                real = (torch.arange(rows) >= self.pads[:, None])[:, -16:, None]
                score = (torch.stack(each, 1)[:, :, -16:] * real[:, None]).sum(2).mean(1)
                near = torch.nn.functional.pad(score, (3, 3), value=-1.0).unfold(1, 7, 1)
                score = near.amax(-1)
                score = -k.norm(dim=-1) if budget.by == "key_norm" else score
                score = score * v.abs().sum(-1) if budget.by == "value_attention" else score
                last = rows - budget.recent + 1  # places that stay in the window afterwards
                free = (rank >= budget.sink) & (at < last)
                score = score.masked_fill(~free, -1e30)
                ranked = score.sort(dim=1, descending=True, stable=True).indices
                order = ranked[:, : budget.top]
                best = torch.zeros(len(score), rows, dtype=torch.bool).scatter(1, order, True)
                self.best[KVHead("decoder", layer, h)] = best & free
        return torch.stack(outs, 2), None


def rounded(x: torch.Tensor, bits: int) -> torch.Tensor:
    low, high = x.amin(-1, keepdim=True), x.amax(-1, keepdim=True)
    step = (high - low) / (2**bits - 1)
    return torch.round((x - low) / step) * step + low


@contextmanager
def used(reference: Reference) -> Iterator[None]:
    ALL_ATTENTION_FUNCTIONS["sdpa"] = reference
    try:
        yield
    finally:
        ALL_ATTENTION_FUNCTIONS.pop("sdpa")  # the library's own is behind it


BUDGETS = {
    "top": Budget(2, 4, top=3),
    "norm": Budget(1, 2, top=4, by="key_norm"),
    "value": Budget(1, 2, top=3, by="value_attention"),
    "eight": Budget(2, 3, bits=8),
    "four": Budget(0, 3, bits=4),
    "both": Budget(2, 4, top=3, bits=4),
}


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("pads", [(0, 0), (0, 9)])
def test_tails_against_a_masked_full_cache(loaded, attention, pads) -> None:
    """Decode steps after a prompt that was read in full; other heads keep all, or a window less."""
    model = loaded("llama", attention)
    heads, ids, shift = kv_heads(model), some_ids(2, 26), torch.tensor(pads)
    mask = (torch.arange(26) >= shift[:, None]).long()
    more = {"attention_mask": mask, "position_ids": (mask.cumsum(1) - 1).clamp_min(0)}
    parts = [20] + [1] * 6
    for budget in BUDGETS.values():
        given = {h: budget for h in heads if (h.layer + h.kv_head) % 2}
        cache = small_cache(model, given)
        found = steps(model, ids, cache, parts, **more)
        plain = loaded("llama", "sdpa")
        with used(Reference(given, shift)):
            wanted = steps(plain, ids, DynamicCache(config=model.module.config), parts, **more)
        full = steps(plain, ids, DynamicCache(config=model.module.config), parts, **more)
        torch.testing.assert_close(found[0], wanted[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(found[1, pads[1] :], wanted[1, pads[1] :], rtol=1e-4, atol=1e-5)
        assert not torch.allclose(found[:, 20:], full[:, 20:], atol=1e-6)
        torch.testing.assert_close(found[0, :20], full[0, :20], rtol=1e-4, atol=1e-5)


def test_memory_is_freed_by_the_bytes_of_the_plan(loaded) -> None:
    model = loaded("llama", "sdpa")
    head, ids = kv_heads(model), some_ids(2, 400)
    width = 2 * model.site(0).d_head * 4  # bytes of a token of one head: key and value
    full = small_cache(model, {})
    steps(model, ids, full, [400])
    plain = DynamicCache(config=model.module.config)
    steps(model, ids, plain, [400])
    layers: Any = plain.layers
    own = [x.nbytes for layer in layers for x in (layer.keys, layer.values)]
    assert full.bytes == sum(own) == 2 * 400 * len(head) * width
    cache = small_cache(model, dict.fromkeys(head, Window(2, 30)))
    steps(model, ids, cache, [390] + [1] * 10)
    layers = len(cache.layers)
    # the current token is not stored: it comes with the next call; positions are 4 bytes each
    assert cache.bytes == 2 * 31 * len(head) * width + layers * 31 * 4
    last = small_cache(model, dict.fromkeys(head, Window(0, 30)))  # no view of the whole prompt
    steps(model, ids, last, [400])
    assert last.bytes == 2 * 29 * len(head) * width + layers * 29 * 4
    one = small_cache(model, {head[0]: Window(2, 30)})
    steps(model, ids, one, [390] + [1] * 10)
    assert one.bytes == 2 * width * (31 + 400 * (len(head) - 1)) + 31 * 4
    tail = small_cache(model, dict.fromkeys(head, Budget(2, 30, bits=4)))
    steps(model, ids, tail, [390] + [1] * 10)
    d = model.site(0).d_head
    each = 2 * (-(-d // 2) + 2 * 4)  # codes, scale and lowest value, of a key and of a value
    wanted = 2 * len(head) * (31 * width + 369 * each) + layers * 4 * 400
    assert tail.bytes == wanted


def test_a_layer_that_slides_by_itself_frees_what_it_cannot_see(loaded) -> None:
    model = loaded("mistral_sliding", "sdpa")
    reach = model.module.config.sliding_window
    cache = small_cache(model, {})
    ids = some_ids(1, 40)
    found = steps(model, ids, cache, [30] + [1] * 10)
    torch.testing.assert_close(found, model.run({"input_ids": ids}), rtol=1e-4, atol=1e-5)
    groups = [g for layer in cache.layers for g in cast(BudgetLayer, layer).groups]
    assert {g.stored for g in groups} == {reach - 1}


@pytest.mark.parametrize(
    "options", [{}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}]
)
def test_generate_takes_the_cache_as_it_is(loaded, options) -> None:
    """Windows as long as the text: the same tokens as with the full cache, batches and beams."""
    model = loaded("llama", "sdpa")
    ids = some_ids()
    mask = (torch.arange(20) >= PADS[:, None]).long()
    more = {
        "attention_mask": mask,
        "max_new_tokens": 9,
        "do_sample": False,
        "pad_token_id": 0,
        "eos_token_id": None,
        **options,
    }
    given = dict.fromkeys(kv_heads(model), Window(3, 40))
    cache = small_cache(model, given)
    wanted = model.module.generate(ids, **more)
    assert torch.equal(model.module.generate(ids, **more, **named(model, cache)), wanted)
    assert cache.get_seq_length() == 28


def test_beams_and_chunks_under_a_short_window(loaded) -> None:
    """Beams of a cut cache equal beams of the cut run; a chunked prompt equals a whole one."""
    model = loaded("llama", "sdpa")
    ids, windows = some_ids(1), some_windows(model)
    more = {
        "max_new_tokens": 6,
        "do_sample": False,
        "pad_token_id": 0,
        "num_beams": 3,
        "eos_token_id": None,
    }
    found = model.module.generate(ids, **more, **named(model, small_cache(model, windows)))
    with model.edited(cut_cache(model, windows)):
        wanted = model.module.generate(ids, use_cache=False, **more)
    assert torch.equal(found, wanted)
    chunks = model.module.generate(
        ids, prefill_chunk_size=6, **more, **named(model, small_cache(model, windows))
    )
    assert torch.equal(chunks, wanted)


def test_a_cache_is_used_again_after_reset(loaded) -> None:
    model = loaded("llama", "sdpa")
    cache, ids = small_cache(model, some_windows(model)), some_ids()
    before = steps(model, ids, cache, [12, 1])
    cache.batch_select_indices(torch.tensor([1]))
    one = steps(model, ids[1:, 13:], cache, [1, 1])
    cache.reset()
    assert cache.bytes == cache.get_seq_length() == 0
    again = steps(model, ids, cache, [12, 1, 1, 1])
    torch.testing.assert_close(again[:, :13], before, rtol=0, atol=0)
    torch.testing.assert_close(again[1:, 13:], one, rtol=1e-4, atol=1e-6)


def test_a_plan_gives_its_cache_and_its_file(
    planted_induction, planted_bystander, tmp_path
) -> None:
    plan = cache_plan(planted_induction, budget="70%", recent=(4,), sink=2)
    ids = some_ids(2, 24)
    wanted = planted_induction.run({"input_ids": ids}, [plan.edit(planted_induction)])
    found = steps(planted_induction, ids, plan.cache(planted_induction), [10] + [1] * 14)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    with pytest.raises(OptionError, match="this plan was made for planted:induction"):
        plan.cache(planted_bystander)
    plan.export(tmp_path, "budgets")
    back = read_budgets(tmp_path / "budgets.json", planted_induction)
    assert {h: Window(b.sink, b.recent) for h, b in back.items() if b} == plan.cuts()
    again = small_cache(planted_induction, tmp_path / "budgets.json")
    again = steps(planted_induction, ids, again, [10] + [1] * 14)
    torch.testing.assert_close(again, found, rtol=0, atol=0)
    with pytest.raises(OptionError, match="make a plan for it"):
        read_budgets(tmp_path / "budgets.json", planted_bystander)


def test_files_of_budgets(llama_model, tmp_path) -> None:
    heads = kv_heads(llama_model)
    given = {heads[0]: Budget(1, 2, top=3, by="key_norm", bits=4), heads[1]: Window(2, 4)}
    write_budgets(tmp_path / "b.json", llama_model, given)
    back = read_budgets(tmp_path / "b.json", llama_model)
    assert back[heads[0]] == given[heads[0]]
    assert back[heads[1]] == Budget(2, 4)
    assert set(back) == set(heads)
    for wrong in ("[]", "{}", '{"layers": {"0": [{"sink": 1}]}, "content_hash": ""}'):
        (tmp_path / "bad.json").write_text(wrong)
        with pytest.raises(StoreError, match="does not hold budgets"):
            read_budgets(tmp_path / "bad.json", llama_model)
    with pytest.raises(UnknownName, match="key-value head"):
        write_budgets(tmp_path / "b.json", llama_model, {KVHead("decoder", 9, 0): None})


def test_bad_input_is_refused_in_one_line(loaded) -> None:
    model = loaded("llama", "sdpa")
    heads, ids = kv_heads(model), some_ids()
    with pytest.raises(OptionError, match="family bloom"):
        small_cache(loaded("bloom"), {})
    with pytest.raises(UnknownName, match="key-value head"):
        small_cache(model, {KVHead("decoder", 9, 0): Window(1, 2)})
    cache = small_cache(model, {heads[0]: Window(1, 2)})
    steps(model, ids, cache, [8])
    with pytest.raises(OptionError, match="holds 2 prompts and was given 1"):
        steps(model, ids[:1], cache, [1])
    with pytest.raises(OptionError, match="cannot be cropped"):
        cache.crop(-2)
    with pytest.raises(OptionError, match="key-value heads and this cache was made for"):
        steps(loaded("gpt2", "sdpa"), ids, small_cache(model, {}), [4])
    tail = small_cache(model, {heads[0]: Budget(1, 2, top=2)})
    steps(model, ids, tail, [8, 1])
    with pytest.raises(OptionError, match="whole prompt in the first call"):
        steps(model, ids, tail, [3])
    with pytest.raises(OptionError, match="at least 1 recent token"):
        Budget(4, 0)
    with pytest.raises(OptionError, match="known are 4 and 8"):
        Budget(4, 2, bits=3)
    with pytest.raises(UnknownName, match="score of tokens"):
        Budget(4, 2, top=1, by="luck")
    with pytest.raises(OptionError, match="has a tail"):
        cut_cache(model, {heads[0]: Budget(1, 2, top=2)})
    keys = small_cache(model, {}).update(torch.ones(1, 2, 3, 8), torch.ones(1, 2, 3, 8), 0)[0]
    with pytest.raises(UnreadableAttention, match="reads its cache by baddbmm"):
        torch.baddbmm(torch.ones(1), torch.ones(1), keys)
