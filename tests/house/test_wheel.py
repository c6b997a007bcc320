"""The wheel holds the package and its data, nothing else, and runs where no checkout is."""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("hatchling", reason="the wheel needs hatchling: pip install 'interp[test]'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", "-q", "-w", str(out)], check=True, cwd=out)
    [path] = out.glob("*.whl")
    return path


def test_it_holds_no_scripts_that_only_a_checkout_needs(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    top = {name.split("/")[0].partition("-")[0] for name in names}
    assert top == {"interp", "interp_kernels"}
    assert not [n for n in names if Path(n).name.startswith("train_") or "/training/" in n]
    assert not [n for n in names if "bench" in n]
    assert not [n for n in names if "/tests/" in n or "/docs/" in n]


def test_it_holds_data_stubs_and_templates(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    needed = {"interp/py.typed", "interp/__init__.pyi"}
    needed |= {"interp/_repository/data/prompts.txt"}
    kinds = (".pyi", ".json", ".js", ".css", ".jinja2", ".safetensors", ".toml")
    for path in (ROOT / "interp").rglob("*"):
        if path.suffix in kinds and path.is_file() and not path.match("checkpoint-*/*"):
            needed.add(path.relative_to(ROOT).as_posix())
    assert needed <= names


def test_it_is_small_and_says_what_it_is(wheel: Path) -> None:
    packed = zipfile.ZipFile(wheel)
    weights = [i.compress_size for i in packed.infolist() if i.filename.endswith(".safetensors")]
    assert len(weights) == 7  # the bundled models, in float16
    assert sum(weights) < 1_330_000
    assert wheel.stat().st_size < 4_000_000  # of which 2.1 MB are the code
    [name] = [n for n in packed.namelist() if n.endswith(".dist-info/METADATA")]
    told = email.message_from_bytes(packed.read(name))
    assert told["Author"] == "The interp developers"
    assert told["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    readme = str(told.get_payload())
    assert readme.startswith("# interp")
    extras = set(told.get_all("Provides-Extra", []))
    table = readme.partition("| extra |")[2].partition("\n\n")[0]
    assert extras <= set(re.findall(r"`(\w+)`", table))


def test_it_scores_a_bundled_model_in_a_fresh_folder(wheel: Path, tmp_path: Path) -> None:
    place, here = tmp_path / "installed", tmp_path / "fresh"
    here.mkdir()
    with zipfile.ZipFile(wheel) as packed:  # what pip does with a wheel that has no scripts to run
        packed.extractall(place)
    bare = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    env = bare | {"PYTHONPATH": str(place)}
    code = "import interp, interp_kernels; print(interp.__file__); print(interp_kernels.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", code], env=env, cwd=here, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert all(Path(line).is_relative_to(place) for line in shown)
    asked = ["-m", "interp", "score", "bundled:induction", "-m", "induction", "-o", "results", "-q"]
    done = subprocess.run(
        [sys.executable, *asked], env=env, cwd=here, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "L1H0" in done.stdout
    assert (here / "results" / "heads.html").is_file()


def test_its_user_gets_the_emergence_curves_without_the_checkpoints(
    wheel: Path, tmp_path: Path
) -> None:
    place = tmp_path / "installed"
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(place)
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PYTHONPATH": str(place)}

    def interp(*asked: str) -> subprocess.CompletedProcess[str]:
        line = [sys.executable, "-m", "interp", *asked]
        return subprocess.run(
            line, env=env, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    refused = interp("compare", "checkpoints", "bundled:induction")
    assert refused.returncode == 2
    said = " ".join(refused.stderr.split())
    told = re.search(r"interp (atlas \S+ -o emergence.html)", said)
    assert told, refused.stderr
    done = interp(*told[1].split())
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "emergence.html").read_text(encoding="utf-8")
    assert "Over training: bundled:induction" in page
    assert "training step" in page
