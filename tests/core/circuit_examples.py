"""One example per result class of `interp.circuits`, by its full name."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from core.result_inputs import model

import interp
from interp.circuits.causal_tracing import causal_tracing
from interp.circuits.contrast import ContrastTask
from interp.circuits.edge_evaluation import EdgeEvaluation, evaluate_edges
from interp.circuits.evaluation import evaluate_circuit
from interp.circuits.facts import Fact
from interp.circuits.find import find_circuit
from interp.circuits.head_evaluation import Evaluation
from interp.circuits.made_pairs import MadePairs, make_pairs
from interp.circuits.patched import patch_first
from interp.circuits.path_patching import path_patching
from interp.circuits.position_map import patching_map
from interp.circuits.published import Published
from interp.circuits.query_key_signals import signals
from interp.circuits.result import Circuit
from interp.circuits.set_evaluation import SetEvaluation, evaluate_set
from interp.circuits.smallest import smallest_set
from interp.circuits.tasks import make_contrast
from interp.circuits.variables.find import find_variables
from interp.circuits.why.attribution_graph import attribution_graph
from interp.circuits.why.graph_result import AttributionGraph
from interp.circuits.why.loadings import head_loadings
from interp.circuits.why.qk_shares import qk_shares
from interp.circuits.why.share_check import check_shares
from interp.circuits.why.shares import QKShares
from interp.core.prompts import repeats
from interp.core.result import Result
from interp.core.result_rows import ResultRows


@cache
def contrast() -> ContrastTask:
    return make_contrast(model(), "planted:bystander", n=5)


@cache
def set_evaluation() -> SetEvaluation:
    return evaluate_set(model(), smallest_set(model(), circuit(), contrast()), contrast())


def made_pairs() -> MadePairs:
    from syntax.made import word_tokenizer

    words = word_tokenizer([f"v{i}" for i in range(40)])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "made.toml"
        path.write_text(
            '[slots]\nA = ["v1", "v2", "v3", "v4", "v5"]\nB = "A"\nC = "A"\n[[templates]]\n'
            'clean = "{A} {B} {A}"\ncorrupted = "{C} {B} {A}"\nanswer = "{B}"\nwrong = "{C}"\n'
        )
        return make_pairs(interp.load("planted:bystander", tokenizer=words), path, n=6)


def position_map() -> ResultRows:
    return patching_map(model(), contrast(), "attention", by="position")


def path_effects() -> ResultRows:
    return path_patching(model(), contrast(), ["*>1.0.k", "0.3>1.0.k>logits"])


def causal_traces() -> ResultRows:
    facts = [Fact((0, 5, x, 9, 5), (2, 3)) for x in (7, 8, 11)]
    return causal_tracing(model(), facts, "attention", noise=12.0, n_samples=3)


def circuit() -> Circuit:
    return find_circuit(model(), contrast(), "exact_patching")


def evaluation() -> Evaluation:
    return evaluate_circuit(model(), circuit(), contrast(), n_random=2)


def edge_evaluation() -> EdgeEvaluation:
    edges = find_circuit(model(), contrast(), "attribution_patching", "edge")
    return evaluate_edges(model(), edges, contrast(), n_random=2)


def patched() -> ResultRows:
    return patch_first(model(), circuit(), contrast(), 3)


def published_comparison() -> ResultRows:
    known = Published("p", "m", (), 2, 2, "t", "heads", "a test", {"r": circuit().head_names[:1]})
    return known.compared(circuit())


def query_key_signals() -> ResultRows:
    return signals(model(), contrast().clean)


@cache
def traced_ids() -> tuple[tuple[int, ...], ...]:
    return repeats(model(), n=6, max_length=6).ids


def shares_of_scores() -> QKShares:
    return qk_shares(model(), "L1H0,L1H1", traced_ids(), at="induction")


def share_check() -> ResultRows:
    return check_shares(model(), "L1H0", traced_ids(), at="induction", top=2)


def loadings() -> ResultRows:
    same = [ids for ids in traced_ids() if len(ids) == len(traced_ids()[0])]
    return head_loadings(model(), "L1H0", same)


def graph_of_prompt() -> AttributionGraph:
    return attribution_graph(model(), traced_ids()[0])


def variables_found() -> Result:
    """Variables of induction in two heads of a planted model."""
    return find_variables(model(), None, ["L0H0", "L1H0"], ranks=[4], steps=4)


CIRCUIT_EXAMPLES: dict[str, Callable[[], Result]] = {
    "interp.circuits.edge_evaluation.EdgeEvaluation": edge_evaluation,
    "interp.circuits.head_evaluation.Evaluation": evaluation,
    "Patched": patched,
    "interp.circuits.made_pairs.MadePairs": made_pairs,
    "CausalTraces": causal_traces,
    "PathEffects": path_effects,
    "PatchingMap": position_map,
    "interp.circuits.set_evaluation.SetEvaluation": set_evaluation,
    "PublishedComparison": published_comparison,
    "Signals": query_key_signals,
    "interp.circuits.why.graph_result.AttributionGraph": graph_of_prompt,
    "HeadLoadings": loadings,
    "ShareCheck": share_check,
    "interp.circuits.why.shares.QKShares": shares_of_scores,
    "interp.circuits.result.Circuit": circuit,
    "Variables": variables_found,
}
