"""Chains of coalitions against the same coalitions in full forwards."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
import zoo

from interp.causal import custom, repeats_task
from interp.causal.game.chain import chains, removals, walks
from interp.causal.game.game import Game
from interp.causal.game.players import Players
from interp.causal.shapley_values.permutations import permutation_values
from interp.core.errors import NonFiniteError, UnknownName
from interp.model.locate.probe import probe
from interp.model.model import Model

# fused qkv, grouped queries, a bias table that the first block hands on, cross attention, a
# projection outside the attention module, attention code of its own
FAMILIES = ["gpt2", "llama", "t5", "bart", "bert", "gpt_neo"]


@cache
def model_of(name: str) -> Model:
    family = zoo.FAMILIES[name]
    return probe(family.build("sdpa" if "sdpa" in family.attentions else "eager"), name)


def probe_task(name: str):
    model = model_of(name)
    inputs = zoo.FAMILIES[name].inputs(batch=2, length=9)
    width = model.run(inputs).shape[-1]
    direction = torch.randn(width, generator=torch.Generator().manual_seed(1))
    return custom(
        model,
        inputs,
        lambda x, i: (x.log_softmax(-1) * direction).sum(),
        name="probe",
        unit="nats",
        higher_is_better=True,
    )


def order_of(game: Game, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).permutation(len(game))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_chain_equals_full_forwards_bit_for_bit(name):
    model, task = model_of(name), probe_task(name)
    kinds = ("zero", "uniform-attention") if name == "gpt2" else ("zero",)
    for kind in kinds:
        game = Game(model, task, kind=kind, fold=False, restrict=False, check=False)
        order = order_of(game)
        steps = min(12, len(game) - 1)
        got = walks(game, [order], steps=steps, walk="chain")
        full = Game(model, task, kind=kind, reuse=False, check=False)
        want = full.values(removals(len(game), order, steps))
        assert torch.equal(got[0], want)
        assert want.std(0).min() > 0


def test_half_of_the_blocks_run():
    model = model_of("gpt2")
    game = Game(model, repeats_task(model, n=2, max_length=6))
    ran = []
    handles = [
        block.mlp.register_forward_hook(lambda *a, i=i: ran.append(i))
        for i, block in enumerate(model.module.transformer.h)
    ]
    try:
        game.clean  # noqa: B018
        ran.clear()
        walks(game, [order_of(game)], steps=18, walk="chain")
    finally:
        for handle in handles:
            handle.remove()
    # a player of layer l has l blocks below it that do not run: 6 · (3 + 2 + 1) of 18 · 3
    assert [ran.count(i) for i in range(3)] == [6, 12, 18]


def test_folded_walks_batches_and_groups_agree_with_chains():
    model = model_of("llama")
    task = repeats_task(model, n=3, max_length=5)
    for by in ("kv_groups", {"a": ["L0H0", "L2H1"], "b": "L1H1", "c": "L0H3"}):
        players = Players.of(model, by)
        game = Game(model, task, players=players)
        small = Game(model, task, players=players, max_tokens=12, cache_bytes=0)
        assert len(small.batches) > 1
        orders = [order_of(game, seed) for seed in range(2)]
        steps = len(game) - 1
        want = walks(game, orders, steps=steps, walk="fold")
        for other, walk in ((game, "chain"), (small, "chain"), (small, "fold")):
            got = walks(other, orders, steps=steps, walk=walk)
            torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
        assert not small._kept
        assert (want - game.clean).abs().max() > 1e-3


def test_heads_that_are_always_out_stay_out():
    model = model_of("gpt2")
    task = repeats_task(model, n=2, max_length=6)
    game = Game(model, task, without=["L1H3"], fold=False, restrict=False)
    order = order_of(game)
    got = walks(game, [order], steps=8, walk="chain")[0]
    gates = torch.ones(8, 18)
    gates[:, 9] = 0
    gates[:, [i for i in range(18) if i != 9]] = torch.tensor(removals(17, order, 8)).float()
    want = Game(model, task, fold=False, restrict=False).values(gates)
    assert torch.equal(got, want)


def test_finished_chains_are_taken_from_the_ledger(monkeypatch, tmp_path):
    from interp.causal.game import chain

    model = model_of("gpt2")
    task = repeats_task(model, n=2, max_length=5)
    heads = ["L0H0", "L1H1", "L1H2", "L2H3"]

    def play(folder):
        game = Game(model, task, heads=heads, resume=folder, check=False)
        return permutation_values(game, max_evaluations=12, seed=3, walk="chain")

    ran = []
    own = chain._chain
    monkeypatch.setattr(chain, "_chain", lambda *a: ran.append(1) or own(*a))
    first = play(tmp_path / "one")
    assert len(ran) > 1
    ran.clear()
    again = play(tmp_path / "one")
    np.testing.assert_array_equal(again.per_prompt, first.per_prompt)
    assert not ran
    play(tmp_path / "two")
    assert ran


def test_the_model_and_the_clean_run_are_left_as_they_were():
    model = model_of("t5")
    game = Game(model, probe_task("t5"), fold=False, restrict=False)
    order = order_of(game)
    before = walks(game, [order], steps=10, walk="chain")
    hooks = [len(m._forward_hooks) for m in model.module.modules()]
    after = walks(game, [order], steps=10, walk="chain")
    assert torch.equal(before, after)
    assert hooks == [len(m._forward_hooks) for m in model.module.modules()]
    assert not any("forward" in m.__dict__ for m in model.module.modules())


def test_long_prompts_chain_and_short_ones_share_batches():
    model = model_of("gpt2")
    short = Game(model, repeats_task(model, n=1, max_length=4))
    alone = Game(model, repeats_task(model, n=2, max_length=6), fold=False)
    assert not chains(short)
    assert chains(alone)
    whole = Game(model, repeats_task(model, n=1, max_length=4), reuse=False)
    assert not chains(whole)


def test_a_value_that_is_not_finite_is_named_and_so_is_an_unknown_walk():
    model = model_of("gpt2")
    calls = []

    def read(logits, prompt):
        calls.append(1)
        return logits.sum() / (0.0 if len(calls) > 3 else 1.0)

    inputs = torch.arange(5, 11)[None]
    task = custom(model, inputs, read, name="late", unit="1", higher_is_better=True)
    game = Game(model, task, check=False)
    game.clean  # noqa: B018
    with pytest.raises(NonFiniteError, match=r"late is -?inf on prompt 0 with \d players removed"):
        walks(game, [order_of(game)], steps=5, walk="chain")
    with pytest.raises(UnknownName, match="unknown walk 'both'"):
        walks(game, [order_of(game)], steps=5, walk="both")
