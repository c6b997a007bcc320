"""Responsibilities of heads: which all-but-one model each prompt prefers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float
from scipy.special import softmax

from interp.causal.ablation import leave_one_out
from interp.causal.importance import mean_columns
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

_LEAST = 2  # heads, and prompts


@takes_model
def head_responsibilities(
    model: Model,
    task: Task,
    *,
    sharpness: float = 1.0,
    kind: str = "zero",
    n_random: int = 199,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> ResultRows:
    """Compute which of the all-but-one models each prompt prefers, as a mixture of experts.

    The expert without head h has, on a prompt, the log-likelihood minus the task's loss. With equal
    prior weights its responsibility is the softmax over heads of minus `sharpness` times the damage
    of its ablation: small for a head that this prompt needs.

    Args:
        model: The model.
        task: The task: a loss in nats makes the responsibilities those of a mixture of models.
        sharpness: Factor of the damage; with a loss per token, the number of tokens makes it that
            of the whole prompt.
        kind: Replacement of a head that is left out; see `interp.causal.game.replacement`.
        n_random: Shufflings for the null of the information.
        seed: Seed of the shufflings.
        progress: See `Progress`.
        **options: Options of `Game`, such as `heads`.

    Returns:
        One row per head: head (its name), score (responsibility of the model without it, mean over
        prompts; large where prompts do not need the head) with sem and 95 % interval, and null (1
        over the number of heads). `per_prompt` sums to 1 over the rows. Facts: information, the
        mean divergence of a prompt's responsibilities from their mean, in nats (0 if all prompts
        prefer the same mixture); information_null, its mean after the effects of every head are
        shuffled over prompts; information_p, the share of shufflings with as much information, the
        observed one included.

    Raises:
        OptionError: There are fewer than two heads or prompts, or the sharpness is not positive.

    Unit: probability; 1 over the number of heads if no head matters.

    Cost: One forward pass per head, from the head's layer on.

    Null: the effects of every head shuffled over prompts, which keeps how much each head matters.

    Not for: experts that were trained apart, as in the paper: these are of one model. A head with a
    small responsibility is needed; a large one says only that others are needed more.

    Reference: Peng et al. 2020, "A Mixture of h - 1 Heads is Better than h Heads" (arXiv
    2005.06537).
    """
    if sharpness <= 0:
        raise OptionError(f"sharpness={sharpness:g}: give a positive factor of the damage")
    damage = leave_one_out(model, task, kind=kind, null="none", progress=progress, **options)
    harm = sharpness * damage.per_prompt
    if min(harm.shape) < _LEAST:
        raise OptionError(
            f"{harm.shape[0]} heads and {harm.shape[1]} prompts; a mixture needs two of each"
        )
    shares = softmax(-harm, axis=0)
    observed, null, p = information_test(harm, n_random, seed)
    about = {
        **damage.provenance,
        "made_by": "interp.causal.head_responsibilities",
        "sharpness": sharpness,
        "draws": n_random,
        "n_heads": len(harm),
    }
    columns = {"head": damage.players.labels, **mean_columns(shares, damage.clusters)}
    information = {"information": observed, "information_null": null, "information_p": p}
    return ResultRows(
        "HeadResponsibilities",
        columns | {"null": 1 / len(harm)},
        ("head",),
        about,
        {"metric": "head_responsibility", "unit": "probability", "n": harm.shape[1]} | information,
        shares,
        clusters=damage.clusters,
    )


def information_test(
    harm: Float[np.ndarray, "head prompt"], draws: int, seed: int
) -> tuple[float, float, float]:
    """Return the information of responsibilities, its mean over shufflings, and a p value."""
    rng = np.random.default_rng(seed)
    information = information_of(softmax(-harm, axis=0))
    shuffled = np.array(
        [information_of(softmax(-rng.permuted(harm, axis=1), axis=0)) for _ in range(draws)]
    )
    p = (1 + int((shuffled >= information - 1e-12).sum())) / (1 + draws)
    return information, float(shuffled.mean()), p


def information_of(shares: Float[np.ndarray, "head prompt"]) -> float:
    """Return the mean divergence of the columns from their mean, in nats."""
    mean = shares.mean(1, keepdims=True)
    part = np.where(shares > 0, shares * np.log(np.maximum(shares, 1e-300) / mean), 0.0)
    return max(0.0, float(part.sum(0).mean()))


def head_responsibilities_summary(found: ResultRows) -> str:
    """Return the information of the responsibilities."""
    return (
        f"HeadResponsibilities({len(found)} heads, information {found.information:.3g} nats, "
        f"shuffled {found.information_null:.3g}, p {found.information_p:.3g})"
    )


present("HeadResponsibilities", summary=head_responsibilities_summary)
