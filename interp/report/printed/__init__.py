"""Printed form of results: one function per type, found by its name without an import.

A function takes all results of one type that belong together. Its keyword parameters are options
of every command that prints such a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import groupby
from typing import Any

from interp.report.by_type import names_of

TEXTS = {
    "Attribution": "interp.report.printed.attribution:attribution_text",
    "Anchors": "interp.report.printed.texts:anchors_text",
    "AttributionGraph": "interp.report.printed.circuits:graph_text",
    "CausalTraces": "interp.report.printed.circuits:trace_text",
    "Comparison": "interp.report.printed.importance:agreement_text",
    "Confirmation": "interp.report.printed.confirmation:confirmation_text",
    "Continuations": "interp.report.printed.writing:continuations_text",
    "Emergence": "interp.report.printed.between:emergence_text",
    "Faithfulness": "interp.report.printed.faithfulness:faithfulness_text",
    "HeadMatches": "interp.report.printed.between:matches_text",
    "HeadLoadings": "interp.report.printed.circuits:loadings_text",
    "Importance": "interp.report.printed.importance:importance_text",
    "Interactions": "interp.report.printed.importance:interactions_text",
    "HeadTable": "interp.report.printed.scores:head_table_text",
    "LearnedHeadWeights": "interp.report.printed.top:top_text",
    "MadePairs": "interp.report.printed.circuits:pairs_text",
    "ModelDifferences": "interp.report.printed.between:differences_text",
    "Portability": "interp.report.printed.portability:portability_text",
    "Variables": "interp.report.printed.variables:variables_text",
    "ProfileChanges": "interp.report.printed.changes:changes_text",
    "Profile": "interp.report.printed.profile:profile_text",
    "PathEffects": "interp.report.printed.circuits:path_text",
    "PromptMeans": "interp.report.printed.means:means_text",
    "PruningCurve": "interp.report.printed.pruning:pruning_text",
    "QKShares": "interp.report.printed.circuits:shares_text",
    "SavedCheckpoint": "interp.report.printed.pruning:checkpoint_text",
    "ShareCheck": "interp.report.printed.circuits:share_check_text",
    "SimilarityMatrix": "interp.report.printed.top:top_text",
    "TextScores": "interp.report.printed.texts:influence_text",
    "TunedLens": "interp.report.printed.means:means_text",
}
"""Function that formats results of a type, by the name of the type."""
ROWS = {
    "Confirmation": "wide",
    "DataFrame": "copy",
    "PruningCurve": "interp.report.printed.pruning:pruning_rows",
    "SavedCheckpoint": "interp.report.printed.pruning:checkpoint_rows",
    "TextScores": "wide",
}
"""Method or function that returns the rows of a result, where they are not `to_pandas()`."""


JSON_LINES = ("TextScores",)
"""Types of results with so many rows that JSON has a line for each."""


def of_type(table: dict[str, str], result: Any) -> str | None:
    """Return the entry of a result's kind, of its type or of the nearest type it inherits from."""
    return next((table[name] for name in names_of(result) if name in table), None)


def call(target: str) -> Any:
    """Import the function `module:name`."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def printed(results: Sequence[Any], model: str = "", by: str = "", /, **options: Any) -> str:
    """Format results, those of one type together."""
    parts = []
    for target, group in groupby(results, lambda one: by or of_type(TEXTS, one)):
        if target is None:
            parts += [f"{model}\n{one}\n" if model else repr(one) for one in group]
            continue
        function = call(target)
        known = function.__kwdefaults__ or {}
        parts.append(function([*group], **{k: v for k, v in options.items() if k in known}))
    return "".join(parts)


def nothing(results: Sequence[Any]) -> str:
    """Return no text, for a command that printed its results step by step."""
    return ""


def result_rows(result: Any, model: str) -> Any:
    """Return the rows of a result as a frame."""
    target = of_type(ROWS, result) or "to_pandas"
    return call(target)(result, model) if ":" in target else getattr(result, target)()
