"""Order of passages by a model's preference for places: the most relevant where it looks most."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from interp.core.errors import OptionError, PromptError
from interp.core.protocols import Progress, silent
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.heads.experiments.item_position import by_slot
from interp.heads.trials import Lab
from interp.model.content import model_provenance
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain
from interp.text.chains.hidden import answer_log_odds

if TYPE_CHECKING:
    from interp.model.model import Model

ORDERS = ("preferred", "least preferred", "random")


def place_preference(
    model: Model, places: int, size: int = 6, *, question: int = 2, seed: int = 0
) -> Float[np.ndarray, " place"]:
    """Return the share of attention on each place among random items, mean over all heads.

    Every item stands at every place once, so that content plays no part; see `item_position`.
    """
    shares = by_slot(
        model, Lab(seed, silent), items=places, size=size, orders=places, question=question
    )
    return torch.stack([x.mean((0, 1)) for x in shares.values()]).mean(0).numpy()


def placed_passages(relevance: Sequence[float], preference: Sequence[float]) -> tuple[int, ...]:
    """Return the passage of each place: the most relevant at the most preferred one."""
    relevances, place = np.asarray(relevance, float), np.asarray(preference, float)
    if (
        relevances.shape != place.shape
        or relevances.ndim != 1
        or not np.isfinite([relevances, place]).all()
    ):
        raise OptionError(
            f"{relevances.size} relevances for {place.size} places; give one finite number for each"
        )
    order = np.empty(len(relevances), int)
    order[np.argsort(-place, kind="stable")] = np.argsort(-relevances, kind="stable")
    return tuple(order.tolist())


@takes_model
def passage_order(
    model: Model,
    chains: Sequence[Chain],
    *,
    relevance: Sequence[Sequence[float]] | None = None,
    n_random: int = 8,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure what it does to the answer when passages are ordered by the model's preference.

    Args:
        model: a causal model.
        chains: passages with a question and an answer; passages are the chain's sentences, and all
            tokens but a beginning of sequence belong to one.
        relevance: how relevant each passage of each chain is, such as the scores of a retriever; by
            default 1 for the known sources of the answer and 0 for the others.
        n_random: random orders of each chain.
        seed: seed of the items and the orders.
        progress: called after each chain.

    Returns:
        A row per order, `preferred` (the most relevant passage at the place with most attention),
        `least preferred` and `random`: score, the mean over the n chains of the log odds of the
        answer minus those in the given order, in nats, with sem; null is the score of random
        orders. Facts: preference, per number and length of passages the share on each place.

    Raises:
        OptionError: relevances do not fit, or a chain has fewer than three passages.
        PromptError: a chain has no answer or no known sources, or tokens between passages.

    Reference: Yi et al. 2025, "Attention Basin: Why Contextual Position Matters in Large Language
    Models" (arXiv 2508.05128).

    Unit: nats.

    Cost: One forward pass per chain and order, and one per place for each number of passages.

    Null: random orders of the same passages.

    Not for: passages that refer to one another: another order changes their meaning.
    """
    if not chains or n_random < 1:
        raise OptionError("give at least one chain, and n_random from 1")
    if relevance is not None and len(relevance) != len(chains):
        raise OptionError(f"{len(relevance)} relevances for {len(chains)} chains")
    rng = np.random.default_rng(seed)
    preference: dict[tuple[int, int], np.ndarray] = {}
    effects = np.zeros((len(ORDERS), len(chains)))
    report = progress or silent
    for at, chain in enumerate(chains):
        _require(chain)
        chain.fits(model)
        n = len(chain)
        key = n, max(1, round((len(chain.ids) - chain.spans[0][0]) / n))
        if key not in preference:
            preference[key] = place_preference(
                model, *key, question=max(1, len(chain.question)), seed=seed
            )
        places = preference[key]
        relevances = (
            relevance[at] if relevance is not None else [i in chain.sources for i in range(n)]
        )
        plain = _odds(model, chain, range(n))
        orders = {
            "preferred": [placed_passages(relevances, places.tolist())],
            "least preferred": [placed_passages(relevances, (-places).tolist())],
            "random": [tuple(rng.permutation(n).tolist()) for _ in range(n_random)],
        }
        for row, name in enumerate(ORDERS):
            effects[row, at] = np.mean([_odds(model, chain, o) for o in orders[name]]) - plain
        report("chains", at + 1, len(chains))
    columns = {
        "order": ORDERS,
        "score": effects.mean(1),
        "n": len(chains),
        "null": effects[2].mean(),
        "sem": standard_error(effects) if len(chains) > 1 else np.nan,
    }
    provenance = model_provenance(model) | {
        "prompts": "passages",
        "prompts_hash": sha256(
            repr([(c.ids, c.spans, c.question, c.answer) for c in chains]).encode()
        ).hexdigest(),
        "chains": len(chains),
        "n_random": n_random,
        "seed": seed,
        "made_by": "interp.text.context.passage_order",
    }
    facts = {
        "metric": "answer_log_odds",
        "unit": "nats (+ helps)",
        "preference": {
            f"{n} of {size}": tuple(map(float, x)) for (n, size), x in preference.items()
        },
    }
    return ResultRows("PassageOrder", columns, ("order",), provenance, facts, effects)


def _require(chain: Chain) -> None:
    if not chain.answer:
        raise PromptError(f"{chain.name} has no answer; give one whose log odds can be measured")
    if len(chain) < 3:
        raise OptionError(f"{chain.name} has {len(chain)} passages; an order needs at least 3")
    edges = [chain.spans[0][0], *(b for _, b in chain.spans)]
    if (
        edges[0] > 1
        or edges[-1] != len(chain.ids)
        or any(b != a for b, (a, _) in zip(edges[1:-1], chain.spans[1:], strict=True))
    ):
        raise PromptError(f"{chain.name} has tokens that belong to no passage; they have no place")


def _odds(model: Model, chain: Chain, order: Sequence[int]) -> float:
    """Return the log odds of the answer with the passages in an order."""
    first = chain.ids[: chain.spans[0][0]]
    body = [t for i in order for t in chain.ids[slice(*chain.spans[i])]]
    ids = (*first, *body, *chain.question, *chain.answer)
    n = len(chain.answer)
    with torch.no_grad():
        logits = model.run([list(ids)])[0, -n - 1 : -1]
    return float(answer_log_odds(logits, chain.answer))
