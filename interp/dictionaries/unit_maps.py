"""Maps of features, heads and Lorsa heads over query and key, in the form that detectors read.

A feature of attention outputs is a sum over heads h and keys j of A_ij v_j . W_enc[h, f], its
direct attribution. This is a signed map over (query, key); detectors read its absolute share
|C| / sum |C| of each row, as they do of other maps that are not one softmax.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError, UnreadableAttention
from interp.core.prompts import Prompts
from interp.dictionaries.dictionary import Dictionary
from interp.model.calls.call import ALL, Call, RowIndex, repeat_kv
from interp.model.calls.map_call import MapCall
from interp.model.layer_tensors import run_at
from interp.model.locate.head_outputs import HeadOutputs, head_outputs, writing_weights

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.model import Model

_CLOSE = 1e-3  # relative to the largest entry


@dataclass(eq=False, kw_only=True)
class UnitCall(MapCall):
    """Map of every unit in one run of an attention layer, with the mask of that layer."""

    of_layer: Call

    def visible(self, rows: RowIndex = ALL) -> Bool[Tensor, "batch #head row key_pos"]:
        """Return the mask of keys that the layer may attend to."""
        # recorded attention has a mask per head, all of them equal
        return self.of_layer.visible(rows).any(1, keepdim=True)


class MappedUnits(Protocol):
    """Units with a map over query and key and a mask of the positions where they are active."""

    kind: str

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the units."""
        ...

    def maps(
        self, call: Call, real: Tensor
    ) -> tuple[Callable[[Tensor], Tensor], Bool[Tensor, "batch unit query_pos"]]:
        """Return the function of query indices that gives maps, and where units are active."""
        ...


def unit_call(call: Call, rows: Callable[[Tensor], Tensor], units: int) -> UnitCall:
    """Return maps of units as a call of one layer; their values and outputs are placeholders."""
    zero = call.z.new_zeros(()).expand(1, 1, 1, 1)
    return UnitCall(
        v=zero.expand(call.v.shape[0], 1, call.v.shape[2], 1),
        z=zero.expand(call.z.shape[0], units, call.z.shape[2], 1),
        kind="feature",
        of_rows=rows,
        to_projection=lambda z: z,
        signed=True,
        row_sum="any",
        of_layer=call,
    )


@dataclass(eq=False)
class HeadUnits:
    """The heads of a layer, active at every position."""

    site: Site
    kind: str = "head"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the heads."""
        return tuple(f"L{self.site.layer}H{h}" for h in range(self.site.n_heads))

    def maps(
        self, call: Call, real: Tensor
    ) -> tuple[Callable[[Tensor], Tensor], Bool[Tensor, "batch unit query_pos"]]:
        """Return the attention patterns of all heads."""
        active = real[:, None].expand(-1, self.site.n_heads, -1)
        return call.map, active


@dataclass(eq=False)
class FeatureUnits:
    """Features of a dictionary of z or of the attention output.

    Args:
        dictionary: the dictionary.
        features: the features.
        read: by head, the direction of its z that each feature reads.
        output: map from z to what the dictionary reads; None for z itself.
    """

    dictionary: Dictionary
    features: tuple[int, ...]
    read: Float[Tensor, "head d_v unit"]
    output: HeadOutputs | None
    kind: str = "feature"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the features."""
        return tuple(f"F{f}" for f in self.features)

    @classmethod
    def of(
        cls, model: Model, dictionary: Dictionary, features: Sequence[int], site: Site
    ) -> FeatureUnits:
        """Return features as units."""
        chosen = dictionary.chosen(features)
        if dictionary.site not in ("z", "attn_out"):
            raise OptionError(
                f"features of {dictionary.site} are no sums over heads and keys, so they have no "
                "map that detectors can read; use a dictionary of z or attn_out"
            )
        directions = dictionary.W_enc[:, list(chosen)]
        if dictionary.site == "z":
            return cls(dictionary, chosen, directions.unflatten(0, (site.n_heads, -1)), None)
        output = head_outputs(writing_weights(model, site), None)
        read = output.along(directions.mT.to(output.matrix)).movedim(0, -1).cpu()
        return cls(dictionary, chosen, read, output)

    def inputs(self, z: Float[Tensor, "batch head pos d_v"]) -> Float[Tensor, "batch pos d_in"]:
        """Return what the dictionary reads, from z."""
        if self.output is None:
            return z.transpose(1, 2).flatten(2).float()
        return self.output.total(z.transpose(1, 2).float())

    def require_same(self, model: Model, prompts: Prompts, site: Site) -> None:
        """Raise unless z gives what the dictionary reads, on one batch."""
        seen: dict[str, Tensor] = {}

        def keep_z(x: Tensor) -> None:
            seen["z"] = x.unflatten(2, (site.n_heads, -1)).transpose(1, 2)

        def keep(x: Tensor) -> None:
            seen["read"] = x

        if self.output is None:
            return
        run_at(model, prompts, site, {"z": keep_z, self.dictionary.site: keep}, last=1)
        mine = self.inputs(seen["z"])
        if float((mine - seen["read"]).abs().max()) > _CLOSE * float(seen["read"].abs().max()):
            raise UnreadableAttention(
                f"{site.name}: the output projection of z is not its attn_out (a norm or gate is "
                "between them), so features have no map over keys; use a dictionary of z"
            )

    def maps(
        self, call: Call, real: Tensor
    ) -> tuple[Callable[[Tensor], Tensor], Bool[Tensor, "batch unit query_pos"]]:
        """Return the direct attribution of every feature to every key, and where it has a code."""
        codes = self.dictionary.encode(self.inputs(call.z).cpu())[..., list(self.features)]
        active = (codes > 0).transpose(1, 2).to(real.device) & real[:, None]
        values = repeat_kv(call.v, call.z.shape[1]).float()
        read = torch.einsum("bhkv,hvf->bhkf", values, self.read.to(values))

        def rows(index: Tensor) -> Tensor:
            return torch.einsum("bhqk,bhkf->bfqk", call.map(index).float(), read)

        return rows, active
