"""One example per result class, by its full name; models are small and made once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import cache

import numpy as np
import torch
from core.causal_examples import CAUSAL_EXAMPLES
from core.circuit_examples import CIRCUIT_EXAMPLES
from core.result_inputs import MADE, model, prompts, table, task
from core.safety_examples import SAFETY_EXAMPLES
from probes.made_features import made
from syntax.found import scores

import interp
from interp import attribution
from interp.attribution.evaluation.deceived import DeceptionTest
from interp.attribution.evaluation.result import Faithfulness
from interp.attribution.learned_weights import LearnedHeadWeights
from interp.attribution.similarity_matrix import SimilarityMatrix
from interp.bundled.deceive_text import sentences
from interp.bundled.shape_images import ShapeImages, shape_images
from interp.core.prompt_means import PromptMeans
from interp.core.prompts import repeats
from interp.core.result import Differences, Result
from interp.dictionaries import (
    ablate_features,
    feature_cards,
    monosemanticity,
    profile_heads,
    score_dictionary,
    score_lorsa,
    train_dictionary,
    train_lorsa,
)
from interp.dictionaries.training_result import DictionaryTraining
from interp.heads import (
    alignment,
    chains,
    context,
    graphs,
    kv_cache,
    needle,
    patterns,
    vision,
    vision_language,
)
from interp.heads.between_models.result import ModelDifferences
from interp.heads.causal_check.result import CausalCheck, Confirmation
from interp.heads.machine_limits import roofline
from interp.heads.outliers import activations, channels, entropies, sinks
from interp.heads.vision_language.grounding import GroundingHeads
from interp.heads.vision_language.result import ImageTokenEffects
from interp.heads.vision_language.sinks import VisualSinks
from interp.heads.weights._composition import composition_scores
from interp.lens.direct import direct_logit_attribution
from interp.lens.encoder_layers import decoder_lens
from interp.lens.logit import logit_lens
from interp.lens.tuned import TunedLens, tuned_lens
from interp.planted.with_picture import image_text
from interp.planted.with_sound import spoken_words
from interp.probes import train_probe
from interp.probes.result import ProbeResult
from interp.profiles import Profile
from interp.syntax.pairs import PairCheck
from interp.syntax.topic_embeddings import TopicProducts


@cache
def pictures() -> tuple:
    planted = image_text()
    return interp.load(planted.model, name="picture"), *planted.prompts(4)


def grounded() -> GroundingHeads:
    return vision_language.grounding_heads(*pictures(), k=2)


def dropped_tokens() -> ImageTokenEffects:
    return vision_language.drop_tokens(*pictures(), drop=[0.5, 0.75], draws=1)


def visual_sinks_found() -> VisualSinks:
    return vision_language.visual_sinks(*pictures()[:2])


def profiled() -> Profile:
    rng = np.random.default_rng(0)
    rows = [(0, *rng.integers(1, 9, 20).tolist()) for _ in range(10)]
    return interp.profile(model(), rows, rules=["induction", "previous_token"], n_queries=6)


def probe() -> ProbeResult:
    features, y, where = made(documents=8, each=2)
    return train_probe(features, y.tolist(), where.tolist(), folds=2, permutations=3)


@cache
def dictionary() -> DictionaryTraining:
    return train_dictionary(
        model(), prompts(), layer=1, site="attn_out", d_sae=16, k=2, steps=4, batch_rows=16
    )


def differences() -> Differences:
    rows = tuple({"model": "m", "head": f"h{i}", "metric": "x", "unit": "nats"} for i in range(3))
    values = np.random.default_rng(0).normal(size=(3, 8))
    return Differences(rows, values, None, MADE)


def model_differences() -> ModelDifferences:
    return interp.compare(model(), "planted:bystander", ["induction", "first_token"], prompts())


def confirmation() -> Confirmation:
    numbers = {f.name: 0.25 for f in fields(CausalCheck) if f.type == "float"}
    counts = {f.name: 3 for f in fields(CausalCheck) if f.type == "int"}
    checks = tuple(
        CausalCheck(
            model="m", metric=metric, task="loss", purpose="own", kind="zero", unit="nats",
            higher_is_better=False, heads=("L0H1",), same_prompts=False, **numbers, **counts,
        )
        for metric in ("induction", "previous_token")
    )  # fmt: skip
    return Confirmation(checks, MADE)


def retrieval_methods() -> kv_cache.RetrievalMethods:
    names = ["retrieval", "razor_induction"]
    return kv_cache.retrieval_methods(model(), names, needles=2, task="ids", null="none")


def gate_pattern() -> kv_cache.GatePattern:
    heads = tuple(kv_cache.KVHead("decoder", 0, k) for k in range(3))
    return kv_cache.GatePattern(heads, (0.1, 0.5, 1.0), kv_cache.Window(2, 8), MADE)


def instances() -> list[needle.Instance]:
    return needle.ids_instances(model(), needles=2, lengths=(20,), depths=(0, 1))


@cache
def linked() -> list[chains.Chain]:
    return chains.linked_chains(model(), chains=2, sentences=7, length=4, anchors=1, links=2)


def pair_check() -> PairCheck:
    margin, lost = np.random.default_rng(0).normal(size=(2, 6))
    random = np.stack([margin, margin + 0.1])
    drawn = (("L0H1",), ("L0H2",))
    return PairCheck(("L0H0",), margin, lost, random, drawn, "log-likelihood", MADE)


def topics() -> TopicProducts:
    rows = np.array([[0.4, 0.2, 0.5], [-0.1, -0.2, 0.0], [0.5, 0.4, 0.5]])
    return TopicProducts(("same topic", "other topic", "difference"), rows, np.zeros(3), MADE)


@cache
def reordering() -> interp.Model:
    return interp.load("bundled:reorder")


@cache
def word_alignments() -> alignment.HeadAlignments:
    return alignment.word_alignment(reordering(), alignment.made_sentence_pairs(8), null_draws=9)


def both_ways() -> alignment.BothDirections:
    """Twice the same result, with sources and targets swapped in the second."""
    one = word_alignments()
    size = max(one.links.shape[2], *(int(g[:, 0].max()) + 1 for g in one.gold))
    links = np.full((1, len(one.gold), size), -1)
    for at, gold in enumerate(one.gold):
        links[0, at, gold[:, 0]] = gold[:, 1]
    turned = tuple(np.array(sorted(g[:, [1, 0, 2]].tolist())) for g in one.gold)
    back = replace(one.best_head(), links=links, gold=turned)
    return alignment.both_directions(one, back)


def speech_times() -> alignment.TimeAlignments:
    import zoo

    family = zoo.FAMILIES["whisper"]
    speech = interp.load(family.model("eager"), name="whisper")
    inputs = family.inputs(batch=4)
    times = [[0.02 * (t + 1) for t in range(inputs["decoder_input_ids"].shape[1])]] * 4
    return alignment.time_alignment(speech, inputs, times, width=3)


def spoken_times() -> alignment.WordTimes:
    planted = spoken_words()
    speech = interp.load(planted.model, name="spoken")
    speech.tokenizer, speech.processor = planted.processor.tokenizer, planted.processor
    [(sound, words)] = planted.sounds(1)
    given = alignment.Utterance(sound, " ".join(word for word, _ in words), tuple(words))
    return alignment.word_times(speech, [given], heads=["L1H2", "L1H0"])


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
    return Faithfulness(rows, ("a b", "c d", "e f", "g h"), needs, deception().ranks, MADE)


@cache
def deception() -> DeceptionTest:
    methods = ["raw_attention", "random_scores", "occlusion:how=mask"]
    return attribution.deceived(attribution.choose_methods(methods), n=3)


@cache
def shapes() -> interp.Model:
    return interp.load("bundled:shapes-spurious")


@cache
def drawn_shapes() -> ShapeImages:
    return shape_images(3, 16, aligned=0.5)


def query_maps() -> vision.QueryMaps:
    torch.manual_seed(0)
    decoder, tokens = vision.ClassQueries(2, 8, 2), torch.randn(2, 4, 8)
    return vision.query_maps(decoder, tokens, (2, 2), ("a", "b"), torch.rand(2, 3, 8, 8))


def differences_of_prompts() -> PromptMeans:
    ids = [list(x) for x in prompts().ids]
    turned = [x[::-1] for x in ids]
    return attribution.explain_difference(
        model(), ids, "random_scores", "id:5", other_prompts=turned, by="token"
    )


@cache
def translators() -> TunedLens:
    ids = repeats(model(), n=8).ids
    return tuned_lens(model(), [x[:6] for x in ids], steps=1)


def cosine_parts() -> SimilarityMatrix:
    special = np.array([True, False]), np.array([False, False, True])
    matrix = np.arange(6.0).reshape(2, 3) / 10
    return SimilarityMatrix(
        ("[CLS]", "a"), ("b", "c", "[SEP]"), matrix, 0.9, (0.1, 0.2, -0.3), -0.6, special, MADE
    )


@cache
def weights_by_ablation() -> LearnedHeadWeights:
    said = sentences(1_000, 5)
    return attribution.learn_head_weights(
        interp.load("bundled:deceive"), [s.text for s in said], "she|he", ablations=4
    )


EXAMPLES: dict[str, Callable[[], Result]] = {
    **CAUSAL_EXAMPLES,
    **CIRCUIT_EXAMPLES,
    **SAFETY_EXAMPLES,
    "interp.attribution.learned_weights.LearnedHeadWeights": weights_by_ablation,
    "interp.attribution.similarity_matrix.SimilarityMatrix": cosine_parts,
    "interp.core.prompt_means.PromptMeans": differences_of_prompts,
    "interp.lens.tuned.TunedLens": translators,
    "interp.attribution.evaluation.deceived.DeceptionTest": deception,
    "interp.attribution.evaluation.paired.MethodDifferences": lambda: faithful().differences(),
    "interp.attribution.evaluation.result.Faithfulness": faithful,
    "interp.attribution.result.Attribution": attributed,
    "interp.heads.vision_language.grounding.GroundingHeads": grounded,
    "interp.heads.vision_language.result.ImageTokenEffects": dropped_tokens,
    "interp.heads.vision_language.sinks.VisualSinks": visual_sinks_found,
    "interp.probes.result.ProbeResult": probe,
    "interp.profiles.result.Profile": profiled,
    "interp.core.result.Differences": differences,
    "interp.core.table.HeadTable": table,
    "interp.dictionaries.card_result.FeatureCards": lambda: feature_cards(
        model(), dictionary().dictionary, prompts(), most=3
    ),
    "interp.dictionaries.core_metrics.DictionaryScores": lambda: score_dictionary(
        model(), dictionary(), prompts()
    ),
    "interp.dictionaries.explained_attention.Monosemanticity": lambda: monosemanticity(
        {"head": profile_heads(model(), repeats(model(), n=4, longest=8), 1)}
    ),
    "interp.dictionaries.feature_effects.FeatureEffects": lambda: ablate_features(
        model(), dictionary().dictionary, task(), [0, 1]
    ),
    "interp.dictionaries.lorsa_metrics.LorsaScores": lambda: score_lorsa(
        model(), train_lorsa(model(), prompts(), layer=1, n_heads=8, steps=2, k=2), prompts()
    ),
    "interp.dictionaries.lorsa_training.LorsaTraining": lambda: train_lorsa(
        model(), prompts(), layer=1, n_heads=8, steps=2, k=2
    ),
    "interp.dictionaries.profile.UnitProfile": lambda: profile_heads(model(), prompts(), 1),
    "interp.dictionaries.training_result.DictionaryTraining": dictionary,
    "interp.heads.alignment.directions.BothDirections": both_ways,
    "interp.heads.alignment.result.HeadAlignments": word_alignments,
    "interp.heads.alignment.pictures.PairAlignment": lambda: alignment.pair_alignment(
        reordering(), alignment.made_sentence_pairs(1)[0], "L1H0"
    ),
    "interp.heads.alignment.time_result.TimeAlignments": speech_times,
    "interp.heads.alignment.word_times.WordTimes": spoken_times,
    "interp.heads.alignment.translation.TranslationHeads": lambda: alignment.translation_heads(
        reordering(), alignment.made_sentence_pairs(4), null=False
    ),
    "interp.heads.between_models.result.ModelDifferences": model_differences,
    "interp.heads.between_models.matches.HeadMatches": lambda: interp.match_heads(
        model(), "planted:bystander", prompts(), n_null=9, n_boot=9
    ),
    "interp.heads.causal_check.result.Confirmation": confirmation,
    "interp.heads.roles.result.HeadRoles": lambda: interp.roles(table()),
    "interp.heads.chains.anchors_result.Anchors": lambda: chains.thought_anchors(
        model(), linked(), apart=2, k=2, ways=["attention", "suppression"]
    ),
    "interp.heads.chains.receivers.ReceiverHeads": lambda: chains.receiver_heads(
        model(), linked(), apart=2
    ),
    "interp.heads.checkpoints.result.Emergence": lambda: interp.emergence(
        [model(), "planted:bystander"], "induction", prompts(), steps=[1, 2]
    ),
    "interp.heads.context.answer.AnswerSources": lambda: context.answer_sources(
        model(), linked()[0], ways=["attention", "leave_one_out"]
    ),
    "interp.heads.context.judgement.SourceJudgement": lambda: context.judge_sources(
        model(), linked(), ways=["attention", "heads"], k=1
    ),
    "interp.heads.graphs.graph.AttentionGraph": lambda: graphs.attention_graph(
        model(), prompts().ids[0], threshold="row:2"
    ),
    "interp.heads.graphs.static.StaticAttention": lambda: graphs.static_heads(
        model(), prompts(), rows=3
    ),
    "interp.heads.kv_cache.cards.CacheCards": lambda: kv_cache.cache_cards(model(), null="none"),
    "interp.heads.kv_cache.methods.RetrievalMethods": retrieval_methods,
    "interp.heads.kv_cache.patterns.GatePattern": gate_pattern,
    "interp.heads.kv_cache.plan_result.CachePlan": lambda: kv_cache.cache_plan(
        model(), budget="80%"
    ),
    "interp.heads.kv_cache.sources.ContextSources": lambda: kv_cache.attribute_context(
        model(), instances(), segment=4, k=1
    ),
    "interp.heads.needle.copying.CopyPaste": lambda: needle.copy_paste(model(), instances()),
    "interp.heads.needle.question.QuestionMass": lambda: needle.question_mass(model(), instances()),
    "interp.heads.outliers.activations.Outliers": lambda: activations.layer_outliers(
        model(), prompts()
    ),
    "interp.heads.outliers.channels.Disruption": lambda: channels.disruption(model(), task()),
    "interp.heads.outliers.channels.Massive": lambda: channels.massive(model(), prompts()),
    "interp.heads.outliers.entropies.LayerEntropies": lambda: entropies.layer_entropies(
        model(), prompts()
    ),
    "interp.heads.machine_limits.Roofline": lambda: roofline(
        model(), prompts(), ["entropy"], machine="100,10"
    ),
    "interp.heads.outliers.sinks.SinkMass": lambda: sinks.sink_mass(model(), prompts()),
    "interp.heads.weights._composition.Compositions": lambda: composition_scores(model(), "k"),
    "interp.heads.vision.class_queries.QueryMaps": query_maps,
    "interp.heads.vision.correction.CorrectedAccuracy": lambda: vision.correct_spurious_heads(
        shapes(), drawn_shapes(), drawn_shapes().labels, drawn_shapes().cues, ["L2H1"], n_random=2
    ),
    "interp.heads.vision.descriptions.HeadDescriptions": lambda: vision.describe_heads(
        shapes(), drawn_shapes(), np.eye(4), "abcd", heads=["L2H0", "L2H1"], ranks=2, banks=2
    ),
    "interp.heads.vision.maps.ImageMaps": lambda: vision.image_maps(shapes(), drawn_shapes()),
    "interp.heads.vision.result.ImageScores": lambda: vision.image_direct_effects(
        shapes(), drawn_shapes(), drawn_shapes().labels
    ),
    "interp.heads.vision.spurious.SpuriousVotes": lambda: vision.locate_spurious_heads(
        shapes(), drawn_shapes(), drawn_shapes().labels, drawn_shapes().cues, permutations=9
    ),
    "interp.heads.patterns.blocks.LongView": lambda: patterns.long_view(
        model(), prompts().ids[0], heaviest=1
    ),
    "interp.heads.patterns.result.View": lambda: patterns.view(model(), prompts().ids[0]),
    "interp.lens.direct.DirectLogits": lambda: direct_logit_attribution(model(), prompts().ids[0]),
    "interp.lens.encoder_layers.DecoderLens": lambda: decoder_lens(
        reordering(), alignment.encode_pairs(reordering(), alignment.made_sentence_pairs(4)).prompts
    ),
    "interp.lens.logit.LogitLens": lambda: logit_lens(model(), prompts().ids[0], k=2),
    "interp.syntax.pairs.PairCheck": pair_check,
    "interp.syntax.result.TreeScores": lambda: scores("m", provenance=MADE),
    "interp.syntax.topic_embeddings.TopicProducts": topics,
}
