"""Files of prompts: lines of text, and JSON Lines with clusters."""

from __future__ import annotations

import json

import pytest

import interp
from interp.core.errors import PromptError
from interp.core.prompt_file import read_prompt_file
from interp.core.prompts import from_file


def _written(path, rows):
    path.write_text("\n".join(json.dumps(row) for row in rows))
    return path


def test_lines_of_a_text_file_are_prompts_without_clusters(tmp_path):
    (tmp_path / "a.txt").write_text("one two\n\nthree four\n")
    found = read_prompt_file(tmp_path / "a.txt")
    assert list(found) == ["one two", "three four"]
    assert found.clusters is None


def test_errors_are_over_the_clusters_of_the_file(tmp_path):
    model = interp.load("bundled:induction")
    rows = [{"tokens": [1, 5 + i, 9, 5 + i, 9], "cluster": i // 4} for i in range(8)]
    clustered = from_file(_written(tmp_path / "a.jsonl", rows), model)
    assert clustered.clusters == ("0",) * 4 + ("1",) * 4
    plain = [{"tokens": row["tokens"]} for row in rows]
    alone = from_file(_written(tmp_path / "b.jsonl", plain), model)
    assert alone.ids == clustered.ids
    assert alone.hash != clustered.hash  # stored results of the two are told apart
    two, eight = (
        interp.score(model, "entropy", prompts, null="none").to_pandas()
        for prompts in (clustered, alone)
    )
    assert set(two["clusters"]) == {2}
    assert set(eight["clusters"]) == {8}
    assert two["score"].equals(eight["score"])
    assert not two["sem"].equals(eight["sem"])


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (["not an object"], "line 1: str found"),
        ([{"text": "a"}], "unknown field 'text'"),
        ([{"prompt": "a", "tokens": [1]}], "give one of 'prompt', 'tokens' and"),
        ([{"cluster": "a"}], "give one of 'prompt', 'tokens' and"),
        ([{"prompt": " "}], "'prompt' is not a text"),
        ([{"tokens": [1.5]}], "not a list of token ids"),
        ([{"tokens": [True]}], "not a list of token ids"),
        ([{"prompt": "a"}, {"tokens": [1]}], "mixes"),
        ([{"prompt": "a", "cluster": 1}, {"prompt": "b"}], "line 2: 'cluster' is missing"),
        ([{"prompt": "a", "cluster": [1]}], "neither a text nor a number"),
    ],
)
def test_a_wrong_line_is_named(tmp_path, rows, told):
    with pytest.raises(PromptError, match=told):
        read_prompt_file(_written(tmp_path / "a.jsonl", rows))


def test_a_line_that_is_not_json_is_named(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "a"}\n{broken\n')
    with pytest.raises(PromptError, match="line 2: not JSON"):
        read_prompt_file(tmp_path / "a.jsonl")


def test_a_context_does_not_join_separate_prompts(tmp_path):
    path = _written(tmp_path / "a.jsonl", [{"tokens": [1, 2, 3]}])
    with pytest.raises(PromptError, match="separate prompts"):
        from_file(path, interp.load("bundled:induction"), context=2)
