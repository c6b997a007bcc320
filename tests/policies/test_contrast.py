"""Contrasts of runs help where a head or the context supplies the answer, and not elsewhere."""

from __future__ import annotations

import pytest
import torch

import interp
from interp.core.errors import OptionError
from interp.model.edits import gate
from interp.model.policy import Action, Step
from interp.model.second_run import SecondRun
from interp.planted.assemble import Planted, Sizes, assemble
from interp.planted.builders import INDUCTION
from interp.policies import cad, decore


@pytest.fixture(scope="module")
def torn() -> tuple[Planted, interp.Model]:
    """A model whose table of bigrams and whose induction head disagree."""
    sizes = Sizes(layers=2, heads=4, kv_heads=2, vocab=64, context=256, seed=3)
    planted = assemble("torn", INDUCTION, {}, sizes, bigrams=True)
    return planted, interp.load(planted.model, name="torn")


def copied(planted: Planted, n: int = 12) -> tuple[list[list[int]], list[int], list[int]]:
    """Prompts whose last token stood before; what followed it then, and its bigram."""
    draw = torch.Generator().manual_seed(0)
    prompts, copies, bigrams = [], [], []
    for _ in range(n):
        ids = (torch.randperm(62, generator=draw)[:9] + 1).tolist()
        prompts.append([0, *ids, ids[3]])
        copies.append(ids[4])
        bigrams.append(int(planted.successor[ids[3]]))
    return prompts, copies, bigrams


def first(model: interp.Model, prompts, **how) -> list[int]:
    return [model.generate([p], 1, **how).ids[0, -1].item() for p in prompts]


def test_contrasting_the_copying_head_brings_back_what_the_context_says(torn) -> None:
    planted, model = torn
    prompts, copies, bigrams = copied(planted)
    [head] = planted.roles["induction"]
    weak = [gate([head], 0.6)]  # the prior wins
    assert first(model, prompts, edits=weak) == bigrams
    assert first(model, prompts, edits=weak, policy=decore([head], 1.0)) == copies
    assert first(model, prompts, edits=weak, policy=decore([head], 0.0)) == bigrams
    others = planted.roles["noise"][:2]
    assert first(model, prompts, edits=weak, policy=decore(others, 1.0)) == bigrams


def test_contrasting_a_prompt_without_its_context_does_the_same(torn) -> None:
    planted, model = torn
    prompts, copies, bigrams = copied(planted)
    weak = [gate(planted.roles["induction"], 0.6)]
    for prompt, copy, bigram in zip(prompts, copies, bigrams, strict=True):
        [bare] = first(model, [prompt], edits=weak, policy=cad([[0, prompt[-1]]], 1.0))
        assert bare == copy
        [same] = first(model, [prompt], edits=weak, policy=cad([prompt], 1.0))
        assert same == bigram


@pytest.mark.parametrize("options", [{}, {"num_beams": 3}, {"do_sample": True, "top_k": 0}])
def test_a_contrast_is_its_formula_at_every_step(loaded, options) -> None:
    """Batches of unequal prompts, beams and sampling, against runs of the whole text."""
    model = loaded("phi")
    prompts, masked, heads = [[9, 33, 21, 40, 11, 52, 17], [21, 40, 11]], [], ["L1H2", "L2H0"]
    policy, seen = decore(heads, 0.7), []

    def watched(step: Step) -> Action:
        action = policy(step)
        seen.append((step.ids.clone(), action.logits.log_softmax(-1)))
        return action

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        made = model.generate(prompts, 4, policy=watched, eos_token_id=None, **options)
    assert made.ids.shape == (2, 11)
    assert len(seen) == 4
    rows = 2 * options.get("num_beams", 1)
    for ids, got in seen:
        assert len(ids) == rows
        for row in range(rows):
            text = ids[row].tolist()[4 * (row >= rows // 2) :]
            log_p = model.run([text])[0, -1].log_softmax(-1)
            masked = model.run([text], edits=[interp.zero(heads)])[0, -1].log_softmax(-1)
            want = (1.7 * log_p - 0.7 * masked).log_softmax(-1)
            torch.testing.assert_close(got[row], want, atol=1e-4, rtol=0)


def test_the_strength_is_the_entropy_by_default(loaded) -> None:
    model, seen = loaded("llama"), []
    policy = decore(["L1H2"])

    def watched(step: Step) -> Action:
        action = policy(step)
        seen.append((step.logits.clone(), action.logits))
        return action

    model.generate([[9, 33, 21]], 1, policy=watched)
    log_p = seen[0][0][0].log_softmax(-1)
    masked = model.run([[9, 33, 21]], edits=[interp.zero("L1H2")])[0, -1].log_softmax(-1)
    entropy = torch.distributions.Categorical(logits=log_p).entropy()
    torch.testing.assert_close(seen[0][1][0], (1 + entropy) * log_p - entropy * masked)


def test_a_second_run_reads_each_token_once(loaded) -> None:
    model, lengths = loaded("llama"), []
    handle = model.module.register_forward_pre_hook(
        lambda m, args, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    try:
        model.generate([[9, 33, 21, 5]], 4, policy=decore(["L0H0"], 1.0), eos_token_id=None)
    finally:
        handle.remove()
    assert lengths == [4, 4, 1, 1, 1, 1, 1, 1]


def test_wrong_contrasts_are_refused(loaded) -> None:
    for wrong in (-1.0, float("nan"), float("inf")):
        with pytest.raises(OptionError, match="number from 0"):
            decore(["L0H0"], wrong)
        with pytest.raises(OptionError, match="number from 0"):
            cad([[1, 2]], wrong)
    model = loaded("llama")
    with pytest.raises(OptionError, match="1 prompts for a second run beside 2"):
        model.generate([[5, 6], [7, 8]], 2, policy=cad([[6]]))
    with pytest.raises(OptionError, match=r"no head|does not exist|has no"):
        model.generate([[5, 6]], 2, policy=decore(["L9H0"]))
    with pytest.raises(OptionError, match="has an encoder"):
        loaded("t5").generate({"input_ids": torch.tensor([[9, 8]])}, 2, policy=decore(["L0H0"]))
    assert SecondRun().edits == ()
