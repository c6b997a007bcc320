"""One example per result class, by its full name; models are small and made once."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable
from dataclasses import fields

import numpy as np
from core.alignment_examples import ALIGNMENT_EXAMPLES, reordering
from core.causal_examples import CAUSAL_EXAMPLES
from core.circuit_examples import CIRCUIT_EXAMPLES
from core.result_inputs import MADE, model, prompts, table, task
from core.safety_examples import SAFETY_EXAMPLES
from core.vision_examples import VISION_EXAMPLES
from probes.made_features import made
from syntax.found import scores

import interp
from interp import alignment, attribution, cache
from interp.attribution.evaluation.deceived import deceived_ranks
from interp.attribution.evaluation.result import Faithfulness
from interp.attribution.similarity_matrix import matrix_rows
from interp.bundled.deceive_text import sentences
from interp.cache.patterns import gate_rows
from interp.cache.windows import KVHead
from interp.causal.harness.scores import RANDOM, run_rows
from interp.core.differences import difference_rows
from interp.core.prompts import repeats
from interp.core.result import Result
from interp.core.result_rows import ResultRows
from interp.dictionaries import (
    ablate_features,
    feature_cards,
    monosemanticity,
    probe_features,
    profile_heads,
    score_dictionary,
    score_lorsa,
    train_dictionary,
    train_lorsa,
)
from interp.heads import needle, patterns
from interp.heads.between_models.result import ModelDifferences
from interp.heads.causal_check.head_transfer import judge_transfers
from interp.heads.causal_check.result import CausalCheck, Confirmation
from interp.heads.machine_limits import roofline
from interp.heads.outliers import activations, channels, entropies, sinks
from interp.heads.weights._composition import composition_scores
from interp.lens.direct import direct_logit_attribution
from interp.lens.encoder_layers import decoder_lens
from interp.lens.logit import logit_lens
from interp.lens.tuned import tuned_lens
from interp.model.content import model_provenance
from interp.probes import train_probe
from interp.profiles import Profile, compare_profiles, context_needed, portability
from interp.syntax.pairs import pair_rows
from interp.syntax.topic_embeddings import product_rows
from interp.text import chains, context, graphs
from interp.text.chains import Chain


class Told(context.Endpoint):
    """An endpoint that is not asked: the answer follows from what is given."""

    def log_probability(self, text: str, answer: str) -> float:
        return -1.0 - ("a" not in text) - 0.5 * ("b" not in text)


def sparse_probing() -> ResultRows:
    texts = [(0, *range(i, i + 6)) for i in range(2, 26)]
    return probe_features(model(), dictionary(), texts, [0] * 12 + [1] * 12, k=[2], seed=1)


def profiled() -> Profile:
    rng = np.random.default_rng(0)
    rows = [(0, *rng.integers(1, 9, 20).tolist()) for _ in range(10)]
    return interp.profile(model(), rows, rules=["induction", "previous_token"], n_queries=6)


def carried_over() -> ResultRows:
    rng = np.random.default_rng(0)
    rows = [(0, *rng.integers(1, 9, 20).tolist()) for _ in range(20)]
    corpora = {"a": rows[:10], "b": rows[10:]}
    return portability(model(), corpora, rules=["induction", "previous_token"], n_queries=6)


def context_of_heads() -> ResultRows:
    rng = np.random.default_rng(0)
    rows = [(0, *rng.integers(1, 9, 20).tolist()) for _ in range(10)]
    return context_needed(model(), rows, widths=(0, 4), n_queries=6)


def verdict() -> ResultRows:
    rng = np.random.default_rng(0)
    rows = [(0, *rng.integers(1, 9, 20).tolist()) for _ in range(24)]
    with tempfile.TemporaryDirectory() as folder:
        given = {"n_documents": 12, "n_queries": 6, "questions": folder}
        return interp.judge(model(), "L0H0=duplicate_token", rows, **given)


def probe() -> ResultRows:
    features, y, where = made(documents=8, each=2)
    return train_probe(features, y.tolist(), where.tolist(), folds=2, n_permutations=3)


@functools.cache
def dictionary() -> ResultRows:
    return train_dictionary(
        model(), prompts(), layer=1, site="attn_out", d_sae=16, k=2, steps=4, batch_rows=16
    )


def differences() -> ResultRows:
    rows = tuple({"model": "m", "head": f"h{i}", "metric": "x", "unit": "nats"} for i in range(3))
    values = np.random.default_rng(0).normal(size=(3, 8))
    return difference_rows(rows, values, None, MADE)


def model_differences() -> ModelDifferences:
    return interp.compare(model(), "planted:bystander", ["induction", "first_token"], prompts())


def confirmation() -> Confirmation:
    numbers = {f.name: 0.25 for f in fields(CausalCheck) if f.type == "float"}
    counts = {f.name: 3 for f in fields(CausalCheck) if f.type == "int"}
    damages = np.random.default_rng(0).normal(1, 0.1, (3, 1, 8))
    moved = judge_transfers(["L0H1"], "answer", "nats", *damages)
    checks = tuple(
        CausalCheck(
            model="m",
            metric=metric,
            task="loss",
            purpose="own",
            kind="zero",
            unit="nats",
            higher_is_better=False,
            heads=("L0H1",),
            same_prompts=False,
            transfers=moved,
            **numbers,
            **counts,
        )
        for metric in ("induction", "previous_token")
    )
    return Confirmation(checks, MADE)


def retrieval_methods() -> Result:
    names = ["retrieval", "razor_induction"]
    return cache.retrieval_methods(model(), names, needles=2, task="ids", null="none")


def gate_pattern() -> ResultRows:
    heads = tuple(KVHead("decoder", 0, k) for k in range(3))
    return gate_rows(heads, (0.1, 0.5, 1.0), cache.Window(2, 8), MADE)


def instances() -> list[needle.Instance]:
    return needle.ids_instances(model(), needles=2, lengths=(20,), depths=(0, 1))


@functools.cache
def linked() -> list[chains.Chain]:
    return chains.linked_chains(model(), n_chains=2, n_sentences=7, length=4, anchors=1, links=2)


def pair_check() -> ResultRows:
    margin, lost = np.random.default_rng(0).normal(size=(2, 6))
    without = np.stack([lost, margin, margin + 0.1])
    sets = (("L0H0",), ("L0H1",), ("L0H2",))
    return pair_rows(sets, margin, without, "log-likelihood", MADE)


def topics() -> ResultRows:
    rows = np.array([[0.4, 0.2, 0.5], [-0.1, -0.2, 0.0], [0.5, 0.4, 0.5]])
    return product_rows(rows, np.zeros(3), MADE)


def attributed() -> attribution.Attribution:
    return attribution.attribute(model(), prompts().ids[0], "occlusion", how="mean")


def faithful() -> Faithfulness:
    methods = ("first", "random_scores", "third", "failing")
    rows = tuple(
        {"method": m, "text": t, "tokens": 5, "error": ""}
        | {"spearman": 0.1 * t * t * i + i if i < 3 else None, "sufficiency": 1.0 - 0.1 * t * i}
        for i, m in enumerate(methods)
        for t in range(4)
    )
    needs = dict.fromkeys(methods, "forward")
    return Faithfulness(
        rows, ("a b", "c d", "e f", "g h"), needs, deceived_ranks(deception()), MADE
    )


@functools.cache
def deception() -> ResultRows:
    methods = ["raw_attention", "random_scores", "occlusion:how=mask"]
    return attribution.deceived(attribution.choose_methods(methods), n=3)


def differences_of_prompts() -> ResultRows:
    ids = [list(x) for x in prompts().ids]
    turned = [x[::-1] for x in ids]
    return attribution.explain_difference(
        model(), ids, "random_scores", "id:5", other_prompts=turned, per="token"
    )


@functools.cache
def translators() -> ResultRows:
    ids = repeats(model(), n=8).ids
    return tuned_lens(model(), [x[:6] for x in ids], steps=1)


def cosine_parts() -> ResultRows:
    special = np.array([True, False]), np.array([False, False, True])
    matrix = np.arange(6.0).reshape(2, 3) / 10
    return matrix_rows(
        ("[CLS]", "a"), ("b", "c", "[SEP]"), matrix, 0.9, (0.1, 0.2, -0.3), special, MADE
    )


@functools.cache
def weights_by_ablation() -> ResultRows:
    said = sentences(1_000, 5)
    return attribution.learn_head_weights(
        interp.load("bundled:deceive"), [s.text for s in said], "she|he", n_ablations=4
    )


MAKERS: dict[str, Callable[[], Result]] = {
    **CAUSAL_EXAMPLES,
    **CIRCUIT_EXAMPLES,
    **SAFETY_EXAMPLES,
    **ALIGNMENT_EXAMPLES,
    **VISION_EXAMPLES,
    "LearnedHeadWeights": weights_by_ablation,
    "SimilarityMatrix": cosine_parts,
    "PromptMeans": differences_of_prompts,
    "TunedLens": translators,
    "DeceptionTest": deception,
    "MethodDifferences": lambda: faithful().differences(),
    "interp.attribution.evaluation.result.Faithfulness": faithful,
    "interp.attribution.result.Attribution": attributed,
    "ProbeResult": probe,
    "interp.profiles.result.Profile": profiled,
    "Differences": differences,
    "interp.core.table.HeadTable": table,
    "interp.dictionaries.card_result.FeatureCards": lambda: feature_cards(
        model(), dictionary().dictionary, prompts(), n_features=3
    ),
    "DictionaryScores": lambda: score_dictionary(model(), dictionary(), prompts()),
    "Monosemanticity": lambda: monosemanticity(
        {"head": profile_heads(model(), repeats(model(), n=4, max_length=8), 1)}
    ),
    "FeatureEffects": lambda: ablate_features(model(), dictionary().dictionary, task(), [0, 1]),
    "LorsaScores": lambda: score_lorsa(
        model(), train_lorsa(model(), prompts(), layer=1, n_heads=8, steps=2, k=2), prompts()
    ),
    "LorsaTraining": lambda: train_lorsa(model(), prompts(), layer=1, n_heads=8, steps=2, k=2),
    "UnitProfile": lambda: profile_heads(model(), prompts(), 1),
    "DictionaryTraining": dictionary,
    "SparseProbing": sparse_probing,
    "interp.heads.between_models.result.ModelDifferences": model_differences,
    "interp.heads.between_models.matches.HeadMatches": lambda: interp.heads.match_heads(
        model(), "planted:bystander", prompts(), n_random=9, n_boot=9
    ),
    "interp.heads.causal_check.result.Confirmation": confirmation,
    "interp.heads.roles.result.HeadRoles": lambda: interp.roles(table()),
    "interp.text.chains.anchors_result.Anchors": lambda: chains.thought_anchors(
        model(), linked(), min_distance=2, n_heads=2, methods=["attention", "suppression"]
    ),
    "ReceiverHeads": lambda: chains.receiver_heads(model(), linked(), min_distance=2),
    "interp.heads.checkpoints.result.Emergence": lambda: interp.heads.emergence(
        [model(), "planted:bystander"], "induction", prompts(), steps=[1, 2]
    ),
    "PassageOrder": lambda: context.passage_order(
        model(),
        [Chain((0, *range(9, 15)), ((1, 3), (3, 5), (5, 7)), ("",) * 3, (), (20,), sources=(1,))]
        * 2,
        n_random=2,
    ),
    "HarnessScores": lambda: run_rows(
        {
            run: {("pairs", "acc"): (np.array(x, float), float(np.mean(x)))}
            for run, x in {"model": [1, 1, 0], "without": [0, 1, 0], RANDOM: [1, 0.5, 0]}.items()
        },
        model_provenance(model())
        | {"made_by": "interp.causal.harness_scores", "prompts_hash": "pairs"},
    ),
    "AnswerSources": lambda: context.answer_sources(
        model(), linked()[0], methods=["attention", "leave_one_out"]
    ),
    "EndpointFaithfulness": lambda: context.endpoint_faithfulness(
        Told("http://localhost/v1/completions", "told"), ["a. ", "b. "], "Q", " A", [1.0, 0.0]
    ),
    "SourceJudgement": lambda: context.judge_sources(
        model(), linked(), methods=["attention", "heads"], n_heads=1
    ),
    "interp.text.graphs.graph.AttentionGraph": lambda: graphs.attention_graph(
        model(), prompts().ids[0], threshold="row:2"
    ),
    "StaticAttention": lambda: graphs.static_heads(model(), prompts(), rows=3),
    "CacheCards": lambda: cache.cache_cards(model(), null="none"),
    "interp.cache.methods.RetrievalMethods": retrieval_methods,
    "GatePattern": gate_pattern,
    "interp.cache.plan_result.CachePlan": lambda: cache.cache_plan(model(), budget="80%"),
    "ContextSources": lambda: cache.attribute_context(model(), instances(), segment=4, k=1),
    "interp.heads.needle.copying.CopyPaste": lambda: needle.copy_paste(model(), instances()),
    "QuestionMass": lambda: needle.question_mass(model(), instances()),
    "interp.heads.outliers.activations.Outliers": lambda: activations.layer_outliers(
        model(), prompts()
    ),
    "Disruption": lambda: channels.disruption(model(), task()),
    "Massive": lambda: channels.massive(model(), prompts()),
    "LayerEntropies": lambda: entropies.layer_entropies(model(), prompts()),
    "Roofline": lambda: roofline(model(), prompts(), ["entropy"], machine="100,10"),
    "SinkMass": lambda: sinks.sink_mass(model(), prompts()),
    "Compositions": lambda: composition_scores(model(), "k"),
    "QuantisedHeads": lambda: interp.heads.quantised_heads(
        model(), interp.repeats(model(), n=4, max_length=12), k=1, n_random=1
    ),
    "interp.heads.patterns.blocks.LongView": lambda: patterns.long_view(
        model(), prompts().ids[0], heaviest=1
    ),
    "interp.heads.patterns.result.View": lambda: patterns.view(model(), prompts().ids[0]),
    "DirectLogits": lambda: direct_logit_attribution(model(), prompts().ids[0]),
    "DecoderLens": lambda: decoder_lens(
        reordering(), alignment.encode_pairs(reordering(), alignment.made_sentence_pairs(4)).prompts
    ),
    "LogitLens": lambda: logit_lens(model(), prompts().ids[0], k=2),
    "PairCheck": pair_check,
    "interp.syntax.result.TreeScores": lambda: scores("m", provenance=MADE),
    "ContextNeeded": context_of_heads,
    "Verdict": verdict,
    "Portability": carried_over,
    "ProfileChanges": lambda: compare_profiles(*[profiled()] * 2),
    "TopicProducts": topics,
}
EXAMPLES = {name: functools.cache(make) for name, make in MAKERS.items()}
"""Each is made once per process: a test must not change one."""
