"""Names of the tasks that metrics declare for their causal check, without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from interp.core.registry import METRICS

NONE, OF_OPTION = "none: ", "its option task"
TOLD = {
    "repeats": "loss on the second copy of repeated random tokens",
    "needles": "loss on the answers of needles other than those scored",
    "after_delimiters": "loss on the tokens after delimiters in text",
    "in_context": "probability of answers whose function the prompt shows by examples",
    OF_OPTION: "the contrast task of its option `task`",
}


def without_options(metric: str) -> str:
    """Return the name of a metric without its options."""
    return metric.partition(":")[0]


def stated_task(metric: str) -> str:
    """Return the task that a metric declares; empty if it declares none or is not built in."""
    name = without_options(metric)
    return str(METRICS[name].about.get("task", "")) if name in METRICS else ""


def declared_task(metric: str, scored: Mapping[str, Any] | None = None) -> str:
    """Return the task that a metric declares, or that of its option as it was scored."""
    name = stated_task(metric)
    if name != OF_OPTION:
        return name
    return str((scored or {}).get("task", METRICS[without_options(metric)].options["task"][0]))


def task_text(name: str) -> str:
    """Describe the task that a metric declares, for help and tables."""
    if not name or name.startswith(NONE):
        why = name.removeprefix(NONE) or "not declared"
        return f"none of its own, plain loss only ({why})"
    return TOLD.get(name, f"contrast task {name}")
