"""Detectors that are defined in the cells of a notebook, where no file has their name."""

from __future__ import annotations

import pytest

CELLS = (
    """import interp
from interp import detector

model = interp.load("planted:positional", check=False)
want = interp.score(model, "previous_token", null="none").to_pandas()["score"]
""",
    """@detector
def looks_back(query, key, *, back: int = 1):
    return key == query - back

assert looks_back.name == "looks_back"
found = interp.score(model, looks_back, null="none")
assert found.metrics == ("looks_back",)
assert found.to_pandas()["score"].equals(want)
""",
    """def plain(query, key):
    "Attends to the token before."
    return key == query - 1

found = interp.score(model, [plain, lambda query, key: key == query - 1], null="none")
for metric in found.metrics:
    assert found.where(metric=metric).to_pandas()["score"].tolist() == want.tolist()
assert found.metrics[1].startswith("lambda_")
""",
    """kept = []
for back in (1, 2):
    kept.append(interp.score(model, lambda query, key: key == query - back, null="none"))
assert kept[0].metrics != kept[1].metrics
assert len(interp.HeadTable.concat(kept)) == 2 * len(want)
""",
    """# the same cell run again with another line: the old and the new are not one metric
before = interp.score(model, plain, null="none")
def plain(query, key):
    "Attends to the token before."
    return key == query - 2
try:
    interp.HeadTable.concat([before, interp.score(model, plain, null="none")])
except interp.InterpError as error:
    assert "differ in made_by" in str(error)
else:
    raise AssertionError("joined")
""",
    """# a model by name, and a list of models, with a detector of this cell
one = interp.score("planted:positional", looks_back, null="none")
many = interp.score(["planted:positional", "planted:sink"], ["induction", looks_back], null="none")
assert one.models == ("planted:positional",)
assert many.models == ("planted:positional", "planted:sink")
assert interp.ablate("planted:sink", interp.repeats_task("planted:sink", n=2), null="none")
""",
    """def wrong(query, key):
    return key == query - 1 and key > 0

try:
    interp.score(model, wrong, null="none")
except interp.InterpError as error:
    assert "predicate 'wrong' raised RuntimeError" in str(error), error
    assert "\\n" not in str(error)
else:
    raise AssertionError("scored")
""",
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the kernel's client, which is not ours
def test_detectors_of_cells_are_scored(tmp_path) -> None:
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    client = NotebookClient(
        book, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
