"""Test like ROAR: accuracy of a refitted read-out after the top tokens are removed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from interp.attribution.declaration import choose_methods
from interp.attribution.evaluation.run import counts, read_texts, resolve
from interp.attribution.example import Example
from interp.core.errors import InterpError, OptionError
from interp.core.prompt_means import prompt_means
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.model.content import result_provenance
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.attribution.declaration import AttributionMethod, BoundMethod
    from interp.attribution.target import Targets
    from interp.core.protocols import Progress
    from interp.model.model import Model

Array = np.ndarray
FEWEST_PER_CLASS = 4


@takes_model
def refit_check(
    model: Model,
    texts: str | Path | Sequence[str],
    labels: Sequence[str],
    methods: Iterable[str | AttributionMethod | BoundMethod],
    targets: Targets | None = None,
    *,
    shares: Sequence[float] = (0.1, 0.3, 0.5),
    held_out: float = 0.5,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure how well a refitted linear read-out still tells classes after top tokens are removed.

    Each method removes the same share of the tokens of every text, those of largest |score|, in
    training and test texts alike. A logistic regression from the model's output (the last position
    of a causal model, the mean of an encoder's states, the logits of a classifier) to the labels is
    then fitted on the training texts. The score is its accuracy on the others: the lower, the more
    of what decides the class the method removed. The model itself is not trained again, as ROAR
    would; refitting only the read-out keeps the part of its argument that a classifier must be
    adapted to texts with tokens removed.

    Args:
        model: a loaded model, or what `load` accepts.
        texts: texts, or the path of a file with one per line.
        labels: the class of each text.
        methods: names, with options as `name:option=value`, or methods.
        targets: as for `faithfulness`.
        shares: shares of tokens to remove.
        held_out: share of the texts of each class on which accuracy is measured.
        seed: seed of the split and of random removal.
        progress: see `Progress`.

    Returns:
        A row per share and method, over test texts; the null is random removal of as many tokens.

    Raises:
        OptionError: labels or shares do not fit, or a class has fewer than four texts.
        PromptError, UnknownName: see `faithfulness`.

    Reference: Hooker et al. 2019, "A Benchmark for Interpretability Methods in Deep Neural
    Networks" (ROAR).
    """
    prompts, chosen = read_texts(texts), choose_methods(methods)
    if len(labels) != len(prompts):
        raise OptionError(f"{len(labels)} labels for {len(prompts)} texts; give one per text")
    classes = sorted(set(labels))
    few = [c for c in classes if list(labels).count(c) < FEWEST_PER_CLASS]
    if len(classes) < 2 or few:
        raise OptionError(
            f"classes {', '.join(classes)}: give at least two, each with {FEWEST_PER_CLASS} texts"
        )
    if not shares or any(not 0 < s < 1 for s in shares) or not 0 < held_out < 1:
        raise OptionError(
            f"shares={tuple(shares)}, held_out={held_out}; all must lie between 0 and 1"
        )
    wanted = resolve(model, prompts, targets)
    examples = [Example(model, t, w) for t, w in zip(prompts, wanted, strict=True)]
    rng = np.random.default_rng(seed)
    train, judged = _split_classes(labels, held_out, rng)
    truth, notes = np.array([classes.index(x) for x in labels]), {}
    orders: dict[str, list[Array] | None] = {
        "(random)": [rng.permutation(np.flatnonzero(~e.special)) for e in examples]
    }
    for number, one in enumerate(chosen):
        try:
            orders[one.label] = [_order(one, e) for e in examples]
        except InterpError as error:
            notes[one.label], orders[one.label] = str(error), None
        if progress is not None:
            progress("methods", number + 1, len(chosen))
    right: dict[tuple[str, float], Array] = {}
    for name, order in orders.items():
        for share in shares:
            if order is None:
                right[name, share] = np.full(len(judged), np.nan)
                continue
            x = np.stack([_read(e, o, share) for e, o in zip(examples, order, strict=True)])
            right[name, share] = _correct(x, truth, train, judged)
    whole = np.stack([_read(e, np.empty(0, int), 0.0) for e in examples])
    notes |= {"accuracy with all tokens": float(_correct(whole, truth, train, judged).mean())}
    about, rows, nulls = [], [], []
    for share in shares:
        for one in chosen:
            about.append(
                {"metric": "accuracy", "method": one.label, "removed": share, "unit": "share"}
            )
            rows.append(right[one.label, share])
            nulls.append(np.where(np.isnan(rows[-1]), np.nan, right["(random)", share]))
    provenance = result_provenance(
        model,
        "interp.attribution.refit_check",
        Prompts(tuple(examples[i].ids for i in judged)),
        seed=seed,
        methods=[one.label for one in chosen],
        held_out=held_out,
    )
    return prompt_means(
        about,
        ("method", "removed"),
        np.stack(rows),
        np.stack(nulls),
        notes=notes,
        provenance=provenance,
    )


def _split_classes(
    labels: Sequence[str], held_out: float, rng: np.random.Generator
) -> tuple[list[int], list[int]]:
    train, judged = [], []
    for name in sorted(set(labels)):
        mine = rng.permutation([i for i, label in enumerate(labels) if label == name]).tolist()
        count = min(max(1, round(held_out * len(mine))), len(mine) - 1)
        judged += mine[:count]
        train += mine[count:]
    return sorted(train), sorted(judged)


def _order(one: BoundMethod, example: Example) -> Array:
    scores = np.abs(one.of(example).scores)
    order = np.argsort(-scores, kind="stable")
    return order[~example.special[order]]


def _read(example: Example, order: Array, share: float) -> Float[Array, " feature"]:
    """Return the model's output without the first tokens of an order, as one vector."""
    model = example.model
    where = int((~example.special).sum())
    gone = set(order[: counts([share], where)[0]].tolist()) if share else set()
    mask = getattr(model.tokenizer, "mask_token_id", None)
    if mask is not None:
        ids = [mask if i in gone else t for i, t in enumerate(example.ids)]
    else:
        ids = [t for i, t in enumerate(example.ids) if i not in gone]
    with torch.no_grad():
        output = model.run([ids])[0].double().cpu()
    if output.dim() == 1:
        return output.numpy()
    return (output[-1] if model.kind == "causal" else output.mean(0)).numpy()


def _correct(
    x: Float[Array, "text feature"], truth: Array, train: Sequence[int], judged: Sequence[int]
) -> Float[Array, " judged"]:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fit = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=2000))
    fit.fit(x[list(train)], truth[list(train)])
    return (fit.predict(x[list(judged)]) == truth[list(judged)]).astype(float)
