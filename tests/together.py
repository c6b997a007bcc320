"""One test over many cases, which names every case that fails.

`@over` stands where `pytest.mark.parametrize` would and takes the same arguments. The cases share
one call of the fixtures, so a case must not change what another reads. `--case A,B` runs only the
cases whose names contain A or B.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest

CHOSEN = ""
"""What `--case` says: parts of names with commas between, or nothing for all cases."""

Test = Callable[..., None]
Cases = dict[str, dict[str, Any]]
Ids = Callable[[Any], str] | Sequence[str]


def over(
    names: str | tuple[str, ...], cases: Iterable[Any], ids: Ids | None = None
) -> Callable[[Test], Test]:
    """Run a test once per case and fail once, with the traceback of each case that failed."""
    names = tuple(n.strip() for n in names.split(",")) if isinstance(names, str) else names
    named: Cases = {}
    listed = None if ids is None or callable(ids) else iter(ids)
    for case in cases:
        name, values = _named(case, len(names), ids if callable(ids) else None)
        name = next(listed) if listed else name
        name = name if name not in named else f"{name} (case {len(named)})"
        named[name] = dict(zip(names, values, strict=True))

    def decorated(test: Test) -> Test:
        signature = inspect.signature(test)
        kept = [p for name, p in signature.parameters.items() if name not in names]
        cases = named
        if getattr(test, "over", None) is test:  # another `over` stands below: the product of both
            inner, test = test.cases, test.__wrapped__  # type: ignore[attr-defined]
            cases = {f"{a}-{b}": inner[a] | named[b] for b in named for a in inner}

        @functools.wraps(test)
        def together(**fixtures: Any) -> None:
            _run(test, cases, fixtures)

        together.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        together.cases, together.over = cases, together  # type: ignore[attr-defined]
        return together

    return decorated


def _named(case: Any, n: int, ids: Callable[[Any], str] | None) -> tuple[str, tuple[Any, ...]]:
    name = None
    if hasattr(case, "marks"):  # pytest.param
        assert not case.marks, "a case has no marks of its own; give them to the test"
        name, values = case.id, case.values
    else:
        values = (case,) if n == 1 else tuple(case)
    name = name or "-".join((ids or _word)(value) for value in values)
    return name, values


def _word(value: Any) -> str:
    return str(getattr(value, "__name__", value))


def _run(test: Test, named: Cases, fixtures: dict[str, Any]) -> None:
    parts = CHOSEN.split(",")
    chosen = {name: case for name, case in named.items() if any(part in name for part in parts)}
    if not chosen:
        pytest.skip(f"no case of this name; cases: {', '.join(named) or 'none'}")
    failed: list[Exception] = []
    skipped: list[str] = []
    for name, case in chosen.items():
        try:
            test(**case, **fixtures)
        except pytest.skip.Exception as skip:
            skipped.append(f"{name}: {skip}")
        except pytest.fail.Exception as error:
            failed.append(
                AssertionError(f"case {name}: {error}").with_traceback(error.__traceback__)
            )
        except Exception as error:
            error.add_note(f"case {name}")
            failed.append(error)
    if failed:
        raise ExceptionGroup(f"{len(failed)} of {len(chosen)} cases fail", failed)
    if len(skipped) == len(chosen):
        pytest.skip("; ".join(skipped))
