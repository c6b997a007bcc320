"""Finished steps: their values, what is kept of them, and what a damaged file does."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from core.kept import damage_one, finished, rows, unfinished
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interp.circuits import stored_steps
from interp.circuits.steps import advance, counted, following, step
from interp.circuits.stored_steps import Kept, step_as_json, step_from_json
from interp.core.errors import DamagedKept, StoreError

pytestmark = pytest.mark.usefixtures("every_step_kept")


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda x: (
        st.lists(x, max_size=3)
        | st.lists(x, max_size=3).map(tuple)
        | st.dictionaries(st.text() | st.tuples(st.text(), st.integers()), x, max_size=3)
    ),
    max_leaves=12,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # set once for all examples
@given(PLAIN)
def test_plain_data_comes_back_as_it_was(value) -> None:
    assert repr(step_from_json(step_as_json(value))) == repr(value)


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
    before, found, after = step_from_json(step_as_json([np.ones(3), {"x": array}, np.arange(2)]))
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
    with pytest.raises(KeyboardInterrupt), following(Kept(tmp_path, {}), None):
        course([], breaks=breaks)
    calls: list[str] = []
    with following(Kept(tmp_path, {}), None):
        found = course(calls)
    assert calls == again
    assert repr(found) == repr(course([]))
    calls.clear()
    with following(Kept(tmp_path, {}), None):
        assert repr(course(calls)) == repr(found)
    assert calls == []


def test_a_break_keeps_what_was_not_yet_due_on_disk(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(stored_steps, "EVERY", 1e9)
    with pytest.raises(KeyboardInterrupt), following(Kept(tmp_path, {}), None):
        course([], breaks="b")
    store = Kept(tmp_path, {})
    assert len(unfinished(tmp_path)) == 1  # the parts of a finished step are of no more use
    assert store.find((("first", 0),))[0]


def test_two_processes_may_add_to_one_file(tmp_path) -> None:
    """Each reads what the other one has added, and whoever comes later reads all."""
    first, second = Kept(tmp_path, {}), Kept(tmp_path, {})
    for number, store in enumerate((first, second, first, second)):
        store.add((("step", number),), [number] * 10**number)
        store.flush()
    first.steps.finish()
    for number in range(4):
        for store in (first, second, Kept(tmp_path, {})):
            assert store.find((("step", number),)) == (True, [number] * 10**number)
    second.add((("step", 4),), "after the other one has finished")
    second.flush()
    second.steps.finish()
    assert first.find((("step", 4),))[0]
    assert len(finished(tmp_path)) == 5


def test_the_steps_of_a_finished_run_are_in_parquet(tmp_path) -> None:
    with following(Kept(tmp_path, {}), None):
        course([])
        assert unfinished(tmp_path)
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]
    with following(Kept(tmp_path, {}), None):
        course(calls := [])
    assert calls == []
    assert [path.suffix for path in tmp_path.iterdir()] == [".parquet"]


def test_other_identities_have_other_files(tmp_path) -> None:
    for seed in (0, 1, 0):
        calls: list[str] = []
        with following(Kept(tmp_path, {"seed": seed}), None):
            course(calls)
    assert calls == []
    assert len(list(tmp_path.glob("*.steps.*.parquet"))) == 2


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
        with following(Kept(tmp_path, {}), None):
            assert isinstance(step("object", object), object)
            assert step("kept", lambda: [1]) == [1]
    assert len(rows(tmp_path)) == 1


def broken_off(folder) -> None:
    """A run that is broken off after its first step."""
    with pytest.raises(KeyboardInterrupt), following(Kept(folder, {}), None):
        course([], breaks="c")


@pytest.mark.parametrize("of", ["unfinished", "finished"])
@pytest.mark.parametrize("how", ["end", "half", "start", "nothing", "flipped", "header"])
def test_a_damaged_file_is_set_aside_and_made_again(tmp_path, of, how) -> None:
    if of == "unfinished":
        broken_off(tmp_path)
    else:
        with following(Kept(tmp_path, {}), None):
            course([])
    (path,) = tmp_path.iterdir()
    content = path.read_bytes()
    middle = content.rindex(b'"array"') if of == "unfinished" else 8
    damaged = {
        "end": content[:-1],
        "half": content[: len(content) // 2],
        "start": content[:10],
        "nothing": b"",
        "flipped": content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :],
        "header": b"x" * 24 + content[24:],
    }[how]
    path.write_bytes(damaged)
    calls: list[str] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with following(Kept(tmp_path, {}), None):
            assert repr(course(calls)) == repr(course([]))
    assert calls, "what was damaged cannot have been read"
    assert {w.category for w in told} <= {DamagedKept}
    if of == "finished" or how in ("half", "start", "flipped", "header"):  # not a byte of padding
        assert told
    with following(Kept(tmp_path, {}), None):  # and is whole again
        course(calls := [])
    assert calls == []
    with following(Kept(tmp_path, {"other": 1}), None):  # as is the file of other runs
        course([])


def test_a_damaged_step_is_made_again_and_the_others_stay(tmp_path) -> None:
    broken_off(tmp_path)
    name = damage_one(tmp_path)
    with pytest.warns(DamagedKept, match="damaged in a finished step, which is computed again"):
        assert name not in Kept(tmp_path, {}).steps.find(unfinished(tmp_path))
    calls: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with following(Kept(tmp_path, {}), None):
            assert repr(course(calls)) == repr(course([]))
    assert 0 < len(calls) < 5
    with following(Kept(tmp_path, {}), None):
        course(calls := [])
    assert calls == []


def test_a_file_of_something_else_is_set_aside(tmp_path) -> None:
    path = Kept(tmp_path, {}).steps.path
    path.write_bytes(b"something else\n" * 100)
    with pytest.warns(DamagedKept, match="it is set aside as"):
        assert not Kept(tmp_path, {}).find((("first", 0),))[0]
    assert path.with_name(f"{path.name}.damaged").read_bytes() == b"something else\n" * 100
    assert not Kept(tmp_path, {}).find((("first", 0),))[0]
    path.mkdir()
    with pytest.raises(StoreError, match="it is a folder"):
        Kept(tmp_path, {}).find((("first", 0),))
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="is a file, not a folder"):
        Kept(tmp_path / "file", {})


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
        with following(Kept(tmp_path, {}), tell), counted("outer", 5) as done:
            step("work", work)
            done(3)
            advance()
        assert told[-1] == ("outer", 5, 5)
        outer = [n for what, n, _ in told if what == "outer"]
        assert outer == sorted(outer)
        assert 4 in outer
    assert all(what == "outer" for what, _, _ in told)
