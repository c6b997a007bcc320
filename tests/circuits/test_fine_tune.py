"""Indirect object identification in a story model and in a fine-tune of it: the same circuit."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import interp
from interp.circuits.contrast import ContrastTask
from interp.circuits.find import find_circuit
from interp.circuits.result import Circuit
from interp.circuits.tasks import make_contrast

STORIES = Path(__file__).parents[3] / "shared" / "models" / "tinystories-instruct-3m"
FIRST = 10  # heads that are compared
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not STORIES.exists(), reason="needs a trained model of stories"),
]


def found_in(model: interp.Model, task: ContrastTask, folder: Path) -> Circuit:
    """The circuit by gradients, as its file in a folder of results gives it back."""
    circuit = find_circuit(model, task, "attribution_patching")
    circuit.save(folder / f"{model.name}.json")
    return Circuit.load(folder / f"{model.name}.json")


def first_heads(circuit: Circuit) -> set[str]:
    names = set(circuit.head_names)
    return set([name for name in circuit.ranking if name in names][:FIRST])


def test_a_fine_tune_keeps_the_circuit_within_its_stability(tmp_path) -> None:
    model = interp.load(STORIES, name="stories")
    task = make_contrast(model, "ioi", n=32, seed=0)
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
    base, other = found_in(model, task, tmp_path), found_in(tuned, task, tmp_path)
    stability = base.stability(FIRST)
    assert stability is not None
    _, low, _ = stability
    both = first_heads(base), first_heads(other)
    overlap = len(both[0] & both[1]) / len(both[0] | both[1])
    assert overlap >= low
    changed = base.compare(other).to_pandas().set_index("node")
    assert (changed["p_holm"] < 0.05).mean() < 0.25
    # a null: the same weights in another order of heads are another circuit
    heads = [name for name in base.ranking if name in set(base.head_names)]
    shuffled = np.random.default_rng(0).permutation(heads)[:FIRST]
    assert len(both[0] & set(shuffled)) / len(both[0] | set(shuffled)) < low
