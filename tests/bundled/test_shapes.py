"""The bundled vision transformers: their folders, what they learned, and that training repeats."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import ViTForImageClassification

from interp import bundled
from interp.bundled.shape_images import shape_images
from interp.core.errors import OptionError
from training.train_shapes import RECIPES, card, gated, looks, right, train

NAMES = ("shapes", "shapes-spurious")


@cache
def module(name: str) -> Any:
    return ViTForImageClassification.from_pretrained(bundled.path(name), use_safetensors=True)


def test_they_are_told_from_the_language_models() -> None:
    assert set(bundled.names("images")) == set(NAMES)
    assert not set(NAMES) & set(bundled.names())
    assert bundled.names("all")[0] == "stories"
    with pytest.raises(OptionError, match="known: text, images, all"):
        bundled.names("sound")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", NAMES)
def test_folder_is_whole_and_its_weights_are_those_of_the_record(name: str) -> None:
    folder = bundled.path(name)
    record = json.loads((folder / "training.json").read_text())
    weights = (folder / "model.safetensors").read_bytes()
    assert hashlib.sha256(weights).hexdigest() == record["weights_sha256"]
    assert len(weights) < 150_000
    assert {x.dtype for x in load_file(folder / "model.safetensors").values()} == {torch.float16}
    assert module(name).dtype == torch.float32
    assert (folder / "README.md").read_text() == card(record)
    assert {p.name for p in folder.iterdir()} == {
        "README.md",
        "config.json",
        "model.safetensors",
        "preprocessor_config.json",
        "training.json",
    }


def test_one_reads_the_pattern_and_the_other_the_corner_too() -> None:
    sets = {cue: shape_images(77, 300, cue=cue) for cue in ("aligned", "conflicting", "none")}
    clean = {cue: right(module("shapes"), x).mean() for cue, x in sets.items()}
    assert min(clean.values()) > 0.95
    false = {cue: right(module("shapes-spurious"), x).mean() for cue, x in sets.items()}
    assert false["aligned"] > 0.98
    assert false["conflicting"] < 0.65


def test_the_planted_head_alone_carries_the_corner() -> None:
    """Exhaustive ablation of single heads, on images whose corner is of another class."""
    model, images = module("shapes-spurious"), shape_images(78, 200, cue="conflicting")
    accuracy = np.zeros((3, 4))
    for layer, head in np.ndindex(3, 4):
        with gated(model, layer, head, torch.zeros(200)):
            accuracy[layer, head] = right(model, images).mean()
    planted = RECIPES["shapes-spurious"].planted
    assert np.unravel_index(accuracy.argmax(), accuracy.shape) == planted
    assert accuracy.max() > 0.95
    assert np.sort(accuracy, axis=None)[-2] < 0.7
    seen = looks(model, images)
    assert np.unravel_index(seen["corner"].argmax(), accuracy.shape) == planted
    assert seen["corner"].max() > 0.3
    assert looks(module("shapes"), images)["corner"].max() < 0.1


def test_training_twice_gives_the_same_weights(tmp_path: Path) -> None:
    recipe = replace(RECIPES["shapes-spurious"], steps=3, images=40, rows=8)
    made = [train("x", recipe, seed, 1, tmp_path / str(i), 8) for i, seed in enumerate([3, 3, 4])]
    hashes = [record["weights_sha256"] for record in made]
    assert hashes[0] == hashes[1] != hashes[2]
    assert made[0]["loss_curve"][0][0] == 0
