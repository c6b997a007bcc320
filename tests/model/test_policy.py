"""Policies: called at each step with its activations; they change tokens and edits, and stop."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from zoo.writing import PLAIN, left_padded

import interp
from interp.core.errors import OptionError, PromptError
from interp.model.hooks.tap import PREPARE
from interp.model.policy import Action, Step

PROMPT = [9, 33, 21, 40, 11, 52, 17]


def test_a_policy_sees_each_step_and_changes_nothing_by_itself(loaded) -> None:
    model, seen = loaded("phi"), []

    def watch(step: Step) -> None:
        seen.append((step.number, step.ids.shape[1], step.logits.clone(), step.cache))

    watch.names = ("pattern",)
    plain = model.generate([PROMPT], 4, eos_token_id=None)
    made = model.generate([PROMPT], 4, policy=watch, eos_token_id=None)
    assert torch.equal(plain.ids, made.ids)
    assert [x[:2] for x in seen] == [(i, 7 + i) for i in range(4)]
    assert len(made.steps) == 1  # without names only the last step is held
    for number, length, logits, cache in seen:
        whole = model.run(made.ids[:, :length])
        torch.testing.assert_close(logits[0], whole[0, -1], atol=1e-5, rtol=1e-4)
        want = model.capture(made.ids[:, :length], ["pattern"])["pattern", 1]
        torch.testing.assert_close(cache["pattern", 1][:, :, -1], want[:, :, -1])
        assert cache["pattern", 1].shape[2] == (7 if number == 0 else 1)


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}, {"do_sample": True}])
def test_logits_of_a_policy_are_what_is_written(loaded, options) -> None:
    model = loaded("phi")

    def force(step: Step) -> Action:
        logits = torch.full_like(step.logits, -torch.inf)
        logits[:, 20 + step.number] = 0
        return Action(logits=logits)

    made = model.generate([PROMPT, PROMPT[:3]], 3, policy=force, **options)
    assert made.ids[:, 7:].tolist() == [[20, 21, 22]] * 2


def test_a_policy_stops_before_the_next_token_in_each_row(loaded) -> None:
    model = loaded("phi")
    plain = model.generate([PROMPT, PROMPT[:3]], 6, eos_token_id=None).ids

    def stop(step: Step) -> Action:
        return Action(stop=torch.tensor([step.number >= 2, step.number >= 4]))

    made = model.generate([PROMPT, PROMPT[:3]], 6, policy=stop, eos_token_id=None).ids
    assert made.shape == (2, 7 + 4)
    assert torch.equal(made[0, :9], plain[0, :9])
    assert torch.equal(made[1], plain[1, :11])
    assert not made[0, 9:].any()
    at_once = model.generate([PROMPT], 6, policy=lambda step: Action(stop=True)).ids
    assert at_once.tolist() == [PROMPT]


def test_a_policy_changes_edits_from_the_next_step_on(loaded) -> None:
    model, names = loaded("phi"), []

    def switch(step: Step) -> Action | None:
        names.append(step.cache.edits)
        edits = {0: [interp.zero("L1H2")], 2: []}.get(step.number)
        return None if edits is None else Action(edits=edits)

    own = interp.zero("L2H0")
    made = model.generate([PROMPT], 5, names=["z"], edits=[own], policy=switch, eos_token_id=None)
    silent = [not bool(step["z", 1][:, 2].any()) for step in made.steps]
    assert silent == [False, True, True, False, False]
    assert not any(bool(step["z", 2][:, 0].any()) for step in made.steps)  # edits of the call stay
    assert names[1] == (own.name, "zero(L1H2)")
    assert names[3] == (own.name,)


def test_policies_that_fail_are_named_and_leave_the_model_alone(loaded) -> None:
    model = loaded("phi")
    plain = model.module.generate(**left_padded(model), **PLAIN)

    def broken(step: Step) -> Action:
        if step.number == 1:
            raise ZeroDivisionError("no")
        return Action()

    wrong: dict[str, Any] = {
        "policy broken at step 1 raised ZeroDivisionError: no": broken,
        "returned int; expected an Action or None": lambda step: 1,
        r"logits of shape \(1, 3\)": lambda step: Action(logits=torch.zeros(1, 3)),
        "NaN, or that allow no token": lambda step: Action(logits=step.logits * torch.nan),
        "allow no token": lambda step: Action(logits=step.logits - torch.inf),
        r"stop of shape \(2,\)": lambda step: Action(stop=torch.zeros(2, dtype=torch.bool)),
        "L9H9": lambda step: Action(edits=[interp.zero("L9H9")]),
    }
    for match, policy in wrong.items():
        with pytest.raises(OptionError, match=match):
            model.generate([PROMPT], 3, policy=policy)
    with pytest.raises(OptionError, match="num_beams=1"):
        model.generate([PROMPT], 3, policy=lambda step: Action(stop=True), num_beams=2)
    assert torch.equal(model.module.generate(**left_padded(model), **PLAIN), plain)
    assert PREPARE not in vars(model.module)
    assert not model.active_edits


def test_a_policy_that_never_stops_ends_at_the_given_number(loaded) -> None:
    steps = []
    made = loaded("phi").generate([PROMPT], 3, policy=steps.append, eos_token_id=None)
    assert made.ids.shape == (1, 10)
    assert len(steps) == 3


def test_prompts_beyond_the_positions_are_refused_and_windows_slide(loaded) -> None:
    with pytest.raises(PromptError, match="need 68 positions; gpt2 has 64"):
        loaded("gpt2").generate([list(range(9, 59))], 19)
    made = loaded("gpt2").generate([list(range(9, 55))], 19, eos_token_id=None)
    assert made.ids.shape == (1, 65)
    ids = list(range(9, 29))  # five windows of mistral_sliding
    model = loaded("mistral_sliding")
    made = model.generate([ids], 4, edits=[interp.zero("L1H2")], eos_token_id=None)
    for at in range(20, 24):
        logits = model.run(made.ids[:, :at], edits=[interp.zero("L1H2")])
        assert int(logits[0, -1].argmax()) == int(made.ids[0, at])
