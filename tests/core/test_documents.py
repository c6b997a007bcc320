"""Documents of strangers: limits of what is parsed, and checksums of what was written."""

from __future__ import annotations

import copy
import json
import random

import pyarrow.parquet as pq
import pytest
from core.examples import small
from core.result_examples import EXAMPLES
from hypothesis import given
from hypothesis import strategies as st
from together import over

from interp.core.csv_rows import FORMULA, csv_text, read_cell, written_cell
from interp.core.dataset import sealed_files
from interp.core.documents import DEPTH, parse_json, parse_toml, seal, toml_text, unseal
from interp.core.errors import StoreError
from interp.core.table import HeadTable

LEAVES = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text()
PLAIN = st.recursive(
    LEAVES, lambda x: st.lists(x, max_size=4) | st.dictionaries(st.text(), x, max_size=4)
)
FIRST = st.sampled_from(["'", *FORMULA])


@given(PLAIN)
def test_what_json_writes_is_parsed_as_by_python(x) -> None:
    text = json.dumps(x)
    for content in (text, text.encode(), json.dumps(x, ensure_ascii=False)):
        assert json.dumps(parse_json(content)) == text


@over(
    "content",
    [
        "[" * 200_000,
        "[" * 200_000 + "]" * 200_000,
        '{"a":' * 200_000,
        "[" * (DEPTH + 1) + "]" * (DEPTH + 1),
        '["]",' * 150,
        "[" + "1" * 400 + "]",
        "[1e400]",
        "[-1E+999]",
        "[" + "1" * 9000 + "]",
    ],
)
def test_what_would_break_a_reader_is_refused(content: str) -> None:
    for given_content in (content, content.encode()):
        with pytest.raises(ValueError, match=r"nested deeper|digits|too large"):
            parse_json(given_content)


@over(
    "text",
    [
        "a = " + "[" * 20_000,
        "a = " + "[" * 150 + "]" * 150,
        "a = 1e400",
        ".".join("a" * 2_000) + " = 1",
        "a = 1" + "0" * 400,
    ],
)
def test_the_same_holds_for_toml(text: str) -> None:
    with pytest.raises(ValueError, match=r"nested deeper|digits|too large"):
        parse_toml(text)


def test_brackets_inside_of_strings_are_no_depth() -> None:
    told = [r"\"[[[\\", "{" * 500, '"' * 3, "]" * 500] * 100
    assert parse_json(json.dumps(told)) == told


def _leaves(x, at=()):
    if isinstance(x, (dict, list)):
        for key, inside in x.items() if isinstance(x, dict) else enumerate(x):
            yield from _leaves(inside, (*at, key))
    elif at:
        yield at


def changed(document, place, remove: bool):
    """A copy with one value changed, or left out."""
    document = copy.deepcopy(document)
    inside = document
    for key in place[:-1]:
        inside = inside[key]
    if remove:
        del inside[place[-1]]
        return document
    value = inside[place[-1]]
    inside[place[-1]] = f"{value}7" if isinstance(value, str) else 97.125
    return document


RESULTS = {"HeadTable": small, **EXAMPLES}


@over("name", sorted(RESULTS))
def test_a_changed_result_is_refused_and_found(name: str, tmp_path_factory) -> None:
    """Any value of any kind of result, changed or left out: our error, and `verify` names it."""
    folder = tmp_path_factory.mktemp("sealed")
    result = RESULTS[name]()
    path = folder / "result.json"
    result.save(path)
    assert type(result).load(path).equals(result) if name != "HeadTable" else True
    assert sealed_files(folder) == {path: ""}
    whole = json.loads(path.read_text())
    places = list(_leaves(whole))
    rng = random.Random(name)
    for place in rng.sample(places, min(2, len(places))):
        for remove in (False, True):
            path.write_text(json.dumps(changed(whole, place, remove)))
            with pytest.raises(StoreError):
                type(result).load(path)
            if place not in (("checksum",), ("format",)):
                assert sealed_files(folder)[path], (place, remove)


@over("suffix", [".json", ".toml", ".parquet", ".csv"])
def test_provenance_is_sealed_in_every_format(suffix: str, tmp_path_factory) -> None:
    """The checksum of rows said nothing of how they were made, nor of the sentences beside them."""
    folder = tmp_path_factory.mktemp("formats")
    path = folder / f"table{suffix}"
    small("tiny", "induction", provenance={"seed": 1234}).save(path)
    HeadTable.load(path)
    held = path if suffix != ".csv" else path.with_name(f"{path.name}.provenance.json")
    content = held.read_bytes()
    assert b"1234" in content
    if suffix == ".parquet":  # whose metadata stands twice in the file
        table = pq.read_table(held)
        notes = {k: x.replace(b"1234", b"9234") for k, x in table.schema.metadata.items()}
        pq.write_table(table.replace_schema_metadata(notes), held)
    else:
        held.write_bytes(content.replace(b"1234", b"9234"))
    with pytest.raises(StoreError, match=r"changed after it was written|damaged"):
        HeadTable.load(path)
    assert "changed after" in sealed_files(folder)[held]


@given(st.dictionaries(st.text(min_size=1), PLAIN))
def test_a_seal_is_of_what_is_said_and_not_of_its_order(said) -> None:
    said.pop("checksum", None)
    said.pop("rows_sha256", None)
    assert json.dumps(unseal(seal(said))) == json.dumps(said)
    assert unseal(dict(reversed(seal(said).items()))) is not None
    with pytest.raises(ValueError, match="was changed"):
        unseal(seal(said) | {"new": 1})


def test_a_document_of_an_older_version_says_so() -> None:
    with pytest.raises(ValueError, match="older version"):
        unseal({"format": "interp Result 1"})
    assert toml_text(seal({"a": None})).count("checksum") == 1


@given(st.builds(str.__add__, FIRST, st.text()) | st.text())
def test_no_cell_is_a_formula_and_every_text_comes_back(text: str) -> None:
    assert not written_cell(text).startswith(FORMULA)
    assert read_cell(written_cell(text)) == text


def test_tables_hold_no_formula(tmp_path) -> None:
    import pandas as pd

    frame = pd.DataFrame({"=a": ["=1+1", None, "x"], "n": [-1.5, 2.0, 3.0], "k": ["-", "+", "@"]})
    text = csv_text(frame)
    assert text.splitlines() == ["'=a,n,k", "'=1+1,-1.5,'-", ",2.0,'+", "x,3.0,'@"]
    table = small("=cmd|' /C calc'!A0", "'=induction")
    table.save(tmp_path / "t.csv")
    assert '"=' not in (tmp_path / "t.csv").read_text()
    assert HeadTable.load(tmp_path / "t.csv") == table


def test_no_entry_of_a_list_can_be_left_out_moved_or_added(tmp_path) -> None:
    documents = [{"a": 1}, {"a": 2}, {"a": 3}]
    sealed = seal(documents)
    assert unseal(sealed) == documents
    path = tmp_path / "verify.json"
    for wrong in (sealed[:2], sealed[1:], sealed[::-1], [*sealed, sealed[0]]):
        with pytest.raises(ValueError, match="added to it, moved or left out"):
            unseal(wrong)
        path.write_text(json.dumps(wrong))
        assert "moved or left out" in sealed_files(tmp_path)[path]
