"""Comparison of the statements of a certificate with what was computed, leaf by leaf."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

RELATIVE = 1e-3  # other processors round differently


@dataclass(frozen=True)
class NotChecked:
    """Part of a certificate that cannot be computed again, and why."""

    why: str


def compare_statements(
    stated: Any, found: Any, where: str, differences: list[str], missing: list[str]
) -> int:
    """Compare what is stated at `where` with what was computed; return the number compared.

    Appends the statements that differ to `differences`, those not computed again to `missing`.
    """
    if isinstance(found, NotChecked):
        missing.append(f"{where}: {found.why}")
        return 0
    if isinstance(stated, dict) and isinstance(found, dict):
        for name in [*found, *stated]:
            if (name in found) != (name in stated):
                differences.append(_one_sided(where, name, name in found))
        inside = [(f"{where}.{name}".lstrip("."), name) for name in stated if name in found]
        return sum(
            compare_statements(stated[x], found[x], at, differences, missing) for at, x in inside
        )
    if isinstance(stated, list) and isinstance(found, list) and len(stated) == len(found):
        pairs = enumerate(zip(stated, found, strict=True))
        return sum(
            compare_statements(x, y, f"{where}[{i}]", differences, missing) for i, (x, y) in pairs
        )
    if not _same(stated, found):
        differences.append(
            f"{where}: certificate {statement_text(stated)}, now {statement_text(found)}"
        )
    return 1


def _one_sided(where: str, name: str, found: bool) -> str:
    """Return the sentence on what only the folder or only its certificate has."""
    if where == "files":
        a, b = ("folder", "certificate") if found else ("certificate", "folder")
        return f"{name} is in the {a} but not in the {b}"
    what = "is not in the certificate" if found else "is not a statement about this checkpoint"
    return f"{where}.{name}".lstrip(".") + f" {what}"


def _same(stated: Any, found: Any) -> bool:
    if isinstance(found, float) and math.isnan(found):
        return stated is None  # NaN in JSON
    if isinstance(found, float) and isinstance(stated, (float, int)):
        return math.isclose(stated, found, rel_tol=RELATIVE, abs_tol=1e-6)
    return type(stated) is type(found) and stated == found


def statement_text(value: Any) -> str:
    """Return a value as a sentence shows it: a number rounded, a list by its length."""
    if isinstance(value, (list, dict)):
        return f"{len(value)} entries"
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:16]
