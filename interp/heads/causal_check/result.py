"""Result of a causal check: one row per score and task."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from interp.core.json_document import json_document
from interp.core.presenter import present
from interp.core.result import Result
from interp.heads.causal_check.conclusion import Conclusion, conclusion_of
from interp.heads.causal_check.head_transfer import HeadTransfer, restored_transfers
from interp.heads.causal_check.one_check import CausalCheck

if TYPE_CHECKING:
    import pandas as pd


_TUPLES = ("heads", "alone", "alone_sem")
_CHECKED = [f.name for f in fields(CausalCheck)]


@dataclass(frozen=True)
class Confirmation(Result):
    """Causal checks of every score on every task, with their provenance.

    Each row is a check: its score is the damage from ablating the top heads, its null the median
    damage from a random set of the same layers. `difference` and `ratio` have bootstrap intervals
    at the level of the check; the damage itself has none.

    A head of a score is also tested by itself: `CausalCheck.transfers` has the damage with its
    output from a prompt with another answer, and from one with the same answer that is reached
    otherwise (see `HeadTransfer`), and `failing` the heads that pass ablation and fail transfer.

    Args:
        checks: the checks.
        provenance: the model, the tasks, and why checks are missing.
        conclusions: what the checks of each score show, also after `top`; every output prints these
            sentences.
    """

    checks: tuple[CausalCheck, ...]
    provenance: Mapping[str, Any] = field(repr=False)
    conclusions: Mapping[str, Conclusion] = field(default_factory=dict)
    per_prompt = None
    why_no_per_prompt = "a causal check stores intervals over prompts, not per-prompt values"
    _units = ("task", "purpose", "heads")
    _per_row = ("checks",)
    _holds = (CausalCheck, Conclusion, HeadTransfer)
    _same_as = MappingProxyType({"score": "damage", "n": "n_prompts", "clusters": "n_clusters"})

    def __post_init__(self) -> None:
        if not self.conclusions:
            metrics = dict.fromkeys([*(c.metric for c in self.checks), *self.notes])
            conclusions = {metric: self._conclusion(metric) for metric in metrics}
            object.__setattr__(self, "conclusions", conclusions)

    def __iter__(self) -> Iterator[CausalCheck]:
        return iter(self.checks)

    def __len__(self) -> int:
        return len(self.checks)

    @property
    def notes(self) -> Mapping[str, str]:
        """Reason, by score, for which it was not checked on its own task."""
        return self.provenance.get("notes", {})

    @property
    def failing(self) -> Mapping[str, tuple[HeadTransfer, ...]]:
        """Heads by score that pass ablation and fail transfer; no scores without any."""
        return {c.metric: c.failing for c in self.checks if c.failing}

    def _conclusion(self, metric: str) -> Conclusion:
        mine = {c.purpose: c for c in self.checks if c.metric == metric}
        reason = self.notes.get(metric, "")
        check = mine.get("own") or mine.get("given")
        if check is None and not reason:
            check = mine.get("plain")  # of a score without a task of its own
        none = self.provenance.get("transfer_notes", {}).get(metric, "no other form was asked for")
        return conclusion_of(check, mine.get("transfer"), reason, none)

    def of(self, metric: str, purpose: str) -> CausalCheck:
        """Return one row; raise KeyError if there is none."""
        matches = [c for c in self.checks if (c.metric, c.purpose) == (metric, purpose)]
        if not matches:
            raise KeyError(f"{metric} was not checked on its {purpose} task")
        return matches[0]

    def _completed(self, rows: pd.DataFrame) -> pd.DataFrame:
        if not len(rows):
            rows = rows.reindex(columns=[*rows.columns, *_CHECKED])
        worse = rows["clean"] - rows["random"]
        sign = 2.0 * rows["higher_is_better"].astype(bool) - 1.0
        return super()._completed(rows.assign(null=worse.astype(float) * sign))

    def _rows(self) -> pd.DataFrame:
        """Return one row per score and task."""
        import pandas as pd

        rows = [
            asdict(c)
            | {"heads": " ".join(c.heads), "at_chance": c.at_chance, "doubts": " ".join(c.doubts())}
            | {name: " ".join(map(repr, getattr(c, name))) for name in ("alone", "alone_sem")}
            | {"transfers": "; ".join(one.summary() for one in c.transfers)}
            | self._concluded(c)
            for c in self.checks
        ]
        return pd.DataFrame(rows)

    def _concluded(self, check: CausalCheck) -> dict[str, str]:
        conclusion = self.conclusions[check.metric]
        return {"verdict": conclusion.verdict, "conclusion": conclusion.sentence}

    def to_json(self) -> str:
        """Return rows and provenance as JSON-compatible data, with NaN as null."""
        rows = [
            {k: _plain(v) for k, v in asdict(c).items()}
            | {"at_chance": c.at_chance, "doubts": c.doubts()}
            | self._concluded(c)
            for c in self.checks
        ]
        concluded = {metric: asdict(one) for metric, one in self.conclusions.items()}
        document = {"checks": rows, "conclusions": concluded, "provenance": dict(self.provenance)}
        return json_document(document, indent=1).decode()

    def __repr__(self) -> str:
        lines = []
        for c in self:
            lines.append(f"{c.metric} ({', '.join(c.heads)}), {c.purpose}: {c.summary()}")
            lines += [f"  {doubt}" for doubt in c.doubts()]
        lines += [f"{metric}: {one.sentence}" for metric, one in self.conclusions.items()]
        return "\n".join(lines)


def _plain(value: Any) -> Any:
    """Return a value as JSON data, with null for NaN."""
    if isinstance(value, tuple):
        return [_plain(x) for x in value]
    if isinstance(value, dict):
        return {k: _plain(x) for k, x in value.items()}
    return None if isinstance(value, float) and math.isnan(value) else value


def _restored(row: Mapping[str, Any], numbers: set[str]) -> dict[str, Any]:
    """Return the fields of a check: tuples, and NaN where JSON has null for a number."""
    values = {
        name: math.nan if name in numbers and row[name] is None else row[name] for name in _CHECKED
    }
    each = {name: tuple(math.nan if x is None else x for x in row[name]) for name in _TUPLES}
    return values | each | {"transfers": restored_transfers(row["transfers"])}


def confirmation_of(values: Mapping[str, Any]) -> Confirmation:
    """Restore checks from the output of `Confirmation.to_json`."""
    from interp.core.errors import StoreError

    number = {f.name for f in fields(CausalCheck) if f.type == "float"}
    try:
        checks = [CausalCheck(**_restored(row, number)) for row in values["checks"]]
        concluded = {m: Conclusion(**one) for m, one in values["conclusions"].items()}
        return Confirmation(tuple(checks), dict(values["provenance"]), concluded)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(f"not the causal checks of a model, or damaged: {error}") from error


present(Confirmation, text="interp.report.printed.check:confirmation_text", rows="wide")
