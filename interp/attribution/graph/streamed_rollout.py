"""Rollout of one row of a long context: patterns are computed in blocks and never stored.

One forward pass stores queries and keys of every layer, `O(layer * pos * d)` bytes (recomputing
them per layer would need less memory but one pass per layer). Then the row is multiplied by the
layers from the top: the kernels compute each head's pattern from queries and keys, one block of
queries at a time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.graph.layered import REDUCTIONS, check_options, reduction_weights
from interp.attribution.graph.mixing import STORED_BYTES, chosen_sites, is_joint, target_rows
from interp.core.errors import OptionError, StatisticsError
from interp.model.calls.call import Call, ComputedCall
from interp.model.hooks.kernel_call import to_attention
from interp_kernels import attention_statistics
from interp_kernels.errors import KernelError
from interp_kernels.problem import Attention
from interp_kernels.reductions import LeftProduct, RightProduct

if TYPE_CHECKING:
    from interp.attribution.example import Example
    from interp.model.calls.sites import Site

ENGINES = ("auto", "stored", "streamed")


def choose_rollout_engine(
    example: Example, engine: str, heads: Any, *, full: bool, stack: str
) -> str:
    """Choose the engine; "auto" streams if that is possible and patterns would exceed 256 MiB."""
    if engine not in ENGINES:
        raise OptionError(f"unknown engine {engine!r}; known: {', '.join(ENGINES)}")
    if engine == "stored":
        return engine
    why = _why_not(example, heads, full, stack)
    if engine == "streamed" and why:
        raise OptionError(f"engine='streamed' is not possible: {why}; use engine='stored'")
    stored = "_patterns" in vars(example)  # the patterns are cached already
    size = 4 * len(example) ** 2 * sum(s.n_heads for s in example.model.sites)
    if engine == "auto" and (why or stored or size <= STORED_BYTES):
        return "stored"
    return "streamed"


def _why_not(example: Example, heads: Any, full: bool, stack: str) -> str:
    if full:
        return "full=True requests a matrix as large as a pattern"
    if isinstance(heads, str) and heads in REDUCTIONS and heads != "mean":
        return f"the {heads} over heads is not a weighted sum of them"
    if is_joint(example, stack):
        return "encoder and decoder together need stored patterns"
    if any(site.watched for site in example.sites(stack or None)):
        return f"{example.model.name} computes its attention in its own code"
    return ""


def streamed_rows(
    example: Example,
    residual: float,
    heads: Any,
    normalise: str,
    start_layer: int,
    last_layer: int,
    stack: str,
) -> tuple[Float[np.ndarray, " source"], dict[str, Any]]:
    """Compute the target's row of the rollout by streaming."""
    check_options(residual, normalise)
    sites = chosen_sites(example, stack, start_layer, last_layer)
    weights = reduction_weights(heads, [s.n_heads for s in sites], [s.layer for s in sites])
    assert weights is not None, "choose_rollout_engine streams weighted heads only"
    attentions = _queries_and_keys(example, sites)
    row = torch.from_numpy(target_rows(example, sites[0].stack))
    least, most = np.inf, -np.inf
    for site, weight in zip(reversed(sites), reversed(weights), strict=True):
        if not weight.any():  # only the residual
            least, most = min(least, 1.0), max(most, 1.0)
            continue
        share = torch.from_numpy((1 - residual) * weight)
        try:
            row, sums = _one_layer(attentions.pop(site), row, share, residual, normalise)
        except KernelError as error:
            raise StatisticsError(f"{example.model.name}, {site.name}: {error}") from error
        least, most = min(least, float(sums.min())), max(most, float(sums.max()))
    notes = {"row sums": [least, most]} if max(1 - least, most - 1) > 1e-4 else {}
    return row.numpy(), notes


def _one_layer(
    attention: Attention, row: Tensor, share: Tensor, residual: float, normalise: str
) -> tuple[Tensor, Tensor]:
    """Compute the row below one layer, and the row sums of that layer's matrix."""
    pos, work = len(row), attention.work_dtype
    ones = RightProduct(torch.ones(1, 1, pos, 1, dtype=work, device=attention.q.device))
    left = LeftProduct(row.to(attention.q.device, work)[None, None, None])
    asked = (
        [ones] if normalise == "rows" else [ones, left]
    )  # both in one pass if neither needs the other
    products = attention_statistics(attention, asked)
    total = share @ _of_one(products[ones])[:, :, 0] + residual
    if normalise == "rows":
        row = torch.where(total > 0, row / total, torch.zeros_like(row))
        total = (total > 0).double()
        left = LeftProduct(row.to(attention.q.device, work)[None, None, None])
        products = attention_statistics(attention, [left])
    return share @ _of_one(products[left])[:, 0] + residual * row, total


def _of_one(value: Any) -> Tensor:
    return value[0].double().cpu()


def _queries_and_keys(example: Example, sites: list[Site]) -> dict[Site, Attention]:
    model, attentions = example.model, {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site not in sites:
            return
        model.require_finite(call, site)
        assert isinstance(call, ComputedCall)
        # values are not needed, and storing them would cost memory
        attentions[site] = to_attention(replace(call, v=call.k[..., :1]), real, None)

    model.read(example.inputs, visit, last=1)
    for site, attention in attentions.items():
        if attention.q.shape[2] != len(example) or attention.k.shape[2] != len(example):
            raise OptionError(
                f"{site.name} attends from {attention.q.shape[2]} to {attention.k.shape[2]} "
                f"positions, but the input has {len(example)} tokens; rollout is not defined for "
                "layers that pool"
            )
    return attentions
