"""Adapter of forms of attention: it reads every rule of this folder."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer


class VariantMixer(Mixer):
    """Modules that hold a rule; z and the tensors of the map pass through two identities."""

    classes = ("VariantAttention",)
    needs = ("rule", "kind")
    projection = "out"
    watched = ("projected", "mixed")

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the rule's map; z is what the module itself computed."""
        given, z = forward.returned["projected"], forward.returned["mixed"]
        rule = module.rule

        def of_rows(rows: Tensor) -> Tensor:
            return rule.rows(given, rows)

        def to_projection(z: Tensor) -> Tensor:
            return rule.after(z, given)

        def seen(rows: Tensor) -> Tensor:
            found = rule.seen(given, rows)
            return found[(None,) * (4 - found.dim())].expand(len(z), -1, -1, -1)

        return MapCall(
            v=given.v,
            z=z,
            kind=module.kind,
            of_rows=of_rows,
            to_projection=to_projection,
            signed=rule.signed,
            row_sum=rule.row_sum,
            seen=seen,
            rest=rule.rest(given),
            parts=rule.parts(given),
        )
