"""Names of interp in the page for users of other tools exist."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import interp
from interp.core.registry import ATTRIBUTION_METHODS, CIRCUIT_METHODS, METRICS

TEXT = (Path(__file__).parents[2] / "docs" / "migration.md").read_text(encoding="utf-8")


def found(name: str) -> object:
    """The object behind a dotted name, importing the folders on its way."""
    value: object = interp
    parts = name.split(".")
    for i, part in enumerate(parts[1:], start=2):
        if not hasattr(value, part):
            import_module(".".join(parts[:i]))
        value = getattr(value, part)
    return value


def test_every_name_of_interp_exists() -> None:
    names = set(re.findall(r"`(interp(?:\.\w+)+)", TEXT))
    assert len(names) >= 20
    for name in names:
        assert found(name) is not None


def test_the_last_column_names_methods_that_exist() -> None:
    known = {*METRICS, *ATTRIBUTION_METHODS, *CIRCUIT_METHODS}
    named = set(re.findall(r"(?:with|\|) `([a-z]+(?:_[a-z]+)*)`", TEXT)) & {
        "exact_patching",
        "attribution_patching",
        "induction",
        "gradient_x_input",
        "gradient_norm",
        "occlusion",
        "attn_lrp",
    }
    assert len(named) == 7
    assert named <= known
