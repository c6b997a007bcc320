"""Edits, logits and ablations of a model that runs elsewhere equal those of the model here."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from model.source_objects import NOT_OURS, build, nnsight_of, tokenizer

import interp

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("nnsight") is None,
        reason="nnsight is not installed (the extra `nnsight`)",
    ),
    *map(pytest.mark.filterwarnings, NOT_OURS),
    pytest.mark.filterwarnings("ignore::UserWarning:transformers.*"),
]

IDS = interp.Prompts(((9, 33, 21, 40, 33, 21, 21, 17, 9, 33), (3, 4, 5, 6, 7, 8)))


@pytest.fixture(scope="module")
def both() -> tuple[interp.Model, interp.Model]:
    far = interp.load(nnsight_of("llama"), name="m", remote="local")
    return far, interp.load(build("llama"), name="m", tokenizer=tokenizer())


EDITS = {
    "zero": lambda model: interp.zero("L0H1"),
    "gate": lambda model: interp.model.gate(["L0H1", "L1H2"], 0.5),
    "gates": lambda model: interp.model.gate(["L0H1", "L1H2"], torch.tensor([0.1, 0.7])),
    "mean of the batch": lambda model: interp.model.mean("L1H0"),
    "mean of other prompts": lambda model: interp.model.mean(
        "L1H0", over="dataset", reference=model.mean_z(IDS)
    ),
    "some positions": lambda model: interp.zero(["L0H0", "L1H3"], positions=[-1, 2]),
    "set": lambda model: interp.model.set_z("L0H0", torch.tensor(3.0)),
}


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_gives_the_logits_that_it_gives_here(both, name) -> None:
    far, here = both
    got, want = far.run(IDS, [EDITS[name](far)]), here.run(IDS, [EDITS[name](here)])
    assert (want - here.run(IDS)).abs().max() > 1e-2, "the edit has an effect"
    for row, ids in enumerate(IDS.ids):
        torch.testing.assert_close(got[row, : len(ids)], want[row, : len(ids)])


def test_the_run_without_edits_and_the_mean_of_z(both) -> None:
    far, here = both
    torch.testing.assert_close(far.run(IDS)[0], here.run(IDS)[0])
    want = here.mean_z(IDS)
    for place, got in far.mean_z(IDS).items():
        torch.testing.assert_close(got, want[place])


def test_scores_are_those_under_the_edit(both) -> None:
    scores = []
    for model in both:
        with model.edited(interp.zero("L0H1")):
            assert model.active_edits == ("zero(L0H1)",)
            scores.append(interp.score(model, ["induction", "entropy"], IDS, null="none"))
    got, want = (torch.tensor(t.to_pandas()["score"].to_numpy()) for t in scores)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)
    plain = interp.score(both[1], ["induction", "entropy"], IDS, null="none").to_pandas()
    assert (got - torch.tensor(plain["score"].to_numpy())).abs().max() > 1e-3


@pytest.mark.parametrize("kind", ["zero", "mean-batch", "mean-position", "mean-dataset"])
def test_ablation_equals_the_one_here(both, kind) -> None:
    task = interp.repeats_task(both[0], n=4, max_length=5)
    options = {"reference": IDS} if kind == "mean-dataset" else {}
    found = [interp.ablate(m, task, kind=kind, null="none", **options) for m in both]
    got, want = (torch.tensor(f.table.to_pandas()["score"].to_numpy()) for f in found)
    assert want.abs().max() > 1e-3
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)
