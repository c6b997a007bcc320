"""Attention that a server recorded is scored as the model's own is, on the recorded prompts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures.commands import invoked
from safetensors.torch import save_file

import interp
from interp.core.errors import LoadError, OptionError
from interp.core.prompts import Prompts

METRICS = ["induction", "previous_token", "entropy", "mean_distance", "max_weight"]


def record(
    folder: Path, model: interp.Model, given: Prompts, changes: dict[str, object] | None = None
) -> Path:
    """Write what a server's hook would: the patterns of each prompt alone."""
    folder.mkdir()
    rows = []
    for i, ids in enumerate(given.ids):
        cache = model.capture([ids], ["pattern"])
        save_file(
            {f"pattern.{s.layer}": cache["pattern", s.layer][0].half() for s in model.sites},
            folder / f"{i}.safetensors",
        )
        rows.append({"tokens": list(ids), "file": f"{i}.safetensors"})
    about = {
        "format": "interp run 1",
        "model": "served",
        "vocabulary": model.d_vocab,
        "layers": [{"heads": s.n_heads} for s in model.sites],
        "prompts": rows,
    }
    (folder / "run.json").write_text(json.dumps(about | (changes or {})))
    return folder


@pytest.fixture(scope="module")
def served_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[interp.Model, Prompts, Path]:
    model = interp.load("bundled:induction")
    prompts = interp.repeats(model, n=5, max_length=9)
    return model, prompts, record(tmp_path_factory.mktemp("run") / "run", model, prompts)


def test_scores_are_those_of_the_model(served_run: tuple[interp.Model, Prompts, Path]) -> None:
    model, prompts, folder = served_run
    run = interp.load(folder)
    assert (run.name, run.n_layers, run.n_heads) == ("served", 2, 8)
    metrics = [name for name in METRICS if name in interp.core.METRICS]
    assert len(metrics) >= 3
    plain = Prompts(prompts.ids)
    own = interp.score(model, metrics, plain, null="none").to_pandas()
    read = interp.score(run, metrics).to_pandas()  # the recorded prompts, without a null
    keys = ["metric", "layer", "head"]
    both = own.merge(read, on=keys, suffixes=("", "_read"))
    assert len(both) == len(own) == len(read)
    np.testing.assert_allclose(both["score_read"], both["score"], rtol=2e-3, atol=2e-3)
    np.testing.assert_allclose(both["sem_read"], both["sem"], rtol=2e-2, atol=2e-3)
    assert read["null"].isna().all()
    part = interp.score(run, "induction", Prompts(prompts.ids[1:3])).to_pandas()
    again = interp.score(model, "induction", Prompts(prompts.ids[1:3]), null="none").to_pandas()
    np.testing.assert_allclose(part["score"], again["score"], atol=2e-3)


def test_what_was_not_recorded_is_refused(served_run: tuple[interp.Model, Prompts, Path]) -> None:
    _, prompts, folder = served_run
    run = interp.load(folder)
    ids = [list(p) for p in prompts.ids[:2]]
    for ask, message in (
        (lambda: interp.score(run, "induction", [[1, 2, 3, 4]]), "a prompt of 4 tokens is not amo"),
        (lambda: interp.score(run, "induction", null="shuffled-tokens"), "without a null of other"),
        (lambda: run.run(ids), "logits, ablation and edits need the model"),
        (lambda: run.capture(ids, ["pattern"]), "captures and gradients need the activations"),
        (lambda: interp.score(run, "ov_copying"), "its weights are not available here"),
    ):
        with pytest.raises(OptionError, match=message):
            ask()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "other"}, "the format is 'other', expected 'interp run 1'"),
        ({"layers": "x"}, "run.json cannot be used"),
        ({"layers": []}, "names no layers"),
        ({"prompts": [{"tokens": [1, 2], "file": "../a"}]}, "not a file of the folder"),
        ({"prompts": [{"tokens": [1, 2], "file": "0.safetensors"}]}, r"expected \(8, 2, 2\)"),
        ({"layers": [{"heads": 8, "window": 2}] * 2}, "weight on keys that its layer does not see"),
        ({"layers": [{"heads": 8}] * 3}, "holds no pattern.2"),
    ],
)
def test_a_wrong_recording_is_named(
    changes: dict, message: str, served_run: tuple[interp.Model, Prompts, Path], tmp_path: Path
) -> None:
    model, prompts, _ = served_run
    folder = record(tmp_path / "run", model, Prompts(prompts.ids[:1]), changes)
    with pytest.raises(LoadError, match=message):
        interp.score(interp.load(folder), "entropy")


def test_scores_before_the_softmax_and_damaged_files_are_refused(
    served_run: tuple[interp.Model, Prompts, Path], tmp_path: Path
) -> None:
    model, prompts, _ = served_run
    folder = record(tmp_path / "run", model, Prompts(prompts.ids[:1]))
    n = len(prompts.ids[0])
    raw = {f"pattern.{layer}": torch.full((8, n, n), 3.0).tril() for layer in range(2)}
    save_file(raw, folder / "0.safetensors")
    with pytest.raises(LoadError, match="expected probabilities, after the softmax"):
        interp.score(interp.load(folder), "entropy")
    (folder / "0.safetensors").write_bytes(b"x")
    with pytest.raises(LoadError, match="cannot be read"):
        interp.score(interp.load(folder), "entropy")


def test_the_command_scores_a_recording(served_run: tuple[interp.Model, Prompts, Path]) -> None:
    done = invoked(["score", str(served_run[2]), "-m", "induction", "--verbose"])
    assert done.exit_code == 0, done.stderr
    assert "induction" in done.stdout
