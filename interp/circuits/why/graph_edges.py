"""Direct edges between heads, MLPs, features and logits at each position of one prompt.

Attention patterns, norm scales and MLP derivatives are held at their values in the run. A head or
MLP writes a vector; its activation is the length of that vector, and an edge into it is the part of
a source's contribution along the direction in which it writes, so that edges, biases and error sum
to the activation. An MLP is linear in its input by its gradient (or by the ratio of each activation
to its input); what that leaves out is the edge from its error node.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from interp.attribution.roles import find_roles
from interp.attribution.rules import Rules, ruled
from interp.causal.gate_derivatives import frozen
from interp.circuits.linear_scores import LinearScores
from interp.circuits.residual_graph import Layer, ResidualGraph
from interp.circuits.stream_hooks import Watch, watched
from interp.circuits.why.loadings import OutputPath
from interp.circuits.why.stream_parts import (
    BIAS,
    EMBED,
    FIRST,
    OTHER,
    POSITION,
    Parts,
    StreamDictionary,
    StreamParts,
)
from interp.core.errors import UnreadableAttention
from interp.lens.finish import finish
from interp.model.calls.call import precise
from interp.model.capture import capture
from interp.model.hooks.inference import inference
from interp.model.precision import why_inexact

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.model.calls.sites import Site
    from interp.model.model import Model

MlpRule = Literal["gradient", "identity"]
_CLOSE = 1e-4  # largest residual of the sum of edges, of the largest activation of a node's kind


@dataclass(frozen=True)
class GraphNode:
    """Node of an attribution graph: a token, a head, an MLP, a feature, an error or a logit.

    Args:
        name: Name with its position, such as `L1H2@7`.
        kind: "embedding", "head", "mlp", "feature", "error" or "logit".
        layer: Its layer; -1 for tokens, the number of layers for logits.
        number: Head, feature or token id; 0 for an MLP.
        position: Token position.
        activation: Length of what it writes; the logit minus the mean of all logits.
        bias: Part of the activation that biases give.
        residual: Activation minus all edges, the bias and the error.
        p: Probability of a logit's token.
        influence: Share of influence on the logits; see `influence_of`.
    """

    name: str
    kind: str
    layer: int
    number: int
    position: int
    activation: float
    bias: float = 0.0
    residual: float = 0.0
    p: float = 0.0
    influence: float = 0.0


@dataclass(frozen=True, eq=False)
class DirectEdges:
    """All nodes of one prompt and the direct edges between them, `[target, source]`."""

    nodes: tuple[GraphNode, ...]
    weights: Float[Tensor, "target source"]
    ids: tuple[int, ...]


class _Mlps(Watch):
    """Watcher that keeps each MLP's input and output, with no gradient between layers."""

    def __init__(self) -> None:
        self.read: dict[int, Tensor] = {}
        self.out: dict[int, Tensor] = {}

    def _start(self, layer: Layer, x: Tensor) -> Tensor:
        self.read[layer.order] = x.detach().clone().requires_grad_(True)
        return self.read[layer.order].clone()

    def pre(self, layer: Layer, x: Tensor) -> Tensor:
        """Start the gradient of an MLP that runs in parallel to attention."""
        return self._start(layer, x) if layer.parallel else x.detach().clone()

    def mid(self, layer: Layer, x: Tensor) -> Tensor:
        """Start the gradient of an MLP."""
        return self._start(layer, x)

    def mlp(self, layer: Layer, x: Tensor) -> None:
        """Keep what the MLP adds to the stream."""
        self.out[layer.order] = x


class EdgeTable:
    """Collector of the nodes and direct edges of one prompt.

    Args:
        model: The model.
        ids: Token ids of the prompt.
        dictionaries: Features of the stream that stand in place of the writers before them.
        features: Number of features of each dictionary that are nodes.
    """

    def __init__(
        self,
        model: Model,
        ids: Sequence[int],
        dictionaries: Sequence[StreamDictionary],
        features: int,
    ) -> None:
        self.model, self.n = model, len(ids)
        self.graph = ResidualGraph.of(model)
        inputs = {"input_ids": torch.tensor([list(ids)], device=model.device)}
        self.run = LinearScores(model, inputs)
        self.stream = StreamParts(self.run, dictionaries, features)
        self.dictionaries = dict(zip(self.stream.features, dictionaries, strict=True))
        self.ids = tuple(int(i) for i in ids)
        self.groups: dict[str, int] = {}  # the first node of every name
        self.kinds: list[tuple[str, str, int, int]] = []  # name, kind, layer, number
        self._name_groups()
        size = len(self.kinds) * self.n
        self.activation = torch.zeros(size, dtype=torch.float64)
        self.bias = torch.zeros(size, dtype=torch.float64)
        self.weights = torch.zeros(size, size, dtype=torch.float32)

    def _name_groups(self) -> None:
        self._group(EMBED, "embedding", -1, 0)
        for order, layer in enumerate(self.graph.layers):
            number = layer.site.layer
            if (features := self.stream.features.get(order)) is not None:
                for name, i in zip(features.names, features.ids, strict=False):
                    self._group(name, "feature", number, i)
                self._group(f"L{number} error", "error", number, -1)
            for h in range(layer.site.n_heads):
                self._group(f"L{number}H{h}", "head", number, h)
            if layer.has_mlp:
                self._group(f"mlp{number} error", "error", number, 0)
                self._group(f"mlp{number}", "mlp", number, 0)

    def _group(self, name: str, kind: str, layer: int, number: int) -> None:
        self.groups[name] = len(self.kinds) * self.n
        self.kinds.append((name, kind, layer, number))

    def _start_of(self, part: str) -> int:
        if part in (POSITION, FIRST):
            part = EMBED
        if part.endswith(OTHER):
            part = part.removesuffix(OTHER) + "error"
        return self.groups[part]

    def put(
        self, target: int, parts: Parts, found: Float[Tensor, "source part"], value: float
    ) -> None:
        """Add the edges into a node: contributions by source position and part."""
        for w, name in enumerate(parts.names):
            if name == BIAS:
                self.bias[target] += float(found[:, w].sum())
                continue
            start = self._start_of(name)
            self.weights[target, start : start + self.n] += found[:, w].float().cpu()
        self.activation[target] = value

    def heads(self, site: Site) -> None:
        """Add the edges into every head of a layer, at every position."""
        parts = self.stream.before(site)
        for h in range(site.n_heads):
            path, start = OutputPath(self.run, site, h), self.groups[f"L{site.layer}H{h}"]
            whole = self.run.written[0, :, self.run.index[f"L{site.layer}H{h}"]].double()
            for i in range(self.n):
                size = float(whole[i].norm())
                towards = (whole[i] / max(size, 1e-30))[None]
                self.put(start + i, parts, path.read(parts.x, towards, i)[0], size)

    def mlps(self, rule: MlpRule) -> None:
        """Add the edges into every MLP, with its error: what its linear form leaves out."""
        layers = [x for x in self.graph.layers if x.has_mlp]
        if not layers:
            return
        model, watch = self.model, _Mlps()
        rules = Rules(norm="freeze", activation=rule, split=rule == "identity")
        roles = find_roles(model, self.run.inputs)
        with torch.enable_grad(), frozen(model.module), inference(model.module):
            with ruled(model, rules, roles), watched(self.graph, watch):
                model.run(self.run.inputs)
            for layer in layers:
                order = layer.order
                out = watch.out[order]
                whole = precise(out.detach())[0].double()
                size = whole.norm(dim=-1)
                towards = (whole / size.clamp_min(1e-30)[:, None]).to(out)
                (grad,) = torch.autograd.grad(out, watch.read[order], towards[None])
                self._mlp(layer, grad[0].detach().double(), size)

    def _mlp(self, layer: Layer, grad: Float[Tensor, "pos d_model"], size: Tensor) -> None:
        site = layer.site
        n, constant = self.run.before[site], self.run.constant[site]
        if not layer.parallel:
            first = self.run.index[f"L{site.layer}H0"]
            heads = self.run.written[:, :, first : first + site.n_heads].sum(2)
            constant = constant + precise(self.run.cache["attn_out", site.layer]) - heads
            n += site.n_heads
        parts = self.stream.first(n, constant, site)
        effects = torch.einsum("pwm,pm->pw", parts.x[0].double(), grad)
        start, error = self.groups[f"mlp{site.layer}"], self.groups[f"mlp{site.layer} error"]
        for i in range(self.n):
            mine = torch.zeros_like(effects)
            mine[i] = effects[i]
            self.put(start + i, parts, mine, float(size[i]))
            rest = float(size[i]) - float(effects[i].sum())
            self.weights[start + i, error + i] = rest
            self.activation[error + i] = rest

    def features(self) -> None:
        """Add the edges into the features of every dictionary, by the encoder's gradient."""
        for order, features in self.stream.features.items():
            site = self.run.sites[order]
            n, constant = self.run.before[site], self.run.constant[site]
            parts = self.stream.first(n, constant, site, below=True)
            x = precise(self.run.cache["resid_pre", site.layer]).detach().clone()
            with torch.enable_grad():
                acts = self.dictionaries[order].encode(x.requires_grad_(True))
                for f, (name, i) in enumerate(zip(features.names, features.ids, strict=False)):
                    (grad,) = torch.autograd.grad(acts[0, :, i].sum(), x, retain_graph=True)
                    effects = torch.einsum("pwm,pm->pw", parts.x[0].double(), grad[0].double())
                    for at in range(self.n):
                        value = float(features.acts[0, at, f])
                        if value == 0:
                            continue
                        mine = torch.zeros_like(effects)
                        mine[at] = effects[at]
                        self.put(self.groups[name] + at, parts, mine, value)
                        # The encoder's own bias is what its gradient leaves out.
                        target = self.groups[name] + at
                        given = float(self.weights[target].double().sum() + self.bias[target])
                        self.bias[target] += value - given
            error = features.x[0, :, len(features.ids) :].sum(1).norm(dim=-1)
            start = self.groups[f"L{site.layer} error"]
            self.activation[start : start + self.n] = error.double().cpu()

    def logits(
        self, mass: float, most: int, asked: Sequence[int]
    ) -> tuple[list[GraphNode], Float[Tensor, "logit source"]]:
        """Return the logit nodes at the last position and the edges into them."""
        model, site = self.model, self.run.sites[-1]
        last = capture(model, self.run.inputs, ("resid_post", "attn_out"), layers=[site.layer])
        end = finish(model, last, site.stack)
        logits = precise(last.logits)[0, -1].double()
        p = logits.softmax(-1)
        order = p.argsort(descending=True)
        keep = int((p[order].cumsum(0) < mass).sum()) + 1
        chosen = list(asked) or order[: min(keep, most)].tolist()
        stream = precise(last["resid_post", site.layer])
        parts = self._end(site, stream)
        nodes, rows = [], []
        for token in chosen:
            direction = torch.full_like(logits, -1 / len(logits))
            direction[token] += 1.0
            towards, bias = end.back(direction, stream[0, -1])
            effects = parts.x[0, -1].double() @ towards
            row, given = torch.zeros(len(self.activation), dtype=torch.float32), bias
            for w, name in enumerate(parts.names):
                if name == BIAS:
                    given += float(effects[w])
                else:
                    row[self._start_of(name) + self.n - 1] += float(effects[w])
            before_cap = logits if end.cap is None else end.cap * torch.atanh(logits / end.cap)
            value = float(before_cap @ direction)
            residual = value - given - float(row.double().sum())
            nodes.append(
                GraphNode(
                    f"logit {token}",
                    "logit",
                    len(self.graph.layers),
                    token,
                    self.n - 1,
                    value,
                    given,
                    residual,
                    float(p[token]),
                )
            )
            rows.append(row)
        return nodes, torch.stack(rows)

    def _end(self, site: Site, stream: Tensor) -> Parts:
        run = self.run
        n, constant = len(run.writers), run.constant[site]
        heads = run.written[:, :, run.index[f"L{site.layer}H0"] :][:, :, : site.n_heads].sum(2)
        constant = constant + precise(run.cache["attn_out", site.layer]) - heads
        rest = stream - run.written.sum(2) - constant
        if float(rest.abs().max()) > _CLOSE * float(stream.abs().max()):
            raise UnreadableAttention(
                f"{self.model.name}: the last stream is not the sum of embeddings, heads and MLPs: "
                + why_inexact(
                    self.model.dtype, "a layer without attention, or a norm, comes after them"
                )
            )
        return self.stream.first(n, constant, site)


def direct_edges(
    model: Model,
    ids: Sequence[int],
    *,
    mass: float,
    most: int,
    asked: Sequence[int] = (),
    dictionaries: Sequence[StreamDictionary] = (),
    features: int = 64,
    mlp: MlpRule = "gradient",
) -> DirectEdges:
    """Compute all nodes and direct edges of one prompt."""
    table = EdgeTable(model, ids, dictionaries, features)
    for site in table.run.sites:
        table.heads(site)
    table.mlps(mlp)
    table.features()
    ends, rows = table.logits(mass, most, asked)
    written = table.run.written[0].double().norm(dim=-1)
    table.activation[: table.n] = written[:, 0].cpu()
    size = len(table.activation)
    whole = torch.zeros(size + len(ends), size + len(ends), dtype=torch.float32)
    whole[:size, :size] = table.weights
    whole[size:, :size] = rows
    given = table.weights.double().sum(1) + table.bias
    nodes = []
    for g, (name, kind, layer, number) in enumerate(table.kinds):
        for i in range(table.n):
            at = g * table.n + i
            value = float(table.activation[at])
            source = kind in ("embedding", "error")
            residual = 0.0 if source else value - float(given[at])
            nodes.append(
                GraphNode(
                    f"{name}@{i}",
                    kind,
                    layer,
                    table.ids[i] if kind == "embedding" else number,
                    i,
                    value,
                    0.0 if source else float(table.bias[at]),
                    residual,
                )
            )
    nodes += ends
    for kind in ("head", "logit"):
        mine = [x for x in nodes if x.kind == kind]
        largest = max(abs(x.activation) for x in mine)
        worst = max(mine, key=lambda x: abs(x.residual))
        if abs(worst.residual) > _CLOSE * max(largest, 1e-6):
            raise UnreadableAttention(
                f"{model.name}: edges and biases of {worst.name} sum to "
                f"{worst.activation - worst.residual:.6g}, not to its activation "
                f"{worst.activation:.6g}; load the model in float32"
            )
    return DirectEdges(tuple(nodes), whole, table.ids)
