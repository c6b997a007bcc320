"""Functions of later folders that earlier folders call, imported by name at the time of the call.

Imports run in one direction, from later folders to earlier ones. Three features need the other
direction; they are listed here with every function that they import. Apart from the registries and
the packages' public names, no other module of the package imports by name at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

DOORS: Mapping[str, Mapping[str, str]] = {
    "a declared analysis is called": {
        "Analysis.__call__": "interp.heads.scoring:score",
    },
    "a result shows itself as text, table, figure or page": {
        "ActivationCache._repr_html_": "interp.heads.patterns.cached:cache_html",
        "ActivationCache.view": "interp.heads.patterns.cached:view_of_cache",
        "Anchors.page": "interp.heads.chains.page:anchors_page",
        "Attribution._repr_html_": "interp.report.tokens:inline",
        "Attribution.save_html": "interp.report.tokens:attribution_page",
        "Circuit.page": "interp.report.atlas.single:circuit_page",
        "Circuit.plot": "interp.circuits.drawing:draw",
        "Circuit.to_dot": "interp.circuits.forms:dot_of",
        "Circuit.to_graphml": "interp.circuits.forms:graphml_of",
        "Circuit.to_mermaid": "interp.circuits.forms:mermaid_of",
        "Circuit.to_networkx": "interp.circuits.forms:networkx_of",
        "Circuit.to_svg": "interp.circuits.still:still",
        "Comparison.page": "interp.report.atlas.single:comparison_page",
        "Comparison.plot": "interp.causal.comparison.plot:scatter_matrix",
        "DoseCurve.plot": "interp.causal.steering.plot:plot_doses",
        "Emergence.plot": "interp.draw.curves:training_curves",
        "Faithfulness.page": "interp.report.faithfulness:faithfulness_page",
        "Faithfulness.plot": "interp.attribution.evaluation.plot:method_bars",
        "FeatureCards.page": "interp.dictionaries.card_page:cards_page",
        "PruningCurve.page": "interp.report.atlas.single:pruning_page",
        "PruningCurve.plot": "interp.causal.pruning.plot:plot_curves",
        "Published.circuit": "interp.circuits.published_graph:circuit_of",
        "Result.bars": "interp.draw.charts:bars",
        "Result.data_table": "interp.draw.page:data_table",
        "Result.grid": "interp.draw.charts:grid",
        "Result.heatmap": "interp.draw.plot:heatmap",
        "Result.html_table": "interp.draw.page:html_table",
        "Result.page": "interp.draw.page:page",
        "Result.report": "interp.report.atlas.written:write_report",
        "Result.svg": "interp.draw.figure:svg",
        "View.html": "interp.report.view_page:assembled",
    },
    "a task is made, or a circuit is evaluated": {
        "steer": "interp.heads.causal_check.tasks:plain_task",
        "own_task": "interp.circuits.tasks.named:make_contrast",
        "templates": "interp.circuits.tasks.named:split_templates",
        "Circuit.evaluate": "interp.circuits.evaluation:evaluate",
    },
}
"""Reason of each door, and the function behind each method that uses it."""


def behind(method: str) -> Any:
    """Import the function behind a method, such as `Circuit.plot`."""
    [target] = [opens[method] for opens in DOORS.values() if method in opens]
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)
