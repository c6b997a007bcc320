"""A test over many cases runs each, names all that fail, and skips only where all do."""

from __future__ import annotations

import inspect

import pytest
import together
from together import over


def test_every_case_runs_and_each_failure_is_named() -> None:
    ran = []

    @over(("a", "b"), [(1, 2), (3, 4), pytest.param(5, 6, id="last"), (1, 2)])
    def check(a: int, b: int, limit: int) -> None:
        ran.append((a, b))
        if a == 3:
            pytest.fail("three")
        assert b < limit

    with pytest.raises(ExceptionGroup, match="2 of 4 cases") as raised:
        check(limit=5)
    assert ran == [(1, 2), (3, 4), (5, 6), (1, 2)]
    first, second = raised.value.exceptions
    assert str(first) == "case 3-4: three"
    assert second.__notes__ == ["case last"]


def test_a_fixture_is_asked_for_and_a_parameter_is_not() -> None:
    @over("a", [1, 2])
    @over("b", [1, 2])
    def check(a: int, b: int, tmp_path: object) -> None:
        assert a * b < 5

    assert [*inspect.signature(check).parameters] == ["tmp_path"]
    check(tmp_path=None)
    assert [*check.cases] == ["1-1", "2-1", "1-2", "2-2"]  # type: ignore[attr-defined]


def test_skipped_is_only_what_skips_in_every_case() -> None:
    @over("a", [1, 2])
    def check(a: int, last: int) -> None:
        if a <= last:
            pytest.skip("too small")

    check(last=1)
    with pytest.raises(pytest.skip.Exception, match="1: too small; 2: too small"):
        check(last=2)


def test_cases_are_chosen_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = []

    @over("a", ["one", "two"])
    def check(a: str) -> None:
        ran.append(a)

    monkeypatch.setattr(together, "CHOSEN", "tw")
    check()
    assert ran == ["two"]
    monkeypatch.setattr(together, "CHOSEN", "one,three")
    check()
    assert ran == ["two", "one"]
    monkeypatch.setattr(together, "CHOSEN", "three")
    with pytest.raises(pytest.skip.Exception, match="cases: one, two"):
        check()


def test_a_case_with_a_mark_is_refused() -> None:
    with pytest.raises(AssertionError, match="marks of its own"):
        over("a", [pytest.param(1, marks=pytest.mark.slow)])
