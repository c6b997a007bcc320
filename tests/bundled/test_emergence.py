"""Checkpoints of a training run are those of the run that `train` makes."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256

import pytest
import torch

from interp.core.errors import OptionError
from training.emergence import checkpoints, weights_hash
from training.train import RECIPES, train

TINY = replace(RECIPES["one-layer"], steps=3, paragraphs=300, rows=4, text_rows=2, context=256)


def test_the_last_checkpoint_is_the_model_that_training_writes(tmp_path) -> None:
    record = train("one-layer", TINY, 0, 1, tmp_path / "whole", log=lambda line: None)
    hashes = {}
    for step, model in checkpoints(TINY, 0, (0, 1, 3)):
        hashes[step] = weights_hash(model, tmp_path / f"step-{step}")
        assert not model.training
    assert list(hashes) == [0, 1, 3]
    assert len(set(hashes.values())) == 3
    assert hashes[3] == record["trained_sha256"]
    whole = (tmp_path / "whole" / "model.safetensors").read_bytes()
    assert record["weights_sha256"] == sha256(whole).hexdigest() != record["trained_sha256"]


def test_it_leaves_torch_as_it_was(tmp_path) -> None:
    before = torch.get_rng_state(), torch.are_deterministic_algorithms_enabled()
    for _ in checkpoints(TINY, 0, (0,)):
        pass
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.are_deterministic_algorithms_enabled() == before[1]


@pytest.mark.parametrize(
    ("steps", "line"),
    [((2, 1), "give them rising"), ((), "give them rising"), ((0, 9), "the recipe ends after 3")],
)
def test_steps_that_do_not_exist(steps, line) -> None:
    with pytest.raises(OptionError, match=line):
        next(checkpoints(TINY, 0, steps))
