"""The wheel holds the package and its data, nothing else; wheel and sdist run where no checkout is.

Both are installed into a virtual environment of their own, without a network: its dependencies are
those of the environment of the tests, put on its path without interp.
"""

from __future__ import annotations

import email
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIBLINGS = {f"interp/bundled/stories-{x}/model.safetensors" for x in ("raven", "seed2")}
UNUSED = {each.replace("model.safetensors", "tokenizer.json") for each in SIBLINGS}
pytest.importorskip("hatchling", reason="the wheel needs hatchling: pip install 'interp[test]'")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--no-index", "-q", "-w", str(out)], check=True, cwd=out)
    [path] = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(out)]
    subprocess.run(build, check=True, cwd=ROOT, capture_output=True)
    [path] = out.glob("*.tar.gz")
    return path


BARE = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def installed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of a clean environment into which pip installed it."""
    place = tmp_path_factory.mktemp(request.param) / "venv"
    venv.create(place, with_pip=False)
    programs = place / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python"), "install", "-q"]
    [packages] = place.glob("lib/python*/site-packages")
    # a .pth within this folder, such as the one of an editable interp, is not followed
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    built = str(request.getfixturevalue(request.param))
    options = [
        "--no-deps",
        "--no-index",
        "--no-build-isolation",
        "--no-compile",
        "--ignore-installed",
    ]
    subprocess.run([*pip, *options, built], check=True, env=BARE, cwd=place)
    return programs


def test_the_sdist_holds_what_the_tests_need_and_nothing_that_git_ignores(sdist: Path) -> None:
    with tarfile.open(sdist) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    needed = {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "pyproject.toml", "PKG-INFO"}
    needed |= {".ci/run", "constraints.txt", "interp/py.typed", "data/prompts.txt"}
    needed |= {"kernels/interp_kernels/__init__.py", "tests/conftest.py", "docs/build.py"}
    assert needed <= names
    assert not [n for n in names if "__pycache__" in n or n.split("/")[0] in ("results", "site")]
    assert not SIBLINGS & {*names}
    assert sdist.stat().st_size < 12_500_000  # bundled:stories takes 2.5 MB of it


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
    needed -= SIBLINGS | UNUSED  # too large for a wheel, and of no use without
    assert not UNUSED & names
    assert needed <= names


def test_it_is_small_and_says_what_it_is(wheel: Path) -> None:
    packed = zipfile.ZipFile(wheel)
    weights = [i.compress_size for i in packed.infolist() if i.filename.endswith(".safetensors")]
    assert len(weights) == 16  # the bundled models, and those trained on algorithms
    assert sum(weights) < 4_300_000
    assert wheel.stat().st_size < 7_500_000  # of which 4.3 MB are weights
    [name] = [n for n in packed.namelist() if n.endswith(".dist-info/METADATA")]
    told = email.message_from_bytes(packed.read(name))
    assert told["Author"] == "The interp developers"
    assert told["Description-Content-Type"] == "text/markdown"
    assert "Typing :: Typed" in told.get_all("Classifier", [])
    assert str(told.get_payload()).startswith("# interp")
    extras = set(told.get_all("Provides-Extra", []))
    page = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    table = page.partition("| extra |")[2].partition("\n\n")[0]
    assert extras <= set(re.findall(r"`(\w+)`", table))


def test_it_says_its_version_and_scores_a_bundled_model_in_a_clean_environment(
    installed: Path, tmp_path: Path
) -> None:
    def ran(*line: str) -> str:
        done = subprocess.run(
            [installed / line[0], *line[1:]],
            env=BARE,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    code = "import interp, interp_kernels; print(interp.__file__); print(interp_kernels.__file__)"
    shown = ran("python", "-c", code).splitlines()
    assert all(Path(line).is_relative_to(installed.parent) for line in shown)
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert ran("interp", "--version") == f"interp {stated['version']}\n"
    names = ran(
        "python", "-c", "from interp.model.sources.registered import sources; print(*sources())"
    )
    assert names.split() == sorted(stated["entry-points"]["interp.sources"])
    told = ran("interp", "score", "bundled:induction", "-m", "induction", "-o", "results", "-q")
    assert "L1H0" in told
    assert (tmp_path / "results" / "heads.html").is_file()


def test_its_user_is_told_where_checkpoints_and_the_fine_tune_of_the_stories_are(
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

    listed = interp("list", "models").stdout
    assert "\n  stories " in listed
    assert "stories-" not in listed
    for code, *asked in ((1, "score"), (2, "list", "models")):
        refused = interp(*asked, "bundled:stories-raven")
        assert refused.returncode == code
        assert "is in the repository of interp" in " ".join(refused.stderr.split())
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
