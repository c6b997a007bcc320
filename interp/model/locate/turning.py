"""Per-position linear maps (rotary embeddings, scaling) applied to queries and keys.

Rotary positions, partial or scaled, multiply the projections' outputs by a matrix for each
position. It is read from one run in which the projections' outputs are replaced by unit vectors, so
no table of families is needed and no angle is computed a second time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import UnreadableAttention
from interp.core.interrupts import held
from interp.model.calls.call import Call, precise, repeat_kv
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.locate.find_layout import layouts
from interp.model.locate.layout import Columns, Layout, ReadMatrix, find_columns, flat, heads_flat
from interp.model.locate.linear import has_matrix
from interp.model.locate.recording import TOKENS

if TYPE_CHECKING:
    from interp.model.model import Model


Turn = Float[Tensor, "#head pos given entering"]
"""`entering = given @ turn` at every position, for queries or keys; one if all heads agree."""


def turns(model: Model, inputs: dict[str, Any]) -> dict[tuple[Site, str], Turn]:
    """By site and part ("q", "k") the map between projection and scores at every position."""
    sites, maps = layouts(model).sites, {}
    for site, layout in sites.items():
        _check(site, layout)
    places = _places(model, sites, inputs)
    tokens = inputs["input_ids"].shape[1]
    rows = _copies(inputs, max(site.d_head for site in sites))

    def visit(site: Site, call: Call, real: Tensor) -> None:
        for part, x in _parts(site, call).items():
            maps[site, part] = _turn(site, x)

    def units(place: _Place, output: Tensor) -> Tensor:
        """Set every head's query and key in batch row b to unit vector b."""
        axis = _token_axis(output, tokens, place.single)
        if axis is None:  # one row per token
            new = output.clone().unflatten(0, (-1, tokens))
        else:
            new = output.movedim(axis, 1).clone()
        shape = new.shape
        new = new.flatten(2)
        for columns, d in place.columns:
            n = len(columns.index)
            unit = new.new_zeros(len(new), n)
            unit[torch.arange(n) % d, torch.arange(n)] = 1.0
            unit = (unit - columns.offset.to(unit)) / columns.factor.to(unit)
            new[:, :, columns.index.to(new.device)] = unit[:, None]
        new = new.reshape(shape)
        return new.flatten(0, 1) if axis is None else new.movedim(1, axis)

    _run(model, rows, places, units, visit)
    return maps


@dataclass(eq=False)
class _Place:
    """Module whose output columns are queries or keys, those columns, and the width."""

    columns: list[tuple[Columns, int]]
    single: tuple[int, ...] | None  # shape of its output on single tokens, if it is a norm


def _places(model: Model, sites: dict[Site, Layout], inputs: dict[str, Any]) -> dict[str, _Place]:
    """Locate the modules that produce queries and keys, including columns of zero weights.

    Columns are identified on noise in place of the projections' outputs: with the given weights two
    could be equal, or constant.
    """
    producers = {name: _Place([], shape) for name, shape in _candidates(model, sites).items()}
    noise: dict[str, Tensor] = {}
    generator = torch.Generator().manual_seed(0)

    def drawn(place: _Place, output: Tensor) -> Tensor:
        new = torch.randn(output.shape, generator=generator).to(output)
        noise[next(name for name, p in producers.items() if p is place)] = flat(new, TOKENS)
        return new

    def visit(site: Site, call: Call, real: Tensor) -> None:
        for part, x in _parts(site, call, spreading=False).items():
            names = list(noise)
            columns = find_columns(heads_flat(x), [noise[name] for name in names])
            if columns is None or bool((columns.index < 0).any()):
                raise UnreadableAttention(
                    f"{site.name} ({site.module}): no single matrix gives {part} column by column; "
                    "another operation comes in between"
                )
            producers[names[columns.source]].columns.append((columns, site.d_head))

    one = {name: x[:, :1] if _by_token(x) else x for name, x in inputs.items()}
    _run(model, _copies(one, TOKENS), producers, drawn, visit)
    return producers


def _candidates(model: Model, sites: dict[Site, Layout]) -> dict[str, tuple[int, ...] | None]:
    """Return modules that may produce queries or keys, with norms' outputs on single tokens.

    They include the attention's matrices: if weights are zero, any module could have produced the
    constant, and the layout may name another one.
    """
    shapes: dict[str, tuple[int, ...] | None] = {}
    for site, layout in sites.items():
        for reading in (layout.q, layout.k):
            if not isinstance(reading, ReadMatrix):
                continue
            norm = reading.own_norm
            if norm is not None:
                shapes[norm.module] = norm.shape
                continue
            shapes[reading.module] = None
            attention = model.module.get_submodule(site.module)
            for name, module in attention.named_modules():
                if has_matrix(module):
                    shapes[f"{site.module}.{name}" if name else site.module] = None
    return shapes


def _by_token(x: Any) -> bool:
    return isinstance(x, Tensor) and x.dim() > 1


def _copies(inputs: dict[str, Any], n: int) -> dict[str, Any]:
    return {
        name: x[:1].expand(n, *x.shape[1:]) if isinstance(x, Tensor) and x.dim() else x
        for name, x in inputs.items()
    }


def _parts(site: Site, call: Call, *, spreading: bool = True) -> dict[str, Tensor]:
    if call.q is None or call.k is None:
        raise UnreadableAttention(f"{site.name} ({site.module}): no single q and k give the scores")
    k = repeat_kv(call.k, site.n_heads) if spreading else call.k
    return {"q": precise(call.q), "k": precise(k)}


@held()
def _run(
    model: Model,
    inputs: dict[str, Any],
    places: dict[str, _Place],
    put: Callable[[_Place, Tensor], Tensor],
    visit: Callable[[Site, Call, Tensor], None],
) -> None:
    """Run the model with replaced outputs of these modules."""

    def hook(place: _Place) -> Any:
        return in_this_thread(lambda module, args, output: put(place, output))

    handles = [
        model.module.get_submodule(name).register_forward_hook(hook(place))
        for name, place in places.items()
    ]
    try:
        with torch.no_grad(), inference(model.module), model.visited(visit):
            model.run(inputs)
    finally:
        for handle in handles:
            handle.remove()


def _check(site: Site, layout: Layout) -> None:
    for reading in (layout.q, layout.k):
        if isinstance(reading, str):
            raise UnreadableAttention(reading)
        if reading.run or site.run:
            raise UnreadableAttention(
                f"{site.name} ({site.module}): it runs several times in a forward (shared layers)"
            )
    norms = [
        r.own_norm.module for r in (layout.q, layout.k) if not isinstance(r, str) and r.own_norm
    ]
    if len(set(norms)) < len(norms):
        raise UnreadableAttention(
            f"{site.name} ({site.module}): one norm, {norms[0]}, runs for both queries and keys, "
            "apparently after their positions (Llama 4), so no matrix gives them"
        )
    if layout.scale is None:
        raise UnreadableAttention(f"{site.name} ({site.module}): scores are not a multiple of q·k")


def _token_axis(x: Tensor, tokens: int, single: tuple[int, ...] | None) -> int | None:
    """Return the axis that counts tokens; None where batch and tokens share the first axis."""
    if single is None or len(single) + 1 != x.dim():
        return 1 if x.dim() > 2 else None
    fits = [i + 1 for i, size in enumerate(single) if size == 1 and x.shape[i + 1] == tokens]
    return fits[0] if fits else 1


def _turn(site: Site, x: Float[Tensor, "batch head pos entering"]) -> Tensor:
    """Return the matrices that the unit vectors were mapped by."""
    matrix = x[: site.d_head].permute(1, 2, 0, 3)
    apart = float((matrix - matrix[:1]).abs().max())
    return matrix[:1] if apart <= 1e-6 * float(matrix.abs().max()) else matrix
