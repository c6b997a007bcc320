import io
import json
import math
import os
import struct
import subprocess
import sys
import tomllib

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import tomli_w
from core.examples import head_tables, small
from core.result_examples import EXAMPLES
from hypothesis import HealthCheck, given, settings
from together import over

from interp.core.columns import COLUMNS
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.table import HeadTable

FORMATS = ("csv", "json", "parquet", "toml")


def bits(table):
    """Every cell, floats by their 64 bits: NaN equals NaN and 0.0 differs from -0.0."""
    frame = table.wide()
    floats = [name for name, kind in COLUMNS.items() if kind is float]
    frame[floats] = frame[floats].to_numpy().view("int64")
    return frame.values.tolist()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", FORMATS)
@settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(table=head_tables())
def test_comes_back_bit_for_bit(tmp_path, suffix, table):
    path = tmp_path / f"table.{suffix}"
    table.save(path)
    back = HeadTable.load(path)
    assert bits(back) == bits(table)
    assert back.provenance == table.provenance
    assert back == table
    assert [*map(str, back.wide().dtypes)] == [*map(str, table.wide().dtypes)]


@pytest.mark.parametrize("suffix", FORMATS)
def test_the_hardest_cells_come_back(tmp_path, suffix):
    """A lone carriage return, NaN with a payload, -0.0, the smallest and the largest numbers."""
    payload = np.array([0x7FF8DEAD00000001], np.uint64).view(np.float64)[0]
    table = small(
        "\r",
        "a\nb",
        scores=[[-0.0, 5e-324], [1.7976931348623157e308, 0.1 + 0.2]],
        sem=payload,
        null=-math.inf,
        n=2**63 - 1,
        stack="",
        unit=',"#',
    )
    table.save(tmp_path / f"t.{suffix}")
    assert bits(HeadTable.load(tmp_path / f"t.{suffix}")) == bits(table)


@pytest.mark.parametrize("end", range(2, 40, 3))
def test_a_csv_cut_off_near_its_end_is_refused(tmp_path, end):
    path = tmp_path / "t.csv"
    path.write_text(small(unit="a").to_csv(path)[:-end])
    with pytest.raises(StoreError, match="is not a table of head scores, or is damaged"):
        HeadTable.load(path)


@pytest.mark.parametrize("name", ["p", "kind", "clusters"])
def test_a_table_without_one_of_the_columns_is_refused(tmp_path, name):
    frame = small().wide().drop(columns=name)
    whole = json.loads(small().to_json())
    for row in whole["rows"]:
        del row[name]
    (tmp_path / "t.json").write_text(json.dumps(whole))
    with pytest.raises(StoreError, match=rf"not a table of head scores.*{name}"):
        HeadTable.load(tmp_path / "t.json")
    with pytest.raises(OptionError, match=rf"other columns: {name} \(missing\)"):
        HeadTable(frame, small().provenance)


def test_other_programs_can_read_the_files(tmp_path):
    table = small('a,"b\nc', null=math.inf, sem=math.nan)
    frame = table.wide()
    csv = table.to_csv(tmp_path / "t.csv")
    for source in (io.StringIO(csv), tmp_path / "t.csv"):  # pandas reads an empty text as NaN
        read = pd.read_csv(source, keep_default_na=False, na_values=["nan"])
        pd.testing.assert_frame_equal(read, frame)
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path_parquet(table, tmp_path)), frame)
    strict = json.loads(table.to_json(), parse_constant=pytest.fail)  # NaN is no JSON
    assert strict["rows"][1] == frame.iloc[1].to_dict() | {
        "sem": None,
        "low": None,
        "high": None,
        "null": "Infinity",
        "null_sem": None,
        "null_sd": None,
        "p": None,
    }


def tmp_path_parquet(table, tmp_path):
    table.to_parquet(tmp_path / "t.parquet")
    assert "interp.provenance" in {
        k.decode() for k in pq.read_schema(tmp_path / "t.parquet").metadata
    }
    return tmp_path / "t.parquet"


@over("suffix", FORMATS)
@over("part", [0.0, 0.3, 0.6, 0.99])
def test_a_truncated_file_is_named(tmp_path, suffix, part):
    path = tmp_path / f"table.{suffix}"
    small().save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(part * len(whole))])
    with pytest.raises(
        StoreError, match=rf"table\.{suffix} is not a table of head scores, or is damaged"
    ):
        HeadTable.load(path)


def without_last_row(path):
    """Remove the last row of a file of rows, which stays a valid file of its format."""
    text = "" if path.suffix == ".parquet" else path.read_text()
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        pq.write_table(table.slice(0, len(table) - 1), path)
    elif path.suffix == ".csv":
        path.write_text("".join(text.splitlines(keepends=True)[:-1]))
    else:
        whole = json.loads(text) if path.suffix == ".json" else tomllib.loads(text)
        whole["rows"].pop()
        path.write_text(json.dumps(whole) if path.suffix == ".json" else tomli_w.dumps(whole))


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("kind", ["table", "result"])
def test_a_row_missing_from_a_valid_file_is_noticed(tmp_path, suffix, kind):
    path = tmp_path / f"t.{suffix}"
    result = small() if kind == "table" else EXAMPLES["Differences"]()
    result.save(path)
    assert len(type(result).load(path)) == len(result) > 1
    without_last_row(path)
    with pytest.raises(StoreError, match="some are missing or changed"):
        type(result).load(path)


@pytest.mark.parametrize("kind", ["table", "result"])
def test_a_csv_is_plain_and_its_record_stands_beside_it(tmp_path, kind):
    result = small() if kind == "table" else EXAMPLES["Differences"]()
    result.save(tmp_path / "t.csv")
    frame = pd.read_csv(tmp_path / "t.csv")
    assert list(frame.columns)[:1] == ["model"]
    assert len(frame) == len(result)
    assert json.loads((tmp_path / "t.csv.provenance.json").read_text())
    (tmp_path / "t.csv.provenance.json").unlink()
    with pytest.raises(StoreError, match=r"t\.csv has no t\.csv\.provenance\.json beside it"):
        type(result).load(tmp_path / "t.csv")


def test_a_fifo_in_place_of_a_file_is_one_error(tmp_path):
    os.mkfifo(tmp_path / "t.parquet")
    with pytest.raises(StoreError, match=r"cannot read .*t\.parquet: it is not a regular file"):
        HeadTable.load(tmp_path / "t.parquet")


def test_a_flipped_bit_in_parquet_is_refused(tmp_path):
    path = tmp_path / "t.parquet"
    small(scores=[[0.123456789, 0.9]]).to_parquet(path)
    content = bytearray(path.read_bytes())
    content[content.index(struct.pack("<d", 0.123456789))] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        HeadTable.load(path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_another_file_of_that_kind_is_refused(tmp_path, suffix):
    path = tmp_path / f"other.{suffix}"
    frame = pd.DataFrame({"a": [1]})
    if suffix == "toml":
        path.write_text("a = 1")
    else:
        getattr(frame, f"to_{suffix}")(path)
        (tmp_path / f"{path.name}.provenance.json").write_text("{}")
    with pytest.raises(StoreError, match=r"other\..* is not a table of head scores"):
        HeadTable.load(path)


def test_missing_and_unknown_files(tmp_path):
    with pytest.raises(StoreError, match=r"cannot read .*gone\.csv: No such file"):
        HeadTable.load(tmp_path / "gone.csv")
    with pytest.raises(UnknownName, match=r"unknown table format '\.xlsx'"):
        HeadTable.load("t.xlsx")


def test_importing_the_table_imports_nothing_heavy():
    code = (
        "import sys, interp.core.table, interp.core.head, interp.core.store, interp.report;"
        "import interp.draw.charts;"
        "print({'torch', 'transformers', 'pandas', 'plotly', 'pyarrow'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("clusters", 9, "more clusters than prompts"),
        ("p", 1.5, "p is not a probability"),
        ("null_sd", -1.0, "null_sd is not a standard error"),
    ],
)
def test_new_columns_are_checked(column, value, why):
    with pytest.raises(OptionError, match=why):
        small(**{column: value})


def test_a_folder_that_is_missing_is_empty_and_a_file_is_none(tmp_path):
    from interp.core.files import exists, listed

    assert listed(tmp_path / "gone") == []
    (tmp_path / "b").write_text("")
    (tmp_path / "a").write_text("")
    assert [path.name for path in listed(tmp_path)] == ["a", "b"]
    assert exists(tmp_path / "a")
    assert not exists(tmp_path / "c")
    for call in (listed, lambda file: exists(file / "inside")):
        with pytest.raises(StoreError, match="is a file or lies in one; choose another folder"):
            call(tmp_path / "a")
