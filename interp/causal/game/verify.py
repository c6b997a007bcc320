"""Tests of which clean activations can be reused under ablation.

They run once per model: replayed runs must equal full runs bit for bit; logits at some positions
only, and several interventions in one batch, must equal them up to the rounding of the model's
dtype. An optimisation that fails is disabled with a note, and the full forward pass is used
instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from interp.causal.game.patching import bitwise_equal, tensors_in
from interp.causal.game.replacement import Replacement
from interp.causal.game.replay import Reuse, Wanted, batch_size, capture_for_replay, pick, run
from interp.core.interrupts import held
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread, inference
from interp.model.inputs import output_embedding, probe_inputs, takes
from interp.model.model import Model
from interp.model.self_check import TOLERANCE

_FAILURES = (RuntimeError, TypeError, ValueError, IndexError, KeyError, AttributeError)
_known: WeakKeyDictionary[nn.Module, Reuse] = WeakKeyDictionary()


@held()
def reuse_of(model: Model) -> Reuse:
    """Return what can be restored on this model; tested on first use, then cached."""
    if model.elsewhere is not None:
        return Reuse(notes=(f"full forward passes: {model.name} runs at {model.elsewhere}",))
    if model.ranks is not None:  # what is tried here would have to be tried by all alike
        size = model.ranks.size
        return Reuse(notes=(f"full forward passes: the heads are spread over {size} processes",))
    if model.module not in _known:
        with torch.no_grad(), inference(model.module):
            _known[model.module] = _Trial(model).found()
    return _known[model.module]


class _Trial:
    def __init__(self, model: Model) -> None:
        self.model = model
        self.inputs = _inputs(model)
        self.tolerance = TOLERANCE.get(model.dtype, 5e-2)
        self.modules = dict(model.module.named_modules())
        self.sites = _spread(model.sites)

    def found(self) -> Reuse:
        notes: list[str] = []
        blocks, block_of, reason = self._blocks()
        if reason:
            notes.append(f"full forward passes: {reason}")
        forms = self._forms() if blocks else {}
        batched = self._batched(blocks, forms) if blocks else {}
        best = Reuse(notes=tuple(notes))
        ladder = [
            (forms, False, ""),
            (forms, True, ""),
            ({}, False, "attention below the first changed head is recomputed"),
        ]
        why = "a replayed run differs from a full one"
        for attention, keep_rest, note in ladder if blocks else []:
            trial = Reuse(blocks, block_of, attention, keep_rest, batched or {}, notes=tuple(notes))
            failed = self._replays(trial)
            if failed is None:
                missing = [] if attention or not note else [note]
                best = replace(trial, notes=(*notes, *missing))
                break
            why = failed
        else:
            if blocks:
                best = Reuse(notes=(*notes, f"full forward passes: {why}"))
        best = self._unembedding(best)
        return self._fold(best, batched is not None)

    # --- what stands where ----------------------------------------------------------------------

    def _blocks(self) -> tuple[tuple[str, ...], dict[Site, int], str | None]:
        """Return the blocks in running order, and the block of each attention."""
        places = {
            s: s.streams["resid_pre"].module for s in self.model.sites if "resid_pre" in s.streams
        }
        lost = next((s for s in self.model.sites if s not in places), None)
        if lost is not None:
            return (), {}, f"the block around {lost.name} was not found"
        if len({s.module for s in self.model.sites}) < len(self.model.sites):
            return (), {}, "one attention module serves several layers"
        holders = {name.rpartition(".")[0] for name in places.values()}
        names = {
            f"{holder}.{child}" if holder else child
            for holder in holders
            for child, _ in self.modules[holder].named_children()
        } | set(places.values())
        ran: list[str] = []
        handles = [
            self.modules[name].register_forward_hook(
                in_this_thread(lambda m, a, o, n=name: ran.append(n))
            )
            for name in names
        ]
        try:
            self.model.run(self.inputs)
        finally:
            for handle in handles:
                handle.remove()
        if len(set(ran)) < len(ran):
            return (), {}, "a block runs several times in one forward"
        if any(a.startswith(f"{b}.") for a in ran for b in ran):
            return (), {}, "blocks lie inside each other"
        index = {name: i for i, name in enumerate(ran)}
        order = [index[places[s]] for s in self.model.sites]
        if order != sorted(order):
            return (), {}, "attention does not run in the order of the blocks"
        return tuple(ran), {s: index[name] for s, name in places.items()}, None

    def _forms(self) -> dict[Site, str]:
        """Return the attentions whose module returns z, or its projection, bit for bit."""
        returned: dict[str, Tensor] = {}
        z: dict[Site, Tensor] = {}

        def keep(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, output: Any) -> None:
                returned[name] = tensors_in(output)[0].clone()

            return hook

        def visit(site: Site, call: Call, real: Tensor) -> None:
            z[site] = call.z.transpose(1, 2).flatten(2).clone()

        handles = [
            self.modules[s.module].register_forward_hook(in_this_thread(keep(s.module)))
            for s in self.model.sites
        ]
        try:
            self.model.read(self.inputs, visit)
        finally:
            for handle in handles:
                handle.remove()
        forms = {}
        for site, flat in z.items():
            if site.kind != "softmax":
                continue  # a mixer is observed while its parts run, so its forward must run
            out = returned[site.module]
            if out.numel() == flat.numel() and torch.equal(out.reshape(-1), flat.reshape(-1)):
                forms[site] = "heads"
            elif site.projection is not None and site.projection.startswith(f"{site.module}."):
                projected = self.modules[site.projection](flat)
                if torch.equal(projected.reshape(-1), out.reshape(-1)):
                    forms[site] = "projection"
        return forms

    def _batched(
        self, blocks: tuple[str, ...], forms: Mapping[Site, str]
    ) -> dict[str, tuple[bool, ...]] | None:
        """Return which outputs have the batch as first axis; None if one has it elsewhere."""
        names = [*blocks, *(s.module for s in forms)]
        shapes: list[dict[str, list[torch.Size]]] = []
        for n in (1, 2):
            seen: dict[str, list[torch.Size]] = {}
            handles = [
                self.modules[name].register_forward_hook(
                    in_this_thread(
                        lambda m, a, o, name=name, seen=seen: seen.update(
                            {name: [x.shape for x in tensors_in(o)]}
                        )
                    )
                )
                for name in names
            ]
            try:
                self.model.run(
                    {k: v[:n] if isinstance(v, Tensor) else v for k, v in self.inputs.items()}
                )
            finally:
                for handle in handles:
                    handle.remove()
            shapes.append(seen)
        batch_first = {}
        for name in names:
            flags = []
            for one, two in zip(shapes[0][name], shapes[1][name], strict=True):
                grows = [i for i, (a, b) in enumerate(zip(one, two, strict=True)) if a != b]
                if grows not in ([], [0]) or (grows and two[0] != 2 * one[0]):
                    return None
                flags.append(bool(grows))
            batch_first[name] = tuple(flags)
        return batch_first

    # --- trying ---------------------------------------------------------------------------------

    def _gates(self, site: Site, phase: int = 0) -> dict[Site, Tensor]:
        gate = (torch.arange(site.n_heads) + phase) % 2
        return {site: gate[None].double().to(self.model.device)}

    def _full(self, gates: Mapping[Site, Tensor]) -> Tensor:
        return run(self.model, self.inputs, gates, Replacement())

    def _replays(self, reuse: Reuse) -> str | None:
        """Return the reason why replayed runs differ from full ones; None if they are equal."""
        try:
            clean = capture_for_replay(self.model, self.inputs, reuse)
            for site in self.sites:
                gates = self._gates(site)
                got = run(
                    self.model,
                    self.inputs,
                    gates,
                    Replacement(),
                    first=site,
                    clean=clean,
                    reuse=reuse,
                )
                if not bitwise_equal(got, self._full(gates)):
                    return f"a replayed run differs from a full one at {site.name}"
        except _FAILURES as error:
            return f"a replayed run fails ({type(error).__name__}: {error})"
        return None

    def _close(self, got: Tensor, want: Tensor) -> bool:
        if got.shape != want.shape:
            return False
        error = (got.double() - want.double()).abs().max()
        return bool(error <= self.tolerance * want.double().abs().max())

    def _unembedding(self, reuse: Reuse) -> Reuse:
        """Add the unembedding, and the modules of the last block that may run at some positions."""
        ids = self.inputs.get("decoder_input_ids", self.inputs.get("input_ids"))
        last = output_embedding(self.model.module)
        name = (
            next((n for n, m in self.modules.items() if m is last), None)
            if last is not None
            else None
        )
        full = self.model.run(self.inputs)
        if full.dim() != 3 or ids is None or full.shape[:2] != ids.shape:
            return replace(reuse, per_input=full.dim() == 2)  # nothing to omit
        if name is None:
            return replace(
                reuse,
                notes=(*reuse.notes, "all logits: the module that computes them was not found"),
            )
        shape = (int(ids.shape[0]), int(ids.shape[1]))
        wanted = Wanted(torch.arange(shape[0], device=ids.device) * shape[1] + shape[1] - 2, shape)
        full = self._full(self._gates(self.sites[-1]))
        trial = replace(reuse, unembedding=name)
        if not self._restricts(trial, wanted, full):
            return replace(
                reuse, notes=(*reuse.notes, f"all logits: {name} does not run on some positions")
            )
        if type(last) is nn.Linear:
            some = Wanted(wanted.flat, shape, torch.tensor([2, 0], device=ids.device))
            fewer = replace(trial, columns=True)
            trial = fewer if self._restricts(fewer, some, full) else trial
        longer = replace(trial, tail=tuple(self._tail(reuse, shape)))
        return longer if self._restricts(longer, wanted, full) else trial

    def _restricts(self, reuse: Reuse, wanted: Wanted, full: Tensor) -> bool:
        try:
            # with the last attention changed, so that the end of the last block runs
            gates = self._gates(self.sites[-1])
            got = run(self.model, self.inputs, gates, Replacement(), reuse=reuse, wanted=wanted)
        except _FAILURES:
            return False
        return got.dim() == 3 and self._close(pick(got, wanted, reuse), wanted.of(full))

    def _tail(self, reuse: Reuse, shape: tuple[int, int]) -> list[str]:
        """Return modules of the last block after its attention that treat positions independently.

        A zero input or a head that writes nothing could hide that positions mix, so each module is
        tested separately on random numbers, not by its effect on the logits.
        """
        last = [s for s, b in reuse.block_of.items() if b == len(reuse.blocks) - 1]
        if not last:
            return []
        started: dict[str, Tensor] = {}

        def visit(site: Site, call: Call, real: Tensor) -> None:
            if site in last:
                started.clear()  # a module that starts before the last attention may feed it

        def begin(name: str) -> Callable[..., None]:
            def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
                if len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
                    started[name] = args[0]

            return hook

        inside = [
            name
            for name, module in self.modules.items()
            if name.startswith(f"{reuse.blocks[-1]}.") and any(True for _ in module.parameters())
        ]
        handles = [
            self.modules[n].register_forward_pre_hook(in_this_thread(begin(n)), with_kwargs=True)
            for n in inside
        ]
        try:
            self.model.read(self.inputs, visit)
        finally:
            for handle in handles:
                handle.remove()
        tail: list[str] = []
        for name, x in started.items():  # in the order of starting, so outer modules come first
            nested = any(name.startswith(f"{outer}.") for outer in tail)
            if x.shape[:-1] == shape and not nested and self._pointwise(self.modules[name], x):
                tail.append(name)
        return tail

    def _pointwise(self, module: nn.Module, like: Tensor) -> bool:
        generator = torch.Generator().manual_seed(0)
        x = torch.randn(like.shape, generator=generator).to(like)
        try:
            whole, part = module(x), module(x[:, 1::2].reshape(1, -1, x.shape[-1]))
        except _FAILURES:
            return False
        if not isinstance(whole, Tensor) or whole.shape[:-1] != x.shape[:-1]:
            return False
        return self._close(part, whole[:, 1::2].reshape(1, -1, whole.shape[-1]))

    def _fold(self, reuse: Reuse, batch_first: bool) -> Reuse:
        """Return True if two interventions in one batch equal separate runs."""
        note = "one intervention per batch: "
        if not batch_first:
            return replace(reuse, notes=(*reuse.notes, f"{note}the batch is not the first axis"))
        low, high = self.sites[0], self.sites[-1]
        each = [{low: self._gates(low)[low]}, {high: self._gates(high, 1)[high]}]
        one = torch.ones(1, 1, dtype=torch.double, device=self.model.device)
        both = {
            s: torch.cat([g.get(s, one.expand(1, s.n_heads)) for g in each])
            for s in dict.fromkeys((low, high))
        }
        try:
            clean = capture_for_replay(self.model, self.inputs, reuse)
            got = run(
                self.model,
                self.inputs,
                both,
                Replacement(),
                first=low,
                clean=clean,
                reuse=reuse,
                copies=2,
            )
        except _FAILURES as error:
            return replace(reuse, notes=(*reuse.notes, f"{note}it fails ({error})"))
        if not self._close(got, torch.cat([self._full(g) for g in each])):
            return replace(
                reuse, notes=(*reuse.notes, f"{note}rows of a batch depend on each other")
            )
        return replace(reuse, fold=True)


def _spread(sites: tuple[Site, ...]) -> list[Site]:
    """Return the first, the middle and the last attention of each stack, in running order."""
    chosen = set()
    for stack in {s.stack for s in sites}:
        mine = [i for i, s in enumerate(sites) if s.stack == stack]
        chosen |= {mine[0], mine[len(mine) // 2], mine[-1]}
    return [sites[i] for i in sorted(chosen)]


def _inputs(model: Model) -> dict[str, Any]:
    """Return probe inputs, the last row padded if the model uses a mask over tokens."""
    inputs: dict[str, Any] = dict(probe_inputs(model.module, seed=7))
    ids = inputs.get("input_ids")
    if ids is not None and "attention_mask" in takes(model.module) and ids.shape[1] > 3:
        mask = torch.ones_like(ids)
        mask[-1, -2:] = 0
        inputs["attention_mask"] = mask
    assert batch_size(inputs) > 1
    return inputs
