"""Finished steps: what they give back, what is kept of them, and what a damaged file does."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interp.circuits import steps_file
from interp.circuits.steps import advance, counted, following, step
from interp.circuits.steps_file import Store, _decoded, _encoded
from interp.core.errors import DamagedKept, StoreError


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Every finished step is on disk when the next one begins."""
    monkeypatch.setattr(steps_file, "EVERY", 0.0)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: (
        st.lists(x, max_size=3)
        | st.lists(x, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.tuples(st.text(), st.integers()), x, max_size=3)
    ),
    max_leaves=12,
)


@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value) -> None:
    assert repr(_decoded(_encoded((), value))) == repr(value)


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.5, math.nan], [-0.0, math.inf]]),
        np.zeros((0, 3), dtype=np.float32),
        np.arange(12).reshape(3, 4).T,
        np.array(2.5),
        np.array([True, False]),
        np.float32(0.1),
        np.int64(-3),
    ],
)
def test_arrays_come_back_to_the_last_bit(array) -> None:
    """Among other arrays, whose bytes stand beside theirs; and they may be written to."""
    before, found, after = _decoded(_encoded((), [np.ones(3), {"x": array}, np.arange(2)]))
    found = found["x"]
    assert type(found) is type(array)
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    assert found.tobytes() == array.tobytes()
    np.testing.assert_array_equal(before, np.ones(3))
    np.testing.assert_array_equal(after, [0, 1])
    if isinstance(found, np.ndarray):
        found[...] = 0


def course(calls: list[str], *, breaks: str = "") -> tuple:
    """Two steps, the first of three parts."""

    def make(name: str, value: float):
        def work() -> np.ndarray:
            if name == breaks:
                raise KeyboardInterrupt
            calls.append(name)
            return np.array([value])

        return work

    def first() -> list:
        return [step("part", make(f"a{i}", float(i))) for i in range(3)]

    return step("first", first), step("second", make("b", 9.0)), step("second", make("c", 8.0))


@pytest.mark.parametrize(
    ("breaks", "again"),
    [
        ("a0", ["a0", "a1", "a2", "b", "c"]),
        ("a2", ["a2", "b", "c"]),
        ("b", ["b", "c"]),
        ("c", ["c"]),
    ],
)
def test_what_is_finished_is_not_made_again(tmp_path, breaks, again) -> None:
    with pytest.raises(KeyboardInterrupt), following(Store(tmp_path, {}), None):
        course([], breaks=breaks)
    calls: list[str] = []
    with following(Store(tmp_path, {}), None):
        found = course(calls)
    assert calls == again
    assert repr(found) == repr(course([]))
    calls.clear()
    with following(Store(tmp_path, {}), None):
        assert repr(course(calls)) == repr(found)
    assert calls == []


def test_a_break_keeps_what_was_not_yet_due_on_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(steps_file, "EVERY", 1e9)
    with pytest.raises(KeyboardInterrupt), following(Store(tmp_path, {}), None):
        course([], breaks="b")
    store = Store(tmp_path, {})
    assert len(store) == 1  # the parts of a finished step are of no more use
    assert store.find((("first", 0),))[0]


def test_two_processes_may_add_to_one_file(tmp_path) -> None:
    """Each reads back its own, and whoever comes later reads both."""
    first, second = Store(tmp_path, {}), Store(tmp_path, {})
    for number, store in enumerate((first, second, first, second)):
        store.add((("step", number),), [number] * 10**number)
        store.flush()
    third = Store(tmp_path, {})
    for number in range(4):
        for store in ((first, second)[number % 2], third):
            assert store.find((("step", number),)) == (True, [number] * 10**number)
    content = third.path.read_bytes()
    third.path.write_bytes(content[:-9] + b"xxxxxxxxx")
    with pytest.raises(StoreError, match="was changed while it was in use; run again"):
        third.find((("step", 3),))


def test_other_identities_have_other_files(tmp_path) -> None:
    for seed in (0, 1, 0):
        calls: list[str] = []
        with following(Store(tmp_path, {"seed": seed}), None):
            course(calls)
    assert calls == []
    assert len(list(tmp_path.glob("*.steps"))) == 2


def test_outside_a_run_steps_are_calls() -> None:
    calls: list[str] = []
    course(calls)
    course(calls)
    assert len(calls) == 10
    with counted("x", 3) as done:
        advance()
        done(3)


def test_what_is_no_plain_data_is_made_again(tmp_path) -> None:
    for _ in range(2):
        with following(Store(tmp_path, {}), None):
            assert isinstance(step("object", object), object)
            assert step("kept", lambda: [1]) == [1]
    assert len(Store(tmp_path, {})) == 1


def test_a_damaged_end_is_made_again(tmp_path) -> None:
    with following(Store(tmp_path, {}), None):
        whole = course([])
    (path,) = tmp_path.glob("*.steps")
    content = path.read_bytes()
    starts = content.index(b"\n") + 1
    for damaged in (
        content[:-1],
        content[: len(content) // 2],
        content[:starts],
        content[: starts - 3],  # cut off in the first line
        b"",
        content[:-1] + bytes([content[-1] ^ 1]),
        content[:starts] + b"\xff" * 12 + content[starts + 12 :],  # a size beyond all memory
    ):
        path.write_bytes(damaged)
        calls: list[str] = []
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            with following(Store(tmp_path, {}), None):
                assert repr(course(calls)) == repr(whole)
        assert calls, "what was damaged cannot have been read"
        changed = len(damaged) == len(content) and damaged[:starts] == content[:starts]
        assert len(told) == (changed and damaged[starts:][:8] == content[starts:][:8])
        with following(Store(tmp_path, {}), None):  # and is whole again
            course(calls := [])
        assert calls == []


def test_a_file_of_something_else_is_set_aside(tmp_path) -> None:
    path = Store(tmp_path, {}).path
    path.write_bytes(b"something else\n")
    with pytest.warns(DamagedKept, match="it is set aside as"):
        assert len(Store(tmp_path, {})) == 0
    assert path.with_name(f"{path.name}.damaged").read_bytes() == b"something else\n"
    assert len(Store(tmp_path, {})) == 0
    path.unlink()
    path.mkdir()
    with pytest.raises(StoreError, match="cannot read"):
        Store(tmp_path, {})
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file, not a folder"):
        Store(tmp_path / "file", {})


def test_counts_are_told_and_never_fall(tmp_path) -> None:
    told: list[tuple[str, int, int]] = []

    def tell(what: str, done: int, total: int) -> None:
        told.append((what, done, total))

    def work() -> int:
        with counted("inner", 2):
            advance()
        advance(2)
        return 1

    for _ in range(2):  # finished steps count as well, in one go
        told.clear()
        with following(Store(tmp_path, {}), tell), counted("outer", 5) as done:
            step("work", work)
            done(3)
            advance()
        assert told[-1] == ("outer", 5, 5)
        outer = [n for what, n, _ in told if what == "outer"]
        assert outer == sorted(outer)
        assert 4 in outer
    assert all(what == "outer" for what, _, _ in told)
