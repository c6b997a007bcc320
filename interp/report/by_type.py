"""Figures, pages and other forms of a result, chosen by its type.

Results call these through `interp.core.display.drawn`, the only place where an earlier folder
imports this one. A type without an entry takes that of its closest base class.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

FORMS: Mapping[str, Mapping[str, str]] = {
    "summary": {
        "AnswerSources": "interp.report.summaries.texts:answer_sources_summary",
        "BothDirections": "interp.report.summaries.alignment:both_directions_summary",
        "CacheCards": "interp.report.summaries.heads:cache_cards_summary",
        "CausalTraces": "interp.report.summaries.circuits:causal_traces_summary",
        "ContextSources": "interp.report.summaries.texts:precision_summary",
        "Continuations": "interp.report.printed.writing:continuations_summary",
        "CorrectedAccuracy": "interp.report.summaries.vision:corrected_accuracy_summary",
        "DecoderLens": "interp.report.summaries.texts:decoder_lens_summary",
        "DictionaryScores": "interp.report.summaries.dictionaries:dictionary_scores_summary",
        "DictionaryTraining": "interp.report.summaries.dictionaries:dictionary_training_summary",
        "Differences": "interp.report.rows:differences_summary",
        "DirectLogits": "interp.report.summaries.texts:direct_logits_summary",
        "DirectionSearch": "interp.report.summaries.safety:direction_search_summary",
        "DoseCurve": "interp.report.summaries.causal:dose_curve_summary",
        "FeatureEffects": "interp.report.summaries.dictionaries:feature_effects_summary",
        "GatePattern": "interp.report.summaries.heads:gate_pattern_summary",
        "GroundingHeads": "interp.report.summaries.vision:grounding_heads_summary",
        "HeadAggregation": "interp.report.summaries.causal:head_aggregation_summary",
        "HeadDescriptions": "interp.report.summaries.vision:head_descriptions_summary",
        "HeadLoadings": "interp.report.summaries.circuits:head_loadings_summary",
        "HeadResponsibilities": "interp.report.summaries.causal:head_responsibilities_summary",
        "ImageMaps": "interp.report.summaries.vision:image_maps_summary",
        "ImageTokenEffects": "interp.report.summaries.vision:image_token_effects_summary",
        "LayerEntropies": "interp.report.summaries.heads:layer_entropies_summary",
        "LearnedHeadWeights": "interp.report.summaries.texts:learned_head_weights_summary",
        "LorsaScores": "interp.report.summaries.dictionaries:lorsa_scores_summary",
        "LorsaTraining": "interp.report.summaries.dictionaries:lorsa_training_summary",
        "Monosemanticity": "interp.report.summaries.dictionaries:monosemanticity_summary",
        "PairCheck": "interp.report.summaries.texts:pair_check_summary",
        "PatchingMap": "interp.report.summaries.circuits:patching_map_summary",
        "PathEffects": "interp.report.summaries.circuits:path_effects_summary",
        "Portability": "interp.report.printed.portability:portability_summary",
        "Variables": "interp.report.printed.variables:variables_summary",
        "ProbeResult": "interp.report.summaries.heads:probe_summary",
        "ProfileChanges": "interp.report.printed.changes:changes_summary",
        "QuantisedHeads": "interp.report.printed.quantised:quantised_summary",
        "QueryMaps": "interp.report.summaries.vision:query_maps_summary",
        "ReceiverHeads": "interp.report.summaries.texts:receiver_heads_summary",
        "ResultRows": "interp.report.rows:rows_summary",
        "Roofline": "interp.report.summaries.heads:roofline_summary",
        "Sahara": "interp.report.summaries.safety:sahara_summary",
        "SafetyCurves": "interp.report.summaries.safety:safety_curves_summary",
        "SafetyStudy": "interp.report.summaries.safety:safety_study_summary",
        "ShareCheck": "interp.report.summaries.circuits:share_check_summary",
        "Ships": "interp.report.summaries.safety:ships_summary",
        "Signals": "interp.report.summaries.circuits:signals_summary",
        "SimilarityMatrix": "interp.report.summaries.texts:similarity_matrix_summary",
        "SourceJudgement": "interp.report.summaries.texts:precision_summary",
        "StaticAttention": "interp.report.summaries.texts:static_attention_summary",
        "TimeAlignments": "interp.report.summaries.alignment:time_alignments_summary",
        "TopicProducts": "interp.report.summaries.texts:topic_products_summary",
        "TranslationHeads": "interp.report.summaries.alignment:translation_heads_summary",
        "TuckerLoss": "interp.report.summaries.causal:tucker_loss_summary",
        "UnitProfile": "interp.report.summaries.dictionaries:unit_profile_summary",
        "VisualSinks": "interp.report.summaries.vision:visual_sinks_summary",
        "WordTimes": "interp.report.summaries.alignment:word_times_summary",
    },
    "plot": {
        "AttributionGraph": "interp.report.attribution_graph:drawn_figure",
        "CausalTraces": "interp.report.patching_plots:causal_traces_figure",
        "Circuit": "interp.report.circuit_drawing:draw",
        "Comparison": "interp.report.comparison_plot:scatter_matrix",
        "DecoderLens": "interp.report.token_grids:decoder_lens_figure",
        "DictionaryTraining": "interp.report.dose_plot:training_figure",
        "DoseCurve": "interp.report.dose_plot:plot_doses",
        "Faithfulness": "interp.report.method_bars:method_bars",
        "HeadTable": "interp.draw.plot:heatmap",
        "ImageMaps": "interp.report.map_plots:image_maps_figure",
        "Interactions": "interp.report.summaries.causal:interactions_figure",
        "LogitLens": "interp.report.token_grids:logit_lens_figure",
        "PatchingMap": "interp.report.patching_plots:patching_map_figure",
        "Portability": "interp.report.printed.portability:portability_figure",
        "PruningCurve": "interp.report.pruning_plot:plot_curve",
        "QueryMaps": "interp.report.map_plots:query_maps_figure",
        "ResultRows": "interp.report.rows:bars_of",
        "SafetyCurves": "interp.report.summaries.safety:safety_curves_figure",
        "SafetyStudy": "interp.report.summaries.safety:safety_study_figure",
        "Signals": "interp.report.summaries.circuits:signals_figure",
        "SimilarityMatrix": "interp.report.token_grids:similarity_matrix_figure",
        "WordTimes": "interp.report.summaries.alignment:word_times_figure",
    },
    "first_line": {
        "Displayed": "interp.report.rows:first_line",
        "Portability": "interp.report.printed.portability:portability_line",
        "ProfileChanges": "interp.report.printed.changes:changes_line",
        "QuantisedHeads": "interp.report.printed.quantised:quantised_line",
    },
    "differences": {"Result": "interp.core.differences:differences"},
    "bounds": {
        "BothDirections": "interp.alignment.directions:bounds_of_rates",
        "CorrectedAccuracy": "interp.vision.correction:bounds_of_accuracy",
        "Interactions": "interp.causal.pairs:bounds_of_interactions",
        "SafetyCurves": "interp.safety.curves:bounds_of_curves",
        "SafetyStudy": "interp.safety.overview:bounds_of_study",
        "Ships": "interp.safety.removal:bounds_of_ships",
        "PublishedComparison": "interp.circuits.published_comparison:bounds_of_area",
        "SourceJudgement": "interp.text.context.judgement:bounds_of_precision",
    },
    "about": {"Profile": "interp.report.printed.profile:head_text"},
    "bars": {"Result": "interp.report.rows:bars_of"},
    "inline": {
        "ActivationCache": "interp.report.cached_activations:cache_html",
        "Attribution": "interp.report.tokens:inline",
        "Displayed": "interp.report.rows:rows_inline",
    },
    "page": {
        "Anchors": "interp.report.anchors:anchors_page",
        "Attribution": "interp.report.tokens:page_of",
        "Circuit": "interp.report.circuit_page:circuit_page",
        "Displayed": "interp.report.rows:rows_page",
        "Faithfulness": "interp.report.faithfulness:faithfulness_page",
        "FeatureCards": "interp.report.feature_cards:cards_page",
        "ModelDifferences": "interp.report.differences_page:differences_page",
        "Profile": "interp.report.atlas.single:profile_page",
        "View": "interp.report.view_page:assembled",
    },
    "folder_page": {
        "Comparison": "interp.report.atlas.single:comparison_page",
        "PruningCurve": "interp.report.atlas.single:pruning_page",
    },
    "publish": {"Displayed": "interp.report.publishing:publish"},
    "report": {"HeadTable": "interp.report.atlas.atlas_file:write_report"},
    "vector": {
        "AttributionGraph": "interp.report.attribution_graph:save_graph",
        "Displayed": "interp.report.rows:save_vector",
    },
    "view": {"ActivationCache": "interp.report.cached_activations:view_of_cache"},
    "networkx": {"Circuit": "interp.report.circuit_formats:networkx_of"},
    "graphml": {"Circuit": "interp.report.circuit_formats:graphml_of"},
    "dot": {"Circuit": "interp.report.circuit_formats:dot_of"},
    "mermaid": {"Circuit": "interp.report.circuit_formats:mermaid_of"},
    "svg": {"Circuit": "interp.report.circuit_still:still"},
}
"""Form -> name of the type, or kind of `ResultRows` -> the function that returns the form."""


HOLDS: Mapping[str, tuple[str, ...]] = {
    "": ("interp.core.result_rows:ResultRows", "interp.core.table:HeadTable"),
    "ProbeResult": ("interp.probes.saved:HeadProbe", "interp.probes.linear:LinearProbe"),
    "SafetyCurves": ("interp.causal.pruning.result:PruningCurve",),
    "SafetyStudy": (
        "interp.causal.pruning.result:PruningCurve",
        "interp.causal.importance:Importance",
        "interp.safety.concentration:Spread",
    ),
    "Ships": ("interp.causal.importance:Importance",),
    "Signals": ("interp.circuits.query_key_signals:Signal",),
}
"""Kind of `ResultRows` -> types among its facts and arrays, beside those of every kind."""


def types_held(kind: str) -> tuple[type, ...]:
    """Return the types that a file of a kind may contain, with those inside them."""
    names = [name.partition(":") for of in ("", kind) for name in HOLDS.get(of, ())]
    found = [getattr(import_module(module), name) for module, _, name in names]
    inside = [more for each in found for more in getattr(each, "_holds", ())]
    return *found, *inside


def form_of(form: str, result: Any, *args: Any, **options: Any) -> Any:
    """Return a form of a result."""
    entries = FORMS[form]
    name = next(name for name in names_of(result) if name in entries)
    module, _, function = entries[name].partition(":")
    return getattr(import_module(module), function)(result, *args, **options)


def names_of(result: Any) -> list[str]:
    """Return the kind of a `ResultRows`, its type and the base classes, the nearest first."""
    from interp.core.result_rows import ResultRows

    kind = [result.kind] if isinstance(result, ResultRows) else []
    return kind + [each.__name__ for each in type(result).__mro__]
