"""Prompts of one model divided among processes: the results of one process, and nothing twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.test_jobs import same

from interp.core.prompts import Prompts
from interp.core.shards import PIECES
from interp.core.store import Store
from interp.core.table import HeadTable
from interp.heads.declaration import bound
from interp.heads.scoring_in_pieces import PromptPieces
from interp.heads.sweep.workers import task_grid

METRICS = ("-m", "induction,entropy,key_rank,ov_norm", "--random", "3", "--set", "null_cache=false")


@pytest.fixture
def repeating_file(tmp_path: Path) -> Path:
    """22 prompts of several lengths, each token repeated, in clusters."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(22):
        part = rng.integers(2, 40, 4 + i % 3).tolist()
        rows.append(json.dumps({"tokens": part * 2, "cluster": i % 5}))
    path = tmp_path / "prompts.jsonl"
    path.write_text("\n".join(rows))
    return path


@pytest.fixture
def asked(llama_folder, repeating_file) -> tuple:
    return ("score", llama_folder, *METRICS, "--file", repeating_file, "--batch-size", 4)


def test_the_prompts_of_few_models_are_divided_before_the_metrics() -> None:
    tasks = task_grid({"x": "x"}, ["a", "w", "b"], 3, by_prompt=["a", "b"], batches=5)
    divided = [task for task in tasks if task.part is not None]
    assert [(task.metrics, str(task.part)) for task in divided] == [
        (("a", "b"), "1/3"),
        (("a", "b"), "2/3"),
        (("a", "b"), "3/3"),
    ]
    assert [task.metrics for task in tasks if task.part is None] == [("w",)]
    one_batch = task_grid({"x": "x"}, ["a", "b"], 2, by_prompt=["a", "b"], batches=1)
    assert [task.metrics for task in one_batch] == [("a",), ("b",)]
    models = task_grid({"x": "x", "y": "y"}, ["a"], 2, by_prompt=["a"], batches=9)
    assert [task.part for task in models] == [None, None]


@pytest.mark.slow
def test_job_arrays_divide_prompts_and_the_last_job_puts_them_together(
    run, asked, tmp_path
) -> None:
    run(*asked, "-q", "-o", tmp_path / "one")
    out = tmp_path / "parts"
    for index in (1, 3):
        assert run(*asked, "-q", "-o", out, "--shard", f"{index}/3").exit_code == 0
    pieces = {path.name: path.stat().st_mtime_ns for path in (out / PIECES).glob("*.safetensors")}
    assert len(pieces) == 5 * 4, "two of three parts of 6 batches, scored, shuffled, and drawn"
    assert "not put together yet" in run("results", "verify", out).stdout
    assert not list(out.glob("*induction*.parquet"))
    assert run(*asked, "-q", "-o", out, "--shard", "1/3").exit_code == 0
    again = {path.name: path.stat().st_mtime_ns for path in (out / PIECES).glob("*.safetensors")}
    assert again == pieces, "nothing is computed twice"
    assert run(*asked, "-q", "-o", out, "--shard", "2/3").exit_code == 0
    same(tmp_path / "one", out)
    a, b = (HeadTable.load(x / "table.parquet") for x in (tmp_path / "one", out))
    assert a["induction"].provenance == b["induction"].provenance
    assert not list((out / PIECES).iterdir())
    assert run("results", "verify", out).exit_code == 0


@pytest.mark.slow
def test_one_process_goes_on_with_pieces_and_computes_damaged_ones_again(
    run, asked, tmp_path, monkeypatch
) -> None:
    run(*asked, "-q", "-o", tmp_path / "one")
    out = tmp_path / "parts"
    run(*asked, "-q", "-o", out, "--shard", "1/2")
    cut = sorted((out / PIECES).glob("*.safetensors"))[0]
    cut.write_bytes(cut.read_bytes()[:-8])
    computed = []
    compute = PromptPieces.compute

    def counted(self, *args):
        computed.append(compute(self, *args))
        return computed[-1]

    monkeypatch.setattr(PromptPieces, "compute", counted)
    assert run(*asked, "-q", "-o", out).exit_code == 0
    made = (out / "table.parquet").exists()
    assert made
    passes, number, own = 5, 6, 3
    assert sum(computed) == passes * (number - own) + 1, "the other half, and the damaged one"
    same(tmp_path / "one", out)


@pytest.mark.slow
def test_processes_share_the_prompts_of_one_model(run, asked, tmp_path) -> None:
    run(*asked, "-q", "-o", tmp_path / "one")
    assert run(*asked, "-q", "-o", tmp_path / "two", "--jobs", 2).exit_code == 0
    same(tmp_path / "one", tmp_path / "two")


def test_the_null_of_each_prompt_is_kept_beside_its_value(run, asked, tmp_path) -> None:
    run(*asked, "-q", "-o", tmp_path / "one")
    stored = Store(tmp_path / "one").read()
    frame = stored["induction"].prompts_to_pandas()
    assert frame["null"].notna().all()
    table = HeadTable.load(tmp_path / "one" / "table.parquet")["induction"].wide()
    mean = frame.groupby(["layer", "head"], observed=True)["null"].mean()
    np.testing.assert_allclose(mean, table["null"], atol=1e-6)
    random = stored["entropy"].prompts_to_pandas()
    assert random["null"].isna().all(), "the unit of random weights is the draw"


class Counting:
    """A run whose value of a prompt is its first token, plus a hundred in the second metric."""

    def __init__(self) -> None:
        self.masks: dict[str, str] = {}

    def of(self, model, prompts, asked, what):
        first = np.array([ids[0] for ids in prompts.ids], dtype=float)[:, None]
        site = model.sites[0]
        return {
            b.label: {site: np.repeat(first + 100 * (b.label == "entropy"), site.n_heads, 1)}
            for b in asked
        }


def test_pieces_of_several_metrics_are_read_for_each_alone(bundled_one_layer, tmp_path) -> None:
    prompts = Prompts(tuple((5 + i, 6, 7) for i in range(9)))
    both = [bound("induction"), bound("entropy")]
    pieces = PromptPieces(tmp_path, "digest", bundled_one_layer, prompts, 2)
    run: Any = Counting()
    assert pieces.whole("scores", both, bundled_one_layer) is None
    pieces.compute(run, "scores", bundled_one_layer, prompts, both, range(pieces.number))
    for at, one in enumerate(both):
        found = pieces.whole("scores", [one], bundled_one_layer)
        assert found is not None
        [values] = found[one.label].values()
        assert values[:, 0].tolist() == [5 + i + 100 * at for i in range(9)]
    assert pieces.whole("scores", [*both, bound("sink")], bundled_one_layer) is None
