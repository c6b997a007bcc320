"""A circuit in a trained model and in a fine-tune of it: the same."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch
from beside import STORIES, needs
from torch.nn.functional import cross_entropy

import interp
from interp.circuits.contrast import ContrastTask
from interp.circuits.find import find_circuit
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast

pytestmark = pytest.mark.slow
SAME = 0.5  # Jaccard overlap of the first heads


def found_in(model: interp.Model, task: ContrastTask, folder: Path) -> Circuit:
    """The circuit by gradients, as its file in a folder of results gives it back."""
    circuit = find_circuit(model, task, "attribution_patching")
    circuit.save(folder / f"{model.name}.json")
    return Circuit.load(folder / f"{model.name}.json")


def first_heads(circuit: Circuit, first: int) -> set[str]:
    names = set(circuit.head_names)
    return set([name for name in circuit.ranking if name in names][:first])


def check_alike(base: Circuit, other: Circuit, first: int) -> None:
    """Mostly the same first heads; few effects differ."""
    both = first_heads(base, first), first_heads(other, first)
    assert len(both[0] & both[1]) / len(both[0] | both[1]) >= SAME
    changed = base.compare(other).to_pandas().set_index("node")
    assert (changed["p_holm"] < 0.05).mean() < 0.25
    # a null: the same weights in another order of heads are another circuit
    heads = [name for name in base.ranking if name in set(base.head_names)]
    shuffled = np.random.default_rng(0).permutation(heads)[:first]
    assert len(both[0] & set(shuffled)) / len(both[0] | set(shuffled)) < SAME


def test_text_leaves_the_heads_of_copying_as_they_are(tmp_path) -> None:
    model = interp.load("bundled:induction", name="induction")
    task = make_contrast(model, "induction", n=32, seed=0)
    texts = (Path(__file__).parents[2] / "data" / "prompts.txt").read_text().splitlines()
    rows = torch.tensor([model.tokenizer(text).input_ids[:40] for text in texts])
    module = copy.deepcopy(model.module).train()
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-4)
    losses = []
    for _ in range(4):
        logits = module(rows).logits[:, :-1]
        loss = cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        losses.append(loss.item())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    assert losses[-1] < losses[0] - 0.02
    tuned = interp.load(module.eval(), name="tuned", tokenizer=model.tokenizer)
    check_alike(found_in(model, task, tmp_path), found_in(tuned, task, tmp_path), 4)


@needs(STORIES)
def test_a_fine_tune_keeps_the_circuit(tmp_path) -> None:
    model = interp.load(STORIES, name="stories")
    task = make_contrast(model, "ioi", n=64, seed=2)  # clearly does it on these pairs
    lessons = make_contrast(model, "subject_verb", n=64, seed=3)
    module = copy.deepcopy(model.module).train()
    optimiser = torch.optim.AdamW(module.parameters(), lr=1e-4)
    for _ in range(3):
        for batch in lessons.batches(32):
            loss = -batch.value(module(torch.tensor(batch.clean.ids)).logits).sigmoid().log().mean()
            loss.backward()
            optimiser.step()
            optimiser.zero_grad()
    tuned = interp.load(module.eval(), name="tuned", tokenizer=model.tokenizer)
    assert np.mean(lessons.values(tuned)[0]) > np.mean(lessons.values(model)[0]) + 0.1
    check_alike(found_in(model, task, tmp_path), found_in(tuned, task, tmp_path), 10)
