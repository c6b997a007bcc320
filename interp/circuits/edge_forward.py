"""Forward passes in which every edge of the residual graph carries the value of one of two runs.

    edges = EdgeForward(ResidualGraph.of(model), clean, corrupted)
    logits = edges.run(edges.graph.mask([("L0H2", "L1H1.k"), ...]))    # [batch, pos, d_vocab]

An edge whose mask is 1 carries what its writer writes in the current forward pass; one whose mask
is 0 carries what the writer wrote in the corrupted run. So the mask of a circuit gives the
circuit's logits, and the full mask with one entry of 0 patches one path. Every number is computed
by the model's own modules: a block is run again on each distinct input of its readers, and
interrupted as soon as they have been read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interp.attribution.roles import NormRole, find_roles
from interp.causal.game.patching import tiled
from interp.circuits.attention_parts import AttentionTensors, attention_tensors, set_parts
from interp.circuits.node_outputs import paired_outputs, written
from interp.circuits.residual_graph import Layer, Reader, ResidualGraph
from interp.circuits.stream_hooks import Watch, replace_first, watched
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.interrupts import held, holding
from interp.model.hooks.calls import Call
from interp.model.hooks.inference import forward_here, in_this_thread, inference, replaced
from interp.model.locate.find_sites import first_tensor, output_projection
from interp.model.locate.sites import Site

if TYPE_CHECKING:
    from jaxtyping import Float

_TOLERANCE = 1e-3  # relative to the largest logit: float32 sums in another order
_FEW = 4  # writers per group up to which adding them one by one is faster
_AT_ONCE = 2**25  # largest number of elements of all groups' inputs together


class EdgeForward:
    """Pair of runs, and the forward passes that mix them edge by edge.

    Args:
        graph: The residual graph of the model.
        clean, corrupted: Prompts (ids, texts or input tensors) of equal shape.
        denoise: Exchange the two: run on the corrupted prompts, and edges whose mask is 0 carry
            their clean values.
        check: Run once with every edge at 0, which must give the other run's logits.

    Attributes:
        forwards: Number of forward passes of the model, over the whole batch; interrupted parts of
            a pass are not counted separately.

    Raises:
        UnreadableAttention: The model does not have such a graph; the message gives the reason.
        PromptError: The prompts have unequal lengths.
    """

    def __init__(
        self,
        graph: ResidualGraph,
        clean: Any,
        corrupted: Any,
        *,
        denoise: bool = False,
        check: bool = True,
    ) -> None:
        if denoise:
            clean, corrupted = corrupted, clean
        self.graph, self.model = graph, graph.model
        self.inputs = self.model.inputs(clean)
        self.base, self.other = paired_outputs(graph, clean, corrupted)
        self.forwards = 2
        self.returns_stream: dict[
            int, bool
        ] = {}  # by layer, whether its block returns only a tensor
        self._norms: dict[nn.Module, tuple[NormRole, Tensor]] | None = None
        if check:
            self._check()

    def run(
        self,
        mask: Float[Tensor, "*copy reader writer"],
        *,
        norm: str = "exact",
        rows: Any = slice(None),
    ) -> Float[Tensor, "*copy batch pos d_vocab"]:
        """Return the logits under one mask, or under several at once.

        Args:
            mask: 1 for this run's value, 0 for the other run's, a mixture in between. Entries of
                edges that do not exist are ignored.
            norm: "exact", or "freeze": readers with an edge at 0 keep the scale that their norm has
                in the run of the prompts themselves.
            rows: Positions whose logits are kept.

        Raises:
            OptionError: The mask has another shape or is not finite, or the norm is unknown.
        """
        shape = (len(self.graph.readers), len(self.graph.writers))
        if mask.shape[-2:] != shape or mask.dim() not in (2, 3):
            raise OptionError(
                f"an edge mask of shape {tuple(mask.shape)}; expected [reader, writer] = {shape}, "
                "or a stack of such masks"
            )
        if not bool(torch.isfinite(mask).all()):
            raise OptionError(
                "an edge mask is NaN or infinite; give 1 for this run's value, 0 for the other's"
            )
        if norm not in ("exact", "freeze"):
            raise OptionError(f"norm {norm!r}; known: exact, freeze")
        several = mask.dim() == 3
        mask = (mask if several else mask[None]).to(self.base.out)
        copies, batch = len(mask), self.base.out.shape[0]
        inputs = {
            k: tiled(v, copies) if isinstance(v, Tensor) and v.dim() and v.shape[0] == batch else v
            for k, v in self.inputs.items()
        }
        norms = self.hold_norms() if norm == "freeze" else {}
        run = EdgeRun(self, mask, norms)
        with torch.no_grad(), inference(self.model.module), run.hooked():
            logits = self.model.run(inputs)
        self.forwards += copies
        logits = logits.reshape(copies, batch, *logits.shape[1:])[:, :, rows]
        return logits if several else logits[0]

    @held()
    def hold_norms(self) -> dict[nn.Module, tuple[NormRole, Tensor]]:
        """Return the norms of the residual stream with their scales in the unpatched run."""
        if self._norms is None:
            roles = find_roles(self.model, self.inputs).norms
            seen: dict[nn.Module, tuple[NormRole, Tensor]] = {}
            width = self.base.out.shape[-1]

            def hook(module: nn.Module, args: tuple, output: Tensor) -> None:
                role = roles[module]
                if role.shape == (width,):  # norms of queries and keys stay exact
                    seen[module] = role, role.frozen(args[0], output)[1]

            handles = [m.register_forward_hook(in_this_thread(hook)) for m in roles]
            try:
                with torch.no_grad():
                    self.model.run(self.inputs)
            finally:
                for handle in handles:
                    handle.remove()
            self._norms = seen
            self.forwards += 2
        return self._norms

    def _check(self) -> None:
        nothing = self.run(torch.zeros(len(self.graph.readers), len(self.graph.writers)))
        error = float((nothing - self.other.logits).abs().max())
        if error > _TOLERANCE * max(1.0, float(self.other.logits.abs().max())):
            raise UnreadableAttention(
                f"{self.model.name}: with every edge from the other run its logits differ by "
                f"{error:.2g}, so something outside the residual graph reads the stream"
            )


class _Stop(Exception):
    """Signal that a block was run as far as needed."""


@dataclass(eq=False)
class ReaderGroup:
    """Readers that read the same input."""

    mask: Float[Tensor, "copy writer"]
    readers: list[Reader]


class EdgeRun(Watch):
    """Forward pass under masks."""

    def __init__(
        self,
        edges: EdgeForward,
        mask: Float[Tensor, "copy reader writer"],
        norms: Mapping[nn.Module, tuple[NormRole, Tensor]],
    ) -> None:
        self.edges, self.graph, self.mask = edges, edges.graph, mask
        self.copies, self.norms, self.freezing = len(mask), norms, False
        self.groups = self._groups()
        self.start = min(self.groups, default=len(self.graph.layers))
        base = edges.base
        # writers by number, `[copy or 1, batch, pos, d_model]`; from the base run before the start
        self.live: dict[int, Tensor] = {
            i: base.out[None, :, :, i] for i in range(base.out.shape[2])
        }
        self.mode = "live"
        self.found: Any = None
        self.parts: dict[int, dict[Reader, AttentionTensors]] = {}
        self.mlps: dict[int, Tensor] = {}
        self.matrices: dict[int, Tensor] = {}

    def _groups(self) -> dict[int, list[ReaderGroup]]:
        found: dict[int, dict[bytes, ReaderGroup]] = defaultdict(dict)
        for i, reader in enumerate(self.graph.readers):
            mask = self.mask[:, i, : reader.n_before]
            if bool((mask == 1).all()):
                continue
            key = reader.kind.encode() + mask.cpu().contiguous().numpy().tobytes()
            group = found[reader.order].setdefault(key, ReaderGroup(mask, []))
            group.readers.append(reader)
        return {order: list(groups.values()) for order, groups in found.items()}

    # --- inputs of groups -------------------------------------------------------------------------

    def _inputs(
        self, groups: list[ReaderGroup], live: Tensor
    ) -> Iterator[tuple[ReaderGroup, Float[Tensor, "row pos d_model"]]]:
        """Yield the input of each group, given the residual stream of this run."""
        if not groups:
            return
        ones = torch.stack([g.mask.ne(0).any(0) for g in groups]).any(0)
        zeros = torch.stack([g.mask.ne(1).any(0) for g in groups]).any(0)
        from_live = int(zeros.sum()) <= int(ones.sum())
        wanted = (zeros if from_live else ones).nonzero().flatten().tolist()
        other, batch = self.edges.other, live.shape[0] // self.copies
        start = (
            live.reshape(self.copies, batch, *live.shape[1:])
            if from_live
            else other.read(groups[0].readers[0])[None]
        )
        steps = [other.out[None, :, :, u] - self.live[u] for u in wanted]
        weights = torch.stack([1 - g.mask if from_live else -g.mask for g in groups])
        at_once = max(1, _AT_ONCE // start.numel())
        if self.copies == 1 and int(weights.ne(0).sum()) > _FEW * len(groups):
            flat = torch.cat(steps).flatten(
                1
            )  # masks of a whole circuit: groups differ in many writers
            for first in range(0, len(groups), at_once):
                some = groups[first : first + at_once]
                found = weights[first : first + at_once, 0][:, wanted] @ flat
                for group, x in zip(some, found, strict=True):
                    yield group, start[0] + x.reshape(start.shape[1:])
            return
        for group, weight in zip(groups, weights, strict=True):
            total = start.expand(self.copies, *start.shape[1:]).clone()
            for u, step in zip(wanted, steps, strict=True):
                if bool(weight[:, u].any()):
                    total += weight[:, u][:, None, None, None] * step
            yield group, total.flatten(0, 1)

    # --- blocks ---------------------------------------------------------------------------------

    @holding
    @contextmanager
    def hooked(self) -> Iterator[None]:
        """Make the model's forward pass this run, within a `with` block."""
        module = self.graph.model.module
        with ExitStack() as stack:
            for layer in self.graph.layers:
                block = module.get_submodule(layer.block)
                stack.enter_context(replaced(block, self._block(layer, forward_here(block))))
                self.matrices[layer.order] = output_projection(module, layer.site)[0].detach()
            for norm in self.norms:
                stack.callback(norm.register_forward_hook(in_this_thread(self._norm)).remove)
            stack.enter_context(watched(self.graph, self))
            stack.enter_context(self.graph.model.visited(self._visit))
            yield

    def _block(self, layer: Layer, own: Callable[..., Any]) -> Callable[..., Any]:
        groups = self.groups.get(layer.order, [])
        heads = [g for g in groups if g.readers[0].kind == "head"]
        beside = [g for g in groups if g.readers[0].kind == "mlp"] if layer.parallel else []
        ends = self.groups.get(len(self.graph.layers), [])
        last = layer.order == len(self.graph.layers) - 1

        def forward(*args: Any, **kwargs: Any) -> Any:
            given = first_tensor(args)
            x = first_tensor(kwargs) if given is None else given
            assert x is not None
            if layer.order < self.start:
                out = self._skipped(layer, own, args, kwargs)
            else:
                found: dict[Reader, AttentionTensors] = {}
                for mode, chosen in (("heads", heads), ("mlp", beside)):
                    for group, read in self._inputs(chosen, x):
                        result = self._until(mode, own, replace_first((args, kwargs), x, read))
                        if mode == "mlp":
                            self.mlps[layer.order] = result
                        else:
                            for reader in group.readers:
                                found[reader] = result
                self.parts[layer.order] = found
                out = own(*args, **kwargs)
            if last and ends:
                left = first_tensor(out)
                assert left is not None
                for _, read in self._inputs(ends, left):
                    out = replace_first(out, left, read)
                self.freezing = True  # until the end of the run, where only the final norm remains
            return out

        return forward

    def _skipped(self, layer: Layer, own: Callable[..., Any], args: tuple, kwargs: dict) -> Any:
        """Return the block's output in the run of the prompts themselves."""
        known = self.edges.returns_stream
        if not known.get(
            layer.order, False
        ):  # once, to find out; and always if it returns more than a tensor
            out = own(*args, **kwargs)
            known[layer.order] = isinstance(out, Tensor)
            if not known[layer.order]:
                return out  # otherwise the same as in every later run, bit for bit
        return tiled(self.edges.base.left[layer.order], self.copies)

    def _until(self, mode: str, own: Callable[..., Any], given: tuple[tuple, dict]) -> Any:
        """Run a block on another input until its attention, or its MLP, has been read."""
        self.mode, self.freezing = mode, bool(self.norms)
        try:
            own(*given[0], **given[1])
        except _Stop:
            found, self.found = self.found, None
            return found
        finally:
            self.mode, self.freezing = "live", False
        raise UnreadableAttention(
            f"{self.graph.model.name}: a block ran without its inputs being read"
        )

    def _norm(self, module: nn.Module, args: tuple, output: Tensor) -> Tensor | None:
        if not self.freezing:
            return None
        role, scale = self.norms[module]
        x = args[0]
        rows = tiled(scale, x.shape[0] // scale.shape[0])
        return (rows * role.direction(x) + role.norm.bias.to(x).reshape(role.shape)).to(x.dtype)

    # --- hooks ----------------------------------------------------------------------------------

    def _visit(self, site: Site, call: Call, real: Tensor) -> None:
        if self.mode == "mlp":
            return
        if self.mode == "heads":
            self.found = attention_tensors(call, site)
            raise _Stop
        order = self.graph.order_of(site)
        found = self.parts.get(order)
        if found:
            own = attention_tensors(call, site)
            changed = {p: getattr(own, p).clone() for p in ("q", "k", "v")}
            for reader, parts in found.items():
                changed[reader.part][:, reader.head] = getattr(parts, reader.part)[:, reader.head]
            set_parts(self.graph.model, site, call, AttentionTensors(**changed))

    def _shaped(self, x: Tensor) -> Tensor:
        return x.reshape(self.copies, -1, *x.shape[1:])

    def heads(self, layer: Layer, x: Tensor) -> None:
        """Record the output of each head in this run."""
        if self.mode == "live":
            out = self._shaped(written(layer, x, self.matrices[layer.order]))
            first = self.graph.heads_of(layer).start
            for h in range(layer.site.n_heads):
                self.live[first + h] = out[:, :, :, h]

    def mid(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Return the input of the MLP of a sequential block, in place of the residual stream."""
        if self.mode != "live":
            return None
        groups = [g for g in self.groups.get(layer.order, []) if g.readers[0].kind == "mlp"]
        for _, read in self._inputs(groups, x):
            self.freezing = bool(self.norms)
            return read
        return None

    def mlp(self, layer: Layer, x: Tensor) -> Tensor | None:
        """Record the output of an MLP in this run, and replace it where its input was patched."""
        if self.mode == "mlp":
            self.found = x.clone()
            raise _Stop
        if self.mode != "live":
            return None
        self.freezing = False
        new = self.mlps.get(layer.order)
        mine = x.clone() if new is None else new  # some families add attention to it in place
        self.live[self.graph.index[f"mlp{layer.site.layer}"]] = self._shaped(mine)
        return None if new is None else new.clone()
