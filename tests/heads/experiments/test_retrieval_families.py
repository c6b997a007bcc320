"""Copy-paste of every architecture against the attentions that transformers itself returns."""

from __future__ import annotations

import pytest
import torch
import zoo
from together import over

import interp
from interp.heads import needle
from interp.heads.needle.copying import decode

FAMILIES = {f.name: f for f in zoo.having("causal") if f.returned is None}
DECODING = ("llama", "gpt2", "mistral_sliding", "gemma3", "gpt_neo", "bloom")


def load(name: str) -> interp.Model:
    family = FAMILIES[name]
    return interp.load(family.model(family.attentions[-1]), name=name)


def copied(pattern: torch.Tensor, ids: list[int], x: needle.Instance, row: int, token: int):
    """Heads whose top key at this row lies in the needle and holds the token."""
    top = pattern[0, :, row].argmax(-1).tolist()
    return [x.span[0] <= t < x.span[1] and ids[t] == token for t in top]


@pytest.mark.slow
@over("name", FAMILIES)
def test_given_answers(name) -> None:
    model = load(name)
    instances = needle.ids_instances(model, needles=6, lengths=(18,), depths=(1.0,), answer=3)
    found = needle.copy_paste(model, instances)
    total = 0
    for trial, x in enumerate(instances):
        ids = [*x.prompt, *x.answer[:-1]]
        inputs = {"input_ids": torch.tensor([ids])}
        for stack, layer, pattern in FAMILIES[name].expected(model.module, inputs):
            steps = [copied(pattern, ids, x, 17 + j, t) for j, t in enumerate(x.answer)]
            want = torch.tensor(steps).double().mean(0)
            site = model.site(layer, stack)
            torch.testing.assert_close(found.values[site][trial], want)
            total += int(want.sum() > 0)
    assert total > 0  # short windows included: the needle stands close to the question


@pytest.mark.parametrize("name", DECODING)
def test_answers_that_the_model_writes(name) -> None:
    """Top keys while decoding with a cache, a sliding one too, against runs without one."""
    model = load(name)
    [x] = needle.ids_instances(model, needles=1, lengths=(18,), depths=(0.9,), answer=4)
    written, tops = decode(model, x)
    ids = list(x.prompt)
    for step, token in enumerate(written.tolist()):
        inputs = {"input_ids": torch.tensor([ids])}
        with torch.no_grad():
            assert token == int(model.module(**inputs).logits[0, -1].argmax())
        for stack, layer, pattern in FAMILIES[name].expected(model.module, inputs):
            want = pattern[0, :, -1].argmax(-1)
            assert torch.equal(tops[model.site(layer, stack)][:, step], want)
        ids.append(token)
