"""Profiles by shards and by several processes: the same numbers, whatever did which step."""

from __future__ import annotations

import importlib.util
from contextlib import nullcontext
from itertools import permutations
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from profiles.planted_rows import documents

import interp
from interp.cli.main import main
from interp.core.errors import OptionError
from interp.core.shards import Shard
from interp.model.loading import Loading
from interp.profiles import Profile
from interp.profiles.steps import ShardsMissing

ROWS = [*documents(12, 24, seed=0).ids]


@pytest.fixture(scope="module")
def sharded_model() -> interp.Model:
    return interp.load("planted:induction")


@pytest.fixture(scope="module")
def undivided(sharded_model: interp.Model) -> Profile:
    return interp.profile(sharded_model, ROWS, n_queries=8)


def _shard(model: interp.Model, number: int, folder: Path, rows: list = ROWS) -> Profile | None:
    try:
        return interp.profile(model, rows, n_queries=8, resume=folder, shard=f"{number}/3")
    except ShardsMissing:
        return None


@pytest.mark.parametrize("order", [*permutations((1, 2, 3))][::2])
def test_shards_in_any_order_give_the_undivided_profile(
    sharded_model: interp.Model, undivided: Profile, tmp_path: Path, order: tuple[int, ...]
) -> None:
    found = [[_shard(sharded_model, at, tmp_path) for at in order] for _ in range(5)]
    assert found[0] == [None, None, None]  # the first look of the last ones was not done
    assert all(one is not None and one.equals(undivided) for one in found[4][-1:])
    assert interp.profile(sharded_model, ROWS, n_queries=8, resume=tmp_path).equals(undivided)


def test_each_step_is_done_by_one_shard(
    sharded_model: interp.Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interp.profiles import run

    seen: list[int] = []
    look = run.first_look
    monkeypatch.setattr(
        run, "first_look", lambda *a: (seen.extend(id(w) for w in a[1]), look(*a))[1]
    )
    for at in (1, 2, 3):
        _shard(sharded_model, at, tmp_path)
    assert len(seen) == len(ROWS)


def test_a_shard_needs_a_folder_and_the_corpus_of_the_others(
    sharded_model: interp.Model, tmp_path: Path
) -> None:
    with pytest.raises(OptionError, match="shard 1/3 needs a folder"):
        interp.profile(sharded_model, ROWS, n_queries=8, shard="1/3")
    assert _shard(sharded_model, 1, tmp_path) is None
    with pytest.raises(OptionError, match="has changed since the shards of this run began"):
        _shard(sharded_model, 2, tmp_path, [*ROWS[1:], ROWS[0][::-1]])
    with pytest.raises(OptionError, match="has changed since"):
        interp.profile(sharded_model, [*ROWS[1:], ROWS[0][::-1]], n_queries=8, resume=tmp_path)


def test_a_shard_on_the_command_line_says_what_it_waits_for(tmp_path: Path) -> None:
    line = ["profile", "planted:induction", "--set", "n_documents=12", "-o", str(tmp_path)]
    asked = CliRunner().invoke(main, [*line[:-2], "--shard", "1/2"])
    assert "--shard needs --out" in asked.output
    both = CliRunner().invoke(main, [*line, "--shard", "1/2", "-j", "2"])
    assert "give one of them" in both.output
    cluster = CliRunner().invoke(main, [*line, "--shard", "1/2", "--ray", "local"])
    assert "a cluster does all shards; give one of them" in cluster.output


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_a_cluster_gives_the_profile_of_one_process_though_a_worker_dies(tmp_path: Path) -> None:
    psutil = pytest.importorskip("psutil")

    from interp.profiles import jobs

    rows = {"corpus": ROWS, "n_queries": 8}
    model = (Loading(), "planted:induction", "a planted model")
    died = tmp_path / "died"
    with jobs._on_ray(model, 2, "local") as (n, go_on):
        shards = [Shard(at + 1, n) for at in range(n)]
        assert go_on(shards, str(died), rows)
        with pytest.raises(OptionError, match="n_queries"):
            go_on(shards, str(died), {**rows, "n_queries": 0})
        import ray

        [worker, *_] = [x for x in psutil.process_iter() if "ray::_Worker" in x.name()]
        worker.kill()
        assert not go_on(shards, str(died), rows)
        assert ray.is_initialized()
    assert not ray.is_initialized()
    loaded = interp.load("planted:induction", name="a planted model")
    alone = interp.profile(loaded, **rows)
    assert interp.profile(loaded, **rows, resume=died).equals(alone)
    assert jobs.profile_in_jobs(*model, 2, tmp_path / "whole", rows, "local")
    seen: list[str] = []
    again = interp.profile(
        loaded, **rows, resume=tmp_path / "whole", progress=lambda name, *_: seen.append(name)
    )
    assert again.equals(alone)
    assert not seen  # every step was done by the cluster


def test_processes_find_the_files_of_a_corpus_and_read_no_path_as_a_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from interp.profiles import jobs

    monkeypatch.chdir(tmp_path)
    (tmp_path / "sampled").touch()
    seen: list[dict] = []
    monkeypatch.setattr(
        jobs,
        "_processes",
        lambda *_: nullcontext((2, lambda a, b, given: [seen.append(given) is None])),
    )
    for corpus in ([Path("sampled")], "sampled", None):
        jobs.profile_in_jobs(Loading(), "m", "m", 2, tmp_path, {"corpus": corpus})
    assert [x["corpus"] for x in seen] == [[tmp_path.resolve() / "sampled"], "sampled", None]


@pytest.mark.slow
def test_processes_give_the_profile_of_one(tmp_path: Path) -> None:
    line = ["profile", "bundled:induction", "--set", "n_documents=12", "--set", "n_queries=4"]
    one = CliRunner().invoke(main, [*line, "-o", str(tmp_path / "one")])
    two = CliRunner().invoke(main, [*line, "-j", "2", "-o", str(tmp_path / "two")])
    assert one.exit_code == two.exit_code == 0
    kept = [
        Profile.load(tmp_path / name / "bundled-induction" / "profile.json")
        for name in ("one", "two")
    ]
    assert kept[0].equals(kept[1])
    parts: list[Result] = []
    while len(parts) < 10 and (len(parts) < 2 or parts[-1].exit_code):
        shard = ("--shard", f"{len(parts) % 2 + 1}/2", "-o", str(tmp_path / "three"))
        parts.append(CliRunner().invoke(main, [*line, *shard]))
    assert [x.exit_code for x in parts[:2]] == [1, 1]
    assert parts[-1].exit_code == 0
    assert "run the same command again" in parts[0].output
