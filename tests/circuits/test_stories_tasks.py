"""Tasks in the sentences of the stories: words, answers, roles, held-out templates, tokenizers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from beside import STORIES, real
from transformers import LlamaConfig, LlamaForCausalLM

import interp
from interp.circuits import find_variables
from interp.circuits.plan import Plan
from interp.circuits.tasks import TASKS, make_contrast
from interp.circuits.tasks.named import story_templates
from interp.circuits.variables.interchanges import owner_interchanges
from interp.core.errors import PromptError
from interp.model.locate.probe import probe
from training.stories.tokens import train_tokenizer

NAMES = [name for name in TASKS if name.startswith("stories:")]
PEOPLE = {*story_templates("owner").words["A"]}


@pytest.fixture(scope="module")
def teller() -> interp.Model:
    tokenizer = train_tokenizer(1000)
    config: Any = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        bos_token_id=0,
        eos_token_id=0,
    )
    return probe(LlamaForCausalLM(config).eval(), "teller", tokenizer)


@pytest.mark.parametrize("name", NAMES)
def test_pairs_differ_where_the_answer_does(teller: interp.Model, name: str) -> None:
    a, b, c = (make_contrast(teller, name, n=40, seed=seed) for seed in (0, 0, 1))
    assert len(a) == 40
    assert a.clean.ids == b.clean.ids != c.clean.ids
    assert set(a.templates) == {str(i) for i in range(len(TASKS[name].templates))}
    assert len({*zip(a.clean.ids, a.corrupted.ids, strict=True)}) == 40
    for clean, corrupted, roles in zip(a.clean.ids, a.corrupted.ids, a.roles, strict=True):
        assert set(roles) == set(TASKS[name].roles)
        assert len(clean) == len(corrupted)
        assert clean != corrupted
        assert roles["end"] == len(clean) - 1


def test_the_answer_is_whom_the_roles_name(teller: interp.Model) -> None:
    task = make_contrast(teller, "stories:owner", n=40)
    for i, roles in enumerate(task.roles):
        words = [teller.tokenizer.decode([x]).strip() for x in task.clean.ids[i]]
        logits = torch.zeros(1, teller.d_vocab)
        for who, logit in (("receiver", 3.0), ("giver", 1.0)):
            logits[0, teller.tokenizer(f" {words[roles[who]]}")["input_ids"][-1]] = logit
        assert float(task.task.values(logits[:, list(task.task.vocabulary)], [i])) == 2.0


def test_the_corrupted_text_exchanges_the_people(teller: interp.Model) -> None:
    task = make_contrast(teller, "stories:owner", n=20)
    for clean, corrupted in zip(task.clean.ids, task.corrupted.ids, strict=True):
        exchanged = {(a, b) for a, b in zip(clean, corrupted, strict=True) if a != b}
        texts = {tuple(teller.tokenizer.decode([x]).strip() for x in pair) for pair in exchanged}
        assert len(texts) == 2
        assert texts == {pair[::-1] for pair in texts}


def test_templates_are_kept_for_the_measurement(teller: interp.Model) -> None:
    plan = Plan("stories:owner", n=16, seed=0)
    mine, held = plan.templates
    assert mine is not None
    assert held is not None
    found = make_contrast(teller, "stories:owner", n=16, templates=mine)
    judged = make_contrast(teller, "stories:owner", n=16, templates=held)
    assert {int(each) for each in found.templates} <= {*mine}
    assert {int(each) for each in judged.templates} <= {*held}
    assert not {*mine} & {*held}


def test_a_tokenizer_that_splits_the_words_is_refused() -> None:
    with pytest.raises(PromptError, match=r"only 0 of 8 pairs of stories:owner .* keeps these"):
        make_contrast(interp.load("bundled:induction"), "stories:owner", n=8)


@pytest.mark.parametrize(
    ("source", "name"), [real(STORIES.name, f"stories:{name}") for name in ("place", "pronoun")]
)
def test_a_model_of_stories_does_some_of_it(source: str, name: str) -> None:
    model = interp.load(source)
    mean, sem = make_contrast(model, name, n=64).gap(model)
    assert mean > 3 * sem


def test_interchanges_take_the_name_or_which_of_two_names_from_another_story(
    teller: interp.Model,
) -> None:
    rows, other = (owner_interchanges(teller, n=60, seed=seed) for seed in (0, 1))
    assert {row.variable for row in rows} == {"name", "mention"}
    assert not {row.base for row in rows} & {row.base for row in other}
    tokenizer: Any = teller.tokenizer
    for row in rows:
        base, source = (
            [word.strip(".,") for word in tokenizer.decode(ids).replace("<s>", "").split()]
            for ids in (row.base, row.source)
        )
        people = [x for x in dict.fromkeys(base) if x in PEOPLE]
        others = [x for x in dict.fromkeys(source) if x in PEOPLE]
        receiver, answer = (tokenizer.decode([x]).strip() for x in (row.base_answer, row.answer))
        assert not {*people[:2]} & {*others[:2]}
        assert receiver in people[:2]
        if row.variable == "name":
            assert answer in others[:2]
            # the receivers are named in one order, so the sources tell of a gift in one direction
            assert others.index(answer) == people.index(receiver)
        else:
            assert answer == people[1 - people.index(receiver)]
            giver = others[people.index(receiver)]
            assert source.count(giver) > source.count(others[1 - people.index(receiver)])


@pytest.mark.slow
def test_the_layer_that_writes_the_name_is_found_and_an_early_one_is_not() -> None:
    found = find_variables("bundled:stories", nodes=["L3", "L0"], steps=30)
    rows = found.to_pandas().set_index(["variable", "place"])
    assert found.provenance["options"]["pairs"] == "stories:owner"
    assert rows.loc[("name", "L3"), "finding"] == "found"
    assert rows.loc[("name", "L3"), "score"] > 0.7
    assert rows.loc[("name", "L0"), "finding"] == "answers stay"
    assert rows.loc[("mention", "L0"), "finding"] == "answers stay"
