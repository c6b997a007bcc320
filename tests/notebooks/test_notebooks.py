"""Every notebook runs from top to bottom and gives the outputs that it is stored with."""

from __future__ import annotations

import json
import sys
from copy import deepcopy
from importlib import util
from pathlib import Path

import pytest
from sampled import sampled

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(FOLDER.glob("*.ipynb"))
FIGURE = "application/vnd.plotly.v1+json"


@pytest.fixture(scope="module")
def execute():
    described = util.spec_from_file_location("execute_notebooks", FOLDER / "execute.py")
    assert described is not None
    assert described.loader is not None
    module = util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", NAMES, ids=lambda p: p.stem)
def test_it_is_stored_with_outputs_and_says_what_it_does_not_claim(path) -> None:
    import nbformat  # takes seconds; pytest would import a lazy module too

    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    first, *rest = book.cells
    assert first.cell_type == "markdown"
    assert "not claim" in first.source
    code = [c for c in rest if c.cell_type == "code"]
    assert any("assert " in c.source for c in code), "what the text says must be able to fail"
    assert "MODEL = " in code[0].source
    assert [c.execution_count for c in code] == [*range(1, len(code) + 1)]
    assert sum(bool(c.outputs) for c in code) >= len(code) / 2


@pytest.mark.parametrize("path", NAMES, ids=lambda p: p.stem)
def test_its_outputs_are_small_static_and_of_no_machine(path) -> None:
    import nbformat

    assert path.stat().st_size < 600_000
    for cell in nbformat.read(path, as_version=4).cells:
        for output in cell.get("outputs", ()):
            text = json.dumps(output)
            assert output.output_type in ("stream", "display_data", "execute_result")
            assert output.get("name") != "stderr"
            for trace in (str(Path.home()), str(FOLDER.parent), sys.prefix, "/tmp/tmp", "<script"):
                assert trace not in text.replace("/tmp/tmp/", "")
            if FIGURE in output.get("data", {}):
                assert output.data["image/svg+xml"].startswith("<svg ")


@pytest.mark.parametrize("path", [p for p in NAMES if p.name[0] in "124"], ids=lambda p: p.stem)
def test_its_figures_survive_nbconvert(path) -> None:
    html = pytest.importorskip("nbconvert").HTMLExporter(template_name="basic")
    body, _ = html.from_filename(str(path))
    stored = path.read_text(encoding="utf-8").count('"image/svg+xml"')
    assert stored > 0
    assert body.count("data:image/svg+xml;base64,") == stored


@pytest.mark.parametrize("path", sampled(NAMES, every=5), ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore")  # of the kernel's client, which is not ours
def test_a_run_gives_the_stored_outputs(execute, path) -> None:
    import nbformat

    if path.name.startswith("9"):
        pytest.importorskip("transformer_lens", reason="needs pip install 'interp[tl]'")
        pytest.importorskip("nnsight", reason="needs pip install 'interp[nnsight]'")
    stored = nbformat.read(path, as_version=4)
    assert list(execute.differences(stored, execute.executed(path))) == []


def stored_book():
    import nbformat

    code = nbformat.v4.new_code_cell("print(1)")
    code.outputs = [nbformat.v4.new_output("stream", text="L1H0 0.905 ± 0.019 in 1,024 of tmp\n")]
    return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# A"), code])


def test_versions_are_of_the_machine(execute) -> None:
    stored = stored_book()
    stored.cells[1].outputs[0].text = "{'python': '3.11.7', 'torch': '2.13.0+cpu'} 1.5"
    run = deepcopy(stored)
    run.cells[1].outputs[0].text = "{'python': '3.12.1', 'torch': '2.13.0'} 1.5"
    assert list(execute.differences(stored, run)) == []
    run.cells[1].outputs[0].text = "{'python': '3.12.1', 'torch': '2.13.0'} 1.9"
    assert list(execute.differences(stored, run)) == ["cell 1: stored 1.5, now 1.9"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("L1H0 0.906 ± 0.019 in 1,024 of tmp", None),  # rounding
        ("L1H0   0.905 ± 0.019 in 1,024   of tmp", None),  # the width of a column
        ("L1H0 0.805 ± 0.019 in 1,024 of tmp", "stored 0.905, now 0.805"),
        ("L1H0 0.905 ± 0.019 in 2,048 of tmp", "stored 1,024, now 2,048"),
        ("L1H0 nan ± 0.019 in 1,024 of tmp", "stored 0.905, now nan"),
        ("L1H6 0.905 ± 0.019 in 1,024 of tmp", "stored 'L1H0"),
        ("L1H0 0.905 ± 0.019 in 1,024", "stored '"),
    ],
)
def test_another_number_or_word_is_a_difference(execute, text, said) -> None:
    stored = stored_book()
    run = deepcopy(stored)
    run.cells[1].outputs[0].text = text
    found = list(execute.differences(stored, run))
    assert found == [] if said is None else said in found[0]
    stored.cells[1].metadata["tags"] = [execute.VARIES]
    assert list(execute.differences(stored, run)) == []
    run.cells[1].outputs[0].output_type = "display_data"
    assert "kinds of output" in next(iter(execute.differences(stored, run)))


def test_traces_of_the_machine_are_removed(execute) -> None:
    import nbformat

    book = stored_book()
    book.cells[1].outputs += [
        nbformat.v4.new_output("stream", name="stderr", text="compiled"),
        nbformat.v4.new_output("stream", text="/var/x/tmpa1b2c3d4/next.py and tmpfile"),
    ]
    kept = execute.cleaned(book, "/var/x").cells[1].outputs
    assert [o.text.strip() for o in kept] == [
        "L1H0 0.905 ± 0.019 in 1,024 of tmp",
        "/tmp/tmp/next.py and tmpfile",
    ]


def test_an_unknown_notebook_is_refused(execute) -> None:
    with pytest.raises(SystemExit, match="no notebook begins with '77'; there are 0_what"):
        execute.paths(["77"])
