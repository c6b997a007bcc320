"""Tasks against their definitions by hand, and what they refuse."""

from __future__ import annotations

import copy
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.bundled import own_texts
from interp.causal import (
    accuracy,
    answer_probability,
    custom,
    kl_to_clean,
    logit_difference,
    loss,
    next_token_task,
    repeats_task,
)
from interp.causal.game.game import Game
from interp.causal.measures import divergence
from interp.causal.task_file import make_task
from interp.causal.text_tasks import plain_task
from interp.core.errors import NonFiniteError, OptionError, PromptError, UnknownName
from interp.core.prompts import Prompts
from interp.model.locate.probe import probe
from interp.model.model import Model

PROMPTS = Prompts(((5, 6, 7, 8, 9), (10, 11, 12)))


@cache
def model_of(name: str = "gpt2") -> Model:
    family = zoo.FAMILIES[name]
    return probe(family.build("sdpa"), name)


def logits(ids) -> torch.Tensor:
    with torch.no_grad():
        return model_of().run([ids])[0].double()


@pytest.mark.parametrize("padding", ["right", "left"])
def test_loss_is_the_mean_over_the_chosen_tokens(padding):
    prompts = Prompts(PROMPTS.ids, padding=padding)
    everything = Game(model_of(), loss(model_of(), prompts)).clean
    chosen = Game(model_of(), loss(model_of(), prompts, [[2, -1], [1]])).clean
    for i, ids in enumerate(PROMPTS.ids):
        nll = -logits(ids).log_softmax(-1)[range(len(ids) - 1), ids[1:]]
        torch.testing.assert_close(everything[i], nll.mean(), rtol=0, atol=1e-5)
        want = nll[[1, 3]].mean() if i == 0 else nll[0]
        torch.testing.assert_close(chosen[i], want, rtol=0, atol=1e-5)


def test_logit_difference_probability_and_accuracy_read_the_position_asked_for():
    m = model_of()
    difference = Game(m, logit_difference(m, PROMPTS, [[3, 4], 5], 6, position=[-2, 1])).clean
    mass = Game(m, answer_probability(m, PROMPTS, [[3, 4], [5]], position=-2)).clean
    for i, (ids, right) in enumerate(zip(PROMPTS.ids, ([3, 4], [5]), strict=True)):
        x = logits(ids)[-2]
        torch.testing.assert_close(difference[i], x[right].mean() - x[6], rtol=0, atol=1e-5)
        torch.testing.assert_close(mass[i], x.softmax(-1)[right].sum(), rtol=0, atol=1e-6)
    best = [logits(ids).argmax(-1).tolist() for ids in PROMPTS.ids]
    share = accuracy(
        m, PROMPTS, [[0, 1], [0]], labels=[[best[0][0], -1 + best[0][1]], [best[1][0]]]
    )
    assert Game(m, share).clean.tolist() == [0.5, 1.0]
    assert share.higher_is_better
    assert not loss(m, PROMPTS).higher_is_better


def test_only_the_logits_that_are_read_are_made():
    m = model_of()
    made = []
    handle = m.module.lm_head.register_forward_hook(lambda mod, a, out: made.append(out.shape))
    try:
        game = Game(m, logit_difference(m, PROMPTS, [[3, 9], 5], 6, position=-1))
        game.values(1 - torch.eye(18)[:4])
        Game(m, loss(m, PROMPTS, [-1])).values(1 - torch.eye(18)[:4])
        Game(m, loss(m, PROMPTS, [-1]), restrict=False)
    finally:
        handle.remove()
    assert (1, 2, 4) in made  # one row per prompt, and the ids 3, 5, 6 and 9
    assert (1, 8, 4) in made  # four coalitions in one batch
    assert (1, 8, 64) in made
    assert made[-1] == (2, 5, 64)


def test_a_head_that_cannot_make_some_ids_only_makes_them_all():
    m = model_of()
    task = logit_difference(m, PROMPTS, [[3, 9], 5], 6, position=-1)
    game, plain = Game(m, task), Game(m, task, restrict=False)
    game.reuse = replace(game.reuse, columns=False)
    gates = 1 - torch.eye(18)[:4]
    game._kept.clear()
    torch.testing.assert_close(game.values(gates), plain.values(gates), rtol=0, atol=1e-5)


def test_your_own_function_gets_the_logits_of_its_positions():
    seen = []

    def read(x, prompt):
        seen.append((prompt, x.shape))
        return x[0, 3] - x[1, 4]

    m = model_of()
    task = custom(
        m, PROMPTS, read, name="own", unit="logits", higher_is_better=True, positions=[0, 2]
    )
    game = Game(m, task)
    want = torch.stack([logits(ids)[0, 3] - logits(ids)[2, 4] for ids in PROMPTS.ids])
    torch.testing.assert_close(game.clean, want, rtol=0, atol=1e-5)
    assert {p for p, _ in seen} == {0, 1}
    assert {shape[0] for _, shape in seen} == {2}


def test_repeats_read_what_the_first_copy_tells():
    task = repeats_task(model_of(), n=4, max_length=9)
    for ids, at in zip(task.prompts.ids, task.positions, strict=True):
        period = (len(ids) - 1) // 2  # a BOS comes first
        assert [p + 1 for p in at] == list(range(period + 2, 2 * period + 1))
        assert all(ids[p + 1] == ids[p + 1 - period] for p in at)
    texts = next_token_task(model_of(), [[5, 6, 7, 8], [9, 10, 11, 12]], max_length=3)
    assert texts.positions == ((0, 1), (0, 1))


def test_encoders_are_asked_at_the_position_itself():
    family = zoo.FAMILIES["bert"]
    m = model_of("bert")
    ids = family.inputs(batch=2)["input_ids"]
    game = Game(m, loss(m, {"input_ids": ids}, [3], labels=[[7], [8]]))
    with torch.no_grad():
        nll = -m.run({"input_ids": ids}).double().log_softmax(-1)[:, 3]
    torch.testing.assert_close(game.clean, torch.stack([nll[0, 7], nll[1, 8]]), rtol=0, atol=1e-5)


def test_a_task_hash_tells_tasks_apart():
    m = model_of()
    hashes = {
        loss(m, PROMPTS).hash,
        loss(m, PROMPTS, [[1], [1]]).hash,
        loss(m, PROMPTS, [[1], [1]], labels=[[3], [4]]).hash,
        loss(m, PROMPTS, [[1], [1]], labels=[[3], [5]]).hash,
        logit_difference(m, PROMPTS, 3, 4).hash,
        logit_difference(m, PROMPTS, 3, 5).hash,
        logit_difference(m, PROMPTS, 3, 4, corrupted=PROMPTS).hash,
        loss(m, Prompts(((5, 6, 7, 8, 9), (10, 11, 13)))).hash,
    }
    assert len(hashes) == 8
    assert loss(m, PROMPTS).hash == loss(m, PROMPTS).hash


def refused(error, match, make, *args, **kwargs):
    with pytest.raises(error, match=match) as caught:
        make(*args, **kwargs)
    assert "\n" not in str(caught.value)


def test_bad_tasks_are_refused_in_one_line():
    m, bert = model_of(), model_of("bert")
    refused(PromptError, "no prompts", loss, m, [])
    refused(PromptError, "has only one token", loss, m, [[5]])
    refused(OptionError, "no token precedes", loss, m, PROMPTS, [0])
    refused(
        OptionError, "position 4 is outside prompt 1, which has 3 tokens", loss, m, PROMPTS, [4]
    )
    refused(OptionError, "positions for 1 of 2", loss, m, PROMPTS, [[1]])
    refused(OptionError, "has no position to read", loss, m, PROMPTS, [[1], []])
    refused(OptionError, "does not predict the next token", loss, bert, PROMPTS)
    refused(OptionError, "one label per position", loss, m, PROMPTS, [1], labels=[[1], [2, 3]])
    refused(OptionError, "prompt 1 has none", answer_probability, m, PROMPTS, [[1], []])
    refused(OptionError, "knows 0 to 63", logit_difference, m, PROMPTS, 1, 64)
    refused(OptionError, "answers for 3 of 2", logit_difference, m, PROMPTS, [1, 2, 3], 4)
    refused(
        PromptError,
        "3 corrupted prompts for 2",
        logit_difference,
        m,
        PROMPTS,
        1,
        2,
        corrupted=[[1], [2], [3]],
    )
    refused(OptionError, "needs a causal model", repeats_task, bert)


def test_games_that_cannot_be_played_are_refused_in_one_line():
    m = model_of()
    task = loss(m, PROMPTS)
    equal = loss(m, [[5, 6, 7], [8, 9, 10]])

    def constant(read, **more):
        return custom(m, PROMPTS, read, name="mine", unit="1", higher_is_better=True, **more)

    refused(
        NonFiniteError,
        "mine is nan on prompt 0 of the clean run",
        Game,
        m,
        constant(lambda x, i: x[0, 0] * float("nan")),
    )
    refused(OptionError, "task mine is constant", Game, m, constant(lambda x, i: 1.0))
    refused(OptionError, "one number per prompt", Game, m, constant(lambda x, i: x[0]))
    refused(UnknownName, "unknown kind of ablation", Game, m, task, kind="mean")
    refused(UnknownName, "unknown kind of player", Game, m, task, players="tokens")
    refused(UnknownName, "unknown stack", Game, m, task, stack="cross")
    refused(OptionError, "has no head L9H0", Game, m, task, heads=["L9H0"])
    refused(OptionError, "no head", Game, m, task, heads=["L0H6"])
    refused(OptionError, "without heads", Game, m, task, heads=[])
    refused(
        OptionError,
        "L0H0 is in two groups",
        Game,
        m,
        task,
        players={"a": ["L0H0"], "b": ["L0H0", "L1H0"]},
    )
    refused(OptionError, "no group of heads", Game, m, task, players={})
    refused(OptionError, "no player is left", Game, m, task, heads=["L0H0"], without=["L0H0"])
    refused(OptionError, "needs reference", Game, m, task, kind="mean-dataset")
    refused(OptionError, "does not accept reference", Game, m, task, reference=PROMPTS)
    refused(PromptError, "3 to 5 tokens", Game, m, task, kind="resample")
    refused(PromptError, "needs a second prompt", Game, m, loss(m, [[5, 6, 7]]), kind="resample")
    refused(PromptError, "equals that prompt", Game, m, loss(m, [[5, 6]]), kind="mean-position")
    refused(
        PromptError,
        "prompt 0 has 3 tokens and its corrupted one 4",
        Game,
        m,
        equal.with_corrupted([[1, 2, 3, 4], [5, 6, 7]], m),
        kind="resample",
    )
    refused(
        OptionError,
        "clean and the corrupted runs do not differ",
        Game,
        m,
        equal.with_corrupted(equal.prompts, m),
        kind="resample",
    )
    refused(OptionError, "max_tokens=0", Game, m, task, max_tokens=0)
    game = Game(m, task)
    refused(OptionError, "with 18 players", game.values, torch.ones(3, 17))
    refused(OptionError, "NaN or infinite", game.values, torch.full((1, 18), float("nan")))
    from interp import zero

    with m.edited(zero("L0H0")):
        refused(OptionError, r"edited already \(zero\(L0H0\)\)", Game, m, task)


def test_a_task_that_breaks_under_an_ablation_is_named():
    m = model_of()
    clean = Game(m, kl_to_clean(m, PROMPTS))

    def read(x, prompt):
        return x[0, 0].log() if float(x[0, 0]) < 0 else x[0, 0]

    values = clean.values(torch.zeros(1, 18))
    assert values.min() > 0
    shifted = custom(
        m,
        PROMPTS,
        lambda x, i: (x[0, 0] - logits(PROMPTS.ids[i])[-1, 0] + 1e-3).log(),
        name="log",
        unit="1",
        higher_is_better=True,
    )
    refused(
        NonFiniteError,
        "log is (nan|-inf) on prompt . with",
        lambda: Game(m, shifted).values(1 - torch.eye(18)),
    )


def test_a_divergence_is_never_below_zero_and_exact_where_distributions_hardly_differ():
    """Against sums in extended precision; in float32 a quarter of these came out negative."""
    generator = torch.Generator().manual_seed(0)
    for size in (1e-8, 1e-6, 1e-4, 1e-2, 1.0, 100.0):
        before = 3 * torch.randn(8, 512, generator=generator)
        after = before + size * torch.randn(8, 512, generator=generator)
        found = divergence(before, after)
        assert found.dtype == torch.float64
        assert bool((found >= 0).all())
        a, b = (x.numpy().astype(np.longdouble) for x in (before, after))
        a, b = (
            x
            - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1, keepdims=True))
            - x.max(-1, keepdims=True)
            for x in (a, b)
        )
        want = (np.exp(a) * (a - b)).sum(-1).astype(float)
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-9, atol=1e-18)
    assert not divergence(before, before).any()
    opposite = divergence(torch.tensor([[0.0, -2000.0]]), torch.tensor([[-2000.0, 0.0]]))
    assert opposite.tolist() == [2000.0]
    assert float(divergence(before.double(), before.double() + 1).max()) < 1e-28


def test_a_head_that_hardly_writes_has_a_small_divergence_and_no_negative_one():
    """Heads scaled down to where float32 logits still change: KL falls with the square."""
    module = zoo.FAMILIES["llama"].build()
    found = {}
    for factor in (1.0, 1e-1, 1e-2, 1e-3):
        small = copy.deepcopy(module).double()
        with torch.no_grad():
            small.model.layers[2].self_attn.o_proj.weight.mul_(factor)
        m = interp.load(small)
        game = Game(m, kl_to_clean(m, PROMPTS), heads=[(2, h) for h in range(6)])
        found[factor] = game.values(1 - torch.eye(6))
        assert bool((found[factor] >= 0).all())
    ratio = found[1e-2] / found[1e-3]
    torch.testing.assert_close(ratio, torch.full_like(ratio, 100.0), rtol=0.05, atol=0)


def test_prompts_are_cut_before_they_are_checked_whatever_is_measured(tmp_path):
    """A text longer than the model is no error once it is cut, and no measure ignores the cut."""
    m = interp.load("bundled:refusal")
    path = tmp_path / "long.txt"
    path.write_text("the red dog and the blue cat " * 12 + "\n" + "a dog ran " * 30 + "\n")
    assert m.limit is not None
    with pytest.raises(PromptError, match="positions for 64"):
        make_task(m, str(path))
    for measure in ("loss", "accuracy", "kl-to-clean"):
        task = make_task(m, str(path), measure=measure, max_length=40)
        assert {len(ids) for ids in task.prompts.ids} == {40}


def test_measures_know_what_guessing_gives():
    m = interp.load("planted:bystander")
    d = m.d_vocab
    ids = [[0, 5, 6, 7], [0, 8, 9, 10]]
    assert loss(m, ids).chance == pytest.approx(math.log(d))
    assert accuracy(m, ids).chance == pytest.approx(1 / d)
    assert logit_difference(m, ids, 3, 4).chance == 0
    assert answer_probability(m, ids, [[3, 4], [5, 6]]).chance == pytest.approx(2 / d)
    assert kl_to_clean(m, ids).chance is None


def test_the_plain_text_of_a_model_that_comes_with_texts_is_the_first_of_these() -> None:
    stories = interp.load("bundled:stories")
    [ids, _] = plain_task(stories, n=2, max_length=20).prompts.ids
    file = own_texts("bundled:stories")
    assert file is not None
    assert stories.tokenizer.decode(ids[1:]) in file.read_text(encoding="utf-8").partition("\n")[0]
