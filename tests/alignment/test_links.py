"""Links, error rates and pair files: values by hand, loops as reference, wrong input."""

from __future__ import annotations

import json

import numpy as np
import pytest

from interp.alignment import SentencePair, read_sentence_pairs
from interp.alignment.links import (
    alignment_error_rate,
    count_links,
    covered,
    forward_steps,
    gold_matrices,
    largest_links,
    link_sets,
    require_rows,
    word_weights,
)
from interp.alignment.pair_file import parse_links
from interp.core.errors import OptionError, PromptError


def random_pair(rng: np.random.Generator) -> tuple[SentencePair, np.ndarray]:
    """A pair with random gold, and random links of three heads, some words without a link."""
    source, target = rng.integers(1, 7, 2)
    cells = [(s, t) for s in range(source) for t in range(target)]
    drawn = rng.random(len(cells))
    sure = frozenset(c for c, x in zip(cells, drawn, strict=True) if x < 0.2)
    possible = frozenset(c for c, x in zip(cells, drawn, strict=True) if x < 0.4)
    pair = SentencePair(tuple(range(source)), tuple(range(target)), sure, possible)
    return pair, rng.integers(-1, source, (3, target))


def test_error_rate_of_a_small_example() -> None:
    # A = 3 links, S = 2, A in S = 2, A in P = 2: 1 - 4/5
    pair = SentencePair("a b c", "x y z", *parse_links("0-0 1-1 2p2"))
    found = count_links(np.array([[0, 1, 1], [0, 1, 2]]), *gold_matrices(pair))
    np.testing.assert_allclose(alignment_error_rate(*found), [0.2, 0.0])
    assert np.isnan(alignment_error_rate(*map(np.array, (0, 0, 0, 0))))


def test_counts_are_those_of_sets_and_are_summed_before_dividing() -> None:
    rng = np.random.default_rng(0)
    made = [random_pair(rng) for _ in range(40)]
    total = sum(np.stack(count_links(x, *gold_matrices(p))) for p, x in made)
    for head in range(3):
        sums = np.zeros(4)
        for pair, links in made:
            a = link_sets(links)[head]
            s, p = pair.sure or frozenset(), pair.possible
            assert s <= p
            sums += [len(a), len(s), len(a & s), len(a & p)]
        assert total[:, head].tolist() == sums.tolist()
        want = 1 - (sums[2] + sums[3]) / (sums[0] + sums[1])
        assert alignment_error_rate(*total)[head] == pytest.approx(want)


def test_words_are_sums_over_source_tokens_and_means_over_target_tokens() -> None:
    rng = np.random.default_rng(1)
    pattern = rng.random((2, 5, 6))  # rows fed: start, then labels 0 to 3
    source, labels = (-1, 0, 0, 1, 2, -1), (0, 1, 1, -1)
    for rows, shift in (("emits", 0), ("fed", 1)):
        found = word_weights(pattern, source, labels, (3, 3), rows)
        assert np.isnan(found[:, 2]).all()  # the third target word has no token
        for head in range(2):
            for s, keys in enumerate(([1, 2], [3], [4])):
                for t, own in enumerate(([0], [1, 2])):
                    want = np.mean([pattern[head, i + shift, keys].sum() for i in own])
                    assert found[head, t, s] == pytest.approx(want)
    links = largest_links(found)
    assert (links[:, 2] == -1).all()
    assert (links[:, :2] == np.nanargmax(found[:, :2], -1)).all()


def test_the_last_label_has_no_row_that_is_fed_with_it_unless_an_end_follows() -> None:
    pattern = np.full((1, 2, 2), 0.5)
    assert np.isnan(word_weights(pattern, (0, 1), (0, 1), (2, 2), "fed")[0, 1]).all()
    assert not np.isnan(word_weights(pattern, (0, 1), (0, 1), (2, 2), "emits")).any()


def test_coverage_and_order() -> None:
    links = np.array([[0, 1, 1, 3], [3, 2, -1, 0], [-1, -1, -1, -1]])
    assert covered(links, 5).tolist() == [3, 3, 0]
    forward, neighbours = forward_steps(links)
    assert forward.tolist() == [3, 0, 0]
    assert neighbours.tolist() == [3, 1, 0]


def test_rows_are_named() -> None:
    assert require_rows("both") == ("emits", "fed")
    with pytest.raises(OptionError, match="'emits'"):
        require_rows("last")


def test_pair_files(tmp_path) -> None:
    path = tmp_path / "pairs.jsonl"
    rows = [
        {"source": "the cat sat", "target": "le chat", "alignment": "0-0 1-1 2p1"},
        {"source": [5, 6], "target": [7]},
    ]
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n\n")
    first, second = read_sentence_pairs(path)
    assert first.sure == {(0, 0), (1, 1)}
    assert first.possible == {(0, 0), (1, 1), (2, 1)}
    assert first.swapped.possible == {(0, 0), (1, 1), (1, 2)}
    assert first.swapped.swapped == first
    assert second == SentencePair((5, 6), (7,))


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            '{"source": "a b", "target": "x", "alignment": "2-0"}',
            r"line 2: the link 2-0 names sour",
        ),
        ('{"source": "a b", "target": "x", "alignment": "1p1"}', r"target word 1, .* words 0 to 0"),
        ('{"source": "a b", "target": " "}', "line 2: the target is empty"),
        ('{"source": [], "target": "x"}', "the source is empty"),
        ('{"source": "a b"}', "'target' is missing"),
        ('{"source": "a", "target": 3}', "neither a text nor a list"),
        ('{"source": "a", "target": "x", "gold": "0-0"}', "unknown field 'gold'"),
        ('{"source": "a", "target": "x", "alignment": "0:0"}', "'0:0' is not a link"),
        ('{"source": "a", "target": "x", "alignment": [[0, 0]]}', "not a text of links"),
        ("[1]", "line 2: list found, expected an object"),
        ("{", "line 2: not JSON"),
    ],
)
def test_a_wrong_line_is_named(row, message, tmp_path) -> None:
    path = tmp_path / "pairs.jsonl"
    path.write_text('{"source": "a", "target": "x"}\n' + row + "\n")
    with pytest.raises(PromptError, match=message) as raised:
        read_sentence_pairs(path)
    assert "\n" not in str(raised.value)
