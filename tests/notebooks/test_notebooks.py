"""Every notebook runs from top to bottom, and is stored without what it printed."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NAMES = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NAMES, ids=lambda p: p.stem)
def test_it_is_stored_without_outputs_and_says_what_it_does_not_claim(path) -> None:
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    first, *rest = book.cells
    assert first.cell_type == "markdown"
    assert "not claim" in first.source
    code = [c for c in rest if c.cell_type == "code"]
    assert any("assert " in c.source for c in code), "what the text says must be able to fail"
    assert "MODEL = " in code[0].source
    assert all(not c.outputs and c.execution_count is None for c in code)


@pytest.mark.slow
@pytest.mark.parametrize("path", NAMES, ids=lambda p: p.stem)
@pytest.mark.filterwarnings("ignore")  # of the kernel's client, which is not ours
def test_it_runs(path, tmp_path) -> None:
    book = nbformat.read(path, as_version=4)
    client = NotebookClient(
        book, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [c for c in book.cells if c.cell_type == "code" and c.outputs]
    assert len(shown) > len([c for c in book.cells if c.cell_type == "code"]) / 2
