"""The notes of an importance as sentences: what the numbers below a table of heads mean."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.causal.importance import Importance

# Of the working of a method, and in the provenance of what is written, but no help in reading.
LEFT_OUT = ("efficiency_gap_before",)
_NOTHING = "below 1e-9"
# What the values of a method add up to, where it is not what all heads do together.
_SUMS = {
    "shapley_per_layer": "the values of each layer add up to what its heads do beside the others",
    "banzhaf": "Banzhaf values need not add up to this",
    "truncated_shapley": "values of this method need not add up to this",
}


def explained_notes(found: Importance) -> list[str]:
    """Sentences about the scores; a note that has no sentence is shown as it is.

    Numbers that only the method needs stay in the provenance.
    """
    notes = {k: v for k, v in found.notes.items() if k not in LEFT_OUT}
    frame = found.table.to_pandas()
    unit = str(frame["unit"].iloc[0]).partition(" (+")[0] if len(frame) else ""
    told = []
    for keys, sentence in _SENTENCES.items():
        if keys[0] in notes:
            text = sentence({k: notes.pop(k, None) for k in keys}, unit, method_name(found))
            told += [text] if text else []
    return [*told, *(f"{k.replace('_', ' ')}: {short(v)}" for k, v in notes.items())]


def method_name(found: Importance) -> str:
    """The method of an importance, without its options."""
    return found.metric.partition(":")[0]


def short(x: object) -> str:
    """A number in four digits; what is left of rounding is no number to read."""
    if not isinstance(x, float):
        return str(x)
    return _NOTHING if abs(x) < 1e-9 else f"{x:.4g}"


Notes = Mapping[str, Any]


def _whole(notes: Notes, unit: str, method: str) -> str:
    whole = short(notes["v_all_minus_v_none"])
    return f"all heads together: {whole} {unit} better than none of them"


def _gap(notes: Notes, unit: str, method: str) -> str:
    gap = _size(notes["efficiency_gap"])
    sums = _SUMS.get(method, "the values of all heads add up to this")
    if gap == _NOTHING:
        return f"{sums}; they do on every prompt"
    return f"{sums}; they miss it by up to {gap} {unit} on a prompt"


def _evaluations(notes: Notes, unit: str, method: str) -> str:
    count, sem = f"{notes['evaluations']:,}", notes["sampling_sem"]
    if sem is None:
        return f"{count} sets of heads were run"
    if sem == 0:
        return f"every set of heads was run, {count} besides all and none: no sampling error"
    if math.isnan(sem):
        return f"{count} sets of heads were run, too few to know the sampling error"
    return (
        f"{count} sets of heads were run; the sampling error is {short(sem)} {unit} at most, and"
        " is part of each ±"
    )


def _bias(notes: Notes, unit: str, method: str) -> str:
    """The surrogate against orders that it was not fitted on."""
    return f"the values come from a fitted model of the task: {notes['bias_check']} ({unit})"


def _few(notes: Notes, unit: str, method: str) -> str:
    return str(notes["few_samples"])


def _fit(notes: Notes, unit: str, method: str) -> str:
    r2, factor = notes["check_r2"], notes["calibration"]
    told = [] if r2 is None or math.isnan(r2) else [f"there it explains {r2:.1%} of the variation"]
    if factor is not None and factor > 1:
        told.append(f"sampling errors are widened {factor:.3g} times to cover what it missed")
    return "; ".join(told)


def _residual(notes: Notes, unit: str, method: str) -> str:
    miss = _size(notes["completeness_residual"])
    if miss == _NOTHING:
        return "the scores add up to what all heads do together"
    return f"the scores miss what all heads do together by {miss} {unit} on average"


def _null(notes: Notes, unit: str, method: str) -> str:
    return f"no null: {str(notes['null']).removeprefix('none: ')}"


def _truncated(notes: Notes, unit: str, method: str) -> str:
    return f"biased: {str(notes['bias']).removeprefix('truncated: ')}"


def _size(x: float) -> str:
    return short(abs(float(x)))


_SENTENCES: dict[tuple[str, ...], Callable[[Notes, str, str], str]] = {
    ("v_all_minus_v_none",): _whole,
    ("efficiency_gap",): _gap,
    ("completeness_residual",): _residual,
    ("bias",): _truncated,
    ("evaluations", "sampling_sem"): _evaluations,
    ("bias_check", "surrogate_bias", "surrogate_bias_sem", "check_pairs"): _bias,
    ("few_samples",): _few,
    ("calibration", "check_r2"): _fit,
    ("null",): _null,
}
"""Notes that belong in one sentence, in the order of reading."""
