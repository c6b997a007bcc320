"""Mistakes that the tests must notice: each changes one line of the package and turns a test red.

    python -m benchmarks.mutants               # all of them, and the table in mutants.md
    python -m benchmarks.mutants --list
    python -m benchmarks.mutants --only holm_without_the_factor

A mutant is made in a copy of the repository; the repository itself is left alone. Its tests must
pass without it. The exit code is 1 when a mutant survives.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks.mutants_analyses import ANALYSES
from benchmarks.mutants_case import Mutant, mutant
from benchmarks.mutants_statistics import STATISTICS

ROOT = Path(__file__).parents[1]
TABLE = Path(__file__).with_suffix(".md")


MUTANTS = [
    mutant(
        "kernel_without_the_scale",
        "kernels/interp_kernels/reference.py",
        "(attention.q.to(dtype) * attention.scale) @ k.mT",
        "attention.q.to(dtype) @ k.mT",
        "kernels/test_definition.py::test_pattern_is_what_the_loops_say",
    ),
    mutant(
        "columns_summed_over_keys",
        "kernels/interp_kernels/reference.py",
        "return pattern.abs().sum(-2)",
        "return pattern.abs().sum(-1)",
        "kernels/test_definition.py::test_every_reduction_is_what_the_loops_say",
    ),
    mutant(
        "causal_mask_off_by_one",
        "kernels/interp_kernels/masks.py",
        "seen = seen & (key <= query)",
        "seen = seen & (key <= query + 1)",
        "kernels/test_definition.py::test_pattern_is_what_the_loops_say",
    ),
    mutant(
        "window_one_key_too_wide",
        "kernels/interp_kernels/masks.py",
        "seen = seen & (key > query - attention.window)",
        "seen = seen & (key >= query - attention.window)",
        "kernels/test_definition.py::test_pattern_is_what_the_loops_say",
    ),
    mutant(
        "kernel_groups_interleaved",
        "kernels/interp_kernels/reference.py",
        "return pattern @ v.to(pattern.dtype).repeat_interleave(group, dim=1)",
        "return pattern @ v.to(pattern.dtype).repeat(1, group, 1, 1)",
        "kernels/test_definition.py::test_every_reduction_is_what_the_loops_say",
    ),
    mutant(
        "column_values_of_another_group",
        "kernels/interp_kernels/blockwise.py",
        "found.mul_(norm.repeat_interleave(attention.shape.group, dim=1))",
        "found.mul_(norm.repeat(1, attention.shape.group, 1))",
        "kernels/test_conformance.py::test_many_short_prompts_of_several_heads",
    ),
    mutant(
        "kv_head_of_another_group",
        "interp/model/calls/call.py",
        "x.repeat_interleave(heads // x.shape[1], 1)",
        "x.repeat(1, heads // x.shape[1], *[1] * (x.dim() - 2))",
        "circuits/test_residual_graph.py::test_one_path_equals_real_forwards_with_hooks",
    ),
    mutant(
        "heads_cut_from_the_projections_output",
        "interp/model/locate/head_outputs.py",
        'return torch.einsum("...hv,hvm->...hm", outputs, self.matrix.to(outputs))',
        'return torch.einsum("...hv,hvm->...m", outputs, self.matrix.to(outputs))'
        ".unflatten(-1, (len(self.matrix), -1)).repeat_interleave(len(self.matrix), -1)",
        "model/test_capture.py::"
        "test_the_results_of_all_heads_and_the_bias_are_the_attention_output",
    ),
    mutant(
        "edit_of_the_group_instead_of_the_head",
        "interp/model/edits.py",
        "chosen[heads] = True",
        "chosen[[h // 2 * 2 + i for h in heads for i in (0, 1)]] = True",
        "model/test_edits.py::test_an_edit_acts_on_query_heads_not_on_their_group",
    ),
    mutant(
        "mean_ablation_over_heads",
        "interp/causal/game/replacement.py",
        "total = kept.sum((0, 2))[:, None]",
        "total = kept.sum((0, 2)).mean(0, keepdim=True).expand(kept.shape[1], -1)[:, None]",
        "causal/test_game.py::test_every_head_equals_edits_and_full_forwards",
    ),
    mutant(
        "padding_counted_in_means",
        "interp/causal/game/replacement.py",
        "kept = z * real[:, None, :, None]",
        "kept = z",
        "causal/test_game.py::test_every_head_equals_edits_and_full_forwards",
    ),
    mutant(
        "induction_offset_by_one",
        "interp/heads/detectors/induction.py",
        "return (key >= 1) & (key <= query) & (tokens[key - 1] == tokens[query])",
        "return (key >= 1) & (key <= query) & (tokens[key] == tokens[query])",
        "contract/test_declarations.py::test_worked_example",
    ),
    mutant(
        "previous_token_is_the_current",
        "interp/heads/detectors/previous_token.py",
        "return key == query - 1",
        "return key == query",
        "contract/test_declarations.py::test_worked_example",
    ),
    mutant(
        "null_prompts_not_shuffled",
        "interp/core/prompts.py",
        "*rng.permutation(p[first:]).tolist()",
        "*p[first:]",
        "heads/test_scoring.py::test_shuffling_keeps_tokens_targets_and_the_first",
    ),
    mutant(
        "standard_error_with_n",
        "interp/core/standard_errors.py",
        "values.std(-1, ddof=1) / math.sqrt(n)",
        "values.std(-1) / math.sqrt(n)",
        "causal/test_ablation.py::test_the_table_says_what_was_done",
    ),
    mutant(
        "holm_without_the_factor",
        "interp/core/statistics.py",
        "np.maximum.accumulate(p[order] * (len(order) - np.arange(len(order))))",
        "np.maximum.accumulate(p[order])",
        "core/test_statistics.py::test_holm_is_the_step_down_correction",
    ),
    mutant(
        "shapley_weights_of_all_coalitions_alike",
        "interp/causal/shapley_values/exact.py",
        "math.lgamma(s + 1) + math.lgamma(n - s) - math.lgamma(n + 1) for s",
        "-math.log(2) * (n - 1) for s",
        "causal/test_shapley.py::test_exact_values_equal_the_mean_over_all_orders",
    ),
    mutant(
        "integrated_gradients_from_the_left_ends",
        "interp/attribution/methods/integrated_gradients.py",
        ".to(way) + 0.5",
        ".to(way)",
        "attribution/test_gradient_methods.py::"
        "test_integrated_gradients_are_taken_at_the_midpoints",
    ),
    mutant(
        "rollout_without_the_residual",
        "interp/attribution/graph/layered.py",
        "mixed[np.diag_indices(n)] += residual",
        "mixed[np.diag_indices(n)] += 0",
        "attribution/test_rollout.py::test_identity_attention_stays_where_it_is",
    ),
    mutant(
        "logit_lens_without_the_final_norm",
        "interp/lens/finish.py",
        "            stream = part_output(self.module(step.module), stream)",
        "            if step.kind != 'norm':\n"
        "                stream = part_output(self.module(step.module), stream)",
        "lens/test_lens.py::"
        "test_the_deepest_logits_are_the_models_own_and_the_first_those_of_the_embedding",
    ),
    mutant(
        "edge_to_a_writer_that_comes_later",
        "interp/circuits/residual_graph.py",
        "for w in self.writers[: r.n_before])",
        "for w in self.writers[r.n_before :])",
        "circuits/test_residual_graph.py::test_readers_and_writers_of_a_sequential_model",
    ),
    mutant(
        "refusal_direction_of_the_other_sign",
        "interp/safety/direction.py",
        "difference = harmful - harmless",
        "difference = harmless - harmful",
        "safety/test_safety.py::test_search_finds_what_the_head_writes_and_reports_each_filter",
        "safety/test_safety.py::test_a_direction_taken_out_is_gone_and_one_added_is_there",
    ),
    mutant(
        "smallest_spanning_tree",
        "interp/syntax/spanning.py",
        "if not inside[v] and (u < 0 or best[v] > best[u]):",
        "if not inside[v] and (u < 0 or best[v] < best[u]):",
        "syntax/test_spanning.py::test_sums_are_those_of_networkx",
    ),
    mutant(
        "text_of_pictures_not_escaped",
        "interp/draw/svg.py",
        'inside = "".join(map(escape, children))',
        'inside = "".join(map(str, children))',
        "report/test_report.py::test_names_are_text_and_nothing_is_fetched",
    ),
    mutant(
        "file_written_in_place",
        "interp/core/files.py",
        'path.with_name(f".{path.name[:100]}.{os.getpid()}-{secrets.token_hex(4)}.tmp")',
        "(path.unlink(missing_ok=True), path)[1]",
        "core/test_store.py::test_a_failed_write_leaves_what_was_there",
    ),
    mutant(
        "resumed_under_another_key",
        "interp/core/steps.py",
        'if notes["key"] != self.notes["key"]:',
        'if notes["key"] == "":',
        "core/test_run_steps.py::test_a_finished_file_of_another_run_is_set_aside",
    ),
    mutant(
        "hash_without_the_weights",
        "interp/model/content.py",
        "        digest.update(_bytes(x))\n",
        "",
        "model/test_content.py",
    ),
    mutant(
        "precision_of_the_lowest_scores",
        "interp/circuits/head_evaluation.py",
        "score[ordered(score)[:k][-1]]",
        "score[ordered(score, lowest=True)[:k][-1]]",
        "circuits/test_codes.py::test_figures_of_a_ranking_by_hand",
    ),
    *ANALYSES,
    *STATISTICS,
]


def occurrences(one: Mutant, root: Path = ROOT) -> int:
    """How often the text of a mutant stands in its file."""
    path = root / one.file
    return path.read_text(encoding="utf-8").count(one.old) if path.is_file() else 0


def require_applicable(mutants: Iterable[Mutant]) -> None:
    """Stop with a list of the mutants whose text is not found exactly once."""
    wrong = [
        f"{one.name}: {occurrences(one)} times in {one.file}, not once: {one.old!r}"
        for one in mutants
        if occurrences(one) != 1
    ]
    if wrong:
        sys.exit(
            "the text of a mutant was moved or rewritten; correct MUTANTS:\n" + "\n".join(wrong)
        )


def copied(to: Path) -> Path:
    """A copy of the files that git tracks, as they are now."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, to / name)
    return to


def failing(copy: Path, tests: Iterable[str]) -> list[str]:
    """The ids of the first failing tests in a copy; empty where all pass."""
    paths = [str(copy), str(copy / "kernels"), str(copy / "tests")]
    # Kernels that numba compiled from the line before a change must not be found again.
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NUMBA_CACHE_DIR": tempfile.mkdtemp(dir=copy),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", "not slow and not gpu", "--no-header", "--tb=no", *dict.fromkeys(tests)],
        cwd=copy,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode == 0:
        return []
    marks = ("FAILED ", "ERROR ")
    found = [
        x.split(" - ")[0].split(" ", 1)[1] for x in done.stdout.splitlines() if x.startswith(marks)
    ]
    if done.returncode != 1 or not found:  # no test ran, or pytest itself failed
        sys.exit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return found


def caught_by(one: Mutant, copy: Path) -> list[str]:
    """The tests that fail with a mutant."""
    path = copy / one.file
    text = path.read_text(encoding="utf-8")
    try:
        path.write_text(text.replace(one.old, one.new), encoding="utf-8")
        return failing(copy, one.tests)
    finally:
        path.write_text(text, encoding="utf-8")


def page(caught: dict[str, str]) -> str:
    """The table of mutants.md."""
    lines = [
        "# Mutants",
        "",
        "Each line is one mistake made in the package on purpose, and a test that then fails.",
        "`python -m benchmarks.mutants` makes the table again; the lists are in `mutants.py`,",
        "`mutants_analyses.py` and `mutants_statistics.py`.",
        "",
        "| mutant | file | caught by |",
        "|---|---|---|",
    ]
    lines += [f"| {m.name} | `{m.file}` | `{caught[m.name]}` |" for m in MUTANTS]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the mutants that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print the mutants and stop")
    parser.add_argument("--only", action="append", metavar="NAME", help="run this mutant alone")
    given = parser.parse_args()
    if unknown := set(given.only or ()) - {one.name for one in MUTANTS}:
        parser.error(f"no mutant {', '.join(sorted(unknown))}; --list names them")
    chosen = [one for one in MUTANTS if not given.only or one.name in given.only]
    if given.list:
        print("\n".join(f"{one.name:42} {one.file}" for one in chosen))
        return 0
    require_applicable(chosen)
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        if red := failing(copy, [test for one in chosen for test in one.tests]):
            sys.exit(f"red without any mutant: {', '.join(red)}")
        caught = {}
        for one in chosen:
            start = time.perf_counter()
            caught[one.name] = ", ".join(caught_by(one, copy)).removeprefix("tests/")
            said = f"red: {caught[one.name]}" if caught[one.name] else "SURVIVED"
            print(f"{one.name:42} {time.perf_counter() - start:5.1f} s  {said}", flush=True)
    survived = [name for name, tests in caught.items() if not tests]
    print(f"{len(caught) - len(survived)} of {len(caught)} mutants turn a test red")
    if not survived and not given.only:
        TABLE.write_text(page(caught), encoding="utf-8")
    return int(bool(survived))


if __name__ == "__main__":
    sys.exit(main())
