"""Cards and plans: planted heads, the guarantee of the bound, bytes, files and bad input."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import DynamicCache, GPT2Config, GPT2LMHeadModel

import interp
from interp.cache import bytes as sizes
from interp.cache import plan as planning
from interp.cache.cards import cache_cards, card_rows, token_budgets
from interp.cache.patterns import read_pattern, windows_of, write_pattern
from interp.cache.plan import cache_plan, conformal_bound, plan_path
from interp.cache.plan_result import CachePlan
from interp.cache.windows import KVHead, Window, kv_heads, window_mask
from interp.core.errors import OptionError, PromptError, StoreError, UnknownName
from interp.core.prompts import Prompts
from interp.model.inputs import cache_argument

PLANTED = KVHead("decoder", 1, 0)


@pytest.fixture(scope="module")
def plan(planted_induction) -> CachePlan:
    return cache_plan(planted_induction, max_loss=0.05, recent=(4, 32), sink=2)


@pytest.fixture(scope="module")
def narrow(planted_induction) -> CachePlan:
    return cache_plan(planted_induction, budget="70%", recent=(4,), sink=2)


def test_the_card_of_the_planted_head(planted_induction) -> None:
    cards = cache_cards(planted_induction, sink=2, recent=(4, 32), null="random-init")
    frame = cards.to_pandas().set_index(["layer", "kv_head"])
    mine = frame.loc[(1, 0)]
    others = frame.drop((1, 0))
    assert mine["score"] > 1 > 100 * others["score"].abs().max()
    assert abs(mine["null"]) < 0.01
    assert mine["budget"] == mine["budget_low"] == mine["budget_high"] == 34
    assert (others["budget"] == 6).all()
    assert mine["low"] < mine["score"] < mine["high"]
    parts = frame[["sink_mass", "window_mass", "far_mass"]].sum(axis=1)
    np.testing.assert_allclose(parts, 1, atol=1e-6)
    # a head that attends within the window: the previous-token head's group
    assert frame.loc[(0, 1), "window_mass"] > frame.loc[(0, 0), "window_mass"]


def test_budgets_by_hand() -> None:
    losses = np.zeros((3, 3, 2))
    losses[0, :, :] = [[0.5, 0.5], [0.2, 0.0], [0.0, 0.0]]  # below 0.05 from the largest on
    losses[1, :, :] = [[0.0, 0.0], [0.3, 0.3], [0.0, 0.0]]  # a smaller one must not be lucky
    losses[2, :, :] = 1.0
    heads = tuple(KVHead("decoder", 0, k) for k in range(3))
    facts = {"sink": 2, "recents": (4, 8, 16), "max_loss": 0.05, "length": 40}
    cards = card_rows(heads, losses, np.zeros((3, 3)), np.zeros(3), (8, 8, 8), facts, {})
    assert token_budgets(cards, n_boot=50)[:, 0].tolist() == [18, 18, 40]
    low, high = token_budgets(cards, n_boot=50)[0, 1:]
    assert low == 10, "the second prompt alone needs less"
    assert high == 18
    assert token_budgets(cards, 0.1)[:, 0].tolist() == [10, 18, 40]


def test_the_conformal_bound_covers_a_new_prompt() -> None:
    """Exactly ceil((n + 1) level) / (n + 1) of new losses, whatever the distribution."""
    rng = np.random.default_rng(0)
    for draw in (rng.exponential, rng.standard_cauchy):
        for n, level in ((19, 0.95), (32, 0.95), (40, 0.9)):
            every = draw(size=(6000, n + 1))
            hits = [row[-1] <= conformal_bound(row[:-1], level) for row in every]
            exact = np.ceil((n + 1) * level - 1e-9) / (n + 1)
            assert exact >= level - 1e-12
            assert abs(np.mean(hits) - exact) < 3.5 * (exact * (1 - exact) / 6000) ** 0.5
    with pytest.raises(PromptError, match="needs 19"):
        conformal_bound(np.zeros(18), 0.95)


def test_the_chosen_plan_keeps_a_given_bound_for_a_new_prompt() -> None:
    """Conformal risk control on losses that grow along a path: at most 5 % above the bound."""
    rng, steps, missed, at_all = np.random.default_rng(1), 12, 0, 0
    path = [{KVHead("d", 0, k): Window(0, 1) for k in range(i)} for i in range(steps)]
    totals = list(range(steps, 0, -1))
    for _ in range(1500):
        # of each prompt the loss along the path, with drops: it need not be monotone
        losses = np.cumsum(rng.normal(0.15, 0.1, (31, steps)), 1) * (np.arange(steps) > 0)

        def calibration(cuts, losses=losses):
            return losses[:-1, len(cuts)]

        at, _ = planning._largest_cut(path, totals, calibration, 1.0, 0.95, lambda *_: None)
        missed += losses[-1, at] > 1.0
        at_all += at > 0
    assert at_all > 1400, "a plan that cuts nothing would keep any bound"
    assert missed / 1500 <= 0.05 + 2.5 * (0.05 * 0.95 / 1500) ** 0.5


def test_the_path_takes_the_cheapest_cut_per_byte_first() -> None:
    a, b = KVHead("d", 0, 0), KVHead("d", 0, 1)
    small, large = Window(0, 2), Window(0, 6)
    alone = {a: {small: 0.8, large: 0.0}, b: {small: 0.1, large: 0.09}}
    path = plan_path(alone, lambda head, w: 10 if w is None else w.tokens)
    assert path == [{}, {a: large}, {a: large, b: small}, {a: small, b: small}], (
        "the larger window of b is not on the lower hull"
    )


def test_a_plan_for_a_bound(planted_induction, plan) -> None:
    kept = dict(zip(plan.kv, plan.windows, strict=True))
    assert kept[PLANTED] in (None, Window(2, 32))
    assert all(kept[h] == Window(2, 4) for h in plan.kv if h != PLANTED)
    assert plan.bytes < 0.5 * plan.full_bytes
    assert plan.loss[0] < 0.02
    assert (plan.held_out <= plan.bound).mean() >= 0.9
    new = interp.repeats(planted_induction, n=8, seed=77)
    assert plan.losses(planted_induction, new).mean() < 0.05


def test_a_budget_that_the_planted_head_does_not_fit_costs_a_measured_loss(
    planted_induction,
) -> None:
    head = cache_plan(planted_induction, budget="60%", recent=(4,), sink=2)
    assert PLANTED not in head.cuts()
    tight = cache_plan(planted_induction, budget="13%", recent=(4,), sink=2)
    assert PLANTED in tight.cuts()
    assert tight.loss[0] > 1
    assert tight.bound > tight.loss[0]
    assert tight.bytes <= 0.13 * tight.full_bytes


def test_bytes_are_those_of_a_real_cache(llama_model) -> None:
    ids = torch.arange(3, 13)[None]
    cache = DynamicCache()
    llama_model.module(ids, use_cache=True, **{cache_argument(llama_model.module): cache})
    real = sum(
        x.numel() * x.element_size() for layer in cache.layers for x in (layer.keys, layer.values)
    )
    each = sizes.token_bytes(llama_model)
    assert sum(sizes.cache_bytes(b, 10, None) for b in each.values()) == real
    assert sizes.cache_bytes(8, 100, Window(4, 6)) == 80
    assert sizes.cache_bytes(8, 5, Window(4, 6)) == 40
    assert sizes.cache_bytes(8, 100, None, reach=32) == 256


def test_a_sliding_window_is_not_counted_beyond_its_reach(loaded) -> None:
    model = loaded("mistral_sliding")
    ids = tuple(range(3, 15)) * 2
    reach = sizes.own_reach(model, Prompts((ids,)))
    assert set(reach.values()) == {model.config.sliding_window}


@pytest.mark.parametrize(
    ("text", "size"),
    [("64KiB", 65536), ("1.5 MB", 1500000), ("40%", 400), (0.25, 250), (300, 300), ("300", 300)],
)
def test_sizes_of_budgets(text, size) -> None:
    assert sizes.read_bytes_of(text, 1000) == size


@pytest.mark.parametrize("text", ["many", "-5", "0", "5 parsec", "nan"])
def test_wrong_sizes_are_refused(text) -> None:
    with pytest.raises(OptionError, match="is not a size"):
        sizes.read_bytes_of(text, 1000)


def test_a_plan_survives_its_file_and_is_bound_to_its_model(
    plan, planted_induction, planted_bystander, tmp_path
) -> None:
    plan.save(tmp_path / "plan.json")
    back = CachePlan.load(tmp_path / "plan.json")
    assert back.equals(plan)
    back.edit(planted_induction)
    for refused in (back.edit, lambda m: back.losses(m, interp.repeats(m, n=2))):
        with pytest.raises(OptionError, match="this plan was made for planted:induction"):
            refused(planted_bystander)


def as_duo_attention_reads(folder):
    """The published loader: loadtxt, clip, and two numbers of the config."""
    gates = np.loadtxt(folder / "full_attention_heads.tsv", dtype=float, delimiter="\t")
    config = json.loads((folder / "config.json").read_text())
    return np.clip(gates, 0, 1), config["sink_size"], config["recent_size"]


def test_duo_attention_reads_the_export(narrow, planted_induction, tmp_path) -> None:
    narrow.export(tmp_path, "duo")
    gates, sink, recent = as_duo_attention_reads(tmp_path)
    cut = {(h.layer, h.kv_head) for h in narrow.cuts()}
    assert cut
    assert {(int(i), int(j)) for i, j in zip(*np.nonzero(gates == 0), strict=True)} == cut
    assert (sink, recent) == (2, 3), "recent_size counts tokens before the current one"
    pattern = read_pattern(tmp_path, planted_induction)
    assert pattern.window == (2, 4)
    assert windows_of(pattern, len(cut) / 4) == narrow.cuts()


def test_kvpress_masks_what_the_reference_mask_hides(plan, tmp_path) -> None:
    plan.export(tmp_path, "budgets")
    keeps = json.loads((tmp_path / "budgets.json").read_text())["layers"]
    assert [len(row) for row in keeps.values()] == [2, 2]
    for layer in range(2):
        cached = 45
        batch, head, token = plan.masked_keys(layer, torch.zeros(2, 2, cached, 4))
        for kv in range(2):
            window = plan.cuts().get(KVHead("decoder", layer, kv))
            mine = token[(batch == 1) & (head == kv)].tolist()
            if window is None:
                assert mine == []
                continue
            seen = window_mask(1, cached + 1, window)[0, :-1]
            assert mine == (~seen).nonzero().flatten().tolist()
            kept = keeps[str(layer)][kv]
            assert [kept["sink"], kept["recent"], kept["top"]] == [window.sink, window.recent, 0]


def test_kvpress_hides_the_same_keys_under_the_exported_settings(narrow, tmp_path) -> None:
    """`DuoAttentionPress` of kvpress 0.3 hides keys `[sink_size : -recent_size]` of the cache.

    The cache holds what stands before the next token, so that one more is seen: the token itself.
    """
    narrow.export(tmp_path, "budgets")
    stated = json.loads((tmp_path / "budgets.json").read_text())["DuoAttentionPress"]
    cut = narrow.cuts()
    assert round(stated["head_compression_ratio"] * len(narrow.kv)) == len(cut)
    cached = 45
    for layer in range(2):
        hidden = torch.zeros(2, 2, cached, dtype=torch.bool)
        streaming = [KVHead("decoder", layer, kv) in cut for kv in range(2)]
        hidden[:, streaming, stated["sink_size"] : -stated["recent_size"]] = True
        for theirs, mine in zip(
            torch.nonzero(hidden, as_tuple=True),
            narrow.masked_keys(layer, torch.zeros(2, 2, cached, 4)),
            strict=True,
        ):
            assert theirs.tolist() == mine.tolist()
    # without the current token nothing recent is left, and `[sink : -0]` would hide nothing
    only = replace(narrow, windows=tuple(w and Window(2, 1) for w in narrow.windows))
    only.export(tmp_path, "budgets")
    assert "DuoAttentionPress" not in json.loads((tmp_path / "budgets.json").read_text())


def test_rows_and_loss_of_a_plan_by_hand(narrow) -> None:
    held_out = np.array([0.5, 0.25, 1.5, 0.75])
    windows = (Window(2, 4), None, Window(3, 50), Window(1, 9))
    made = replace(narrow, held_out=held_out, windows=windows, length=40)
    mean, error = made.loss
    assert mean == 0.75
    spread = (0.25**2 + 0.5**2 + 0.75**2 + 0) / 3
    assert error == pytest.approx((spread / 4) ** 0.5)
    assert f"{mean:+.4f} +- {error:.4f}" in made.summary()
    assert (made.bytes, made.full_bytes) == (sum(made.sizes), sum(made.full_sizes))
    assert f"({sum(made.sizes) / sum(made.full_sizes):.0%})" in made.summary()
    rows = made.wide()
    assert rows["score"].tolist() == [6, 40, 40, 10]
    assert rows["sink"].tolist() == [2, -1, 3, 1]
    assert rows["recent"].tolist() == [4, -1, 50, 9]
    assert (rows["keeps"] == "all").tolist() == [False, True, False, False]
    assert rows["loss_alone"].tolist() == list(made.alone)
    bound = replace(made, bound=0.75)  # three of four are at most the bound
    assert "75% are within the bound" in bound.summary()


def test_published_gates_are_read_and_compared(planted_induction, tmp_path) -> None:
    np.savetxt(
        tmp_path / "full_attention_heads.tsv",
        np.array([[0.1, -1e-3], [1.02, 0.2]]),
        delimiter="\t",
    )
    pattern = read_pattern(tmp_path / "full_attention_heads.tsv", planted_induction)
    assert pattern.score.tolist() == [0.1, 0.0, 1.0, 0.2]
    heads = kv_heads(planted_induction)
    assert list(windows_of(pattern, 0.5, Window(1, 4))) == [heads[0], heads[1]]
    assert list(windows_of(pattern, 0.75, Window(1, 4))) == [heads[0], heads[1], heads[3]]
    with pytest.raises(OptionError, match="give a share"):
        windows_of(pattern, 0.5)


def test_wrong_patterns_are_refused(planted_induction, narrow, plan, tmp_path) -> None:
    heads = kv_heads(planted_induction)
    write_pattern(tmp_path / "one", heads[:2], [1, 0], Window(2, 4))
    with pytest.raises(OptionError, match="1 layers x 2"):
        read_pattern(tmp_path / "one", planted_induction)
    (tmp_path / "bad.tsv").write_text("a\tb\n")
    with pytest.raises(StoreError, match="does not hold gates"):
        read_pattern(tmp_path / "bad.tsv", planted_induction)
    with pytest.raises(StoreError):
        read_pattern(tmp_path / "nowhere", planted_induction)
    write_pattern(tmp_path / "two", heads, [1, 0, 1, 0], Window(2, 4))
    (tmp_path / "two" / "config.json").write_text('{"sink_size": 1}')
    with pytest.raises(StoreError, match="recent_size"):
        read_pattern(tmp_path / "two", planted_induction)
    with pytest.raises(OptionError, match="cannot be 0"):
        write_pattern(tmp_path, heads, [1, 0, 1, 0], Window(2, 1))
    several = replace(plan, windows=(Window(2, 4), Window(2, 32), None, None))
    with pytest.raises(OptionError, match="has 2 windows"):
        several.export(tmp_path, "duo")
    with pytest.raises(UnknownName, match="export format"):
        narrow.export(tmp_path, "gguf")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        narrow.export(tmp_path / "file" / "inside", "duo")


def test_bad_input_of_plans(planted_induction) -> None:
    with pytest.raises(OptionError, match="exactly one"):
        cache_plan(planted_induction)
    with pytest.raises(OptionError, match="too small"):
        cache_plan(planted_induction, budget=100)
    with pytest.raises(PromptError, match="at least 57"):
        cache_plan(planted_induction, interp.repeats(planted_induction, n=20), budget="50%")
    short = Prompts(tuple((0, 1 + i % 9, 2, 3) for i in range(60)))
    with pytest.raises(PromptError, match="keeps all of them"):
        cache_plan(planted_induction, short, budget="50%")
    with pytest.raises(PromptError, match="keeps all of them"):
        cache_cards(planted_induction, short)


def test_one_head_in_one_layer(tmp_path) -> None:
    torch.manual_seed(0)
    config = GPT2Config(
        n_layer=1, n_head=1, n_embd=16, vocab_size=40, n_positions=64, bos_token_id=0
    )
    model = interp.load(GPT2LMHeadModel(config).eval(), name="one head")
    cards = cache_cards(model, null="none", recent=(4,))
    assert len(cards) == 1
    plan = cache_plan(model, budget="50%", recent=(4,))
    assert len(plan.cuts()) == 1
    plan.export(tmp_path)
    assert read_pattern(tmp_path, model).score.tolist() == [0.0]
