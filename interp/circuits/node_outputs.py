"""Outputs of every node of a residual graph in one run, and the streams that the readers read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.circuits.residual_graph import Layer, Reader, ResidualGraph
from interp.circuits.stream_hooks import Watch, watched
from interp.core.errors import NonFiniteError, PromptError, UnreadableAttention
from interp.model.locate.stream_layers import stream_layers
from interp.model.precision import why_inexact
from interp.model.sources.placement import require_one_device

if TYPE_CHECKING:
    from jaxtyping import Float

_TOLERANCE = 1e-3  # relative to the largest difference; float32 sums over many layers


@dataclass(frozen=True, eq=False)
class NodeOutputs:
    """Activations of one run of a model, by node.

    Args:
        out: Output of each writer, as added to the stream, or to the sum that a norm reads.
        streams: By layer, the stream that enters the block and the stream that its MLP reads; the
            last entry is the stream that leaves the last block.
        z: By layer, the outputs (z) of all heads concatenated, as the output projection reads them.
        left: By layer, the stream that leaves the block.
        logits: Logits of the run.
    """

    out: Float[Tensor, "batch pos writer d_model"]
    streams: tuple[tuple[Tensor, Tensor], ...]
    z: tuple[Float[Tensor, "batch pos width"], ...]
    left: tuple[Float[Tensor, "batch pos d_model"], ...]
    logits: Float[Tensor, "batch pos d_vocab"]

    def read(self, reader: Reader) -> Float[Tensor, "batch pos d_model"]:
        """Return the stream that a reader reads."""
        return self.streams[reader.order][reader.kind == "mlp"]


class NodeRecording(Watch):
    """Recorder of the outputs and inputs of nodes."""

    def __init__(self, graph: ResidualGraph) -> None:
        self.graph = graph
        self.outputs = {layer.order: graph.head_outputs(layer) for layer in graph.layers}
        self.parts: dict[int, Tensor] = {}  # by first writer
        self.before: dict[int, Tensor] = {}
        self.middle: dict[int, Tensor] = {}
        self.z: dict[int, Tensor] = {}
        self.left: dict[int, Tensor] = {}

    def pre(self, layer: Layer, x: Tensor) -> None:
        """Record the stream that enters a block."""
        self.before[layer.order] = x.clone()
        if layer.order == 0:
            self.parts[0] = x.clone()[:, :, None]

    def heads(self, layer: Layer, x: Tensor) -> None:
        """Record the output of each head."""
        first = self.graph.heads_of(layer).start
        self.z[layer.order] = x.clone()
        self.parts[first] = self.outputs[layer.order].added(z_of_heads(layer, x))

    def mid(self, layer: Layer, x: Tensor) -> None:
        """Record the stream that an MLP reads."""
        self.middle[layer.order] = x.clone()

    def mlp(self, layer: Layer, x: Tensor) -> None:
        """Record the output of an MLP."""
        self.parts[self.graph.index[f"mlp{layer.site.layer}"]] = x.clone()[:, :, None]

    def post(self, layer: Layer, x: Tensor) -> None:
        """Record the stream that leaves a block."""
        self.left[layer.order] = x.clone()


def z_of_heads(
    layer: Layer, z: Float[Tensor, "batch pos width"]
) -> Float[Tensor, "batch pos head d_v"]:
    """Split the concatenated outputs of all heads."""
    return z.reshape(*z.shape[:2], layer.site.n_heads, layer.site.d_v)


def node_outputs(graph: ResidualGraph, inputs: Any) -> NodeOutputs:
    """Run the model once and record the output of every node."""
    require_one_device(graph.model.module, graph.model.name, "a residual graph")
    model, recording = graph.model, NodeRecording(graph)
    given = model.inputs(inputs)
    with torch.no_grad(), watched(graph, recording):
        logits = model.run(given)
    out = torch.cat([recording.parts[i] for i in sorted(recording.parts)], 2)
    if not bool(torch.isfinite(out).all()):
        bad = (~torch.isfinite(out)).flatten(0, 1).any(0).any(-1).nonzero().flatten()
        name = graph.writers[int(bad[0])]
        raise NonFiniteError(
            f"{model.name}: NaN or infinity in what {name} writes; the activations overflow in "
            f"{model.dtype} or the weights are damaged"
        )
    layers = range(len(graph.layers))
    streams = [(recording.before[i], recording.middle.get(i, recording.before[i])) for i in layers]
    left = tuple(recording.left[i] for i in layers)
    z = tuple(recording.z[i] for i in layers)
    return NodeOutputs(out, (*streams, (left[-1], left[-1])), z, left, logits)


def paired_outputs(
    graph: ResidualGraph, clean: Any, corrupted: Any
) -> tuple[NodeOutputs, NodeOutputs]:
    """Record a clean and a corrupted run, and check that node outputs sum to every stream."""
    a, b = node_outputs(graph, clean), node_outputs(graph, corrupted)
    if a.out.shape != b.out.shape:
        raise PromptError(
            f"clean and corrupted prompts of {a.out.shape[1]} and {b.out.shape[1]} tokens "
            f"({a.out.shape[0]} and {b.out.shape[0]} prompts): the two sides of each pair "
            "need equal lengths"
        )
    delta = graph.changes(a.out, b.out)
    for reader in graph.readers:
        if reader.part in ("k", "v") or reader.head > 0:
            continue
        whole = a.read(reader) - b.read(reader)
        rest = whole - delta[:, :, : reader.n_before].sum(2)
        size = float(delta[:, :, : reader.n_before].abs().max())
        if float(rest.abs().max()) > _TOLERANCE * max(size, float(whole.abs().max())):
            layers = stream_layers(graph.model, graph.layers[0].site.stack)
            others = ", ".join(layer.name for layer in layers if layer.site is None)
            raise UnreadableAttention(
                f"{graph.model.name}: what {reader.name} reads is not the sum of embeddings, heads "
                "and MLPs before it; "
                + why_inexact(
                    graph.model.dtype,
                    f"{others or 'something else'} writes to the stream; patch heads instead",
                )
            )
    return a, b
