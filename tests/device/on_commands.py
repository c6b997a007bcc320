"""Every command on the stand-in device: the numbers of the CPU, and half precision without float64.

Not collected by name: `test_stand_in.py` runs this file in a process of its own.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from device import stand_in
from device.command_lines import IN_FLOAT32, LINES, WITHOUT, files_of
from fixtures.commands import invoked
from safetensors.torch import load_file
from sampled import thinned

from benchmarks.command_cases import words_of
from interp.cli.folder import leaves
from interp.cli.main import main
from interp.cli.run import Run
from interp.model import precision
from interp.model.check import check_model
from interp.model.loading import Loading

DEVICE = stand_in.install()
PATHS = {path.removeprefix("interp ") for path, _ in leaves(main, "interp")}
ON_DEVICE = ("--device", "privateuseone")  # torch's name of a device that a package adds
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
Found = list[np.ndarray]


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return files_of(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module", autouse=True)
def loaded_once() -> Iterator[None]:
    """Models are loaded once for all commands; a command must leave them as they are."""
    load, check = Loading._loaded, check_model
    models: dict[Any, Any] = {}
    checks: dict[Any, Any] = {}

    def loaded(self: Loading, source: str, name: str) -> Any:
        key = (source, name, self.device, self.dtype, stand_in.LIMITS.float64)
        if key not in models:
            models[key] = load(self, source, name)
        return models[key]

    def checked(model: Any, **options: Any) -> Any:
        key = (id(model), *options.items())
        if key not in checks:
            checks[key] = check(model, **options)
        return checks[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Loading, "_loaded", loaded)
        patch.setattr("interp.model.check.check_model", checked)
        yield


def path_of(line: str) -> str:
    """The command of a line, by its names, with the option that makes it another one."""
    words = line.split()
    names = [name for name in PATHS if words[: len(name.split())] == name.split()]
    return max(names, key=len) + (" --direct" if "--direct" in words else "")


def results_of(line: str, given: dict[str, str], *more: str) -> Found:
    """The numbers of a command: of its results, else of what it prints."""
    out = Path(given["out"])
    shutil.rmtree(out, ignore_errors=True)
    if not line.startswith("record"):
        out.mkdir()
    seen: list[Any] = []
    devices: list[torch.device] = []
    with pytest.MonkeyPatch.context() as patch:
        end, load = Run._end, Loading.load

        def kept(self: Run, code: int) -> None:
            seen.extend(x for _, each in self.results for x in each)
            end(self, code)

        def noted(*args: Any) -> Any:
            devices.append((model := load(*args)).device)
            return model

        patch.setattr(Run, "_end", kept)
        patch.setattr(Loading, "load", noted)
        done = invoked([*words_of(line, given), *more])
    assert done.exit_code == 0, done.stderr[-2000:]
    assert set(devices) == {DEVICE if "--device" in more else torch.device("cpu")}
    frames = [x.to_pandas() for x in seen if hasattr(x, "to_pandas")]
    frames = [f[f["unit"] != "s"] if "unit" in f else f for f in frames]
    for path in sorted(out.rglob("*.csv")):
        frames.append(pd.read_csv(path))
    found = [f.select_dtypes("number").to_numpy(float) for f in frames]
    for path in sorted(out.rglob("*.safetensors")):
        found += [x.double().numpy() for _, x in sorted(load_file(path).items())]
    pages = [path.read_text(encoding="utf-8") for path in sorted(out.rglob("*.html"))]
    said = NUMBER.findall(done.stdout) or [x for page in pages for x in NUMBER.findall(page)]
    return found or [np.array([float(x) for x in said])]


def test_every_command_has_a_line_or_a_reason() -> None:
    listed = {path_of(line).removesuffix(" --direct") for line in LINES}
    assert not listed & set(WITHOUT)
    assert listed | set(WITHOUT) == PATHS
    assert set(IN_FLOAT32) <= {path_of(line) for line in LINES}


@pytest.mark.parametrize("line", thinned(LINES), ids=path_of)
def test_a_command_gives_the_numbers_of_the_cpu(line: str, given: dict[str, str]) -> None:
    here, there = results_of(line, given), results_of(line, given, *ON_DEVICE)
    assert sum(x.size for x in here) > 0
    for one, two in zip(here, there, strict=True):
        np.testing.assert_allclose(two, one, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("line", thinned(LINES), ids=path_of)
def test_a_command_runs_in_half_precision_without_float64(
    line: str, given: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(precision, "WITHOUT", {stand_in.NAME})
    half = (*ON_DEVICE, "--dtype", "bfloat16")
    with stand_in.without_float64():
        if path_of(line) in IN_FLOAT32:
            with pytest.raises(AssertionError, match="load the model in float32"):
                results_of(line, given, *half)
            return
        found = results_of(line, given, *half)
    assert sum(np.isfinite(x).sum() for x in found) > 0
