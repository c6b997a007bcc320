"""Neurons as heads of width 1, see `interp.planted.neuron_heads`.

M is diagonal: a neuron attends to its own position with the weight sigmoid(k a) of its
pre-activation a, and to a bias token, which writes nothing, with the rest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from interp.model.calls.map_call import MapCall
from interp.model.mixers.mixer import Forward, Mixer, register_mixer


@register_mixer
class NeuronReader(Mixer):
    """Maps of neurons: diagonal, with a row sum below 1, because the bias token writes nothing."""

    classes = ("NeuronHeads",)
    needs = ("in_proj", "sharpness")
    projection = "out_proj"
    watched = ("in_proj",)

    def read(self, module: Any, forward: Forward) -> MapCall:
        """Return the map of each neuron."""
        a = forward.returned["in_proj"]
        weight = module.weights(a).mT  # batch neuron pos

        def of_rows(rows: Tensor) -> Tensor:
            matrix = torch.zeros(*weight.shape[:2], len(rows), weight.shape[2]).to(weight)
            matrix[:, :, torch.arange(len(rows), device=rows.device), rows] = weight[:, :, rows]
            return matrix

        return MapCall(
            v=a.mT[..., None],
            z=(weight * a.mT)[..., None],
            kind="neurons",
            of_rows=of_rows,
            to_projection=lambda z: z[..., 0].mT.contiguous(),
            signed=False,
            row_sum="below 1",
        )
