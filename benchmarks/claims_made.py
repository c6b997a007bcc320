"""Cases of claims.py on made data: pictures, alignments, graphs, rationales, dictionaries."""

from __future__ import annotations

import sys
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from claims_case import Case, inside

import interp
from interp import vision
from interp.alignment import word_alignment
from interp.alignment.made import made_sentence_pairs
from interp.alignment.pair_file import SentencePair
from interp.alignment.result import HeadAlignments
from interp.alignment.translation import rank_agreement, translation_rows
from interp.attribution import Rationale, plausibility
from interp.attribution.evaluation.result import MEASURES, Faithfulness
from interp.bundled.shape_images import shape_images
from interp.core.head import Head
from interp.core.rank_statistics import spearman
from interp.dictionaries.card_weights import decoder_shares
from interp.dictionaries.dictionary import Dictionary
from interp.text.chains.anchors_result import Anchors
from interp.text.graphs import graph_of, static_layers
from interp.vision.correction import WORST, accuracy_rows
from interp.vision.spurious import SpuriousVotes
from training.graphs import GraphAttention

LEVEL = 0.05


@cache
def bundled(name: str) -> interp.Model:
    return interp.load(f"bundled:{name}")


# --- alignments ---------------------------------------------------------------------------------


def shuffled_gold(seed: int) -> Any:
    """Whether a head is called that aligns, with links to words in random order."""
    rng, pairs = np.random.default_rng([seed, 1]), []
    for pair in made_sentence_pairs(16, seed=50 + seed):
        order = rng.permutation(len(str(pair.source).split()))
        links = frozenset((int(order[s]), t) for s, t in pair.possible)
        pairs.append(SentencePair(pair.source, pair.target, links))
    found = word_alignment(bundled("reorder"), pairs, n_random=399, seed=seed)
    return found.p_holm < LEVEL


@cache
def aligned_pool() -> HeadAlignments:
    return word_alignment(
        bundled("reorder"), made_sentence_pairs(600, seed=7), select=0.01, n_random=1
    )


def error_rate_intervals(n: int) -> Any:
    def draw(seed: int) -> Any:
        pool = aligned_pool()
        rng = np.random.default_rng([seed, n])
        which = rng.integers(pool.counts.shape[1], size=n)
        part = HeadAlignments(
            pool.of,
            pool.rows,
            pool.counts[:, which],
            pool.chosen_counts,
            pool.steps[:, which],
            pool.links[:, which],
            tuple(pool.gold[i] for i in which),
            tuple(which.tolist()),
            pool.null,
            pool.p,
            pool.p_holm,
            pool.best_of_layer,
            pool.null_kind,
        )
        frame = part.to_pandas()
        return inside(frame["low"], frame["high"], pool.score)

    return draw


def rank_intervals(n: int, spread: float) -> Any:
    """Coverage of the correlation of the true means over 16 heads; pairs vary by 1."""

    def draw(seed: int) -> Any:
        rng = np.random.default_rng([seed, n])
        truth = rng.normal(size=(2, 16)) * spread
        truth[1] = 0.6 * truth[0] + 0.8 * truth[1]
        values = truth[:, :, None] + rng.normal(size=(2, 16, n))
        rows = translation_rows(
            tuple(Head(0, h, "cross") for h in range(16)),
            values[0],
            values[1],
            np.ones((16, n)),
            np.full(16, np.nan),
            {},
        )
        found = rank_agreement(rows, seed)
        row = found[found["statistic"] == "confidence"].iloc[0]
        return inside(row["low"], row["high"], spearman(truth)[0, 1])

    return draw


# --- pictures -----------------------------------------------------------------------------------


def random_vision(classes: int, seed: int) -> interp.Model:
    from transformers import ViTConfig, ViTForImageClassification

    torch.manual_seed(seed)
    module = ViTForImageClassification(
        ViTConfig(
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=2,
            num_attention_heads=4,
            image_size=24,
            patch_size=6,
            num_labels=classes,
        )
    ).eval()
    with torch.no_grad():  # as after training: weights that read the image
        for p in module.parameters():
            p.add_(torch.randn_like(p) * 0.2)
    return interp.load(module, name="random vision", check=False)


def cued(classes: int, lone: bool = False) -> Any:
    """Whether heads are called spurious on cues that have nothing to do with the image."""

    def draw(seed: int) -> Any:
        rng, images = np.random.default_rng([seed, 1]), shape_images(seed, 120, cue="none")
        labels = images.labels % classes
        cues = rng.integers(classes, size=120)
        if lone:  # all cues conflict, and most suggest one class
            cues = (labels + 1 + (rng.random(120) < 0.3)) % classes
        found = vision.locate_spurious_heads(
            random_vision(classes, seed), images.pixels, labels, cues, n_permutations=399, seed=seed
        )
        return found.extra["spurious"]

    return draw


def trained_cued(seed: int) -> Any:
    images = shape_images(1000 + seed, 120, cue="none")
    rng = np.random.default_rng([seed, 1])
    cues = rng.integers(4, size=120)
    noisy = images.pixels + rng.normal(size=images.pixels.shape)
    found = vision.locate_spurious_heads(
        bundled("shapes"), noisy, images.labels, cues, n_permutations=399, seed=seed
    )
    return found.extra["spurious"]


def vote_intervals(wrong: float, right: float) -> Any:
    """Coverage of the difference of shares of votes, of 20 wrong and 25 right images."""

    def draw(seed: int) -> Any:
        hits = [
            int(x.sum())
            for x in (
                np.random.default_rng([seed, k]).random(n) < p
                for k, n, p in ((0, 20, wrong), (1, 25, right))
            )
        ]
        found = SpuriousVotes(
            ("L0H0",),
            (("", 0, 0),),
            ("spurious_votes",),
            ("share of votes",),
            np.full((1, 45), hits[0] / 20 - hits[1] / 25),
            np.zeros(1),
            {"votes_wrong": (hits[0],), "votes_right": (hits[1],)},
            {"images whose cue conflicts": 45, "of them wrong": 20},
        ).to_pandas()
        return inside(found["low"], found["high"], wrong - right)

    return draw


def called(found: Any) -> np.ndarray:
    return np.array(found.extra["p_holm"]) < LEVEL


def random_effects(seed: int) -> Any:
    images = shape_images(seed, 60, cue="none")
    labels = np.random.default_rng([seed, 1]).integers(4, size=60)
    return called(
        vision.image_direct_effects(random_vision(4, seed), images.pixels, labels, seed=seed)
    )


def random_masks(seed: int) -> Any:
    images = shape_images(seed, 40, cue="none")
    masks = shape_images(10_000 + seed, 40, cue="none").masks
    return called(
        vision.map_agreement(
            random_vision(4, seed), images.pixels, masks, methods=("rollout",), seed=seed
        )
    )


def random_registers(seed: int) -> Any:
    """Neurons chosen on random marks of patches."""
    assert vision.register_neurons  # imports its module
    module: Any = sys.modules["interp.vision.register_neurons"]
    kept, rng = module._high_by_layer, np.random.default_rng([seed, 1])
    module._high_by_layer = lambda *_: rng.random((2, 40, 16)) < 0.1
    try:
        images = shape_images(seed, 40, cue="none").pixels
        found = vision.register_neurons(random_vision(4, seed), images, keep=5, seed=seed)
    finally:
        module._high_by_layer = kept
    return called(found)


def worst_groups(number: int, accuracy: float, when: str) -> Any:
    """Coverage of the worst of 8 equal groups, and of its gain by an independent correction."""

    def draw(seed: int) -> Any:
        rng = np.random.default_rng([seed, number])
        group = tuple(str(i) for i in range(8) for _ in range(number))
        before = rng.random(8 * number) < accuracy
        # a change of a tenth of the answers that leaves the accuracy of every group as it is
        flipped = rng.random(8 * number) < 0.1
        after = np.where(flipped, rng.random(8 * number) < accuracy, before)
        found = accuracy_rows(group, before, after, np.zeros((0, len(group)), bool), {}, seed=seed)
        frame = found.to_pandas()
        row = frame[(frame["group"] == WORST) & (frame["when"] == when)].iloc[0]
        return inside(row["low"], row["high"], 0.0 if when == "gain" else accuracy)

    return draw


# --- chains -------------------------------------------------------------------------------------


def made_anchors(trend: float) -> Any:
    """p of the agreement of two measures that share nothing but, perhaps, a fall along the text."""

    def draw(seed: int) -> Any:
        rng = np.random.default_rng([seed, 1])
        index = np.tile(np.arange(16), 3)
        one, other = rng.normal(size=(2, 48)) - trend * index / 16
        nothing = np.full(48, -1)
        found = Anchors(
            ("a", "b", "c"),
            np.repeat(np.arange(3), 16),
            index,
            ("",) * 48,
            {"receiver": one, "suppression": other},
            {},
            nothing,
            nothing,
            ((),) * 3,
        )
        return found.agreement(n_boot=399, seed=seed)["p"] < LEVEL

    return draw


# --- graphs -------------------------------------------------------------------------------------


def random_graph(seed: int, window: int) -> Any:
    rng = np.random.default_rng([seed, 2])
    at = np.arange(24)
    seen = (at[:, None] > at) & (at[:, None] - at <= window)
    w = np.where(seen, np.exp(2 * rng.normal(size=seen.shape)), 0)
    w /= np.maximum(w.sum(1, keepdims=True), 1e-9)
    return graph_of(w, threshold="row:3", seen=seen)


def communities(window: int) -> Any:
    return lambda seed: (
        random_graph(seed, window).communities(n_random=19, seed=seed)[1]["p"] <= LEVEL
    )


def motifs(window: int) -> Any:
    return lambda seed: random_graph(seed, window).motifs(n_random=99, seed=seed)["p"] <= LEVEL


def given_graph(seed: int) -> Any:
    truth = np.random.default_rng([seed, 1]).random((24, 24)) < 0.15
    return random_graph(seed, 24).against(truth, n_random=99, seed=seed)["auroc_p"] <= LEVEL


def called_static(kind: str, wrong: bool) -> Any:
    """Whether a layer of this kind is told apart wrongly, at an agreement of 0.99."""

    def draw(seed: int) -> Any:
        x = torch.randn(12, 6, generator=torch.Generator().manual_seed(seed))
        layer = GraphAttention(6, 4, heads=3, kind=kind, seed=seed)
        static = static_layers([layer.scores(x).detach()]).agreement > 0.99
        return static if wrong else ~static

    return draw


# --- rationales, faithfulness, dictionaries -----------------------------------------------------


def random_rationales(seed: int) -> Any:
    """Annotations at random, and a method of random scores."""
    from interp.bundled.deceive_text import sentences

    rng, given = np.random.default_rng([seed, 1]), []
    for i, said in enumerate(sentences(1000 * seed, 12)):
        n = len(said.words)
        evidence = np.zeros(n, bool)
        start = rng.integers(n - 1)
        evidence[start : start + 2] = True
        given.append(Rationale(f"a{i}", tuple(said.words), evidence, "", f"d{i}"))
    found = plausibility(
        bundled("deceive"), given, ["random_scores"], "token:she|he", seed=seed
    ).to_pandas()
    return found["p"] < LEVEL / 3  # over the three measures


def clustered(tests: bool) -> Any:
    """Texts in 12 clusters of 4, the value of each is mostly that of its cluster."""

    def draw(seed: int) -> Any:
        rng, rows = np.random.default_rng(seed), []
        labels = tuple(str(i // 4) for i in range(48))
        for method in ("one", "random_scores"):
            shared = rng.normal(size=12).repeat(4)
            for text, value in enumerate(shared + 0.3 * rng.normal(size=48)):
                row = dict.fromkeys(MEASURES) | {"text": text, "method": method, "error": ""}
                rows.append(row | {"aopc": float(value), "tokens": 8})
        found = Faithfulness(
            tuple(rows), ("t",) * 48, {"one": "", "random_scores": ""}, clusters=labels
        )
        if tests:
            return found.against_random("aopc")["one"] < LEVEL
        frame = found.to_pandas()
        frame = frame[frame["metric"] == "aopc"]
        return inside(frame["low"], frame["high"], 0.0)

    return draw


def random_decoder(seed: int) -> Any:
    """Rate over features: random decoder rows against random directions."""
    rng = torch.Generator().manual_seed(1000 + seed)
    made = [torch.randn(*s, generator=rng) for s in ((32, 10), (10, 32))]
    book = Dictionary("standard", *made, torch.zeros(10), torch.zeros(32), "z", 0, n_heads=4)
    site: Any = SimpleNamespace(n_heads=4)
    found = decoder_shares(book, tuple(range(10)), site, seed)
    assert found is not None
    return np.array([found.p(i) > LEVEL for i in range(10)], float)


ALIGN = "alignment."
SPURIOUS = "vision.locate_spurious_heads"
GRAPH = "AttentionGraph."
EIGHT = "accuracy of 8 equal groups"
CASES = (
    Case(
        ALIGN + "word_alignment",
        "any head, p_holm < 0.05",
        "gold words shuffled",
        shuffled_gold,
        share=2,
    ),
    *(
        Case(
            ALIGN + "word_alignment",
            f"error rate, {n} sentences",
            "rate of 594 sentences",
            error_rate_intervals(n),
            "interval",
        )
        for n in (8, 32)
    ),
    *(
        Case(
            "rank_agreement",
            f"correlation, {n} pairs, {told}",
            "correlation of the true means of 16 heads",
            rank_intervals(n, spread),
            "interval",
            0.4,
        )
        for n, spread, told in ((16, 1.0, "heads differ"), (16, 0.1, "heads hardly differ"))
    ),
    Case(SPURIOUS, "any head spurious", "trained model, cues at random, 4 classes", trained_cued),
    Case(
        SPURIOUS,
        "any head spurious",
        "random models, cues at random, 4 classes",
        cued(4),
        share=0.7,
    ),
    Case(
        SPURIOUS, "any head spurious", "the same, cues of a skewed distribution", cued(4, lone=True)
    ),
    Case(
        SPURIOUS,
        "any head spurious",
        "random models, cues at random, 2 classes",
        cued(2),
        share=0.7,
    ),
    *(
        Case(
            SPURIOUS,
            "votes of 20 wrong images minus those of 25 right ones",
            f"{wrong:.2f} - {right:.2f}",
            vote_intervals(wrong, right),
            "interval",
        )
        for wrong, right in ((0.97, 0.03), (0.5, 0.2))
    ),
    Case(
        "vision.image_direct_effects", "any part, p_holm < 0.05", "labels at random", random_effects
    ),
    Case("vision.map_agreement", "any head, p_holm < 0.05", "masks of other images", random_masks),
    Case(
        "vision.register_neurons", "any neuron, p_holm < 0.05", "random patches", random_registers
    ),
    *(
        Case(
            "vision.correct_spurious_heads",
            f"worst group, {when}, {n} images a group",
            EIGHT if when != "gain" else "no gain",
            worst_groups(n, 0.8, when),
            "interval",
        )
        for n in (10, 40)
        for when in ("after", "gain")
    ),
    Case("Anchors.agreement", "p < 0.05", "unrelated measures", made_anchors(0.0)),
    Case(
        "Anchors.agreement",
        "p < 0.05",
        "unrelated measures that fall along the text",
        made_anchors(2.0),
    ),
    Case(GRAPH + "communities", "p <= 0.05", "random causal attention", communities(24)),
    Case(GRAPH + "communities", "p <= 0.05", "random attention in a window of 6", communities(6)),
    Case(
        GRAPH + "motifs", "any motif, p <= 0.05", "random causal attention", motifs(24), share=0.5
    ),
    Case(GRAPH + "motifs", "any motif, p <= 0.05", "random attention in a window of 6", motifs(6)),
    Case(GRAPH + "against", "p <= 0.05", "a random graph", given_graph),
    Case(
        "graphs.static_layers",
        "dynamic at 0.99",
        "GAT layers, which are static",
        called_static("gat", wrong=False),
        share=2,
    ),
    Case(
        "graphs.static_layers",
        "static at 0.99",
        "GATv2 layers, which are dynamic",
        called_static("gatv2", wrong=True),
        share=2,
    ),
    Case(
        "attribution.plausibility",
        "any of 3 measures, p < 0.05 / 3",
        "random annotations and scores",
        random_rationales,
        share=0.7,
    ),
    Case(
        "attribution.faithfulness",
        "p of against_random < 0.05",
        "random scores in clusters",
        clustered(tests=True),
        share=2,
    ),
    Case(
        "attribution.faithfulness",
        "mean over 12 clusters of 4",
        "mean of all draws",
        clustered(tests=False),
        "interval",
        2,
    ),
    Case(
        "dictionaries.feature_cards",
        "p of the head share above 0.05 (nominal 95 %)",
        "random decoder rows",
        random_decoder,
        "interval",
    ),
)
