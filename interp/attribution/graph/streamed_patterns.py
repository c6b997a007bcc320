"""Statistics of the patterns of one example, layer by layer, for inputs too long to store them.

One forward pass; the kernels compute what is asked of each layer in blocks, so memory is linear in
the length of the input.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.attribution.graph.mixing import STORED_BYTES, is_joint, pattern_bytes, target_rows
from interp.core.errors import OptionError, StatisticsError
from interp.model.calls.call import Call
from interp.model.hooks.kernel_call import to_attention
from interp_kernels import attention_statistics
from interp_kernels.errors import KernelError
from interp_kernels.reductions import LeftProduct, Received, Reduction, Rows

if TYPE_CHECKING:
    from interp.attribution.example import Example
    from interp.model.calls.sites import Site

FEW = 16  # output positions up to which single rows are computed instead of weighted sums
NOTES: Mapping[str, Any] = {"engine": "streamed"}
ReadLayer = Callable[["Site", Call, Mapping[str, Any]], Tensor]
"""Function of a layer, its call and the values of its reductions by name."""


def is_streamed(example: Example, stack: str) -> bool:
    """Return True if patterns exceed 256 MiB, can be computed in blocks, and are not stored yet."""
    own_code = any(site.watched for site in example.sites(stack or None))
    stored = "_patterns" in vars(example)
    return (
        pattern_bytes(example, stack) > STORED_BYTES
        and not own_code
        and not stored
        and not is_joint(example, stack)
    )


def streamed(
    example: Example,
    stack: str,
    asked: Callable[[torch.device], list[Reduction]],
    read: ReadLayer,
    layer: int | None = None,
) -> list[Tensor]:
    """Run the model once and reduce the pattern of every layer of a stack."""
    model, by_site = example.model, {}
    sites = example.sites(stack or None)
    sites = sites if layer is None else [sites[layer]]

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site not in sites:
            return
        model.require_finite(call, site)
        shape = call.z.shape[2], call.v.shape[2]
        if shape != (len(example), len(example)):
            raise OptionError(
                f"{site.name} attends from {shape[0]} to {shape[1]} positions, but the input has "
                f"{len(example)} tokens: its attention is not a score of these tokens; use another "
                "stack or method"
            )
        try:
            values = attention_statistics(to_attention(call, real, None), asked(call.z.device))
        except KernelError as error:
            raise StatisticsError(f"{model.name}, {site.name}: {error}") from error
        by_site[site] = read(site, call, values)

    model.read(example.inputs, visit, last=1)
    return [by_site[site] for site in sites]


def from_target(example: Example, stack: str) -> tuple[Callable[[torch.device], list], ReadLayer]:
    """Return the reduction for the attention from the target, and its reading `[head, source]`.

    Few output positions are read as rows, which cost one row each; many as one weighted sum.
    """
    rows = torch.from_numpy(target_rows(example, example.sites(stack or None)[0].stack))
    some = rows.nonzero().flatten().tolist()
    if len(some) <= FEW:

        def read_rows(site: Site, call: Call, values: Mapping[str, Any]) -> Tensor:
            return torch.einsum("r,hrk->hk", rows[some], values["attended"][0].double().cpu())

        return lambda device: [Rows(tuple(some), name="attended")], read_rows

    def read(site: Site, call: Call, values: Mapping[str, Any]) -> Tensor:
        return values["attended"][0, :, 0].double().cpu()

    def asked(device: torch.device) -> list[Reduction]:
        return [LeftProduct(rows.to(device)[None, None, None], name="attended")]

    return asked, read


def attended(
    example: Example, stack: str, layer: int | None = None
) -> list[Float[Tensor, "head source"]]:
    """Return the attention from the target to every token, per layer and head."""
    return streamed(example, stack, *from_target(example, stack), layer)


def received(example: Example, stack: str) -> list[Float[Tensor, "head source"]]:
    """Return the attention of all queries to every token, per layer and head."""
    return streamed(
        example,
        stack,
        lambda device: [Received()],
        lambda site, call, values: values["received"][0].double().cpu(),
    )
