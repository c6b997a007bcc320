"""Reading of corpora: formats, random windows, near-duplicates, and what cannot be read."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import interp
from interp.core.errors import OptionError, PromptError
from interp.profiles.corpus import FEWEST, DocumentCorpus, sample_corpus

PAIRS = [("Ann", "Bo"), ("Cy", "Di"), ("Ed", "Flo")] * 4
TEXTS = [f"{a} met {b} in week {n}. They talked about {n} boats." for n, (a, b) in enumerate(PAIRS)]


@pytest.fixture(scope="module")
def corpus_model() -> interp.Model:
    return interp.load("bundled:induction")


def words_of(n: int, seed: int) -> str:
    rng = np.random.default_rng(seed)
    return " ".join(f"w{int(x)}" for x in rng.integers(0, 500, n))


def write(folder: Path, kind: str) -> Path:
    """Write the texts in one format."""
    rows = [{"text": text} for text in TEXTS]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    path = folder / f"corpus.{kind}"
    if kind == "jsonl":
        path.write_text(lines)
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif kind == "jsonl.zst":
        path.write_bytes(pa.Codec("zstd").compress(lines.encode(), asbytes=True))
    elif kind == "json":
        path.write_text(json.dumps(TEXTS))
    elif kind == "parquet":
        pq.write_table(pa.table({"text": TEXTS}), path)
    elif kind == "dataset":
        path.mkdir()
        (path / "state.json").write_text("{}")
        table = pa.table({"text": TEXTS})
        file = str(path / "data-00000-of-00001.arrow")
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    else:
        path.mkdir()
        for at, text in enumerate(TEXTS):
            (path / f"{at:02}.txt").write_text(text)
    return path


@pytest.mark.parametrize(
    "kind", ["jsonl", "jsonl.gz", "jsonl.zst", "json", "parquet", "dataset", "folder"]
)
def test_every_format_gives_the_same_documents(tmp_path: Path, kind: str) -> None:
    assert [document.text for document in DocumentCorpus(write(tmp_path, kind))] == TEXTS


def test_a_folder_holds_several_formats(tmp_path: Path) -> None:
    write(tmp_path, "jsonl.gz")
    write(tmp_path, "parquet")
    (tmp_path / "notes.bin").write_bytes(b"\0")
    assert len([*DocumentCorpus(tmp_path)]) == 2 * len(TEXTS)


def test_the_corpus_of_the_package_has_four_kinds_of_documents() -> None:
    assert len({document.text for document in DocumentCorpus()}) >= 60
    assert DocumentCorpus().name == "corpus.jsonl"


def test_another_field_may_hold_the_text_or_ids(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"story": "Once."}\n{"story": [1, 2]}\n')
    found = [*DocumentCorpus(path, field="story")]
    assert (found[0].text, found[1].ids) == ("Once.", (1, 2))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.jsonl", b'{"text": 1}\n', "a.jsonl, line 1: neither a text, a list"),
        ("a.jsonl", b'{"story": "x"}\n', "no field 'text'; it has story"),
        ("a.jsonl", b"{\n", "line 1: not JSON"),
        ("a.json", b"{}", "expected a list"),
        ("a.parquet", b"PAR1", "damaged or not Parquet"),
        ("a.jsonl.gz", b"\x1f\x8bxx", "cannot be read"),
        ("a.txt", b"\xff\xfe\x00", "not UTF-8"),
        ("a.bin", b"", "unknown kind of file"),
    ],
)
def test_damaged_files_are_refused_by_name(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(PromptError, match=says):
        _ = [*DocumentCorpus(tmp_path / name)]


def test_a_missing_column_lists_those_that_are_there(tmp_path: Path) -> None:
    pq.write_table(pa.table({"story": TEXTS}), tmp_path / "a.parquet")
    with pytest.raises(PromptError, match="no column 'text'; it has story"):
        _ = [*DocumentCorpus(tmp_path / "a.parquet")]


def test_missing_and_empty_sources_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PromptError, match="does not exist"):
        _ = [*DocumentCorpus(tmp_path / "no")]
    with pytest.raises(PromptError, match="no file of a known kind"):
        _ = [*DocumentCorpus(tmp_path)]
    with pytest.raises(PromptError, match="corpus is empty"):
        DocumentCorpus([])
    (tmp_path / "text.txt").write_text("one two")
    with pytest.raises(PromptError, match=r"name of a file.*give Path"):
        _ = [*DocumentCorpus(["some text", str(tmp_path / "text.txt")])]


def test_windows_are_random_and_say_where_they_begin(corpus_model: interp.Model) -> None:
    long = [words_of(4000, seed) for seed in range(12)]
    sample = sample_corpus(DocumentCorpus(long), corpus_model, max_length=32, n_queries=8)
    assert len({window.offset for window in sample.windows}) > 8
    for window in sample.windows:
        text = long[int(window.name.split()[1])]
        ids = corpus_model.tokenizer(text[window.offset : window.offset + 600])["input_ids"]
        special = window.ids[0] in corpus_model.tokenizer.all_special_ids
        assert list(window.ids[special:20]) == ids[special:20]
        assert len(window.ids) == 32
        assert len(window.queries) == 8
        assert window.queries.min() >= 2


def test_the_choice_does_not_depend_on_the_order_of_documents(corpus_model: interp.Model) -> None:
    texts = [words_of(40, seed) for seed in range(40)]
    one = sample_corpus(DocumentCorpus(texts), corpus_model, n_documents=20)
    other = sample_corpus(DocumentCorpus(texts[::-1]), corpus_model, n_documents=20)
    assert one.hash == other.hash
    assert one.facts["documents_read"] == 40
    assert (
        sample_corpus(DocumentCorpus(texts), corpus_model, n_documents=20, seed=1).hash != one.hash
    )


def test_near_duplicates_are_one_cluster_on_one_side(corpus_model: interp.Model) -> None:
    texts = [words_of(60, seed) for seed in range(12)]
    copies = [text + f" end{at}" for at, text in enumerate(texts[:4])]
    sample = sample_corpus(DocumentCorpus([*texts, *copies, texts[0]]), corpus_model)
    assert sample.facts["distinct_documents"] == 12
    assert sample.facts["exact_copies"] == 1
    sides: dict[int, set[int]] = {}
    for window in sample.windows:
        sides.setdefault(window.cluster, set()).add(window.part)
    assert all(len(side) == 1 for side in sides.values())
    assert {window.part for window in sample.windows} == {0, 1}


def test_ten_copies_of_a_document_are_one_document(corpus_model: interp.Model) -> None:
    with pytest.raises(PromptError, match=r"1 distinct document.*9 are exact copies"):
        sample_corpus(DocumentCorpus([words_of(50, 0)] * 10), corpus_model)


def test_documents_of_one_token_are_too_short(corpus_model: interp.Model) -> None:
    with pytest.raises(PromptError, match=rf"0 distinct.*20 too short.*at least {FEWEST}"):
        sample_corpus(DocumentCorpus([f"w{n}" for n in range(20)]), corpus_model)


def test_an_unknown_language_is_named() -> None:
    corpus_model = interp.load("bundled:induction")
    unk = corpus_model.tokenizer.unk_token_id
    if unk is None:
        pytest.skip("the tokenizer spells every text in bytes")
    texts = [("語" * 3 + " ") * (n + 10) for n in range(12)]
    with pytest.raises(PromptError, match="unknown to the tokenizer"):
        sample_corpus(DocumentCorpus(texts), corpus_model)


def test_a_model_without_a_tokenizer_takes_ids() -> None:
    planted = interp.load("planted:induction")
    with pytest.raises(PromptError, match=r"no tokenizer.*lists of token ids"):
        sample_corpus(DocumentCorpus(TEXTS), planted)
    rng = np.random.default_rng(0)
    rows = [[0, *rng.integers(1, 64, 30).tolist()] for _ in range(12)]
    assert len(sample_corpus(DocumentCorpus(rows), planted).windows) == 12
    rows[3][4] = 9999
    with pytest.raises(PromptError, match="holds the token id 9999"):
        sample_corpus(DocumentCorpus(rows), planted)


def test_too_small_numbers_are_refused(corpus_model: interp.Model) -> None:
    with pytest.raises(OptionError, match="n_documents=4 is too small"):
        sample_corpus(DocumentCorpus(), corpus_model, n_documents=4)
