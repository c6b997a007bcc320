"""Notes of an importance as sentences: the meaning of the numbers below a table of heads."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from interp.causal.importance import Importance

# Internal to a method: written to the provenance, but not printed.
LEFT_OUT = ("efficiency_gap_before",)
_NOTHING = "below 1e-9"
# Sum of a method's values, if it differs from the joint effect of all heads.
_SUMS = {
    "banzhaf": "Banzhaf values need not add up to this",
    "truncated_shapley": "values of this method need not add up to this",
}


def explained_notes(found: Importance) -> list[str]:
    """Return sentences about the scores; a note without a sentence is shown unchanged.

    Numbers that are internal to the method are only in the provenance.
    """
    notes = {k: v for k, v in found.notes.items() if k not in LEFT_OUT}
    frame = found.table.to_pandas()
    unit = str(frame["unit"].iloc[0]).partition(" (+")[0] if len(frame) else ""
    lines = [_task_values(found, notes, unit)] if "v_clean" in notes else []
    for keys, sentence in _SENTENCES.items():
        if keys[0] in notes:
            text = sentence({k: notes.pop(k, None) for k in keys}, unit, method_name(found))
            lines += [text] if text else []
    return [*lines, *(f"{k.replace('_', ' ')}: {short(v)}" for k, v in notes.items())]


def _task_values(found: Importance, notes: dict[str, Any], unit: str) -> str:
    """Return what the task is with all heads, without all players, and without the first one."""
    clean, none = notes.pop("v_clean"), notes.pop("v_none")
    task = " ".join(["the task", *filter(None, [found.provenance.get("task")])])
    players = f"the {len(found.players.labels)} {found.players.kind.replace('kv_', 'key-value ')}"
    sentence = f"{task} is {short(clean)} {unit} with all heads and {short(none)} without {players}"
    if found.of != "removal" or not len(found.players.labels):
        return sentence
    first = found.order()[0]
    worse = -1 if found.higher_is_better else 1
    without = clean + worse * float(found.score[first])
    return f"{sentence}; without {found.players.labels[first]} alone it is {short(without)}"


def method_name(found: Importance) -> str:
    """Return the method of an importance, without its options."""
    return found.metric.partition(":")[0]


def short(x: object) -> str:
    """Format a number with four digits; rounding errors are not shown as numbers."""
    if not isinstance(x, float):
        return str(x)
    return _NOTHING if abs(x) < 1e-9 else f"{x:.4g}"


Notes = Mapping[str, Any]


def _whole(notes: Notes, unit: str, method: str) -> str:
    whole = short(notes["v_all_minus_v_none"])
    return f"joint effect of all heads: {whole} {unit} better than without them"


def _gap(notes: Notes, unit: str, method: str) -> str:
    gap = _size(notes["efficiency_gap"])
    sums = _SUMS.get(method, "the values of all heads add up to this")
    if gap == _NOTHING:
        return f"{sums}; this holds on every prompt"
    return f"{sums}; they differ from it by up to {gap} {unit} on a prompt"


def _evaluations(notes: Notes, unit: str, method: str) -> str:
    count, sem = f"{notes['evaluations']:,}", notes["sampling_sem"]
    if sem is None:
        return f"{count} sets of heads were run"
    if sem == 0:
        return (
            f"every set of heads was run, {count} besides the full and the empty one: no sampling "
            f"error"
        )
    if math.isnan(sem):
        return f"{count} sets of heads were run, too few to estimate the sampling error"
    return (
        f"{count} sets of heads were run; the sampling error is at most {short(sem)} {unit} and "
        f"is included in each ±"
    )


def _bias(notes: Notes, unit: str, method: str) -> str:
    """Compare the surrogate with orders that it was not fitted on."""
    return (
        f"the values come from a surrogate model fitted to the task: {notes['bias_check']} ({unit})"
    )


def _few(notes: Notes, unit: str, method: str) -> str:
    return str(notes["few_samples"])


def _fit(notes: Notes, unit: str, method: str) -> str:
    r2, factor = notes["check_r2"], notes["calibration"]
    lines = [] if r2 is None or math.isnan(r2) else [f"there it explains {r2:.1%} of the variation"]
    if factor is not None and factor > 1:
        lines.append(f"sampling errors are enlarged {factor:.3g} times to cover its misfit")
    return "; ".join(lines)


def _residual(notes: Notes, unit: str, method: str) -> str:
    miss = _size(notes["completeness_residual"])
    if miss == _NOTHING:
        return "the scores add up to the joint effect of all heads"
    return (
        f"the sum of the scores differs from the joint effect of all heads by {miss} {unit} on "
        f"average"
    )


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
"""Notes that are combined into one sentence, in reading order."""
