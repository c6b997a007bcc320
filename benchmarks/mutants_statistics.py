"""Mutants of standard errors, intervals, p values and exports, for mutants.py."""

from __future__ import annotations

from benchmarks.mutants_case import mutant

ERRORS, RANKS = "core/test_error_formulas.py", "core/test_rank_formulas.py"

STATISTICS = [
    mutant(
        "error_times_the_root_of_n",
        "interp/core/standard_errors.py",
        "/ math.sqrt(n)",
        "* math.sqrt(n)",
        f"{ERRORS}::test_standard_errors",
        "cache/test_plan.py",
    ),
    mutant(
        "recent_of_kvpress_counts_the_current_token",
        "interp/cache/plan_result.py",
        '"recent_size": window.recent - 1,',
        '"recent_size": window.recent + 1,',
        "cache/test_plan.py::test_kvpress_hides_the_same_keys_under_the_exported_settings",
    ),
    mutant(
        "jackknife_without_its_factor",
        "interp/core/clusters.py",
        "(n - 1) / n * ((left_out",
        "1 / n * ((left_out",
        f"{ERRORS}::test_standard_errors",
    ),
    mutant(
        "freedom_of_the_sum_of_variances",
        "interp/core/clusters.py",
        "4 + 2 * each.mean() ** 2 / excess",
        "4 + 2 * each.sum() ** 2 / excess",
        f"{ERRORS}::test_predicted_head",
    ),
    mutant(
        "excess_with_a_degree_of_freedom_more",
        "interp/core/clusters.py",
        "2 * each.mean() ** 2 / (heads - 1)",
        "2 * each.mean() ** 2 / heads",
        f"{ERRORS}::test_predicted_head",
    ),
    mutant(
        "skewness_as_a_sum",
        "interp/core/clusters.py",
        "np.concatenate(parts) ** 3).mean()",
        "np.concatenate(parts) ** 3).sum()",
        f"{ERRORS}::test_predicted_head",
    ),
    mutant(
        "paired_ranks_not_centred",
        "interp/core/rank_statistics.py",
        "(r - r.mean(-1, keepdims=True) for r",
        "(r for r",
        f"{RANKS}::test_ranks",
    ),
    mutant(
        "lowest_k_for_the_top_k",
        "interp/core/rank_statistics.py",
        "ordered(scores)[:k]",
        "ordered(scores, lowest=True)[:k]",
        f"{RANKS}::test_ranks",
    ),
    mutant(
        "t_test_of_one_side",
        "interp/core/standard_errors.py",
        "2 * stdtr(",
        "stdtr(",
        f"{ERRORS}::test_p_values_of_t",
    ),
    mutant(
        "completeness_of_the_set_with_all_its_nodes",
        "interp/circuits/removals.py",
        "return self.kept[subset][1] - self.kept[subset][0]",
        "return self.kept[subset][1] - self.kept[()][0]",
        "circuits/test_bogus_sets.py::test_heads_of_which_one_is_enough_are_named",
    ),
    mutant(
        "area_of_random_orders_not_subtracted",
        "interp/causal/pruning/result.py",
        "ranked.mean() - other.mean()",
        "ranked.mean() + other.mean()",
        "contract/test_intervals.py::test_intervals_are_those_of_their_formulas",
    ),
    mutant(
        "arrow_of_the_other_sign",
        "interp/report/circuit_formats.py",
        'arrow = "-->" if score >= 0 else "-.->"',
        'arrow = "-->" if score <= 0 else "-.->"',
        "circuits/test_circuit_result.py::test_mermaid_is_read_back",
    ),
]
