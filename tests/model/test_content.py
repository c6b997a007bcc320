"""A model's hash follows its weights, however they are changed, and is taken once where not."""

from __future__ import annotations

import pytest
import torch
import zoo

import interp
from interp.model import content
from interp.model import model as model_file


@pytest.fixture
def model() -> interp.Model:
    return interp.load(zoo.FAMILIES["gpt2"].build("sdpa"))


def _optimiser(weight: torch.nn.Parameter) -> None:
    weight.grad = torch.ones_like(weight)
    torch.optim.SGD([weight], 0.1).step()
    weight.grad = None


def _exchange(weight: torch.nn.Parameter) -> None:
    other = weight.data.clone()
    other[0, 1] += 1
    weight.data = other


CHANGES = {
    "in place": lambda w: w.detach().mul_(2),
    "an optimiser": _optimiser,
    "a row through .data": lambda w: w.data[3].zero_(),
    "a column through .data": lambda w: w.data[:, 2].zero_(),
    # of one entry that is not looked at
    "one entry, counted": lambda w: w.detach()[0, 1].add_(1),
    "one entry of another tensor": _exchange,
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_is_seen(model, how, monkeypatch) -> None:
    if how.startswith("one entry"):
        monkeypatch.setattr(content, "SAMPLE", 8)
    before = model.content_hash
    weight = model.module.get_submodule(model.sites[0].projection).weight
    CHANGES[how](weight)
    after = model.content_hash
    assert after != before
    assert after == content.content_hash(model.module)
    made = interp.score(model, "entropy", [[1, 2, 3, 4]], null="none").provenance
    assert made[model.name, "entropy"]["content_hash"] == after


def test_it_is_taken_once_where_nothing_changed(model, monkeypatch) -> None:
    taken = []

    def counted(module):
        taken.append(module)
        return content.content_hash(module)

    monkeypatch.setattr(model_file, "content_hash", counted)
    first = model.content_hash
    model.run([[1, 2, 3]])
    with model.edited(interp.zero([(0, 0)])):
        assert model.content_hash == first
    assert model.content_hash == first
    assert len(taken) == 1


def test_tensors_made_in_inference_mode_have_a_hash() -> None:
    with torch.inference_mode():  # where they count no versions
        module = zoo.FAMILIES["gpt2"].build("sdpa")
        first = content.glance(module)
        module.get_submodule("lm_head").weight.mul_(2)
        assert content.glance(module) != first
