"""Theorems about attention layers: the prediction beside the value that a layer has.

    python benchmarks/theorems.py         writes theorems.json and theorems.md

Each part is a function of its sizes, which tests/planted/test_theorems.py calls with small ones.
Layers are computed in float64 with random or hand-built weights; nothing is trained but output
weights, by least squares.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
SHARP = 60.0  # inverse temperature that makes a softmax take its largest score


def weights(scores: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    found = np.exp(scores - scores.max(-1, keepdims=True))
    return found / found.sum(-1, keepdims=True)


def memorisation(
    heads: int, tokens: int, d_head: int, d_model: int, examples: int, seed: int = 0
) -> dict[str, Any]:
    """Rank of the features of a layer with random heads, and the error of labels fitted to them.

    All examples share their context tokens and differ in the query, the case in which the bound of
    Mahdavi et al. 2023 (arXiv 2306.02010) is tight: rank H (min(n, d_head) - 1) + 1 at least, and H
    (n - 1) + 1 at most, since the n weights of a head sum to 1.
    """
    rng = np.random.default_rng(seed)
    context = rng.standard_normal((tokens, d_model))
    queries = rng.standard_normal((examples, d_model))
    features = []
    for _ in range(heads):
        w_q, w_k = rng.standard_normal((2, d_model, d_head)) / math.sqrt(d_model)
        features.append(weights(2 * queries @ w_q @ (context @ w_k).T) @ context)
    z = np.concatenate(features, 1)
    values = np.linalg.svd(z, compute_uv=False)
    rank = int((values > 1e-9 * values[0]).sum())
    labels = rng.standard_normal(examples)

    def error(some: np.ndarray, wanted: np.ndarray) -> float:
        fitted = some @ np.linalg.lstsq(some, wanted, rcond=1e-9)[0]
        return float(np.abs(fitted - wanted).max())

    return {
        "predicted": heads * (min(tokens, d_head) - 1) + 1,
        "at_most": min(examples, heads * (tokens - 1) + 1),
        "rank": rank,
        "error_at_rank": error(z[:rank], labels[:rank]),
        "error": error(z, labels),
    }


def bottleneck(tokens: int, d_head: int, seed: int = 0) -> dict[str, float]:
    """Error of the pattern closest in scores to a given one, for a head of some width.

    A head forms a pattern P exactly if its scores are log P plus a constant per row, a matrix of
    rank up to n (Bhojanapalli et al. 2020, arXiv 2002.07028): a width of n is enough for any P, and
    a narrower head cannot form all. The distance is of log P, centred by row, to rank d_head
    (Eckart and Young); no scores of that rank come closer.
    """
    rng = np.random.default_rng(seed)
    wanted = weights(2 * rng.standard_normal((tokens, tokens)))
    logs = np.log(wanted)
    logs = logs - logs.mean(1, keepdims=True)
    u, s, v = np.linalg.svd(logs)
    q, k = u[:, :d_head] * s[:d_head], v[:d_head].T  # queries and keys of one token each
    return {
        "distance": float(np.sqrt((s[d_head:] ** 2).sum())),
        "error": float(np.abs(weights(q @ k.T) - wanted).max()),
    }


def nearest_key(
    width: int, rank: int, heads: int, examples: int = 20000, seed: int = 0
) -> dict[str, float]:
    """Squared error of finding the nearer of two points with heads of some rank.

    Target: the point of two on the sphere that is closer to the query, as in Amsel et al. 2024
    (arXiv 2410.05838). A head of full rank takes it; heads of low rank see random projections, and
    a matrix of each is fitted by least squares on half of the examples. The error is of the others,
    over that of the mean of both points.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((examples, 3, width))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    query, points = x[:, 0], x[:, 1:]
    target = points[np.arange(examples), (points @ query[:, :, None])[..., 0].argmax(1)]
    features = []
    for _ in range(heads):
        seen = np.linalg.qr(rng.standard_normal((width, rank)))[0]
        scores = ((points @ seen) @ (query @ seen)[:, :, None])[..., 0]
        features.append((weights(SHARP * width * scores)[:, None] @ points)[:, 0])
    z, half = np.concatenate(features, 1), examples // 2
    fit = np.linalg.lstsq(z[:half], target[:half], rcond=None)[0]
    error = ((z[half:] @ fit - target[half:]) ** 2).sum(1).mean()
    plain = ((points[half:].mean(1) - target[half:]) ** 2).sum(1).mean()
    return {"error": float(error / plain), "parameters": 2 * heads * rank * width}


def sparse_average(width: int, q: int, tokens: int, draws: int = 200, seed: int = 0) -> float:
    """Share of sets of q tokens that a head of some width averages to within 1 %.

    Keys are random signs over sqrt(width); the query is the shortest vector with product 1 with the
    keys of the set, the construction of Sanford et al. 2023 (arXiv 2306.02896), which works from a
    width of the order of q log n and cannot below q.
    """
    rng = np.random.default_rng(seed)
    keys = rng.choice([-1.0, 1.0], (tokens, width)) / math.sqrt(width)
    done = 0
    for _ in range(draws):
        chosen = rng.choice(tokens, q, replace=False)
        query = np.linalg.pinv(keys[chosen]) @ np.ones(q)
        found = weights(SHARP * keys @ query)
        wanted = np.zeros(tokens)
        wanted[chosen] = 1 / q
        done += bool(np.abs(found - wanted).sum() < 0.01)
    return done / draws


def random_heads(
    heads: Sequence[int], width: int = 3, tokens: int = 5, seed: int = 0
) -> list[float]:
    """Error of a target fitted by the outputs of random heads, over its variance, by their number.

    Target: the mean over tokens of (x_0 . x_i)^2, a function of a query and a set on the sphere, by
    heads mean_i relu(x_0 W_m x_i) with random W_m, as in Fu et al. 2023 (arXiv 2307.11353): many
    heads together come close to such targets. Output weights are fitted on 4,000 examples and
    judged on 2,000 others.
    """
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((6000, tokens + 1, width))
    x /= np.linalg.norm(x, axis=-1, keepdims=True)
    query, keys = x[:, 0], x[:, 1:]
    target = ((keys @ query[:, :, None])[..., 0] ** 2).mean(1)
    maps = rng.standard_normal((max(heads), width, width))
    z = np.stack([np.maximum((keys @ (query @ m)[:, :, None])[..., 0], 0).mean(1) for m in maps], 1)
    found = []
    for n in heads:
        some = np.concatenate([z[:, :n], np.ones((len(z), 1))], 1)
        inner = some[:4000].T @ some[:4000] + 1e-6 * np.eye(n + 1)
        fit = np.linalg.solve(inner, some[:4000].T @ target[:4000])
        error = ((some[4000:] @ fit - target[4000:]) ** 2).mean()
        found.append(float(error / target[4000:].var()))
    return found


def main() -> None:
    """Measure all parts and write them."""
    begin = time.process_time()
    kept: dict[str, Any] = {
        "memorisation": [
            {"heads": h, "tokens": n, "d_head": d, **memorisation(h, n, d, 24, 150)}
            for h, n, d in ((1, 8, 8), (2, 8, 8), (4, 8, 8), (8, 8, 8), (4, 16, 16), (4, 8, 3))
        ],
        "bottleneck": [{"tokens": 12, "d_head": d, **bottleneck(12, d)} for d in (1, 4, 8, 11, 12)],
        "nearest_key": [
            {"rank": r, "heads": h, **nearest_key(16, r, h)}
            for r, h in ((16, 1), (4, 4), (4, 16), (1, 16), (1, 64))
        ],
        "sparse_average": [
            {"width": m, "q": 4, "tokens": 128, "share": sparse_average(m, 4, 128)}
            for m in (2, 4, 8, 16, 32, 64, 128)
        ],
        "random_heads": [
            {"heads": h, "error": x}
            for h, x in zip((4, 16, 64, 256), random_heads((4, 16, 64, 256)), strict=True)
        ],
    }
    kept["seconds"] = round(time.process_time() - begin, 1)
    (HERE / "theorems.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
    (HERE / "theorems.md").write_text(page(kept), encoding="utf-8")


def page(kept: dict[str, Any]) -> str:
    """Format the results."""
    parts = [
        "# Theorems about attention layers",
        "What a theorem predicts beside what a layer of these sizes has. float64, random or "
        "hand-built weights; only output weights are fitted, by least squares. One draw each, so "
        "the numbers have no error; the tests repeat the claims with other seeds. "
        f"{kept['seconds']:g} s of one core. Made by `python benchmarks/theorems.py`.",
        "## Memorisation capacity",
        "Mahdavi et al. 2023, arXiv 2306.02010: features of H heads have rank H (min(n, d_head) "
        "- 1) + 1 or more, and as many examples can be memorised. 150 examples that share their n "
        "tokens, d_model 24; at most H (n - 1) + 1 in this case. Random labels are fitted to as "
        "many examples as the rank, and to all 150: largest error.",
        table(
            (
                "heads",
                "tokens",
                "d_head",
                "rank, at least",
                "rank, at most",
                "rank",
                "error, as many as the rank",
                "error, all",
            ),
            [
                (
                    r["heads"],
                    r["tokens"],
                    r["d_head"],
                    r["predicted"],
                    r["at_most"],
                    r["rank"],
                    f"{r['error_at_rank']:.0e}",
                    f"{r['error']:.1g}",
                )
                for r in kept["memorisation"]
            ],
        ),
        "## Low-rank bottleneck",
        "Bhojanapalli et al. 2020, arXiv 2002.07028: a head as wide as the prompt can form "
        "every pattern, a narrower one cannot. A random pattern of 12 tokens; *distance* is of its "
        "centred logarithms to the nearest scores of this rank, *error* of the pattern made from "
        "them.",
        table(
            ("d_head", "distance", "error"),
            [
                (r["d_head"], f"{r['distance']:.2g}", f"{r['error']:.1g}")
                for r in kept["bottleneck"]
            ],
        ),
        "## Benefits of rank",
        "Amsel et al. 2024, arXiv 2410.05838: a head of full rank finds the nearer of two points; "
        "heads of low rank need exponentially many. 16 dimensions; error over that of the mean of "
        "both points. Projections are random: trained ones can be better, and the theorem bounds "
        "all.",
        table(
            ("rank", "heads", "parameters of Q and K", "error"),
            [
                (r["rank"], r["heads"], r["parameters"], f"{r['error']:.2g}")
                for r in kept["nearest_key"]
            ],
        ),
        "## Sparse averaging",
        "Sanford et al. 2023, arXiv 2306.02896: a unit averages any q of n tokens from a width of "
        "the order of q log n, and not below q. q = 4, n = 128 (q ln n = 19); share of 200 sets "
        "that are averaged to within 1 %.",
        table(
            ("width", "share of sets"),
            [(r["width"], f"{r['share']:.2f}") for r in kept["sparse_average"]],
        ),
        "## Random heads",
        "Fu et al. 2023, arXiv 2307.11353: functions of a query and an average over tokens are "
        "approximated by random heads with fitted outputs, better with more heads. Target: mean of "
        "(x_0 . x_i)^2 over 5 tokens on the sphere in 3 dimensions; squared error over the "
        "variance on held-out examples.",
        table(
            ("heads", "error"), [(r["heads"], f"{r['error']:.2g}") for r in kept["random_heads"]]
        ),
    ]
    return "\n\n".join(parts) + "\n"


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Format a table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)])


if __name__ == "__main__":
    main()
