"""Text files: what ends a line, what a byte-order mark is, and that there is one reader of both."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import interp
from interp.attribution.evaluation.run import read_texts
from interp.causal.influence.texts import count_texts, texts_of
from interp.causal.task_rows import task_rows
from interp.core.errors import PromptError
from interp.core.prompt_file import read_objects, read_prompt_file
from interp.core.prompts import from_file
from interp.core.text_file import iter_lines, lines_of_text, read_lines, read_text
from interp.model.recorded.recording import corpus_ids, number_of_prompts

FIRST = "one\u2028two\x85three\x0cfour\x1cfive"
SECOND = "six seven"
MARK = b"\xef\xbb\xbf"


@pytest.fixture
def two_texts(tmp_path) -> Path:
    path = tmp_path / "prompts.txt"
    path.write_bytes(MARK + f"{FIRST}\r\n\n{SECOND}\n".encode())
    return path


def test_a_line_ends_where_editors_end_it_and_the_mark_is_no_text(two_texts) -> None:
    assert read_text(two_texts) == f"{FIRST}\n\n{SECOND}\n"
    assert read_lines(two_texts) == [*iter_lines(two_texts)] == [FIRST, "", SECOND]
    assert lines_of_text(two_texts.read_bytes().decode("utf-8-sig")) == [FIRST, "", SECOND]
    assert lines_of_text("a\rb\r\nc\x0c\n", keep_ends=True) == ["a\r", "b\r\n", "c\x0c\n"]
    assert lines_of_text("") == []


def test_prompts_recordings_and_tasks_read_the_same_two_texts(two_texts) -> None:
    model = interp.load("bundled:one-layer")
    assert list(read_prompt_file(two_texts)) == [FIRST, SECOND]
    assert read_texts(two_texts) == [FIRST, SECOND]
    assert [text.content for text in texts_of(two_texts) if text.content] == [FIRST, SECOND]
    assert count_texts(two_texts) == 3  # an empty line of a corpus is a text without tokens
    assert [row["prompt"] for row in task_rows(str(two_texts))] == [FIRST, SECOND]
    prompts = from_file(two_texts, model)
    assert list(prompts.ids) == [*corpus_ids(two_texts, model, None)]
    assert len(prompts) == number_of_prompts(two_texts) == 2


def test_json_lines_may_hold_any_character_unescaped(tmp_path) -> None:
    path = tmp_path / "prompts.jsonl"
    rows = [{"prompt": FIRST.replace("\x0c", "").replace("\x1c", "")}, {"prompt": SECOND}]
    path.write_bytes(MARK + "\n".join(json.dumps(x, ensure_ascii=False) for x in rows).encode())
    assert list(read_prompt_file(path)) == [row["prompt"] for row in rows]
    assert read_objects(path, "{}", dict) == rows
    assert task_rows(str(path)) == rows


def test_a_file_that_is_not_utf_8_or_not_there_is_refused_in_one_line(tmp_path) -> None:
    path = tmp_path / "latin.txt"
    path.write_bytes("caf\xe9\n".encode("latin-1"))
    with pytest.raises(PromptError, match=r"latin\.txt is not UTF-8 text: .* at byte 3"):
        read_text(path)
    with pytest.raises(PromptError, match="cannot be read: No such file"):
        read_lines(tmp_path / "none.txt")


OTHER = {
    # not text of a file: an error, a table or a page that this package wrote
    r"\(?(error|str\(\w+(\.\w+)?( or \w+)?|str\(\w+\)\.strip\(|aligned_columns\(rows|reference or "
    r'""|self)\)*\.splitlines',
    r"str\(error\.__cause__ or error\)\.splitlines",
    r"content\.splitlines\(\), 1\)",  # bytes: CoNLL-U
    r"\btext\.splitlines\(\) if line\.startswith\(\"MemAvailable",
}


def test_no_other_code_of_the_package_splits_texts_into_lines() -> None:
    package = Path(interp.__file__).parent
    found = [
        f"{path.relative_to(package)}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for line in read_lines(path)
        if ".splitlines(" in line and not any(re.search(x, line) for x in OTHER)
    ]
    assert found == []
