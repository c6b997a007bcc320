"""Residual stream at the end of prompts, and removal or addition of a direction.

The streams are located by `interp.model`; this module depends on no architecture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.core.errors import PromptError, UnreadableAttention
from interp.core.interrupts import holding
from interp.core.prompts import Prompts
from interp.heads.one_call import equal_lengths
from interp.lens.finish import predicting_stack
from interp.model.calls.call import precise
from interp.model.calls.sites import Site, Where
from interp.model.hooks.inference import in_this_thread
from interp.model.locate.streams import unavailable

if TYPE_CHECKING:
    from interp.model.model import Model

BATCH = 16
StreamChange = Callable[[Tensor], Tensor]


def reading_sites(model: Model) -> list[Site]:
    """Return the attentions of the stack that predicts, by layer; their blocks carry the stream."""
    if not model.takes_text:
        raise PromptError(f"{model.name} reads {model.kind} input; prompts are tokens")
    stack = predicting_stack(model)
    return sorted((s for s in model.sites if s.stack == stack), key=lambda s: s.layer)


def at_the_end(
    model: Model, prompts: Prompts, names: Sequence[str], n: int = 1
) -> Iterator[tuple[list[int], dict[tuple[str, int], Tensor]]]:
    """Yield activations at the last n tokens of every prompt, in batches of one length.

    Yields the numbers of the prompts, and `{(name, layer): [prompt, n, ...]}` in float64 on the
    CPU. Only these positions are stored.
    """
    short = next((i for i, p in enumerate(prompts.ids) if len(p) < n), None)
    if short is not None:
        raise PromptError(
            f"prompt {short} has {len(prompts.ids[short])} tokens; the last {n} are asked for"
        )
    sites = reading_sites(model)
    for which, batch in equal_lengths(prompts, BATCH):
        length = len(batch.ids[0])
        at = torch.arange(length - n, length)
        cache = model.capture(batch, names, stack=sites[0].stack, positions=at)
        yield (
            which,
            {
                (name, site.layer): cache[name, site.layer, site.stack].cpu().double()
                for name in names
                for site in sites
            },
        )


@torch.no_grad()
def last_logits(model: Model, prompts: Prompts) -> Float[Tensor, "prompt d_vocab"]:
    """Compute the logits after the last token of every prompt, in float64 on the CPU."""
    rows = []
    for batch in model.batches(prompts, BATCH):
        logits = model.run(Prompts(batch.ids, batch.design))
        end = torch.tensor([len(p) - 1 for p in batch.ids], device=logits.device)
        rows.append(precise(logits[torch.arange(len(batch)), end]).double().cpu())
    return torch.cat(rows)


@contextmanager
def without(model: Model, direction: Float[Tensor, " d_model"]) -> Iterator[None]:
    """Remove the direction from all streams of the model in this context: x - (x·r)r, |r| = 1.

    It is removed from the input and output of every block and from the outputs of attention and
    MLP, at every position, as by Arditi et al.
    """
    unit = direction.double() / direction.double().norm()

    def change(x: Tensor) -> Tensor:
        r = unit.to(x.device, torch.promote_types(x.dtype, torch.float32))
        wide = x.to(r.dtype)
        return (wide - (wide @ r)[..., None] * r).to(x.dtype)

    places: dict[tuple[str, str], None] = {}
    for site in reading_sites(model):
        for name in ("resid_pre", "attn_out", "resid_post"):
            where = _where(site, name)
            places[where.module, where.side] = None
        if "mlp_out" in site.streams:
            where = site.streams["mlp_out"]
            places[where.module, where.side] = None
    with ExitStack() as stack:
        for module, side in places:
            stack.enter_context(_changed(model, module, side, None, change))
        yield


@contextmanager
def with_added(model: Model, layer: int, vector: Float[Tensor, " d_model"]) -> Iterator[None]:
    """Add the vector to the input of one layer in this context, at every position."""
    site = next(s for s in reading_sites(model) if s.layer == layer)
    where = _where(site, "resid_pre")

    def change(x: Tensor) -> Tensor:
        return x + (vector / where.scale).to(x)

    with _changed(model, where.module, where.side, where.run, change):
        yield


def _where(site: Site, name: str) -> Where:
    if name not in site.streams:
        raise UnreadableAttention(f"{site.name} has no {name}: {unavailable(site, name)}")
    return site.streams[name]


@holding
@contextmanager
def _changed(
    model: Model, path: str, side: str, run: int | None, change: StreamChange
) -> Iterator[None]:
    """Change the input or output of a module in this thread; only in its run `run`, if given.

    Runs are counted within one forward pass of the model, for modules that layers share.
    """
    runs = [-1]

    def begin(module: nn.Module, args: tuple) -> None:
        runs[0] = -1

    def mine() -> bool:
        runs[0] += 1
        return run is None or runs[0] == run

    def before(module: nn.Module, args: tuple, kwargs: dict) -> Any:
        if not mine():
            return None
        new_args = _first(args, change)
        return (
            (new_args, kwargs) if new_args is not None else (args, _first(kwargs, change) or kwargs)
        )

    def after(module: nn.Module, args: tuple, output: Any) -> Any:
        return _first(output, change) if mine() else None

    module = model.module.get_submodule(path)
    with ExitStack() as stack:
        stack.callback(model.module.register_forward_pre_hook(in_this_thread(begin)).remove)
        if side == "in":
            stack.callback(
                module.register_forward_pre_hook(in_this_thread(before), with_kwargs=True).remove
            )
        else:
            stack.callback(module.register_forward_hook(in_this_thread(after)).remove)
        yield


def _first(x: Any, change: StreamChange) -> Any:
    """Return the structure with its activations changed, or None where it has none.

    The tensor is chosen as by `interp.model.calls.sites.first_tensor`.
    """
    if isinstance(x, Tensor):
        return change(x) if x.is_floating_point() and x.dim() >= 2 else None
    if isinstance(x, Mapping):
        keys = ["hidden_states"] if "hidden_states" in x else list(x)
        for key in keys:
            new = _first(x[key], change)
            if new is not None:
                return type(x)(**{**x, key: new}) if type(x) is not dict else {**x, key: new}
        return None
    if isinstance(x, (tuple, list)):
        for i, part in enumerate(x):
            new = _first(part, change)
            if new is not None:
                parts = [*x[:i], new, *x[i + 1 :]]
                return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return None
