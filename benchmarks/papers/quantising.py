"""A claim on quantisation: tokens that receive attention count more for the rounded weights."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

import interp
from papers.evicting import loss
from papers.finding import Finding, above, on_decoders
from papers.hosts import Host

LEVELS = 2**3  # of a weight


def _rounded(weight: Tensor, x: Tensor, importance: Tensor) -> Tensor:
    """Round a matrix in a rotated basis, so that weighted outputs of inputs change least (GPTQ)."""
    n = weight.shape[1]
    turn = torch.linalg.qr(torch.randn(n, n, generator=torch.Generator().manual_seed(n)).double()).Q
    w, x = weight.double() @ turn, x.double() @ turn * importance.double()[:, None]
    square = x.mT @ x
    square += 0.01 * square.diagonal().mean() * torch.eye(n)
    inverse = torch.linalg.cholesky(torch.linalg.inv(square)).mT  # upper
    low, high = w.amin(1), w.amax(1)
    step = (high - low) / (LEVELS - 1)
    found = torch.zeros_like(w)
    for i in range(n):
        found[:, i] = ((w[:, i] - low) / step).round().clamp(0, LEVELS - 1) * step + low
        error = (w[:, i] - found[:, i]) / inverse[i, i]
        w[:, i:] -= error[:, None] * inverse[i, i:]
    return (found @ turn.mT).to(weight)


def _quantised(host: Host, rows: list[list[int]], importance: Tensor) -> interp.Model:
    """Return the model with every matrix of its layers rounded for the tokens of some rows."""
    module: Any = deepcopy(host.model.module)
    linears = [m for m in module.model.layers.modules() if isinstance(m, nn.Linear)]
    seen: dict[nn.Module, Tensor] = {}

    def note(linear: nn.Module, given: tuple[Tensor, ...]) -> None:
        seen[linear] = given[0].flatten(0, 1)

    hooks = [linear.register_forward_pre_hook(note) for linear in linears]
    with torch.no_grad():
        module(torch.tensor(rows))
        for hook in hooks:
            hook.remove()
        for linear in linears:
            linear.weight.copy_(_rounded(linear.weight, seen[linear], importance))
    return interp.load(module, name="rounded")


@on_decoders("RSQ")
def rsq(host: Host) -> Finding:
    """Round with tokens weighted by the attention they receive, or all alike; held-out loss.

    Matrices are rotated and rounded to 3 bits by GPTQ.
    """
    gains, judged = [], host.rows("text", 48)
    for start in range(0, 96, 16):
        rows = host.texts(96, judged=False)[start : start + 16]
        weights = torch.cat(
            [
                torch.tensor(interp.attribute(host.model, row, method="rsq", low=0.01).scores)
                for row in rows
            ]
        )
        alike, weighted = (
            loss(_quantised(host, rows, w), *judged).mean()
            for w in (torch.ones_like(weights), weights)
        )
        gains.append(alike - weighted)
    each = "6 sets of 16 texts to round for, 48 other texts"
    return above("loss with all tokens alike minus weighted by attention", gains, each)
