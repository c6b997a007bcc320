"""Fit of position and the entries of ordered lists together, and what it owes to each page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from interp.profiles.log_linear import RIDGE, log_rows
from interp.profiles.ordered_list import ENTRIES, Lists, Page, on_entries, parameters_at

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

_JOINT = 3  # passes in which position and entries are fitted together
_BENT = 24  # pages whose curvature is summed, about


def newton_step(
    slope: Tensor, bend: Tensor, here: Tensor, ridge: Float[Tensor, "head 1"]
) -> Float[Tensor, "head parameter"]:
    """Return a Newton step on the likelihood with a ridge."""
    step = torch.linalg.solve(
        bend + ridge[..., None] * torch.eye(slope.shape[1]), (slope - ridge * here)[..., None]
    )
    return step[..., 0].clamp(-2, 2)


def ridge_of(pages: Sequence[Page]) -> Float[Tensor, "head 1"]:
    """Return the weight of the squared parameters of every head."""
    total = torch.stack([page.weight.double().sum(1) for page in pages]).sum(0)
    return RIDGE * total.clamp_min(1e-9)[:, None]


@dataclass(frozen=True, eq=False)
class Refit:
    """Position and entries of all lists, fitted together.

    Args:
        position: parameters of the features of positions.
        entries: of the entries.
        slopes: of the likelihood of every page, there.
        bend: curvature of the likelihood of all pages, with the ridge.
    """

    position: Float[Tensor, "head feature"]
    entries: Float[Tensor, "head entry"]
    slopes: list[Float[Tensor, "head parameter"]]
    bend: Float[Tensor, "head parameter parameter"]


def refit_with_position(
    lists: Lists,
    pages: Sequence[Page],
    features: Callable[[], Iterable[Float[Tensor, "feature row pos"]]],
    position: Float[Tensor, "head feature"],
) -> Refit:
    """Fit position and entries together, by Newton; a step that does not help is halved."""
    here = torch.cat([position, lists.parameters], 1).double()
    free = torch.cat([torch.ones_like(position), (lists.sets >= 0).float()], 1).double()
    n, ridge, every = position.shape[1], ridge_of(pages), max(1, len(pages) // _BENT)
    loss = torch.full((len(here), 1), torch.inf, dtype=torch.double)
    trial = here
    slopes: list[Tensor] = []
    bend = torch.zeros(0)
    for left in reversed(range(_JOINT)):
        value = 0.5 * ridge * (trial**2).sum(1, keepdim=True)
        slopes, bend = [], torch.zeros(*here.shape, here.shape[1], dtype=torch.double)
        total, sampled = (torch.zeros(len(here), 1, 1, dtype=torch.double) for _ in range(2))
        for at, (page, places) in enumerate(zip(pages, features(), strict=True)):
            parameters = trial[:, :n].float(), trial[:, n:].float()
            slope, nats, bent = slope_of(page, places, *parameters, bent=at % every == 0)
            slopes.append(slope * free)
            value = value + nats[:, None]
            weight = page.weight.double().sum(1)[:, None, None]
            total += weight
            if bent is not None:
                bend += bent
                sampled += weight
        bend *= total / sampled.clamp_min(1e-9)
        better = value <= loss
        if not left:
            break
        here, loss = torch.where(better, trial, here), torch.where(better, value, loss)
        step = newton_step(torch.stack(slopes).sum(0), bend, trial, ridge) * free
        last = left == 1  # the last pass is at the best parameters
        trial = torch.where(
            better, here if last else here + step, here if last else (here + trial) / 2
        )
    bend = bend + ridge[..., None] * torch.eye(here.shape[1])
    return Refit(here[:, :n].float(), here[:, n:].float(), slopes, bend)


def slope_of(
    page: Page,
    places: Float[Tensor, "feature row pos"],
    position: Float[Tensor, "head feature"],
    entries: Float[Tensor, "head entry"],
    *,
    bent: bool = False,
) -> tuple[
    Float[Tensor, "head parameter"],
    Float[Tensor, " head"],
    Float[Tensor, "head parameter parameter"] | None,
]:
    """Return the slope of the likelihood of one page, minus its logarithm, and its curvature."""
    flat = places.flatten(1)
    logits = (position @ flat).view(page.mass.shape) + parameters_at(entries, page.owner)
    log_model = log_rows(logits, page.visible)
    nats = -(page.mass * log_model.clamp_min(-50)).sum((1, 2)).double()
    rows = log_model.exp_().mul_(page.weight[..., None])
    apart = page.mass - rows
    of_entries = on_entries(apart, page.owner)[..., 1:].sum(1)
    slope = torch.cat([apart.flatten(1) @ flat.T, of_entries], 1).double()
    if not bent:
        return slope, nats, None
    share = on_entries(rows, page.owner)[..., 1:]
    means = torch.cat([torch.einsum("hrn,frn->hrf", rows, places), share], 2)
    bend = -(means.mT @ (means / page.weight.clamp_min(1e-9)[..., None])).double()
    n = len(places)
    values = rows.flatten(1)
    for entry in range(ENTRIES):
        held = values * (page.owner.flatten(1) == entry + 1)
        both = (held @ flat.T).double()
        bend[:, :n, n + entry] += both
        bend[:, n + entry, :n] += both
        bend[:, n + entry, n + entry] += held.sum(1).double()
    # of a few features at a time, so that their products stay small
    for part in torch.arange(n).split(8):
        products = (flat[part][:, None] * flat[None]).flatten(0, 1)
        bend[:, part, :n] += (values @ products.T).unflatten(1, (len(part), n)).double()
    return slope, nats, bend


def nats_moved(
    refit: Refit, judged: Float[Tensor, "head parameter"]
) -> Float[np.ndarray, "page head"]:
    """Return what one more count of each fitted page adds to the nats of the judged ones."""
    moved = torch.linalg.solve(refit.bend, judged[..., None])[..., 0]
    return -torch.stack([(slope * moved).sum(1) for slope in refit.slopes]).float().numpy()
