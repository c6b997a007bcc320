"""Learned head weights: which heads' attention predicts what removing tokens changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Bool, Float

from interp.attribution.evaluation.removal import default_removal, values_without
from interp.attribution.evaluation.run import read_texts, resolve
from interp.attribution.example import Example
from interp.attribution.graph.mixing import stored_layers, target_rows
from interp.core.clusters import jackknife_error, numbered
from interp.core.errors import OptionError, PromptError
from interp.core.presenter import present
from interp.core.prompt_means import prompt_means
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.rank_statistics import spearman
from interp.core.result_rows import ResultRows
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.attribution.target import Targets
    from interp.model.model import Model

Array = np.ndarray
PENALTIES = tuple(10.0**k for k in range(-4, 3))  # relative to the mean square of the features


@dataclass(eq=False)
class _Text:
    """Features and changes of one text under random ablations of its spans."""

    features: Float[Array, "ablation head"]  # attention that the removed tokens receive
    changes: Float[Array, " ablation"]


@takes_model
def learn_head_weights(
    model: Model,
    texts: str | Path | Sequence[str],
    targets: Targets | None = None,
    *,
    n_ablations: int = 32,
    span: int = 1,
    share: float = 0.3,
    held_out: float = 0.5,
    how: str = "",
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    batch_size: int = 16,
    progress: Progress | None = None,
) -> ResultRows:
    """Learn which heads' attention predicts the effect of removing spans of tokens.

    On each text random sets of spans are removed. The change of the target is regressed on the
    attention that the removed tokens receive from the target's output position, one coefficient per
    head, by ridge regression without a constant. The penalty is chosen by leaving out whole
    training texts. The method `learned_attention` scores tokens by the learned weights.

    Args:
        model: a loaded model, or what `load` accepts.
        texts: texts, or the path of a file with one per line.
        targets: as for `faithfulness`.
        n_ablations: random sets of spans per text.
        span: tokens per span.
        share: probability with which a span is removed.
        held_out: share of the texts on which the weights are judged.
        how: kind of removal, as for `faithfulness`.
        clusters: a label per text where texts share something; whole clusters are held out.
        seed: seed of held-out texts and of the sets.
        batch_size: inputs per forward pass.
        progress: see `Progress`.

    Returns:
        One row per head: layer, head, score (its weight, the change of the target per unit of
        attention that is removed), sem (of the jackknife over training texts, which leaves out one
        text or cluster at a time), n and clusters (of training texts). Facts: penalty, the chosen
        ridge penalty; held_out, a result with the rank correlation of predicted and true
        changes on each held-out text, for the learned weights and for equal weights of all heads,
        whose null is the mean of randomly permuted weights.

    Raises:
        OptionError: an option is out of range, or there are fewer than four texts.
        PromptError: a text has fewer than two spans.

    Reference: Cohen-Wang et al. 2025, "Learning to Attribute with Attention" (arXiv 2504.13752),
    which learns from generated answers of many examples.
    """
    every = read_texts(texts)
    if len(every) < 4:
        raise OptionError(f"learned weights need at least 4 texts, not {len(every)}")
    if not (0 < share < 1 and 0 < held_out < 1 and span >= 1 and n_ablations >= 4):
        raise OptionError(
            f"share={share}, held_out={held_out}, span={span}, n_ablations={n_ablations}: give "
            "shares between 0 and 1, a span of at least 1 and at least 4 ablations"
        )
    wanted = resolve(model, every, targets)
    rng = np.random.default_rng(seed)
    data, names, unit, ids = [], [], "", []
    for i, (text, target) in enumerate(zip(every, wanted, strict=True)):
        example = Example(model, text, target)
        gone = _removed(example, i, span, share, n_ablations, rng)
        kind = how or default_removal(example)
        changes = example.value - values_without(example, gone, kind, batch_size)
        attention, names = head_attention(example)
        data.append(_Text(gone @ attention.T, changes))
        unit, ids = example.target.unit, [*ids, example.ids]
        if progress is not None:
            progress("texts", i + 1, len(every))
    labels = [str(i) for i in range(len(every))] if clusters is None else list(clusters)
    if len(labels) != len(every):
        raise OptionError(f"{len(labels)} cluster labels for {len(every)} texts; give one each")
    train, judge = _split(labels, held_out, rng)
    fits = _Ridge([data[i] for i in train], [labels[i] for i in train])
    penalty = fits.best_penalty()
    weights, sems = fits.weights(penalty), fits.jackknife(penalty)
    orders = [rng.permutation(len(weights)) for _ in range(20)]
    correlations = np.full((2, len(judge)), np.nan)
    null = np.full(len(judge), np.nan)
    for k, i in enumerate(judge):
        one = data[i]
        correlations[:, k] = [_rank(one, weights), _rank(one, np.ones(len(weights)))]
        null[k] = np.nanmean([_rank(one, weights[order]) for order in orders])
    provenance = result_provenance(
        model,
        "interp.attribution.learn_head_weights",
        Prompts(tuple(ids[i] for i in train)),
        seed=seed,
        ablations=n_ablations,
        span=span,
        share=share,
        how=how,
        held_out=held_out,
    )
    about = [
        {"metric": "rank correlation", "weights": name, "unit": "correlation"}
        for name in ("learned", "equal")
    ]
    judged = prompt_means(
        about,
        ("weights",),
        correlations,
        np.stack([null, null]),
        clusters=None if clusters is None else [labels[i] for i in judge],
        provenance=provenance | {"prompts_hash": Prompts(tuple(ids[i] for i in judge)).hash},
    )
    layers, heads = zip(*names, strict=True)
    columns = {
        "layer": layers,
        "head": heads,
        "score": weights,
        "sem": sems,
        "n": len(train),
        "clusters": len({labels[i] for i in train}),
    }
    facts = {
        "metric": "learned head weight",
        "unit": f"{unit} per attention mass",
        "null": 0.0,
        "penalty": penalty,
        "held_out": judged,
    }
    return ResultRows(
        "LearnedHeadWeights",
        columns,
        ("layer", "head"),
        provenance,
        facts,
        by="abs",
        why_no_per_prompt="a weight is fitted to all training texts at once",
    )


def head_attention(
    example: Example,
) -> tuple[Float[Array, "head source"], list[tuple[int, int]]]:
    """Return each head's attention from the target's output position, and its layer and index."""
    sites, patterns = stored_layers(example, "")
    rows = target_rows(example, sites[0].stack)
    by_layer = [np.einsum("q,hqk->hk", rows, p.double().cpu().numpy()) for p in patterns]
    names = [(site.layer, head) for site in sites for head in range(site.n_heads)]
    return np.concatenate(by_layer), names


def _removed(
    example: Example, at: int, span: int, share: float, ablations: int, rng: np.random.Generator
) -> Bool[Array, "ablation source"]:
    where = np.flatnonzero(~example.special)
    spans = [where[k : k + span] for k in range(0, len(where), span)]
    if len(spans) < 2:
        raise PromptError(
            f"text {at + 1} has {len(spans)} span(s) of {span} token(s): "
            f"{' '.join(example.tokens)!r}; ablations need at least 2"
        )
    gone = np.zeros((ablations, len(example)), dtype=bool)
    for row in gone:
        chosen = rng.random(len(spans)) < share
        if not chosen.any() or chosen.all():
            chosen = np.arange(len(spans)) == rng.integers(len(spans))
        row[np.concatenate([s for s, one in zip(spans, chosen, strict=True) if one])] = True
    return gone


def _split(
    labels: Sequence[str], held_out: float, rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    names = sorted(set(labels))
    if len(names) < 4:
        raise OptionError(f"{len(names)} clusters of texts; learned weights need at least 4")
    count = min(max(2, round(held_out * len(names))), len(names) - 2)
    judge = {names[i] for i in rng.permutation(len(names))[:count]}
    train = [i for i, label in enumerate(labels) if label not in judge]
    return train, [i for i, label in enumerate(labels) if label in judge]


def _rank(text: _Text, weights: Array) -> float:
    return float(spearman(np.stack([text.features @ weights, text.changes]))[0, 1])


class _Ridge:
    """Ridge regression without a constant on all texts, and on all but one cluster."""

    def __init__(self, texts: Sequence[_Text], labels: Sequence[str]) -> None:
        which = numbered(len(texts), labels)
        self.texts, self.which = texts, which
        heads = texts[0].features.shape[1]
        self.gram = np.zeros((which.max() + 1, heads, heads))
        self.moment = np.zeros((which.max() + 1, heads))
        for text, cluster in zip(texts, which, strict=True):
            self.gram[cluster] += text.features.T @ text.features
            self.moment[cluster] += text.features.T @ text.changes
        self.size = float(np.trace(self.gram.sum(0)) / heads)

    def weights(self, penalty: float, without: int | None = None) -> Float[Array, " head"]:
        """Solve for the weights, without one cluster if one is given."""
        gram, moment = self.gram.sum(0), self.moment.sum(0)
        if without is not None:
            gram, moment = gram - self.gram[without], moment - self.moment[without]
        return np.linalg.solve(gram + penalty * self.size * np.eye(len(gram)), moment)

    def best_penalty(self) -> float:
        """Return the penalty with the smallest squared error on clusters that are left out."""
        errors = []
        for penalty in PENALTIES:
            fitted = [self.weights(penalty, c) for c in range(len(self.gram))]
            errors.append(
                sum(
                    float(np.square(t.changes - t.features @ fitted[c]).sum())
                    for t, c in zip(self.texts, self.which, strict=True)
                )
            )
        return PENALTIES[int(np.argmin(errors))]

    def jackknife(self, penalty: float) -> Float[Array, " head"]:
        """Return the standard error of each weight over clusters of texts."""
        n = len(self.gram)
        each = np.stack([self.weights(penalty, c) for c in range(n)])
        return jackknife_error(each)


def learned_head_weights_summary(found: ResultRows) -> str:
    """Return the correlations on held-out texts and the largest weights."""
    first = ", ".join(f"{row['weights']} {row['score']:+.3f}" for row in found.held_out)
    lines = [f"rank correlation with the change under ablation on held-out texts [95 %]: {first}"]
    for row in found.held_out:
        says = f"null {row['null']:+.3f}, p {row['p_holm']:.2g}, {row['n']} texts"
        lines.append(
            f"  {row['weights']:<10} {row['score']:+.3f} [{row['low']:+.3f}, "
            f"{row['high']:+.3f}]  {says}"
        )
    lines.append(f"weights ({found.unit}), ridge penalty {found.penalty:g}")
    for row in found.top(found._asked or 8):
        name = f"L{row['layer']}H{row['head']}"
        lines.append(f"  {name:<8} {row['score']:+.4g} ± {row['sem']:.2g}")
    return "\n".join(lines)


present(
    "LearnedHeadWeights",
    summary=learned_head_weights_summary,
    text="interp.report.printed.tables:top_text",
)
