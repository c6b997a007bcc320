"""The texts of a view's page, and its first sentence."""

from __future__ import annotations

import numpy as np
from beside import STORIES, needs

import interp
from interp.heads.patterns import View, long_view, view
from interp.heads.patterns.stack import opening_weight
from interp.report.view_texts import opening_sentence, readings


def test_the_pieces_of_a_model_are_its_text(bundled_induction) -> None:
    text = "the cat, and\n the cat."
    found = view(bundled_induction, text)
    [one], [sides] = readings(found)
    assert sides == [0, 0]
    assert one.text.replace("<s>", "").strip() == text
    assert sum(p.n_tokens for p in one.pieces) == len(found.stacks[0].queries)


@needs(STORIES)
def test_bytes_of_one_character_are_one_piece_of_a_real_text() -> None:
    model = interp.load(STORIES)
    text = "My naïve friend 🙂 saw 字 and שלום."
    [one], _ = readings(view(model, text))
    assert one.text == text
    assert {p.text.strip(): p.n_tokens for p in one.pieces}["🙂"] == 4


def test_a_long_prompt_has_its_text_by_block(bundled_induction) -> None:
    found = long_view(bundled_induction, "the cat sat on the mat. " * 60, block=32)
    [one], _ = readings(found)
    assert len(one.pieces) == len(found.stacks[0].queries)
    assert one.text.replace("<s>", "").split() == ("the cat sat on the mat. " * 60).split()


def test_the_answer_names_the_largest_weight_that_is_no_neighbours() -> None:
    weights = np.eye(5)[None, None].repeat(2, 1) * 1.0
    weights[0, 1, 4] = [0, 0.7, 0, 0, 0.3]
    found = View.of_patterns(weights, list("abcde"))
    assert opening_sentence(found, opening_weight(found.stacks, found.named)) == (
        "L0H1 gives 0.70 of the attention of “e” (token 4) to “b” (token 1): the largest weight of "
        "2 heads between tokens that are not neighbours"
    )
    named = View.of_patterns(weights, list("abcde"), named=["L0H0"])
    assert opening_sentence(named, opening_weight(named.stacks, named.named)).startswith(
        "L0H0 gives 1.00 of the attention of “a” (token 0)"
    )
    assert opening_sentence(named, opening_weight(named.stacks, named.named)).endswith(
        "to “a” (token 0): its largest weight"
    )
    assert opening_sentence(found, opening_weight(found.stacks, found.named)) in found.html()
