"""Ranking of heads by discrete codes of a sparse autoencoder."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.circuits.declaration import Found, discovery
from interp.circuits.head_evaluation import authors_f1, f1, marked, precision_at
from interp.circuits.methods._codes import (
    OVER,
    Autoencoder,
    head_results,
    heads_of_pairs,
    only_positive,
    pairs_only_positive,
    permuted,
    shared,
    softmax,
    train_autoencoder,
)
from interp.circuits.steps import counted, step
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.rank_statistics import auroc, auroc_interval, spearman
from interp.core.standard_errors import standard_error

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model


@discovery(levels=("head", "edge"))
def codes(
    model: Model,
    task: ContrastTask,
    level: str,
    *,
    position: str = "mean",
    codes: int = 200,
    sparsity: float = 0.02,
    examples: int = 10,
    stratified: bool = True,
    normalise: bool = False,
    over: str = "none",
    epochs: int = 500,
    repeats: int = 5,
    permutations: int = 200,
    seed: int = 0,
) -> Found:
    """Rank heads by codes that appear on clean prompts and on no corrupted one.

    One sparse autoencoder is trained on what all heads write on a few examples. Every head's code
    on an example is its most active unit; a head's score is the number of codes that it has on some
    clean prompt and on no corrupted one. At the level "edge", pairs of heads are scored by pairs of
    codes.

    Limits: `codes` finds heads whose output varies with the contrast, not heads that are causally
    needed. A head whose output no later component reads scores as high. The authors' reported AUC
    comes from a few hundred examples for the codes, though few train the autoencoder. The tables
    therefore have: the score with the untrained autoencoder, which is a random hash (`controls`); p
    values when the sides of the pairs are exchanged (`heads`); and, if the circuit is known, the
    authors' evaluation next to a correct one (`evaluation`). If its edges are known too, pairs are
    evaluated as edges (`edge_evaluation`, `edges_at_k`), beside the authors' recipe, which counts
    how often each head is named in the top pairs and scores heads.

    position: `mean` over all positions, as the authors have it; `last`; or a role of the task.
    codes: units of the autoencoder. sparsity: weight of the mean absolute activation. examples:
    number of training examples, half of them clean if `stratified`; the authors draw them from all
    examples, which may miss one side. normalise: divide a head's score by the number of its codes.
    over: `none` leaves counts as they are; `heads` takes their softmax over all heads, which keeps
    the order; `layer` within each layer, which the authors tried and found worse. repeats: number
    of autoencoders, each with its own seed and examples; scores are their means, and p values twice
    the median. permutations: number of exchanges of the sides of the pairs, for p values.

    Unit: codes.

    Cost: One forward pass per prompt and the training of a small autoencoder.

    Null: an untrained autoencoder; sides of the pairs exchanged (p values)

    Not for: showing that a head is used: it finds heads whose output varies with the contrast, read
    or not. The untrained control ranks about as well.

    Reference: O'Neill and Bui 2024, "Sparse Autoencoders Enable Scalable and Reliable Circuit
    Identification in Language Models"; where text and code differ, the code.
    """
    n = len(task)
    if n < 4:
        raise OptionError(f"{n} pairs: codes that appear on one side only need four pairs or more")
    if not 2 <= examples <= 2 * n:
        raise OptionError(f"examples={examples}; between 2 and the {2 * n} prompts of both sides")
    if repeats < 1 or permutations < 1 or codes < 2:
        raise OptionError(
            f"repeats={repeats}, permutations={permutations}, codes={codes}; give at least"
            " 1, 1 and 2"
        )
    if over not in OVER:
        raise OptionError(f"over={over!r}; expected one of {', '.join(OVER)}")
    x, names = head_results(model, task, position)
    if level == "edge" and len(names) < 2:
        raise OptionError(
            f"{model.name} has one head, and edges are pairs of heads; use the level head"
        )
    layers = np.array([Head.parse(name).layer for name in names])
    positive = np.arange(2 * n) < n

    def repeated(i: int) -> dict[str, Any]:
        """Score with one autoencoder and its untrained control: heads, pairs and p values."""
        some = _drawn(n, examples, stratified, seed + i)
        learned, _ = train_autoencoder(
            x[some], codes=codes, sparsity=sparsity, epochs=epochs, seed=seed + i
        )
        untrained = Autoencoder.new(x.shape[-1], codes, _generator(seed + i))
        columns: dict[str, Any] = {}
        for which, coder in (("", learned), ("untrained ", untrained)):
            mine = coder.codes(x)
            count = only_positive(mine, positive, normalise=normalise)
            columns[f"{which}scores"] = shared(count, over, layers)
            columns[f"{which}pairs"] = pairs_only_positive(mine, positive)
            if not which:
                columns["p"] = permuted(
                    mine,
                    n,
                    draws=permutations,
                    seed=seed + i,
                    normalise=normalise,
                    over=over,
                    layers=layers,
                )
        return columns

    with counted("autoencoders", repeats) as done:
        kept = []
        for i in range(repeats):
            kept.append(step("autoencoder", partial(repeated, i)))
            done(i + 1)
    scores, hashes, pairs, hashed, p_values = (
        [k[name] for k in kept]
        for name in ("scores", "untrained scores", "pairs", "untrained pairs", "p")
    )
    score, control = np.stack(scores, 1), np.stack(hashes, 1)
    mean, together = score.mean(1), np.mean(pairs, 0)
    by_head, family = (np.stack(p, 1) for p in zip(*p_values, strict=True))
    upper = [(a, b) for a in range(len(names)) for b in range(a + 1, len(names))]
    edges = tuple((names[a], names[b]) for a, b in upper)
    tables: dict[str, list[dict[str, Any]]] = {
        "heads": [
            {
                "head": name,
                "score": float(mean[h]),
                "sem": float(standard_error(score[h])),
                "repeats": repeats,
                "softmax": float(softmax(mean)[h]),
                "p": _joined(by_head[h]),
                "p_any_head": _joined(family[h]),
                "untrained": float(control[h].mean()),
            }
            for h, name in enumerate(names)
        ],
        "controls": [
            {
                "what": "heads ranked alike by trained and untrained codes (Spearman)",
                "value": float(spearman(np.stack([mean, control.mean(1)]))[0, 1]),
            },
            {
                "what": "heads with a p value below 0.05 over all heads",
                "value": float(sum(_joined(p) < 0.05 for p in family)),
            },
        ],
    }
    truth = [head for heads in task.truth.values() for head in heads]
    if truth:
        by_pairs = shared(heads_of_pairs(together), over, layers)
        rankings = {"codes": mean, "pairs of codes": by_pairs, "untrained": control.mean(1)}
        tables["evaluation"] = [
            _evaluated(name, ranking, marked(names, truth)) for name, ranking in rankings.items()
        ]
    if task.truth_edges:
        known = {frozenset((a, b.partition(".")[0])) for a, b in task.truth_edges}
        tables |= _edges_evaluated(
            {"pairs of codes": together, "untrained": np.mean(hashed, 0)},
            names,
            layers,
            known,
            truth,
        )
    return Found(
        nodes=tuple(names),
        per_prompt=score,
        unit="codes" if over == "none" else "probability",
        edges=edges if level == "edge" else (),
        edges_per_prompt=_of_edges(pairs, upper) if level == "edge" else None,
        forwards=2,
        signed=False,
        notes=(
            "columns are autoencoders, not prompts: each score is computed from all pairs",
            "a head scores high if its output varies with the contrast, whether or not it is"
            " causally needed",
        ),
        tables=tables,
        columns="autoencoders",
        measured=tuple(
            f"not patched; untrained {row['untrained']:.3g}, p {row['p']:.2g}, over all heads"
            f" {row['p_any_head']:.2g}"
            for row in tables["heads"]
        ),
    )


def _joined(p: np.ndarray) -> float:
    """Combine p values that are not independent: twice the median (Ruger 1978)."""
    return float(p[0]) if len(p) == 1 else min(1.0, 2 * float(np.median(p)))


def _drawn(n: int, examples: int, stratified: bool, seed: int) -> np.ndarray:
    """Draw the rows that train the autoencoder; clean rows come first in the stack."""
    rng = np.random.default_rng([seed, 17])
    if not stratified:
        return rng.permutation(2 * n)[:examples]
    clean = min(examples - examples // 2, n)
    return np.concatenate([rng.permutation(n)[:clean], n + rng.permutation(n)[: examples - clean]])


def _generator(seed: int) -> Any:
    import torch

    return torch.Generator().manual_seed(seed)


def _of_edges(pairs: list[np.ndarray], upper: list[tuple[int, int]]) -> np.ndarray:
    a, b = np.array(upper).T
    return np.stack([p[a, b] for p in pairs], 1)


def _evaluated(name: str, score: np.ndarray, truth: np.ndarray) -> dict[str, Any]:
    low, high = auroc_interval(score, truth)
    k = int(truth.sum())
    return {
        "ranking": name,
        "auroc": auroc(score, truth),
        "low": low,
        "high": high,
        "precision_at_size": precision_at(score, truth, k),
        "f1": f1(score, truth),
        "authors_f1": authors_f1(score, truth),
        "heads": len(truth),
        "in_circuit": k,
    }


def _edges_evaluated(
    rankings: dict[str, np.ndarray],
    names: list[str],
    layers: np.ndarray,
    known: set[frozenset[str]],
    truth: list[str],
) -> dict[str, list[dict[str, Any]]]:
    """Evaluate pairs against the known edges, and the heads that top pairs name as the authors do.

    Only pairs of heads of different layers can be edges, so only these are ranked.
    """
    at = [(a, b) for a in range(len(names)) for b in range(len(names)) if layers[a] < layers[b]]
    mask = np.array([frozenset((names[a], names[b])) in known for a, b in at])
    size, rows, depths = int(mask.sum()), [], []
    if not size:
        return {}
    for name, pairs in rankings.items():
        score = np.array([pairs[a, b] for a, b in at])
        low, high = auroc_interval(score, mask)
        heads, inside = heads_of_pairs(pairs), marked(names, truth)
        rows.append(
            {
                "ranking": name,
                "auroc": auroc(score, mask),
                "low": low,
                "high": high,
                "edges": len(at),
                "in_circuit": size,
                "authors_heads_auroc": auroc(heads, inside),
                "authors_heads_f1": authors_f1(heads, inside),
            }
        )
        for k in sorted({size, 2 * size, 5 * size, 10 * size}):
            if k <= len(at):
                share = precision_at(score, mask, k)
                depths.append(
                    {
                        "ranking": name,
                        "k": k,
                        "precision": share,
                        "recall": share * k / size,
                        "chance": size / len(at),
                    }
                )
    return {"edge_evaluation": rows, "edges_at_k": depths}
