"""False findings and coverage of `interp.probes.train_probe` on features whose truth is known.

    python benchmarks/probes.py [DRAWS]      prints the rates as a table

Each draw makes features of 8 heads for 24 documents of 3 items that share much, with the label in
one head or in none. The truth of an interval is the AUC of the trained probes on 400 new documents.
"""

from __future__ import annotations

import sys

import numpy as np

from interp.probes import HeadFeatures, train_probe
from interp.probes.folds import fold_numbers
from interp.probes.linear import fit_calibrated
from interp.probes.result import auc_by_fold

HEADS = tuple(("decoder", layer, head) for layer in range(2) for head in range(4))
PLANTED = 5
DOCUMENTS, EACH, FRESH, FOLDS, SHUFFLES = 24, 3, 400, 4, 19


def drawn(
    documents: int, signal: float, rng: np.random.Generator, first: int = 0
) -> tuple[HeadFeatures, np.ndarray, np.ndarray]:
    """Draw features, labels of documents, and the document of each item."""
    where = np.repeat(np.arange(documents), EACH)
    y = rng.permutation(np.arange(documents) % 2)[where]
    x = rng.normal(size=(len(where), len(HEADS))) + rng.normal(size=(documents, len(HEADS)))[where]
    x[:, PLANTED] += signal * (2 * y - 1)
    ids = tuple(str(first + i) for i in range(len(where)))
    return HeadFeatures(x, HEADS, "made", ids, {"name": "made"}), y, where


def true_auc(features: HeadFeatures, y, where, fresh: HeadFeatures, new, seed: int) -> float:
    """Return the AUC of the folds' probes on new documents, the mean over folds."""
    fold = fold_numbers(where, FOLDS, seed)
    found = []
    for each in range(FOLDS):
        there = fold != each
        probe = fit_calibrated(features.x[there], y[there], where[there], 1.0, seed)
        score = probe.log_odds(fresh.x)
        found.append(auc_by_fold(score, new, np.zeros(len(new), dtype=int)))
    return float(np.mean(found))


def main(draws: int) -> None:
    """Print rates over draws, without and with a planted head."""
    print(
        "| signal | mean AUC | p <= 0.05 | p <= 0.5 | AUC interval covers | planted head first, "
        "p <= 0.05 | any other head p <= 0.05 |"
    )
    print("|---|---|---|---|---|---|---|")
    for signal in (0.0, 0.8, 1.6):
        rows = []
        for seed in range(draws):
            rng = np.random.default_rng([int(10 * signal), seed])
            features, y, where = drawn(DOCUMENTS, signal, rng)
            fresh, new, _ = drawn(FRESH, signal, rng, first=10**6)
            found = train_probe(
                features,
                y.tolist(),
                where.tolist(),
                folds=FOLDS,
                n_permutations=SHUFFLES,
                seed=seed,
            )
            low, high = found.scores["auc_interval"]
            heads = found.to_pandas()
            p = heads["p"].to_numpy()
            others = np.delete(p, PLANTED)
            first = int(heads["score"].to_numpy().argmax()) == PLANTED and p[PLANTED] <= 0.05
            truth = true_auc(features, y, where, fresh, new, seed)
            rows.append(
                (
                    found.scores["auc"],
                    found.scores["p"] <= 0.05,
                    found.scores["p"] <= 0.5,
                    low <= truth <= high,
                    first,
                    bool((others <= 0.05).any()),
                )
            )
        mean = np.array(rows, dtype=float).mean(0)
        cells = [f"{mean[0]:.3f}", *(f"{x:.2f}" for x in mean[1:])]
        print(f"| {signal:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
