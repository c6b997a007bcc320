"""`interp importance gates` over checkpoints, and `interp prune --save` with gates and repair."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zoo

from interp.causal.gating.result import LearnedGates
from interp.core.errors import OptionError
from interp.heads.checkpoints.emergence import emergence_of_gates
from interp.heads.checkpoints.result import Emergence

TASK = ("-n", "4", "--max-length", "6")
QUICK = ("--set", "steps=4", "--random", "2", *TASK)


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    for seed in (1, 2, 3):
        config = zoo.FAMILIES["llama"].build("sdpa").config
        module = type(zoo.FAMILIES["llama"].build("sdpa"))(config)
        for p in module.parameters():
            p.data *= 1 + seed / 4
        module.save_pretrained(folder / f"checkpoint-{seed}")
    return [folder / f"checkpoint-{seed}" for seed in (1, 2, 3)]


def test_gates_of_checkpoints_are_curves(run, steps, tmp_path):
    result = run("importance", "gates", *steps, *QUICK, "-o", tmp_path)
    assert result.exit_code == 0
    assert "curves of gates over 3 checkpoints" in result.stderr
    assert (tmp_path / "gates_emergence.html").exists()
    found = Emergence.load(tmp_path / "gates_emergence.json")
    gates = {
        number: LearnedGates.load(tmp_path / path.name / "gates.json")
        for number, path in enumerate(steps, 1)
    }
    assert found.equals(emergence_of_gates(gates))
    frame = found.to_pandas()
    assert len(frame) == 3 * 18
    row = frame[(frame.step == 2) & (frame.layer == 1) & (frame["head"] == 4)]
    assert row.score.item() == pytest.approx(gates[2].score[gates[2].labels.index("L1H4")])
    assert row.n.item() == 3  # restarts
    other = LearnedGates.load(tmp_path / "checkpoint-1" / "gates.json")
    object.__setattr__(other, "provenance", dict(other.provenance) | {"penalty": 9.0})
    with pytest.raises(OptionError, match="in penalty"):
        emergence_of_gates({1: other, 2: gates[2]})
    with pytest.raises(OptionError, match="at least two"):
        emergence_of_gates({1: other})


def test_prune_saves_a_repaired_model_and_its_certificate_holds(run, steps, tmp_path):
    out = tmp_path / "small"
    result = run(
        "prune",
        steps[0],
        "--method",
        "ablation",
        "--keep",
        "9",
        "--set",
        "rounds=2",
        "--set",
        "repair=2",
        *TASK,
        "--random",
        "6",
        "--save",
        out,
    )
    assert result.exit_code == 0
    assert "repair: 2 x 2 steps" in result.stdout
    told = json.loads((out / "certificate.json").read_text())
    assert len(told["removed"]) == 9
    assert told["n_random"] == 6
    assert told["chosen"] == {"by": "ablation", "keep": 9, "equal": False}
    assert np.isfinite(told["tasks"][0]["unrepaired"]["value"])
    again = run("prune", "verify", out)
    assert again.exit_code == 0
    assert "holds" in again.stdout


def test_gates_with_mlps_are_saved_and_those_of_another_model_refused(run, steps, tmp_path):
    run(
        "importance",
        "gates",
        steps[0],
        *QUICK,
        "--set",
        "mlps=only",
        "-o",
        tmp_path,
    )
    file = tmp_path / "checkpoint-1" / "gates.json"
    gates = LearnedGates.load(file)
    object.__setattr__(gates, "gate", np.array([[0.0, 1.0, 0.0]] * 2))
    gates.save(file)
    saved = run(
        "prune",
        steps[0],
        "--gates",
        file,
        *TASK,
        "--save",
        tmp_path / "out",
    )
    assert saved.exit_code == 0
    assert "without 0 of 18 heads and without L0MLP, L2MLP" in saved.stdout
    other = run("prune", steps[1], "--gates", file, *TASK, "--save", tmp_path / "other")
    assert other.exit_code == 1
    assert "another model" in other.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(("command", "kept"), [("gates", False), ("ablate", True)])
def test_a_stop_promises_only_what_is_kept(run, monkeypatch, tmp_path, command, kept) -> None:
    def stop(*args, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("interp.causal.task_file.make_task", stop)
    done = run("importance", command, "planted:induction", "-o", tmp_path)
    assert done.exit_code == 130
    assert "interrupted" in done.stderr
    assert ("resumes" in done.stderr) is kept
