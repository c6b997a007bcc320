"""`interp check`, and importing the class of a research model first."""

from __future__ import annotations

import re
import sys

import click
import pytest
from beside import FOLDER, needs
from click.testing import CliRunner

import interp
from interp import bundled
from interp.cli.main import Interp
from interp.model import self_check as checking

SHARED = FOLDER / "models"


def test_every_layer_is_listed_with_its_errors(run, llama_folder) -> None:
    result = run("check", llama_folder)
    assert result.exit_code == 0
    found = interp.model.check_model(interp.load(llama_folder))
    for site in found.sites:
        [line] = [x for x in result.stdout.splitlines() if x.split()[:1] == [site.site.name]]
        assert line.split()[1:] == [f"{site.pattern_error:.1e}", f"{site.result_error:.1e}", "ok"]
    largest = max(max(s.pattern_error, s.result_error or 0.0) for s in found.sites)
    assert f"passed; largest error {largest:.1e}, allowed 1e-04" in result.stdout


def test_a_model_that_fails_is_shown_with_the_module_and_exits_1(
    run, llama_folder, monkeypatch
) -> None:
    monkeypatch.setitem(checking.TOLERANCE, interp.load(llama_folder).dtype, 1e-12)
    result = run("check", llama_folder)
    assert result.exit_code == 1
    assert "FAILS in model.layers.0.self_attn" in result.stdout
    assert "FAILED: its scores would not describe this model" in result.stdout


def test_all_models_are_checked_after_one_that_cannot_be_loaded(
    run, llama_folder, tmp_path
) -> None:
    result = run("check", tmp_path / "nowhere", llama_folder)
    assert result.exit_code == 1
    assert "nowhere does not exist" in result.stderr
    assert "passed" in result.stdout


RESEARCH = """
from transformers import LlamaConfig, LlamaForCausalLM


class ResearchConfig(LlamaConfig):
    model_type = "research"


class ResearchForCausalLM(LlamaForCausalLM):
    config_class = ResearchConfig
"""


def test_a_research_class_is_imported_first(run, errors, llama_copy, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    folder = llama_copy("research")
    config = folder / "config.json"
    text = re.sub('"LlamaForCausalLM"', '"ResearchForCausalLM"', config.read_text())
    config.write_text(re.sub('"model_type": "llama"', '"model_type": "research"', text))
    code, [told] = errors("check", folder)
    assert code == 1
    assert "--import" in told
    (tmp_path / "research_model.py").write_text(RESEARCH)
    result = run("check", folder, "--import", tmp_path / "research_model.py")
    assert result.exit_code == 0
    assert not (tmp_path / "__pycache__").exists()
    assert "research_model" in sys.modules


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("nowhere.py", None, "there is no such file"),
        ("broken_class.py", "import no_such_package_at_all\n", "ModuleNotFoundError"),
        ("syntax_class.py", "def f(:\n", "syntax_class.py, line 1: SyntaxError"),
        ("raising_class.py", "x = 1\nx['a']\n", "raising_class.py, line 2: TypeError: 'int'"),
        ("json.py", "x = 1\n", "also has the name json; rename your file"),
    ],
)
def test_an_import_that_fails_is_one_line(errors, llama_folder, tmp_path, name, text, line) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    code, [told] = errors("check", llama_folder, "--import", tmp_path / name)
    assert code == 1
    assert line in told


@pytest.mark.slow
@pytest.mark.parametrize("where", ["bundled", pytest.param("beside", marks=needs(SHARED))])
def test_every_trained_model_in_one_command_with_every_metric(run, tmp_path, where) -> None:
    if where == "bundled":
        every = bundled.names("all")
        names = {name for name in every if not name.startswith("stories-")}  # as slow as stories
        sources = folders = sorted(f"bundled:{name}" for name in names)
        classes = []
    else:
        # importing the classes of the toy models leaves a __pycache__ beside them
        sources = sorted(p for p in SHARED.glob("*") if p.name != "__pycache__")
        classes = [
            x
            for name in ("toy_transformer", "toy_vit")
            for x in ("--import", SHARED / f"{name}.py")
        ]
        folders = [s.name for s in sources if (s / "config.json").is_file()]
    null = () if where == "bundled" else ("--null", "none")
    result = run("score", *sources, *classes, *null, "--out", tmp_path)
    assert result.exit_code == 0, result.stderr
    table = interp.HeadTable.load(tmp_path / "table.parquet")
    assert list(table.models) == folders
    lines = result.stderr.splitlines()
    from interp.core.registry import METRICS

    for model in folders:
        for metric in set(METRICS.usual()) - set(table.where(model=model).metrics):
            assert any(model in line and metric in line for line in lines), (model, metric)
    assert not table.where(metric="entropy").to_pandas()["score"].isna().any()


def test_a_panic_inside_a_tokenizer_is_one_line() -> None:
    """The panic of a package in Rust is no `Exception`; Ctrl-C and others pass."""
    panic = type("PanicException", (BaseException,), {})

    @click.command()
    def fails() -> None:
        raise panic("called `Option::unwrap()`\non a `None` value")

    told = CliRunner().invoke(Interp(commands={"fails": fails}), ["fails"])
    assert told.exit_code == 1
    assert "interp: error: the tokenizer failed inside (called `Option::unwrap()` on" in told.output
    assert told.output.count("\n") == 1


@pytest.fixture
def quick_kernels(monkeypatch) -> None:
    from interp_kernels import self_test

    monkeypatch.setattr(self_test, "SIZES", (33,))
    monkeypatch.setattr(self_test, "TIMED", 16)


def test_kernels_are_compared_on_request(run, quick_kernels) -> None:
    result = run("check", "bundled:induction", "--set", "kernels=true")
    assert result.exit_code == 0
    assert "kernels on cpu: 8 heads, 4 of keys, 16 and 16 wide, float32" in result.stdout
    [line] = [line for line in result.stdout.splitlines() if line.startswith("    chunked")]
    assert line.split()[2] == "0", "none is wrong"
    assert "kernels on" not in run("check", "bundled:induction").stdout


def test_a_wrong_kernel_fails_the_check(run, quick_kernels, monkeypatch) -> None:
    from interp_kernels import chunked

    right = chunked.run

    def wrong(request):
        found = right(request)
        return {k: v * 1.001 if k == "entropy" else v for k, v in found.items()}

    monkeypatch.setattr(chunked, "run", wrong)
    result = run("check", "bundled:induction", "--set", "kernels=true")
    assert result.exit_code == 1
    assert "WRONG: entropy (" in result.stdout
