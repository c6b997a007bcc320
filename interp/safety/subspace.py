"""Sahara: how far the prompts' main axis turns when heads are taken out, and a greedy search.

One row per prompt holds the last hidden state, as the unembedding gets it, at the last token. The
score of a set of heads is the angle between the first singular vectors of these rows with and
without it. There are three forms, and they ask different things:

    uncentred   left singular vectors of the rows as they are: the authors' code. An angle in the
                space of prompts: it stays the same however the hidden space is rotated. What all
                prompts share dominates it, so that a change of everything else shows little.
    centred     the same with the mean over prompts taken off: along which axis do the prompts
                differ, and do they still? A head that writes the same to all prompts is invisible,
                so the prompts must be of both kinds. The default.
    features    right singular vectors of the centred rows: an angle in the hidden space. It sees an
                axis that turns while the prompts keep their order on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.prompts import Prompts
from interp.core.table import HeadTable
from interp.model.content import model_provenance
from interp.model.given import takes_model
from interp.safety.hidden import HiddenGame
from interp.safety.prompts import PromptSets

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray
FORMS = ("centred", "uncentred", "features")


@dataclass(frozen=True, eq=False)
class SearchStep:
    """One step of the search: the head that joins, and the angle with each head in its place.

    Args:
        angles: in degrees, for every head not in the set yet; NaN for those in it.
    """

    head: str
    angle: float
    angles: Float[Array, " head"] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Sahara:
    """The heads that the search took, in their order, and the first step's angles of every head.

    Args:
        gap: first singular value over the one after the last that is compared: near 1 the axis is
            arbitrary, and so are the angles.
    """

    steps: tuple[SearchStep, ...]
    labels: tuple[str, ...]
    form: str
    gap: float
    table: HeadTable

    @property
    def heads(self) -> tuple[str, ...]:
        """The heads that were taken."""
        return tuple(step.head for step in self.steps)

    def __str__(self) -> str:
        path = ", ".join(f"{step.head} {step.angle:.3g}°" for step in self.steps)
        return f"Sahara ({self.form}): {path}; singular values {self.gap:.3g} apart"


@takes_model
def sahara(
    model: Model,
    harmful: Any,
    harmless: Any = None,
    *,
    form: str = "centred",
    rank: int = 1,
    steps: int = 3,
    kind: str = "zero",
    progress: Callable[[str, int, int], None] | None = None,
    **options: Any,
) -> Sahara:
    """Greedy search for the heads whose removal turns the prompts' main axis most.

    Each step takes out every remaining head together with those taken before and keeps the one with
    the largest angle; of equal heads the first. It never goes back, and the angle is at most 90
    degrees, so later steps have little left to show.

    Args:
        harmful, harmless: texts, ids or `Prompts`. The authors use harmful prompts alone, with
            `form="uncentred"`. The centred forms need both kinds.
        form: see above.
        rank: singular vectors that are compared; beyond 1 the angle is the largest of the principal
            angles between the two subspaces.
        steps: heads to take; the authors stay at about three.
        kind: what replaces a head, as in `ships`.
        options: of `Game`: stack, heads, max_tokens, reference, ...

    Reference: Zhou et al. 2025 (arXiv 2410.13708), "Generalized Ships" and Sahara.

    Raises:
        UnknownName: no such form or kind.
        OptionError: a rank or number of steps that does not fit.
        PromptError: sets that coincide, too few prompts, or prompts whose hidden states do not
            differ.
        UnreadableAttention: a model without an unembedding.

    Unit: degrees.

    Cost: One run over the prompts per remaining head and step.

    Null: the angle of every other head in the same step.

    Not for: uncentred prompts that share a large mean: the axis is that mean. With a `gap` near 1
    the axis is arbitrary.
    """
    from interp.safety.removal import FORMS as KINDS

    if form not in FORMS:
        raise UnknownName("form of Sahara", form, FORMS)
    prompts = _prompts(model, harmful, harmless, form)
    game = HiddenGame.of(model, prompts, kind=KINDS.get(kind, kind), **options)
    if not 1 <= steps <= len(game) or not 1 <= rank < min(len(prompts), model.d_model):
        raise OptionError(
            f"steps={steps}, rank={rank}; between 1 and {len(game)} heads, and between 1 and "
            f"{min(len(prompts), model.d_model) - 1} for {len(prompts)} prompts"
        )
    base = game.hidden(torch.ones(1, len(game), dtype=torch.double))[0]
    axis, gap = main_axes(base, form, rank)
    taken: list[int] = []
    found: list[SearchStep] = []
    for step in range(steps):
        left = [i for i in range(len(game)) if i not in taken]
        gates = torch.ones(len(left), len(game), dtype=torch.double)
        gates[:, taken] = 0
        gates[range(len(left)), left] = 0
        angles = np.full(len(game), math.nan)
        for row, hidden in zip(left, game.hidden(gates), strict=True):
            angles[row] = principal_angle(axis, main_axes(hidden, form, rank)[0])
        best = int(np.nanargmax(angles))
        taken.append(best)
        found.append(SearchStep(game.players.labels[best], float(angles[best]), angles))
        if progress is not None:
            progress("sahara", step + 1, steps)
    table = _table(model, game, found[0].angles, form, rank, len(prompts))
    return Sahara(tuple(found), game.players.labels, form, gap, table)


def main_axes(
    hidden: Float[Tensor, "prompt d_model"], form: str, rank: int = 1
) -> tuple[Float[Tensor, "entry axis"], float]:
    """The first singular vectors in the form's space, and how far the singular values are apart.

    Raises:
        PromptError: all rows are the same, so that a centred form has no axis.
    """
    x = hidden.double()
    if form != "uncentred":
        centred = x - x.mean(0)
        if float(centred.norm()) <= 1e-6 * float(x.norm()):
            raise PromptError(
                "the prompts leave the same hidden state, so nothing tells them apart; give "
                "prompts of both kinds"
            )
        x = centred
    u, values, vh = torch.linalg.svd(x, full_matrices=False)
    beyond = float(values[rank]) if rank < len(values) else 0.0
    gap = float(values[0]) / beyond if beyond > 0 else math.inf
    return (vh.T if form == "features" else u)[:, :rank], gap


def principal_angle(one: Float[Tensor, "entry axis"], other: Float[Tensor, "entry axis"]) -> float:
    """The largest principal angle between two subspaces given by orthonormal columns, in degrees.

    By the sine where the angle is small and by the cosine where it is large, so that neither end
    loses digits (Björck and Golub 1973).
    """
    inner = one.T @ other
    cosine = float(torch.linalg.svdvals(inner)[-1])
    sine = float(torch.linalg.svdvals(other - one @ inner)[0])
    return math.degrees(math.atan2(sine, cosine))


def _prompts(model: Model, harmful: Any, harmless: Any, form: str) -> Prompts:
    if harmless is not None:
        return PromptSets.of(model, harmful, harmless).together
    if form != "uncentred":
        raise PromptError(
            f"form={form!r} asks how prompts differ, so it needs harmless prompts beside the "
            "harmful ones; on harmful prompts alone use form='uncentred'"
        )
    return Prompts.of(harmful, model)


def _table(
    model: Model, game: HiddenGame, angles: Array, form: str, rank: int, n: int
) -> HeadTable:
    label = f"sahara:form={form},kind={game.kind}" + (f",rank={rank}" if rank > 1 else "")
    records = []
    for site, index in game.players.member.items():
        for h, number in enumerate(index.tolist()):
            if number >= 0:
                records.append(
                    {
                        "model": model.name, "stack": site.stack, "layer": site.layer, "head": h,
                        "kv_head": site.kv_head(h), "metric": label, "n": n,
                        "score": float(angles[number]), "unit": "degrees",
                    }
                )  # fmt: skip
    made = model_provenance(model) | game.about()
    made |= {"form": form, "rank": rank, "null": "none", "edits": []}
    made |= {"made_by": "interp.safety.sahara"}
    return HeadTable.from_records(records, {(model.name, label): made})
