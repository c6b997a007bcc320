"""Agreement with TransformerLens on the same weights, where its definitions are ours."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import interp

REFERENCE = Path(__file__).with_name("transformer_lens_reference.py")
IDS = torch.tensor([[9, 33, 21, 40, 33, 21, 21, 17, 9, 33]])
NAMES = ("gpt2", "llama", "gpt_neox")
METRICS = ("previous_token", "duplicate_token", "induction")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("transformer_lens") is None,
        reason="transformer-lens is not installed (the extra `tl`)",
    ),
]


@pytest.fixture(scope="module")
def lens_reference(tmp_path_factory) -> dict[str, Any]:
    out = tmp_path_factory.mktemp("tl") / "reference.pt"
    tests = REFERENCE.parents[1]
    subprocess.run(
        [sys.executable, "-W", "ignore", str(REFERENCE), str(out), *NAMES],
        check=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tests), *sys.path])},
        timeout=300,
    )
    return torch.load(out)


@pytest.mark.parametrize("name", NAMES)
def test_patterns_and_z_are_theirs(loaded, lens_reference, name):
    model, want = loaded(name), lens_reference[name]
    cache = model.capture(IDS, ["pattern", "z", "q"])
    torch.testing.assert_close(cache.logits, want["logits"], atol=1e-4, rtol=1e-4)
    for layer in range(3):
        pattern = want["pattern"][layer]
        torch.testing.assert_close(cache["pattern", layer], pattern, atol=2e-6, rtol=0)
        z = want["z"][layer].transpose(1, 2)
        torch.testing.assert_close(cache["z", layer], z, atol=1e-5, rtol=1e-4)
    if name == "gpt2":  # their hook_q comes before rotary: only without it is it ours
        for layer in range(3):
            q = want["q"][layer].transpose(1, 2)
            torch.testing.assert_close(cache["q", layer], q, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("metric", METRICS)
def test_head_detectors_agree_up_to_the_rows_averaged_over(loaded, lens_reference, name, metric):
    """They average over all rows, we over those that have a target; the targets are the same."""
    scores = lens_reference[name]["scores"]
    targets = scores[f"{metric}_head targets"]
    rows = int(targets.any(-1).sum())
    assert 0 < rows < IDS.shape[1]
    table = interp.score(loaded(name), [metric], IDS, null="none").to_pandas()
    got = torch.tensor(table.sort_values(["layer", "head"]).score.to_numpy().reshape(3, 6))
    want = scores[f"{metric}_head"].double() * IDS.shape[1] / rows
    torch.testing.assert_close(got.double(), want, atol=1e-5, rtol=1e-4)
    assert want.max() > 0.2
