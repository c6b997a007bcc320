"""Contrasts: pairs of one length, values by hand, and behaviours that are not there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from circuits.contrasts import induction_pairs

import interp
from interp.causal.measures import logit_difference
from interp.circuits.contrast import ContrastTask
from interp.circuits.declaration import Found, discovery
from interp.circuits.find import score_nodes
from interp.circuits.gap import LEAST_EFFECT, LEAST_OF_TWO, Gap
from interp.circuits.tasks import make_contrast
from interp.core.errors import NonFiniteError, OptionError, PromptError, UnknownName
from interp.core.prompts import Prompts


@pytest.fixture(scope="module")
def induction_task(planted_bystander):
    return induction_pairs(planted_bystander)


def test_values_are_those_of_the_logits(planted_bystander, induction_task) -> None:
    clean, corrupted = induction_task.values(planted_bystander)
    for side, prompts in ((clean, induction_task.clean), (corrupted, induction_task.corrupted)):
        for i, ids in enumerate(prompts.ids):
            with torch.no_grad():
                logits = planted_bystander.run([list(ids)])[0, -1]
            # the columns read are the answers; the task's own rule gives the difference
            rows = logits[list(induction_task.task.vocabulary)][None]
            want = induction_task.task.values(rows, [i])
            assert side[i] == pytest.approx(float(want[0]), abs=1e-4)


def test_a_value_of_several_copies_is_the_value_of_each(planted_bystander, induction_task) -> None:
    for batch in induction_task.batches(5):
        assert len({len(x) for x in batch.clean.ids + batch.corrupted.ids}) == 1
        with torch.no_grad():
            both = [planted_bystander.run(p) for p in (batch.clean, batch.corrupted)]
        together = batch.value(torch.cat(both))
        assert torch.equal(together, torch.cat([batch.value(x) for x in both]))


def test_batches_hold_every_prompt_once(induction_task) -> None:
    assert sorted(i for b in induction_task.batches(5) for i in b.which) == list(
        range(len(induction_task))
    )


def test_a_gap_that_is_there_and_one_that_is_not(planted_bystander, induction_task) -> None:
    mean, sem = induction_task.gap(planted_bystander)
    clean, corrupted = induction_task.values(planted_bystander)
    assert mean == pytest.approx((clean - corrupted).mean())
    assert mean > 10 * sem > 0
    noise = interp.load("planted:noise")
    with pytest.raises(OptionError, match="does not do induction pairs: clean minus corrupted"):
        induction_pairs(noise, seed=2).gap(noise)


def with_values(task: ContrastTask, clean, corrupted) -> ContrastTask:
    """The same pairs, with a measure that gives these numbers whatever the model does."""

    class Fixed(ContrastTask):
        def values(self, model):
            return np.array(clean, dtype=float), np.array(corrupted, dtype=float)

    return Fixed(
        task.task.__class__(
            **{
                f: getattr(task.task, f)
                for f in (
                    "name",
                    "prompts",
                    "positions",
                    "unit",
                    "higher_is_better",
                    "read_rows",
                    "corrupted",
                )
            }
        )
    )


def test_too_few_pairs_are_not_a_model_that_fails(planted_bystander) -> None:
    """1.5 standard errors above zero may be either; so many pairs as are asked for decide."""
    rng = np.random.default_rng(0)
    noise = rng.standard_normal(24)
    noise = (noise - noise.mean()) / noise.std(ddof=1) * np.sqrt(24)  # standard error 1
    pairs = induction_pairs(planted_bystander, 24)
    few = with_values(pairs, 1.5 + noise / 2, -noise / 2)
    with pytest.raises(OptionError, match=r"too few pairs to tell whether planted:bystander does"):
        few.gap(planted_bystander)
    with pytest.raises(OptionError, match=r"1\.5 ± 1 logits over 24 pairs.* about 72 pairs are"):
        few.gap(planted_bystander)
    enough = with_values(
        induction_pairs(planted_bystander, 72), np.tile(noise / 2 + 1.5, 3), -np.tile(noise / 2, 3)
    )
    assert enough.gap(planted_bystander)[0] == pytest.approx(1.5)
    for shift, told in ((0.5, "does not do"), (-1.0, "does not do"), (-3.0, "answers exchanged")):
        with pytest.raises(OptionError, match=told):
            with_values(pairs, noise + shift, np.zeros(24)).gap(planted_bystander)
    with pytest.raises(OptionError, match="the metric is 1 logits on every prompt of all 24 pairs"):
        with_values(induction_pairs(planted_bystander, 24), np.ones(24), np.ones(24)).gap(
            planted_bystander
        )


def test_a_significant_gap_can_be_too_small(planted_bystander) -> None:
    """Pairs that are much alike make any difference significant; it must be an effect too."""
    rng = np.random.default_rng(0)
    prompts, more = rng.standard_normal(24), rng.standard_normal(24) / 20
    pairs = induction_pairs(planted_bystander, 24)
    with pytest.raises(OptionError, match=r"hardly does .*, 0\.1\d* standard deviations"):
        with_values(pairs, prompts + 0.15 + more, prompts).gap(planted_bystander)
    mean, sem = with_values(pairs, prompts + 2 + more, prompts).gap(planted_bystander)
    assert mean > 100 * sem


def test_pairs_of_the_same_two_tokens_need_a_large_effect() -> None:
    rng = np.random.default_rng(0)
    prompts = rng.standard_normal(24)
    shown = [
        Gap.of(prompts + 0.4, prompts + rng.normal(0, 0.01, 24), None, n).shown
        for n in (None, 9, 2)
    ]
    assert shown == [True, True, False]
    assert Gap.of(prompts + 2, prompts + rng.normal(0, 0.01, 24), None, 2).shown


def test_a_gap_is_that_of_the_task(induction_task) -> None:
    """Lower values are better where the task says so; the answers that it reads are counted."""
    noise = np.random.default_rng(0).standard_normal(len(induction_task))
    lower = ContrastTask(replace(induction_task.task, higher_is_better=False))
    assert lower.measured_gap(noise, noise + 3).mean == pytest.approx(3)
    assert induction_task.measured_gap(noise + 3, noise).mean == pytest.approx(3)
    two = make_contrast(interp.load("trained:brackets"), "trained:brackets", n=len(noise))
    bounds = [task.measured_gap(noise, noise).least for task in (induction_task, two)]
    assert bounds == [LEAST_EFFECT, LEAST_OF_TWO]


def test_few_pairs_are_judged_by_their_own_t() -> None:
    """Three pairs of noise are accepted no more often than many: 2.3 % where nothing is there."""
    rng = np.random.default_rng(1)
    for n in (3, 16):
        found = [Gap.of(rng.standard_normal(n), np.zeros(n)) for _ in range(2000)]
        assert sum(gap.significant for gap in found) / 2000 == pytest.approx(0.0228, abs=0.01)
        assert all(gap.shown <= gap.significant for gap in found)


def test_some_pairs_are_the_same_pairs(planted_bystander, induction_task) -> None:
    part = induction_task.some([5, 2, 2])
    clean, corrupted = induction_task.values(planted_bystander)
    found = part.values(planted_bystander)
    np.testing.assert_allclose(found[0], clean[[5, 2, 2]], atol=1e-5)
    np.testing.assert_allclose(found[1], corrupted[[5, 2, 2]], atol=1e-5)
    assert part.roles[0] == induction_task.roles[5]
    with pytest.raises(OptionError, match="none of the 24 pairs"):
        induction_task.some([])


def made(model, clean, corrupted, **options):
    task = logit_difference(model, Prompts(clean), 3, 4, corrupted=Prompts(corrupted), name="t")
    return ContrastTask(task, **options)


def test_what_is_no_contrast(planted_bystander) -> None:
    with pytest.raises(PromptError, match="pair 2 has 3 clean and 2 corrupted tokens"):
        made(planted_bystander, ((0, 1, 2), (0, 1, 2)), ((0, 5, 2), (0, 5)))
    with pytest.raises(PromptError, match="pair 1 has the same tokens on both sides"):
        made(planted_bystander, ((0, 1),), ((0, 1),))
    with pytest.raises(OptionError, match="roles for 1 of 2 prompts"):
        made(planted_bystander, ((0, 1), (0, 2)), ((0, 3), (0, 4)), roles=({"end": 1},))
    bare = logit_difference(planted_bystander, Prompts(((0, 1),)), 3, 4)
    with pytest.raises(OptionError, match="has no corrupted prompts"):
        ContrastTask(bare)


@discovery(levels=("head",))
def own(model, task, level, *, bad: bool = False) -> Found:
    """A method of one's own."""
    scores = np.ones((1, len(task)))
    scores[0, 0] = np.nan if bad else 1
    return Found(("L0H0",), scores, "logits")


def test_a_method_is_declared_once(planted_bystander, induction_task) -> None:
    assert score_nodes(planted_bystander, induction_task, own).nodes == ("L0H0",)
    with pytest.raises(OptionError, match="own scores heads, not edges"):
        score_nodes(planted_bystander, induction_task, own, "edge")
    with pytest.raises(UnknownName, match="did you mean bad"):
        score_nodes(planted_bystander, induction_task, own, bat=True)
    with pytest.raises(NonFiniteError, match="own: the score of node L0H0 is not finite"):
        score_nodes(planted_bystander, induction_task, own, bad=True)
    with pytest.raises(UnknownName, match="unknown circuit method"):
        score_nodes(planted_bystander, induction_task, "codez")


def test_methods_are_listed_without_torch() -> None:
    from interp.core.registry import CIRCUIT_METHODS

    found = CIRCUIT_METHODS["codes"]
    assert found.options["position"][0] == "mean"
    assert found.summary.startswith("Rank heads by codes that appear")
