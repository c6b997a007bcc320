"""Scores of random weights that are kept: the same bits, and found only by an equal request."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import zoo
from together import over

import interp
from interp.core.errors import DamagedKept, NotKept, PromptError
from interp.heads.declaration import experiment
from interp.heads.trials import Trials
from interp.model import identity, random_weights
from interp.model.random_weights import KeptNulls, null_folder

METRICS = ["entropy", "induction", "local_window:width=3", "ov_rank", "qk_norm"]
IDS = [[5, 6, 7, 8, 5, 6, 7, 8], [9, 8, 7, 9, 8, 7]]


def made(seed: int = 0, **changed: Any) -> interp.Model:
    """A small GPT-2 with weights of this seed."""
    from transformers import GPT2LMHeadModel

    config: Any = zoo.FAMILIES["gpt2"].build("sdpa").config
    for name, value in changed.items():
        setattr(config, name, value)
    torch.manual_seed(seed)
    return interp.load(GPT2LMHeadModel(config).eval(), name="small")


def scores(model: interp.Model, metrics: Any = METRICS, prompts: Any = IDS, **options: Any) -> Any:
    options = {"null_draws": 3} | options
    return interp.score(model, metrics, prompts, **options).to_pandas()


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds of the random weights that were made."""
    seeds: list[int] = []
    plain = random_weights.random_init

    def counted(model: interp.Model, seed: int, **how: Any) -> interp.Model:
        seeds.append(seed)
        return plain(model, seed, **how)

    monkeypatch.setattr(random_weights, "random_init", counted)
    return seeds


def same(found: pd.DataFrame, other: pd.DataFrame) -> bool:
    """Equal to the last bit."""
    numbers = [x.select_dtypes("number").to_numpy(np.float64) for x in (found, other)]
    return found.equals(other) and numbers[0].tobytes() == numbers[1].tobytes()


def test_kept_nulls_have_the_bits_of_new_ones(drawn: list[int]) -> None:
    first, trained = made(0), made(1)
    fresh = [scores(model, null_cache=False) for model in (first, trained)]
    assert len(drawn) == 6
    assert not null_folder().exists()
    drawn.clear()
    assert same(scores(first), fresh[0])
    assert len(drawn) == 3
    drawn.clear()
    assert same(scores(first), fresh[0])
    assert same(scores(trained), fresh[1])
    assert not drawn  # other weights of the architecture share its nulls
    assert not fresh[0]["score"].equals(fresh[1]["score"])
    assert fresh[0]["null"].notna().all()


def test_further_draws_are_added_to_the_kept_ones(drawn: list[int]) -> None:
    model = made()
    whole, part = (scores(model, null_draws=n, null_cache=False) for n in (5, 3))
    scores(model)
    drawn.clear()
    assert same(scores(model, null_draws=5), whole)
    assert drawn == [3 * random_weights._APART, 4 * random_weights._APART]
    drawn.clear()
    assert same(scores(model), part)
    assert same(scores(model, null_draws=5), whole)
    assert not drawn


def test_metrics_are_found_one_by_one(drawn: list[int]) -> None:
    model = made()
    scores(model, ["entropy", "ov_rank"])
    drawn.clear()
    fresh = scores(model, null_cache=False)
    drawn.clear()
    assert same(scores(model), fresh)
    assert len(drawn) == 3
    drawn.clear()
    assert same(scores(model, METRICS[::-1]), scores(model, METRICS[::-1], null_cache=False))
    assert len(drawn) == 3  # of the fresh ones


@over(
    ("what", "options"),
    [
        ("prompts", {"prompts": [IDS[0], [9, 8, 7, 9, 8, 6]]}),
        ("seed", {"seed": 1}),
        ("batch size", {"batch_size": 1}),
        ("engine", {"engine": "streamed"}),
        ("option", {"metrics": ["local_window:width=4"]}),
    ],
)
def test_another_request_is_not_served(
    what: str, options: dict[str, Any], drawn: list[int]
) -> None:
    model = made()
    scores(model)
    drawn.clear()
    assert same(scores(model, **options), scores(model, **options, null_cache=False)), what
    assert len(drawn) == 6


@over("changed", [{"n_positions": 128}, {"initializer_range": 0.5}, {"scale_attn_weights": False}])
def test_another_config_is_not_served(changed: dict[str, Any], drawn: list[int]) -> None:
    scores(made())
    drawn.clear()
    other = made(**changed)
    assert same(scores(other), scores(other, null_cache=False))
    assert len(drawn) == 6


def test_a_config_that_is_changed_in_place_is_not_served(drawn: list[int]) -> None:
    model = made()
    before = scores(model)
    model.config.initializer_range = 0.5
    drawn.clear()
    after = scores(model)
    assert len(drawn) == 3
    assert same(after, scores(model, null_cache=False))
    assert not before["null"].equals(after["null"])


@pytest.mark.parametrize("name", ["__version__", "code_of"])
def test_another_version_is_not_served(
    name: str, drawn: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores(made())
    other: Any = "9.9" if name == "__version__" else lambda objects: "other code"
    monkeypatch.setattr(identity, name, other)
    drawn.clear()
    scores(made())
    assert len(drawn) == 3


def test_functions_of_the_user_are_told_apart_by_what_they_use(drawn: list[int]) -> None:
    def at(distance: int) -> Callable[..., Any]:
        def back(query: Any, key: Any) -> Any:
            return key == query - distance

        return back

    model = made()
    near, far = (scores(model, [at(n)], null_cache=False) for n in (1, 2))
    drawn.clear()
    assert same(scores(model, [at(1)]), near)
    assert same(scores(model, [at(2)]), far)
    assert len(drawn) == 6
    assert same(scores(model, [at(1)]), near)
    assert same(scores(model, [at(2)]), far)
    assert len(drawn) == 6


def test_experiments_are_kept_unless_an_option_is_a_file(drawn: list[int], tmp_path: Path) -> None:
    @experiment(unit="score")
    def norms(model: Any, lab: Any, *, task: str = "none") -> Trials:
        """Sizes of the first weights."""
        size = next(model.module.parameters()).norm().item()
        return Trials({site: torch.full((2, site.n_heads), size) for site in model.sites})

    model = made()
    fresh = scores(model, [norms], null_cache=False)
    drawn.clear()
    assert same(scores(model, [norms]), fresh)
    assert same(scores(model, [norms]), fresh)
    assert len(drawn) == 3
    file = tmp_path / "task.txt"
    file.write_text("one")
    for _ in range(2):
        scores(model, [norms.bind(task=str(file))])
    assert len(drawn) == 9


def test_an_experiment_without_a_score_on_random_weights_keeps_nothing() -> None:
    @experiment(unit="score")
    def fails(model: Any, lab: Any) -> Trials:
        """Runs on the model alone."""
        if "random weights" in model.name:
            raise PromptError("no prompt fits")
        return Trials({site: torch.zeros(2, site.n_heads) for site in model.sites})

    for _ in range(2):
        with pytest.raises(PromptError, match="no prompt fits"):
            scores(made(), [fails])
    assert not null_folder().exists()


def test_models_of_a_script_are_not_kept(drawn: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    model = made()
    monkeypatch.setattr(type(model.module), "__module__", "__main__")
    for _ in range(2):
        scores(model)
    assert len(drawn) == 6
    assert not null_folder().exists()


@pytest.mark.parametrize("kind", ["cut", "flipped", "empty", "other"])
def test_a_damaged_file_is_set_aside_and_computed_again(kind: str, drawn: list[int]) -> None:
    model = made()
    fresh = scores(model, ["entropy"])
    (file,) = null_folder().iterdir()
    content = file.read_bytes()
    value = json.loads(content)["values"][0]
    text = next(iter(value.values()))
    damaged = {
        "cut": content[:-40],
        "flipped": content.replace(text.encode(), (text[1:] + text[0]).encode()),
        "empty": b"",
        "other": b'{"format": "interp null 1"}',
    }[kind]
    assert damaged != content
    file.write_bytes(damaged)
    drawn.clear()
    with pytest.warns(DamagedKept, match="set aside as .*computed again") as told:
        assert same(scores(model, ["entropy"]), fresh)
    assert len(told) == 1
    assert "\n" not in str(told[0].message)
    assert len(drawn) == 3
    assert file.read_bytes() == content
    assert file.with_name(f"{file.name}.damaged").read_bytes() == damaged


def test_a_folder_that_cannot_be_written_costs_only_a_warning(tmp_path: Path) -> None:
    model, file = made(), tmp_path / "file"
    file.write_text("no folder")
    fresh = scores(model, null_cache=False)
    with pytest.warns(NotKept, match="not kept: .*is a file") as told:
        assert same(scores(model, null_cache=file / "nulls"), fresh)
    assert len(told) == 1


def test_random_weights_are_not_written(tmp_path: Path) -> None:
    model = made()
    scores(model, null_cache=tmp_path)
    files = sorted(tmp_path.rglob("*"))
    assert len(files) == len(METRICS)
    for file in files:
        for draw in json.loads(file.read_bytes())["values"]:
            assert set(draw) == {site.name for site in model.sites}
            # as many numbers as heads, of eight bytes in base 64
            assert all(len(text) <= 8 * model.n_heads * 4 / 3 + 4 for text in draw.values())


def test_writers_and_readers_at_once_see_whole_files(tmp_path: Path) -> None:
    code = f"""
import sys, warnings, numpy as np
from interp.model.random_weights import KeptNulls
warnings.simplefilter("error")
kept, me = KeptNulls([{str(tmp_path)!r}]), int(sys.argv[1])
for i in range(300):
    number = 1 + (i + me) % 6
    draws = [{{"decoder.0": np.arange(50.0) + d}} for d in range(number)]
    kept.write("entropy", '{{"a": 1}}', draws)
    found = kept.find("entropy", '{{"a": 1}}')
    assert 1 <= len(found) <= 6
    assert all((x["decoder.0"] == np.arange(50.0) + d).all() for d, x in enumerate(found))
"""
    runs = [
        subprocess.Popen([sys.executable, "-c", code, str(n)], stderr=subprocess.PIPE, text=True)
        for n in range(3)
    ]
    told = [run.communicate(timeout=240)[1] for run in runs]
    assert [run.returncode for run in runs] == [0, 0, 0], told
    assert [file.suffix for file in tmp_path.iterdir()] == [".json"]


def test_the_folder_follows_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert null_folder() == tmp_path / "interp" / "nulls"
    for unset in ("", "relative"):  # as the specification says
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert null_folder() == Path.home() / ".cache" / "interp" / "nulls"
    assert KeptNulls.of(False, tmp_path).folders == []
    assert KeptNulls.of(tmp_path).folders == [tmp_path]
    assert KeptNulls.of(True, tmp_path).folders == [tmp_path / "nulls", null_folder()]
