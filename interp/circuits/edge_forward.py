"""Forward passes in which every edge of the residual graph carries the value of one of two runs.

    edges = EdgeForward(ResidualGraph.of(model), clean, corrupted)
    logits = edges.run(edges.graph.mask([("L0H2", "L1H1.k"), ...]))    # [batch, pos, d_vocab]

An edge whose mask is 1 carries what its writer writes in the current forward pass; one whose mask
is 0 carries what the writer wrote in the corrupted run. So the mask of a circuit gives the
circuit's logits, and the full mask with one entry of 0 patches one path. Every number is computed
by the model's own modules (`edge_run`).

    soft = SoftEdges(EdgeForward(graph, clean, corrupted))
    logits = soft.run(mask)          # mask [reader, writer] with requires_grad

In `SoftEdges` every reader reads the sum over writers of mask * (what the writer writes in this
run) + (1 - mask) * (what it wrote in the corrupted run), differentiable by the mask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interp.attribution.roles import NormRole, find_roles
from interp.causal.game.patching import tiled
from interp.causal.game.replay import Reuse, Wanted, pick
from interp.causal.game.verify import reuse_of
from interp.causal.gate_derivatives import frozen
from interp.circuits.edge_run import EdgeRun
from interp.circuits.node_outputs import paired_outputs
from interp.circuits.reader_inputs import ReaderGroup
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.shared_prefix import LaterPositions, later_positions
from interp.core.errors import OptionError, UnreadableAttention
from interp.core.interrupts import held
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.precision import why_inexact

if TYPE_CHECKING:
    from jaxtyping import Float

_SAME = 1e-5  # relative to the largest logit: largest change by running on some positions only
# of a model that takes no cache, or not in this form; it then runs on all positions
_FAILURES = (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError)
_TOLERANCE = 1e-3  # relative to the largest logit: float32 sums in another order


class EdgeForward:
    """Pair of runs, and the forward passes that mix them edge by edge.

    Args:
        graph: The residual graph of the model.
        clean, corrupted: Prompts (ids, texts or input tensors) of equal shape.
        denoise: Exchange the two: run on the corrupted prompts, and edges whose mask is 0 carry
            their clean values.
        check: Run once with every edge at 0, which must give the other run's logits.
        read_at: By prompt, the positions whose logits are read: the logits of `run` are 0 at the
            others, which costs less. By default all are computed.
        columns: The ids whose logits `rows` returns; by default all.

    Attributes:
        forwards: Number of forward passes of the model, over the whole batch; interrupted parts of
            a pass are not counted separately, nor the four passes at most that test whether the
            positions that both prompts share can be left out.

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
        read_at: Sequence[Sequence[int]] | None = None,
        columns: Sequence[int] | None = None,
    ) -> None:
        if denoise:
            clean, corrupted = corrupted, clean
        self.graph, self.model = graph, graph.model
        self.inputs = self.model.inputs(clean)
        self.base, self.other = paired_outputs(graph, clean, corrupted)
        self.wanted: Wanted | None = None
        self.reuse = Reuse()
        self.later: LaterPositions | None = None
        self.checked = False
        self.forwards = 2
        self.outputs: dict[str, Any] = {}  # by module, what it returned, if it can be kept
        self._norms: dict[nn.Module, tuple[NormRole, Tensor]] | None = None
        if check:
            self._check()
        self.checked = True
        if read_at is not None and self.base.logits.dim() == 3:
            batch, pos = self.base.logits.shape[:2]
            flat = [k * pos + p % pos for k, some in enumerate(read_at) for p in some]
            device = self.base.logits.device
            some = None if columns is None else torch.tensor(list(columns), device=device)
            self.wanted = Wanted(torch.tensor(flat, device=device), (batch, pos), some)
            self.reuse = reuse_of(self.model)
            self._leave_shared_out()

    def _leave_shared_out(self) -> None:
        """Run on the positions in which the prompts differ, if that gives the logits of both."""
        wanted, full, forwards = self.wanted, self.graph.full()[None], self.forwards
        assert wanted is not None
        full[:, ::2] = 0  # every second reader reads the other run
        try:
            later = later_positions(self, self.inputs)
            if later is not None:
                known = [self.base.logits, self._logits(full, "exact", whole=True)]
                self.later = later
                with torch.no_grad():
                    got = [later.padded(self.model.run(later.inputs))]
                got.append(self._logits(full, "exact", whole=True))
                alike = [_alike(*map(wanted.of, both)) for both in zip(got, known, strict=True)]
                self.later = later if all(alike) else None
        except _FAILURES:
            self.later = None
        self.forwards = forwards

    def run(
        self,
        mask: Float[Tensor, "*copy reader writer"],
        *,
        norm: str = "exact",
        rows: Any = slice(None),
    ) -> Float[Tensor, "*copy batch pos d_vocab"]:
        """Return the logits under one mask, or under several at once."""
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
        logits = self._logits(mask if several else mask[None], norm, whole=True)
        logits = logits.reshape(-1, self.base.out.shape[0], *logits.shape[1:])[:, :, rows]
        return logits if several else logits[0]

    def rows(
        self, masks: Float[Tensor, "copy reader writer"], *, norm: str = "exact"
    ) -> Float[Tensor, "copy row column"] | None:
        """Return the logits that are read alone, under several masks; None if all are computed."""
        if self.wanted is None or self.reuse.unembedding is None:
            return None
        logits = self._logits(masks, norm, whole=False)
        wanted = self.wanted if self.later is None or norm == "freeze" else self.later.wanted
        read = pick(logits, wanted, self.reuse, len(masks))
        return read.reshape(len(masks), -1, read.shape[-1])

    def _logits(self, mask: Float[Tensor, "copy reader writer"], norm: str, *, whole: bool) -> Any:
        mask = mask.to(self.base.out)
        copies, batch = len(mask), self.base.out.shape[0]
        later = None if norm == "freeze" else self.later  # whose scales are those of all positions
        part = self if later is None else later
        inputs = {
            k: tiled(v, copies) if isinstance(v, Tensor) and v.dim() and v.shape[0] == batch else v
            for k, v in part.inputs.items()
        }
        norms = self.hold_norms() if norm == "freeze" else {}
        # with frozen norms, and in the check, what a node writes is replaced where it is read
        run = EdgeRun(part, mask, norms, in_place=self.checked and not norms, whole=whole)
        with torch.no_grad(), inference(self.model.module), run.hooked():
            logits = self.model.run(inputs)
        self.forwards += copies
        return logits if later is None or not whole else later.padded(logits)

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
                f"{error:.2g}: "
                + why_inexact(
                    self.model.dtype, "something outside the residual graph reads the stream"
                )
            )


def _alike(got: Tensor, known: Tensor) -> bool:
    return float((got - known).abs().max()) <= _SAME * float(known.abs().max())


class SoftEdges:
    """Differentiable counterpart of `EdgeForward`, for one batch.

    Args:
        edges: The pair of runs.

    Attributes:
        forwards: Number of forward passes over the batch.
    """

    def __init__(self, edges: EdgeForward) -> None:
        self.edges, self.graph, self.forwards = edges, edges.graph, 0

    def run(self, mask: Float[Tensor, "reader writer"]) -> Float[Tensor, "batch pos d_vocab"]:
        """Return the logits under a mask, with their gradient by it."""
        model, shape = self.graph.model, (len(self.graph.readers), len(self.graph.writers))
        if tuple(mask.shape) != shape:
            raise OptionError(
                f"an edge mask of shape {tuple(mask.shape)}; expected [reader, writer] = {shape}"
            )
        run = _SoftRun(self.edges, mask.to(self.edges.base.out)[None], {})
        with torch.enable_grad(), frozen(model.module), inference(model.module), run.hooked():
            logits = model.run(self.edges.inputs)
        self.forwards += 1
        return logits


class _SoftRun(EdgeRun):
    """Forward pass in which every reader has its own input."""

    def _groups(self) -> dict[int, list[ReaderGroup]]:
        by_order: dict[int, list[ReaderGroup]] = {}
        for i, reader in enumerate(self.graph.readers):
            group = ReaderGroup(self.mask[:, i, : reader.n_before], [reader])
            by_order.setdefault(reader.order, []).append(group)
        return by_order

    def _inputs(
        self, groups: list[ReaderGroup], live: Tensor
    ) -> Iterator[tuple[ReaderGroup, Float[Tensor, "batch pos d_model"]]]:
        """Yield the input of each group, with its gradient by the mask."""
        if not groups:
            return
        other, reader = self.edges.other, groups[0].readers[0]
        delta = [self.live[u][0] - other.out[:, :, u] for u in range(reader.n_before)]
        for norm in self.graph.norms:
            for u in range(norm.heads.start, min(norm.heads.stop, reader.n_before)):
                delta[u] = torch.zeros_like(delta[u])
        weights = torch.stack([group.mask[0] for group in groups])
        inputs = other.read(reader) + torch.einsum("ru,ubpd->rbpd", weights, torch.stack(delta))
        sums = zip(groups, inputs, strict=True)
        yield from self._with_norms(sums, -weights[:, None], from_live=False)
