"""Positions at which a detector of segments can have targets, found without running the model.

Its predicate is called once with values of which nothing is known, except that a segment is none of
those that the stack cannot have. If the answer is False for any positions and tokens, it has no
target there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from interp.core.chat import ROLES, THINKING
from interp.core.errors import PromptError, UnknownName
from interp.model.calls.sites import APART, POOLING
from interp.model.segments import NAMES, OF_ROLES, possible_segments, read_inputs
from interp.model.views import view_for

if TYPE_CHECKING:
    from interp.core.prompts import Prompts
    from interp.heads.declaration import BoundAnalysis
    from interp.model.calls.sites import Site
    from interp.model.model import Model


class _Value:
    """A value that is True, False or not known (None); the result of most operations is unknown."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, truth: bool | None = None) -> None:
        self.truth = truth

    def __and__(self, other: Any) -> _Value:
        both = self.truth, _truth(other)
        return _Value(False if False in both else True if both == (True, True) else None)

    def __or__(self, other: Any) -> _Value:
        return ~(~self & ~_Value(_truth(other)))

    __rand__, __ror__ = __and__, __or__

    def __invert__(self) -> _Value:
        return _Value(None if self.truth is None else not self.truth)

    def __bool__(self) -> bool:
        raise TypeError("a value of which nothing is known has no truth")

    def __getattr__(self, name: str) -> Any:
        return lambda *given, **options: _Value()

    def __eq__(self, other: object) -> Any:
        return _Value()

    def __ne__(self, other: object) -> Any:
        return _Value()


for _name in (
    *("lt", "le", "gt", "ge", "neg", "abs", "getitem", "xor", "rxor"),
    *(
        f"{side}{op}"
        for op in ("add", "sub", "mul", "floordiv", "mod", "truediv", "pow")
        for side in ("", "r")
    ),
):
    setattr(_Value, f"__{_name}__", lambda *given: _Value())


def _truth(x: Any) -> bool | None:
    return x.truth if isinstance(x, _Value) else bool(x)


class _Named:
    """The segment at an unknown position, one of those that are possible."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, possible: frozenset[str], asked: set[str]) -> None:
        self.possible, self.asked = possible, asked

    def __eq__(self, other: object) -> Any:
        if isinstance(other, _Named):
            apart = not self.possible & other.possible
            return _Value(False if apart else None)
        if not isinstance(other, str):
            return _Value()  # the kernels report it with the detector's name
        if other not in NAMES:
            raise UnknownName("segment", other, NAMES)
        self.asked.add(other)
        are = {other in name.split("/") for name in self.possible}
        return _Value(None if len(are) > 1 else are == {True})

    def __ne__(self, other: object) -> Any:
        return ~(self == other)


class _Segments:
    def __init__(self, queries: frozenset[str], keys: frozenset[str], asked: set[str]) -> None:
        self._of, self._asked = (queries, keys), asked

    def __getitem__(self, index: Any) -> _Named:
        return _Named(self._of[1], self._asked)

    @property
    def queries(self) -> _Segments:
        return _Segments(self._of[0], self._of[0], self._asked)

    @property
    def keys(self) -> _Segments:
        return _Segments(self._of[1], self._of[1], self._asked)


def lacking_segments(
    bound: BoundAnalysis, model: Model, site: Site, inputs: Mapping[str, Any] | None = None
) -> tuple[set[str], set[str]] | None:
    """Return the segments that a detector names in vain at a site, and those that are possible.

    None if it may have targets there.
    """
    queries, keys = possible_segments(model, site, inputs)
    asked: set[str] = set()
    segments = _Segments(queries, keys, asked)
    try:
        held = bound.analysis.predicate(_Value(), _Value(), _Value(), segments, **bound.options)
    except UnknownName:
        raise
    except Exception:  # an operation that unknown values do not have: its targets decide
        return None
    if _truth(held) is not False:
        return None
    have = {part for name in queries | keys for part in name.split("/")}
    return asked - have, have


def require_segments(
    bound: BoundAnalysis, model: Model, prompts: Prompts | Mapping[str, Any]
) -> None:
    """Check that what a metric names by segments can be on these prompts.

    A detector needs targets; a measure of the queries of a segment needs such queries, and roles as
    its keys need prompts whose roles are known.
    """
    view = view_for(model, prompts)
    why_not = _why_without if bound.analysis.reads_segments else _why_unmeasured
    why = why_not(bound, view, view.sites, read_inputs(prompts))
    if why is not None:
        raise PromptError(why)


def why_no_segments(bound: BoundAnalysis, model: Model) -> str | None:
    """Return why a detector that names segments has no target on any prompt of a model, or None."""
    if model.elsewhere is not None:
        return f"{bound.label}: segments of prompts are not known where {model.name} runs"
    return _why_without(bound, model, model.joint_sites or model.sites, None)


def _why_unmeasured(
    bound: BoundAnalysis, model: Model, sites: Iterable[Site], inputs: Mapping[str, Any]
) -> str | None:
    """Return why a measure has no queries or keys of the segments that it names, or None."""
    queries, keys = (str(bound.options.get(name, "")) for name in ("queries", "segment"))
    needed = {queries} & {*NAMES}
    # keys may be absent and then get no mass; but only chats tell which roles are absent
    needed |= set() if OF_ROLES in inputs else {keys} & {*ROLES, THINKING}
    if not needed:
        return None
    possible = {
        site.stack: possible_segments(model, site, inputs)[1]
        for site in sites
        if site.stack not in APART
    }
    have = {
        stack: {part for name in names for part in name.split("/")}
        for stack, names in possible.items()
    }
    missing = needed - set().union(*have.values())
    return _lacking(bound, model, missing, have, inputs) if missing else None


def _why_without(
    bound: BoundAnalysis, model: Model, sites: Iterable[Site], inputs: Mapping[str, Any] | None
) -> str | None:
    missing: set[str] = set()
    there: dict[str, set[str]] = {}
    for site in sites:
        if site.stack == POOLING:  # its query has no segment
            continue
        if bound.analysis.sequences == ("one" if site.stack == "cross" else "two"):
            continue
        lacks = lacking_segments(bound, model, site, inputs)
        if lacks is None:
            return None
        missing |= lacks[0]
        there[site.stack] = lacks[1]
    if not there:  # no attention reads these sequences: the metric is refused for that
        return None
    return _lacking(bound, model, missing, there, inputs)


def _lacking(
    bound: BoundAnalysis,
    model: Model,
    missing: set[str],
    there: Mapping[str, set[str]],
    inputs: Mapping[str, Any] | None,
) -> str:
    """Return the sentence on segments that prompts do not have."""
    whose = f"{'' if inputs is None else 'the '}prompts of {model.name}"
    listed = {stack: ", ".join(n for n in NAMES if n in names) for stack, names in there.items()}
    have = "; ".join(f"{stack}: {names or 'none'}" for stack, names in listed.items())
    named = " or ".join(repr(name) for name in NAMES if name in missing)
    if not named:
        return f"{bound.label} names no segment that {whose} can combine so ({have})"
    of_chats = missing & {*ROLES, THINKING} and OF_ROLES not in (inputs or {})
    return (
        f"{bound.label} names the segment {named}, which {whose} do not have ({have}); give "
        "prompts that hold it to a model that reads it, or name a segment that is there"
        + ("; roles are known of chats that are given as messages" if of_chats else "")
    )
