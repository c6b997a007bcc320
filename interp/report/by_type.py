"""Figures, pages and other forms of a result, chosen by its type.

Results call these through `interp.core.display.drawn`, the only place where an earlier folder
imports this one. A type without an entry takes that of its closest base class.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

FORMS: Mapping[str, Mapping[str, str]] = {
    "plot": {
        "AttributionGraph": "interp.report.attribution_graph:drawn_figure",
        "Circuit": "interp.report.circuit_drawing:draw",
        "Comparison": "interp.report.comparison_plot:scatter_matrix",
        "DoseCurve": "interp.report.dose_plot:plot_doses",
        "Faithfulness": "interp.report.method_bars:method_bars",
        "HeadTable": "interp.draw.plot:heatmap",
        "PruningCurve": "interp.report.pruning_plot:plot_curve",
    },
    "bars": {"Result": "interp.report.rows:bars_of"},
    "inline": {
        "ActivationCache": "interp.report.cached_activations:cache_html",
        "Attribution": "interp.report.tokens:inline",
        "Displayed": "interp.report.rows:rows_inline",
    },
    "page": {
        "Anchors": "interp.report.anchors:anchors_page",
        "Attribution": "interp.report.tokens:page_of",
        "Circuit": "interp.report.atlas.single:circuit_page",
        "Displayed": "interp.report.rows:rows_page",
        "Faithfulness": "interp.report.faithfulness:faithfulness_page",
        "FeatureCards": "interp.report.feature_cards:cards_page",
        "View": "interp.report.view_page:assembled",
    },
    "folder_page": {
        "Comparison": "interp.report.atlas.single:comparison_page",
        "PruningCurve": "interp.report.atlas.single:pruning_page",
    },
    "report": {"HeadTable": "interp.report.atlas.atlas_file:write_report"},
    "view": {"ActivationCache": "interp.report.cached_activations:view_of_cache"},
    "networkx": {"Circuit": "interp.report.circuit_formats:networkx_of"},
    "graphml": {"Circuit": "interp.report.circuit_formats:graphml_of"},
    "dot": {"Circuit": "interp.report.circuit_formats:dot_of"},
    "mermaid": {"Circuit": "interp.report.circuit_formats:mermaid_of"},
    "svg": {
        "AttributionGraph": "interp.report.attribution_graph:drawn_svg",
        "Circuit": "interp.report.circuit_still:still",
    },
}
"""Form -> name of the type -> the function that takes the result and returns the form."""


def form_of(form: str, result: Any, *args: Any, **options: Any) -> Any:
    """Return a form of a result."""
    entries = FORMS[form]
    name = next(c.__name__ for c in type(result).__mro__ if c.__name__ in entries)
    module, _, function = entries[name].partition(":")
    return getattr(import_module(module), function)(result, *args, **options)
