"""Sign convention of causal scores, and conversion of tables of earlier versions to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

HELPS = "(+ helps)"
"""Text after the unit of a signed score; `SIGN` states it in full."""
ALONE = "(+ better than the whole layer)"
"""Text after the unit of `all_but_one`."""
SIGN = "positive: the task goes better with the head than without it"


def sign_of(of: str, higher_is_better: bool, magnitude: bool = False) -> int:
    """Return the factor that turns a change of the task into a score positive for helpful heads."""
    return 1 if magnitude or (of == "presence") == higher_is_better else -1


def with_todays_sign(
    frame: pd.DataFrame, provenance: Mapping[tuple[str, str], Mapping[str, Any]]
) -> tuple[pd.DataFrame, dict[tuple[str, str], dict[str, Any]]]:
    """Convert rows and provenance so that every causal score is positive where the head helps.

    Earlier versions stored the change of the task value under removal or insertion of a head, so
    the sign of a helpful head depended on the method and the task. The provenance of such a score
    states both (`of`, `higher_is_better`) and has no `sign`. Magnitudes and scores that are not
    causal stay unchanged.
    """
    made = {key: dict(told) for key, told in provenance.items()}
    for (model, metric), told in made.items():
        if "of" not in told or "sign" in told or "higher_is_better" not in told:
            continue
        magnitude = metric.startswith("michel_")
        told["sign"] = "none" if magnitude else SIGN
        mine = (frame["model"] == model) & (frame["metric"] == metric)
        frame = frame.copy()
        if not magnitude and str(told.get("made_by", "")).startswith("interp.causal."):
            meaning = ALONE if metric.startswith("all_but_one") else HELPS
            frame["unit"] = frame["unit"].where(~mine, frame["unit"] + f" {meaning}")
        if sign_of(told["of"], bool(told["higher_is_better"]), magnitude) == 1:
            continue
        for column in ("score", "null"):
            frame[column] = frame[column].where(~mine, -frame[column] + 0.0)
        notes = [*told.get("notes", []), "sign turned on reading: written by an earlier version"]
        told["notes"] = notes
    return frame, made
