"""Forward pass with gated heads that restarts at the first difference from the clean run.

Layers below the first changed head equal those of the undisturbed run, so their outputs are
restored instead of recomputed: first whole blocks, then, in the block of that head, the attention
up to z. Above it the model's own code runs. Nothing here depends on an architecture; the
activations that can be restored on a given model are listed in its `Reuse`, which `verify`
determines by tests.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from interp.causal.game.patching import rebuilt, restricted, tensors_in, tiled
from interp.causal.game.replacement import Replacement, gated
from interp.core.errors import OptionError
from interp.core.interrupts import held
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread, replaced
from interp.model.model import Model
from interp.model.sources.remote import RemoteModel

Gates = Mapping[Site, Float[Tensor, "row head"]]


@dataclass(frozen=True, eq=False)
class Reuse:
    """Cached activations of a clean run that may be restored on one model.

    Args:
        blocks: modules that run once each, in order, whose outputs may be restored.
        block_of: the block of each attention.
        attention: for each attention, whether its module returns z itself ("heads") or z after the
            output projection ("projection"); absent if it must run.
        keep_rest: also restore the other outputs of attention modules.
        batched: per module, the returned tensors that have the batch as first axis.
        unembedding: the module that computes the logits, if it may run at some positions only.
        columns: True if it may also compute the logits of some ids only.
        tail: modules of the last block that may run only at the positions of the logits.
        fold: several interventions may share a batch.
        notes: optimisations that are unavailable, with reasons.
    """

    blocks: tuple[str, ...] = ()
    block_of: Mapping[Site, int] = field(default_factory=dict)
    attention: Mapping[Site, str] = field(default_factory=dict)
    keep_rest: bool = False
    batched: Mapping[str, tuple[bool, ...]] = field(default_factory=dict)
    unembedding: str | None = None
    columns: bool = False
    tail: tuple[str, ...] = ()
    fold: bool = False
    notes: tuple[str, ...] = ()
    per_input: bool = False  # True if the model's output is one row per input, not per position

    def depth(self, site: Site) -> float:
        """Return the share of blocks that must run if `site` is the first that changes."""
        if not self.blocks:
            return 1.0
        return 1 - self.block_of[site] / len(self.blocks)


@dataclass(frozen=True, eq=False)
class Wanted:
    """Needed logits: `flat` counts over batch and pos together, in order of rows."""

    flat: Int[Tensor, " row"]
    shape: tuple[int, int]
    columns: Int[Tensor, " column"] | None = None  # ids of the vocabulary; None for all

    def copies(self, n: int) -> Int[Tensor, " row"]:
        """Return the positions for n copies of the batch."""
        step = self.shape[0] * self.shape[1]
        offset = torch.arange(n, device=self.flat.device)[:, None] * step
        return (self.flat + offset).reshape(-1)

    def of(self, logits: Tensor, n: int = 1) -> Float[Tensor, "row d_vocab"]:
        """Select the needed rows of full logits."""
        if logits.dim() != 3 or logits.shape[:2] != (n * self.shape[0], self.shape[1]):
            raise OptionError(
                f"the task reads positions of {self.shape[0]} prompts of {self.shape[1]} tokens, "
                f"but the model's output has shape {tuple(logits.shape)}"
            )
        rows = logits.reshape(-1, logits.shape[-1])[self.copies(n)]
        return rows if self.columns is None else rows[:, self.columns]


@dataclass(eq=False)
class CleanRun:
    """Cached activations of one undisturbed run of a batch."""

    inputs: dict[str, Any]
    batch: int
    logits: Tensor
    seconds: float
    outputs: dict[str, Any]
    attention: dict[Site, Any]
    z: dict[Site, Tensor]
    live: dict[Site, Tensor]  # replacements that are made from the run

    @property
    def n_bytes(self) -> int:
        """Memory that is stored."""
        kept = tensors_in([self.outputs, self.attention, list(self.z.values())])
        kept += [*self.live.values(), self.logits]
        return sum(x.numel() * x.element_size() for x in kept if x.device.type != "meta")


def batch_size(inputs: Mapping[str, Any]) -> int:
    """Return the number of rows of the inputs."""
    return int(next(x for x in inputs.values() if isinstance(x, Tensor)).shape[0])


def fold_inputs(inputs: Mapping[str, Any], copies: int) -> dict[str, Any]:
    """Repeat the inputs as rows of one batch."""
    batch = batch_size(inputs)
    return {
        name: tiled(x, copies) if isinstance(x, Tensor) and x.shape[:1] == (batch,) else x
        for name, x in inputs.items()
    }


@held()
@torch.no_grad()
def capture_for_replay(
    model: Model,
    inputs: Mapping[str, Any],
    reuse: Reuse,
    *,
    base: Gates | None = None,
    replacement: Replacement | None = None,
    wanted: Wanted | None = None,
) -> CleanRun:
    """Run the model once in its current mode and cache what `run` may restore."""
    module_of = model.module.get_submodule
    outputs: dict[str, Any] = {}
    attention: dict[Site, Any] = {}
    z: dict[Site, Tensor] = {}
    live: dict[Site, Tensor] = {}
    replacement = replacement or Replacement()
    batch = batch_size(inputs)
    if isinstance(model, RemoteModel):
        start = time.perf_counter()
        logits = run(model, inputs, base or {}, replacement)
        return CleanRun(dict(inputs), batch, logits, time.perf_counter() - start, {}, {}, {}, {})

    def keep_block(name: str) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            # clones, because the next block may modify its input in place
            outputs[name] = rebuilt(output, iter([x.clone() for x in tensors_in(output)]))

        return hook

    def keep_attention(site: Site) -> Any:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            first, *rest = tensors_in(output)
            kept = [torch.empty_like(first, device="meta")]
            kept += [
                x.clone() if reuse.keep_rest else torch.empty_like(x, device="meta") for x in rest
            ]
            attention[site] = rebuilt(output, iter(kept))

        return hook

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site in reuse.attention:
            # memory layout of the projection's input, so that merging the heads needs no copy
            z[site] = call.z.transpose(1, 2).contiguous().transpose(1, 2)
            if replacement.live is not None:
                live[site] = replacement.live(call)
        if base is not None and site in base:
            gate = base[site].expand(batch, -1)
            call.z = gated(call.z, gate, replacement.at(site, call.z, call))

    if base is not None and model.ranks is not None:
        base = model.ranks.local_gates(base, model.sites)
    with ExitStack() as stack:
        for name in reuse.blocks:
            stack.callback(
                module_of(name).register_forward_hook(in_this_thread(keep_block(name))).remove
            )
        for site in reuse.attention:
            hook = module_of(site.module).register_forward_hook(
                in_this_thread(keep_attention(site))
            )
            stack.callback(hook.remove)
        restrict(stack, model, reuse, wanted, 1, tail=False)
        if reuse.attention or base:
            stack.enter_context(model.visited(visit))
        start = time.perf_counter()
        logits = model.run(inputs)
        seconds = time.perf_counter() - start
    return CleanRun(dict(inputs), batch, logits, seconds, outputs, attention, z, live)


def run(
    model: Model,
    inputs: Mapping[str, Any],
    gates: Gates,
    replacement: Replacement,
    *,
    first: Site | None = None,
    clean: CleanRun | None = None,
    reuse: Reuse | None = None,
    copies: int = 1,
    wanted: Wanted | None = None,
) -> Tensor:
    """Return the output with gated heads; rows are `copies` times the batch, copy by copy."""
    reuse = reuse or Reuse()
    module_of = model.module.get_submodule
    gates = gates if model.ranks is None else model.ranks.local_gates(gates, model.sites)
    rows = {
        site: g.repeat_interleave(batch_size(inputs), 0)
        for site, g in gates.items()
        if not bool((g == 1).all())
    }
    if isinstance(model, RemoteModel):
        held = {site: replacement.rows(site, len(rows[site])) for site in rows}
        fixed = {site: value for site, value in held.items() if value is not None}
        return model.gated_logits(fold_inputs(inputs, copies), rows, fixed)
    order = {site: i for i, site in enumerate(model.sites)}
    put_back: list[Site] = []
    with ExitStack() as stack:
        if clean is not None and first is not None and reuse.blocks:
            block = reuse.block_of[first]
            restore_blocks(stack, model, clean, reuse, block, copies)
            put_back = [
                site
                for site, b in reuse.block_of.items()
                if b == block and order[site] <= order[first] and site in reuse.attention
            ]
        restrict(stack, model, reuse, wanted, copies, tail=True)
        for site in put_back:
            forward = _attention(model, reuse, clean, site, rows.get(site), replacement, copies)
            stack.enter_context(replaced(module_of(site.module), forward))
        above = [
            site
            for site in rows
            if site not in put_back and (first is None or order[site] >= order[first])
        ]
        if above:

            def visit(site: Site, call: Call, real: Tensor) -> None:
                if site in above:
                    call.z = gated(call.z, rows[site], replacement.at(site, call.z, call))

            stack.enter_context(model.visited(visit))
        return model.run(fold_inputs(inputs, copies))


def pick(
    logits: Tensor, wanted: Wanted | None, reuse: Reuse, copies: int = 1
) -> Float[Tensor, "row d_vocab"]:
    """Select the rows of the task from the output of `run` or `capture_for_replay`."""
    if wanted is None:
        return logits
    if reuse.unembedding is not None and logits.shape[:2] == (1, copies * len(wanted.flat)):
        selected = wanted.columns is None or reuse.columns
        return logits[0] if selected else logits[0][:, wanted.columns]
    return wanted.of(logits, copies)


def restore_blocks(
    stack: ExitStack, model: Model, clean: CleanRun, reuse: Reuse, n_blocks: int, copies: int
) -> None:
    """Replace the first blocks by their cached outputs, until the stack is left."""
    for i, name in enumerate(reuse.blocks[:n_blocks]):
        output = _folded(clean.outputs[name], reuse.batched.get(name), copies, i == n_blocks - 1)
        module = model.module.get_submodule(name)
        stack.enter_context(replaced(module, lambda *a, _o=output, **k: _o))


def restrict(
    stack: ExitStack,
    model: Model,
    reuse: Reuse,
    wanted: Wanted | None,
    copies: int,
    *,
    tail: bool,
) -> None:
    """Run the unembedding and the end of the last block only where logits are needed."""
    if wanted is None or reuse.unembedding is None:
        return
    shape, flat = (copies * wanted.shape[0], wanted.shape[1]), wanted.copies(copies)
    last = model.module.get_submodule(reuse.unembedding)
    columns = wanted.columns if reuse.columns else None
    forward = restricted(last, shape, flat, scatter=False, columns=columns)
    stack.enter_context(replaced(last, forward))
    if tail and 2 * len(flat) <= shape[0] * shape[1]:  # otherwise nothing is saved
        for name in reuse.tail:
            module = model.module.get_submodule(name)
            forward = restricted(module, shape, flat.unique(), scatter=True)
            stack.enter_context(replaced(module, forward))


def _folded(output: Any, batched: tuple[bool, ...] | None, copies: int, fresh: bool) -> Any:
    """Repeat a cached output for several copies; `fresh` if the next block may modify it."""
    kept = tensors_in(output)
    flags = batched or (False,) * len(kept)
    parts = [tiled(x, copies) if flag else x for x, flag in zip(kept, flags, strict=True)]
    return rebuilt(output, iter([x.clone() for x in parts] if fresh else parts))


def _attention(
    model: Model,
    reuse: Reuse,
    clean: CleanRun | None,
    site: Site,
    gate: Tensor | None,
    replacement: Replacement,
    copies: int,
) -> Any:
    """Return a forward of an attention module that starts from the z of the clean run."""
    assert clean is not None
    template = clean.attention[site]

    def forward(*args: Any, **kwargs: Any) -> Any:
        z = tiled(clean.z[site], copies)
        if gate is not None:
            live = clean.live.get(site)
            other = replacement.at(site, z, None, None if live is None else tiled(live, copies))
            z = gated(z, gate, other)
        out = z.transpose(1, 2).flatten(2)
        if reuse.attention[site] == "projection":
            assert site.projection is not None
            out = model.module.get_submodule(site.projection)(out)
        shape, *rest = (tuple(x.shape) for x in tensors_in(template))
        kept: list[Tensor | None] = [out.reshape(copies * shape[0], *shape[1:])]
        flags = reuse.batched.get(site.module, (True,) * (1 + len(rest)))
        for x, flag in zip(tensors_in(template)[1:], flags[1:], strict=True):
            kept.append(None if not reuse.keep_rest else tiled(x, copies) if flag else x)
        return rebuilt(template, iter(kept))

    return forward
