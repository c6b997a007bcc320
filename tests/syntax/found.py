"""A result of a search for trees, made up, with everything that a page must cope with."""

from __future__ import annotations

import math

from interp.syntax.result import SPANNING, Drawn, Relation, Trees, TreeScores

NAN = math.nan


def relation(name: str = "obj", **changed) -> Relation:
    fields = {
        "relation": name,
        "n": 318,
        "train_n": 300,
        "head": "L2H0",
        "direction": "row",
        "accuracy": 0.72,
        "interval": (0.66, 0.77),
        "offset": -2,
        "baseline": 0.355,
        "gain": 0.365,
        "gain_interval": (0.298, 0.429),
        "p": 0.004,
        "oracle": 0.73,
        "oracle_head": "L2H1 column",
        "ensemble": ("L2H0 row", "L3H4 row"),
        "ensemble_accuracy": 0.733,
        "ensemble_interval": (0.68, 0.78),
        "either": 0.8,
        "either_head": "L1H7",
        "random": 0.06,
        "shuffled": 0.11,
    }
    return Relation(**fields | changed)


def trees(method: str = SPANNING, **changed) -> Trees:
    fields = {
        "method": method,
        "heads": ("L2H8",),
        "direction": "both",
        "punct": True,
        "uuas": 0.482,
        "uuas_interval": (0.47, 0.49),
        "uas": NAN,
        "uas_interval": (NAN, NAN),
        "edges": 6775,
    }
    return Trees(**fields | changed)


def scores(model: str = "minilm", **changed) -> TreeScores:
    """Three relations, of which one is above its baseline, and trees with a baseline between."""
    words = ("Dogs", "chase", "cats", ".")
    fields = {
        "model": model,
        "relations": (
            relation(
                "nsubj",
                accuracy=0.2,
                baseline=0.3,
                gain=-0.1,
                gain_interval=(-0.2, -0.01),
                interval=(0.1, 0.3),
                p=0.03,
            ),
            relation("obj"),
            relation(
                "vocative",
                n=1,
                gain=0.0,
                gain_interval=(NAN, NAN),
                interval=(NAN, NAN),
                p=1.0,
                random=NAN,
                shuffled=NAN,
            ),
        ),
        "trees": (
            trees(),
            trees("adjacent chain", heads=(), direction="", uuas=0.391, baseline=True),
            trees(
                "arborescence, gold root",
                direction="row",
                uuas=0.30,
                uas=0.28,
                uas_interval=(0.27, 0.29),
            ),
            trees(punct=False, uuas=0.508, uuas_interval=(0.5, 0.52)),
        ),
        "by_head": {"encoder": [[0.1, 0.482], [NAN, 0.3]]},
        "drawn": (
            Drawn(
                words,
                (1, -1, 1, 1),
                ("nsubj", "root", "obj", "punct"),
                ((0, 1), (1, 2), (0, 3)),
                False,
                "s-1",
                2,
            ),
        ),
        "counts": {"train_sentences": 500, "test_sentences": 1501, "too_long": 1},
        "notes": ("1 sentence is longer than the model's context: skipped",),
        "provenance": {"model_id": model, "seed": 0, "versions": {"interp": "0.1.0"}},
    }
    return TreeScores(**fields | changed)
