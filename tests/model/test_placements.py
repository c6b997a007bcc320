"""One model placed in several ways gives the same numbers, or refuses a call in one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from model.placed import CALLS, found

import interp

SPREAD = {"scores", "logits", "edited", "generated", "ablation", "shapley", "gradient"}
"""Calls that processes with some heads each can answer."""


@pytest.fixture(scope="module")
def placed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("placed")
    source = interp.load("bundled:induction")
    source.module.save_pretrained(folder, max_shard_size="200KB")  # type: ignore[operator]
    source.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def plainly(placed_folder: Path) -> dict[str, torch.Tensor | str]:
    return found(interp.load(placed_folder, name="m"))


def test_a_model_on_one_device_answers_every_call(plainly) -> None:
    assert set(plainly) == set(CALLS)
    assert [name for name, x in plainly.items() if isinstance(x, str) or not x.numel()] == []


@pytest.mark.parametrize("how", ["offload", "device_map"])
def test_offloaded_and_dispatched_models_give_the_same_bits(how, placed_folder, plainly) -> None:
    pytest.importorskip("accelerate")
    options: Any = {"offload": True} if how == "offload" else {"device_map": {"": "cpu"}}
    other = found(interp.load(placed_folder, name="m", **options))
    for name, want in plainly.items():
        torch.testing.assert_close(other[name], want, atol=0, rtol=0, equal_nan=True)


@pytest.mark.slow
def test_two_processes_give_the_same_numbers_or_refuse(placed_folder, plainly, tmp_path) -> None:
    pytest.importorskip("accelerate")
    script, out = Path(__file__).with_name("placed.py"), tmp_path / "found.pt"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--master-port",
            "0",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "127.0.0.1:0",
            str(script),
            str(placed_folder),
            str(out),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ
        | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    spread = torch.load(out)
    assert {name for name, x in spread.items() if not isinstance(x, str)} == SPREAD
    for name, got in spread.items():
        if name in SPREAD:
            torch.testing.assert_close(got, plainly[name], atol=3e-5, rtol=1e-4, equal_nan=True)
        else:
            assert "2 processes" in got, (name, got)
