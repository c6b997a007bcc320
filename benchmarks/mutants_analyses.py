"""Mutants of the analyses of facts, graphs, alignments, chains, sources, lenses and pictures."""

from __future__ import annotations

from benchmarks.mutants_case import mutant

ANALYSES = [
    mutant(
        "window_a_layer_too_long", "interp/circuits/causal_tracing.py",
        "some = layers[first : order - (-window // 2)]",
        "some = layers[first : order - (-window // 2) + 1]",
        "circuits/test_causal_tracing.py::"
        "test_the_mlp_at_the_subject_and_the_head_at_the_end_hold_the_planted_fact",
    ),
    mutant(
        "traces_of_the_same_noise_as_null", "interp/circuits/causal_tracing.py",
        "self.noisy[key].roll(1, 0) if kind",
        "self.noisy[key] if kind",
        "circuits/test_causal_tracing.py::test_effects_are_those_of_the_procedure_written_out",
    ),
    mutant(
        "noise_of_the_whole_prompt", "interp/circuits/causal_tracing.py",
        'inputs.append(watch.seen["stream", 0][0, list(fact.subject)])',
        'inputs.append(watch.seen["stream", 0][0])',
        "circuits/test_causal_tracing.py::test_effects_are_those_of_the_procedure_written_out",
    ),
    mutant(
        "severed_modules_before_the_layer", "interp/circuits/causal_tracing.py",
        "if x.order >= layer.order] if sever",
        "if x.order <= layer.order] if sever",
        "circuits/test_causal_tracing.py::test_effects_are_those_of_the_procedure_written_out",
    ),
    mutant(
        "share_of_the_effect_on_all_facts", "interp/circuits/causal_traces.py",
        "total[there].mean()",
        "total.mean()",
        "circuits/test_causal_tracing.py::"
        "test_shares_are_of_the_effect_on_the_facts_that_have_the_place",
    ),
    mutant(
        "chain_holds_the_item_itself", "interp/causal/retrieval_task.py",
        "found[:, np.arange(size), np.arange(size)] = False",
        "pass",
        "causal/test_retrieval_task.py::test_answers_are_those_of_the_links",
    ),
    mutant(
        "responsibility_of_the_needed_head", "interp/causal/responsibilities.py",
        "found = softmax(-harm, axis=0)",
        "found = softmax(harm, axis=0)",
        "causal/test_responsibilities.py::test_responsibilities_are_the_posterior_of_the_mixture",
    ),
    mutant(
        "heads_shuffled_instead_of_prompts", "interp/causal/responsibilities.py",
        "rng.permuted(harm, axis=1)",
        "rng.permuted(harm, axis=0)",
        "causal/test_responsibilities.py::test_heads_that_inputs_need_differently_are_told_apart",
    ),
    mutant(
        "paths_short_where_attention_is_weak", "interp/text/graphs/graph.py",
        "weight=w, length=1 / w)",
        "weight=w, length=w)",
        "text/graphs/test_graphs.py::test_centralities_of_a_star_and_of_a_graph_in_two_parts",
    ),
    mutant(
        "p_of_motifs_one_sided", "interp/text/graphs/graph.py",
        "2 * (1 + min(above, below)) / (1 + n_random)",
        "(1 + min(above, below)) / (1 + n_random)",
        "text/graphs/test_graphs.py::test_p_values_of_motifs_are_two_sided_by_hand",
    ),
    mutant(
        "weights_not_exchanged_in_random_graphs", "interp/text/graphs/graph.py",
        "_louvain(len(self.nodes), other, rng.permutation(weights), seed)[1]",
        "_louvain(len(self.nodes), self.edges.tolist(), weights, seed)[1]",
        "text/graphs/test_graphs.py::"
        "test_planted_communities_have_more_modularity_than_the_null",
    ),
    mutant(
        "one_side_of_nodes_exchanged", "interp/text/graphs/graph.py",
        "truth[np.ix_(order, order)]",
        "truth[order]",
        "text/graphs/test_graphs.py::"
        "test_comparison_with_a_given_graph_and_with_exchanged_nodes",
    ),
    mutant(
        "pairs_that_no_token_can_see", "interp/text/graphs/graph.py",
        "allowed = (self.even > 0) & ~np.eye",
        "allowed = (self.even >= 0) & ~np.eye",
        "text/graphs/test_graphs.py::"
        "test_comparison_with_a_given_graph_and_with_exchanged_nodes",
    ),
    mutant(
        "backbone_of_the_other_tail", "interp/text/graphs/thresholds.py",
        "(1 - share) ** (degree - 1) < level",
        "share ** (degree - 1) < level",
        "text/graphs/test_graphs.py::test_thresholds_by_hand",
    ),
    mutant(
        "ranks_of_keys_that_one_query_sees", "interp/text/graphs/static.py",
        "both = seen[i] & seen[j]",
        "both = seen[i] | seen[j]",
        "text/graphs/test_static.py::"
        "test_agreement_is_the_mean_rank_correlation_of_keys_that_both_queries_see",
    ),
    mutant(
        "static_heads_on_their_own_keys", "interp/text/graphs/static.py",
        "keys = len(ids) - rows",
        "keys = len(ids)",
        "text/graphs/test_static.py::test_heads_are_compared_on_the_keys_before_all_queries",
    ),
    mutant(
        "error_rate_of_sure_links_alone", "interp/alignment/links.py",
        "found = np.asarray(in_sure + in_possible, float)",
        "found = np.asarray(2 * in_sure, float)",
        "alignment/test_links.py::test_error_rate_of_a_small_example",
    ),
    mutant(
        "lagging_over_all_words", "interp/alignment/latency.py",
        "last = int(whole[0]) + 1 if len(whole) else len(given)",
        "last = len(given)",
        "alignment/test_speech.py::test_latency_of_wait_k_and_of_waiting_until_the_end",
    ),
    mutant(
        "last_frame_of_a_token", "interp/alignment/warping.py",
        "= j[here] - 1",
        "= np.maximum(found[at + every[here], i[here] - 1], j[here] - 1)",
        "alignment/test_speech.py::test_the_planted_head_tells_the_times",
    ),
    mutant(
        "receivers_chosen_on_the_judged_chain", "interp/text/chains/anchors.py",
        "if i != which]",
        "if i == which]",
        "text/chains/test_chains.py::test_heads_of_a_chain_are_chosen_on_the_others",
    ),
    mutant(
        "divergence_of_the_hidden_sentence", "interp/text/chains/hidden.py",
        "end = chain.spans[hidden][1]",
        "end = chain.spans[hidden][0]",
        "text/chains/test_chains.py::test_divergences_of_a_hidden_sentence_by_hand",
    ),
    mutant(
        "log_odds_are_log_probabilities", "interp/text/chains/hidden.py",
        "others = x.scatter(1, ids, -torch.inf).logsumexp(1)",
        "others = x.logsumexp(1)",
        "text/chains/test_chains.py::test_log_odds_of_an_answer_by_hand",
    ),
    mutant(
        "sampled_without_temperature", "interp/text/chains/rollouts.py",
        "(out.logits[:, -1].double() / temperature)",
        "out.logits[:, -1].double()",
        "text/chains/test_chains.py::"
        "test_tokens_are_sampled_with_the_probabilities_of_the_model",
    ),
    mutant(
        "answer_rows_one_early", "interp/text/context/ways.py",
        "torch.arange(start - 1, start - 1 + len(chain.answer))",
        "torch.arange(start - 2, start - 2 + len(chain.answer))",
        "text/context/test_context.py::test_every_way_finds_the_planted_source",
    ),
    mutant(
        "fit_judged_on_its_own_sets", "interp/text/context/ways.py",
        "predicted, measured = visible[fitted:] @ weights + offset, values[fitted:]",
        "predicted, measured = visible[:fitted] @ weights + offset, values[:fitted]",
        "text/context/test_context.py::"
        "test_the_fit_is_judged_on_sets_beyond_those_of_the_regression",
    ),
    mutant(
        "calibration_fitted_on_the_judged", "interp/text/context/judge.py",
        "judged, fit = order[:cut], order[cut:]",
        "judged, fit = order[:cut], order",
        "text/context/test_context.py::test_heads_and_confidence_are_fitted_on_other_documents",
    ),
    mutant(
        "null_without_the_contrast", "interp/lens/direct_many.py",
        "null = null - reading.towards(drawn[1].tolist(), None)",
        "pass",
        "lens/test_direct_many.py::test_the_null_is_of_random_targets_and_contrasts",
    ),
    mutant(
        "source_of_another_kv_group", "interp/lens/direct_many.py",
        "v = v[[site.kv_head(head) for head in range(site.n_heads)]]",
        "v = v.repeat(site.n_heads // len(v), 1, 1)",
        "lens/test_direct_many.py::test_sources_of_a_head_sum_to_its_part",
    ),
    mutant(
        "lens_stopped_by_its_training_texts", "interp/lens/tuned.py",
        "final, end, train, stop, steps, l2, seed)",
        "final, end, train, train, steps, l2, seed)",
        "lens/test_tuned.py::test_texts_that_stop_the_training_are_neither_trained_on_nor_judged",
    ),
    mutant(
        "penalty_chosen_on_its_own_texts", "interp/attribution/learned_weights.py",
        "fitted = [self.weights(penalty, c) for c in range(len(self.gram))]",
        "fitted = [self.weights(penalty) for c in range(len(self.gram))]",
        "attribution/test_learned_weights.py::"
        "test_the_penalty_is_chosen_on_texts_that_are_left_out",
    ),
    mutant(
        "jackknife_of_independent_draws", "interp/attribution/learned_weights.py",
        "return jackknife_error(each)",
        "return jackknife_error(each) / np.sqrt(n - 1)",
        "attribution/test_learned_weights.py::"
        "test_planted_coefficients_come_back_within_their_errors",
    ),
    mutant(
        "products_not_split_in_halves", "interp/attribution/rescale.py",
        "mix(a, mean_b.expand_as(b)) + mix(mean_a.expand_as(a), b)",
        "mix(a, b[1:].expand_as(b)) + mix(a[1:].expand_as(a), b)",
        "attribution/test_deeplift.py::test_on_a_linear_model_it_is_gradient_times_difference",
    ),
    mutant(
        "slope_of_a_norm_doubled", "interp/attribution/rescale.py",
        "-(scale.abs() ** 3) / 2",
        "-(scale.abs() ** 3)",
        "attribution/test_deeplift.py::test_where_both_inputs_are_one_a_norm_has_its_derivative",
    ),
    mutant(
        "scores_compared_with_their_signs", "interp/attribution/evaluation/randomisation.py",
        "return np.abs(one.of(example).scores)",
        "return one.of(example).scores",
        "attribution/test_sanity.py::test_scores_are_compared_by_their_size",
    ),
    mutant(
        "given_model_randomised", "interp/attribution/evaluation/randomisation.py",
        "    changed = copy.deepcopy(model.module)\n",
        "    changed = model.module\n",
        "attribution/test_sanity.py::"
        "test_scores_of_the_model_change_and_those_of_the_input_do_not",
    ),
    mutant(
        "spans_match_at_any_overlap", "interp/attribution/evaluation/plausibility.py",
        ">= MATCH for a in predicted]",
        "> 0 for a in predicted]",
        "attribution/test_plausibility.py::test_measures_by_hand",
    ),
    mutant(
        "shares_before_the_bias_is_taken_out", "interp/dictionaries/cards.py",
        "x = x - dictionary.b_dec if dictionary.subtract else x",
        "x = x",
        "dictionaries/test_cards.py::"
        "test_shares_of_an_example_are_of_the_input_that_the_encoder_reads",
    ),
    mutant(
        "null_masks_are_the_own_ones", "interp/vision/agreement.py",
        "found[order] = np.roll(order, 1)",
        "found[order] = order",
        "vision/test_maps.py::test_heads_that_look_at_the_shape_agree_with_its_mask",
    ),
    mutant(
        "tied_cells_all_hit", "interp/vision/agreement.py",
        "(shares * largest).sum(-1) / largest.sum(-1)",
        "(shares * largest).max(-1)",
        "vision/test_maps.py::test_pointing_game",
    ),
    mutant(
        "neurons_ranked_on_the_judged_half", "interp/vision/register_neurons.py",
        "mean(gain[:, ranking])",
        "mean(gain[:, judging])",
        "vision/test_registers.py::"
        "test_neurons_are_ranked_on_one_half_and_measured_on_the_other",
    ),
    mutant(
        "hidden_patches_keep_their_mass", "interp/vision/token_pruning.py",
        "return new / new.sum(-1, keepdim=True).clamp_min(1e-30)",
        "return new",
        "vision/test_pruning.py::test_hidden_patches_are_as_if_they_were_no_tokens",
    ),
    mutant(
        "patches_counted_from_the_end", "interp/vision/token_pruning.py",
        "seen[:, first:] = kept.to",
        "seen[:, :-first or None] = kept.to",
        "vision/test_pruning.py::test_hidden_patches_are_as_if_they_were_no_tokens",
    ),
    mutant(
        "described_and_judged_on_one_half", "interp/vision/descriptions.py",
        "text_span(written[learn], given, ranks, written[judge], span=span)",
        "text_span(written[learn], given, ranks, written[learn], span=span)",
        "vision/test_descriptions.py::"
        "test_texts_are_chosen_on_half_of_the_images_and_judged_on_the_others",
    ),
    mutant(
        "null_class_is_the_own", "interp/vision/direct_effects.py",
        "rng.integers(1, number, len(targets))",
        "rng.integers(0, 1, len(targets))",
        "vision/test_parts.py::test_direct_effects_on_a_class_beside_a_random_one",
    ),
    mutant(
        "tokens_dropped_a_layer_late", "interp/vision/language/dropping.py",
        "site.layer < (layer or 0)",
        "site.layer <= (layer or 0)",
        "vision/language/test_planted_pictures.py::"
        "test_tokens_are_dropped_from_the_given_layer_on",
    ),
    mutant(
        "sinks_outside_the_picture", "interp/vision/language/sinks.py",
        "torch.zeros(len(image)).bool()) & image",
        "torch.zeros(len(image)).bool())",
        "vision/language/test_planted_pictures.py::test_sinks_are_tokens_of_the_picture",
    ),
    mutant(
        "grounding_judged_where_chosen", "interp/vision/language/grounding.py",
        "halved = [prompts[i] for i in judged]",
        "halved = [prompts[i] for i in chosen_on]",
        "vision/language/test_planted_pictures.py::"
        "test_heads_are_ablated_on_the_prompts_that_did_not_choose_them",
    ),
    mutant(
        "clusters_opened_by_any_key", "interp/heads/geometry/_clusters.py",
        "near = (apart <= radius * spread) & found[..., :t]",
        "near = apart <= radius * spread",
        "heads/geometry/test_new_measures.py::"
        "test_a_key_opens_a_cluster_when_no_opened_key_is_near",
    ),
    mutant(
        "even_entropy_of_one_key_more", "interp/heads/geometry/budgets.py",
        "layer.sees.double().clamp_min(2).log()",
        "(layer.sees + 1).double().clamp_min(2).log()",
        "heads/geometry/test_new_measures.py::"
        "test_even_attention_has_the_whole_entropy_at_any_length",
    ),
    mutant(
        "margin_with_the_sink_among_the_others", "interp/heads/geometry/sink_key_bias.py",
        "(q @ layer.k.mT * seen).sum(-1) - own * to_sink",
        "(q @ layer.k.mT * seen).sum(-1)",
        "heads/geometry/test_new_measures.py::test_the_margin_of_a_sink_by_loops",
    ),
]  # fmt: skip
