"""What heads add to the stream is computed in one place: no other file multiplies by W_O."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "interp"
NAMES = ("W_O", "b_O", "output_projection")
THE_PLACE = "model/locate/head_outputs.py"
MAY_READ = {
    "model/locate/weights.py": "gives the weights, and folds them for circuits of weights alone",
    "model/self_check.py": "compares the projection's own output with z W_O, before any addition",
    "causal/tucker.py": "decomposes the four weights of a layer as they are stored",
    "heads/geometry/projection_ranks.py": "decomposes the weights of a layer as they are stored",
    "heads/weights/projection_kernel.py": "compares column spaces, which no factor changes",
    "dictionaries/lorsa.py": "W_O of Lorsa is its own parameter, not the model's",
    "dictionaries/lorsa_training.py": "W_O of Lorsa is its own parameter, not the model's",
}
"""Files that read W_O, with the reason why they do not need what is added to the stream."""


def readers(tree: ast.AST) -> Iterator[str]:
    """Names by which the matrix of an output projection is reached in a file."""
    for node in ast.walk(tree):
        name = getattr(node, "attr", getattr(node, "id", None))
        if isinstance(node, (ast.Attribute, ast.Name)) and name in NAMES:
            yield str(name)


def test_no_other_file_reads_the_output_matrix() -> None:
    texts = {path.relative_to(ROOT).as_posix(): path.read_text() for path in ROOT.rglob("*.py")}
    some = {name: text for name, text in texts.items() if any(x in text for x in NAMES)}
    found = {name for name, text in some.items() if any(readers(ast.parse(text)))}
    assert THE_PLACE in found
    assert found - {THE_PLACE} == set(MAY_READ)
    assert list(readers(ast.parse("z @ model.weights_of(site).W_O + output_projection(m, s)[1]")))
