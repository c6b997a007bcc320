"""Gates of key-value heads between a full and a cut cache, trained as DuoAttention trains them.

The output of a gated head is `gate * full + (1 - gate) * cut`. The gates are trained so that the
last hidden states at the labelled tokens stay those of the full model, with a penalty on the mean
gate: a head whose far keys matter keeps a gate near 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.cache.windows import Window, cached_sites, windowed_output
from interp.causal.gate_derivatives import frozen
from interp.core.errors import NonFiniteError, OptionError, PromptError
from interp.core.head import Head
from interp.core.interrupts import held
from interp.core.prompts import Prompts
from interp.core.protocols import Progress, silent
from interp.heads.needle.instance import Instance
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from interp.model.hooks.inference import in_this_thread
from interp.model.inputs import output_embedding

if TYPE_CHECKING:
    from interp.model.model import Model

WARM, FLOOR = 0.2, 0.1  # share of the steps in which the rate rises and falls; lowest share of it
AT_ONCE = 4  # prompts per update


def train_gates(
    model: Model,
    instances: Sequence[Instance],
    window: Window,
    *,
    steps: int = 60,
    rate: float = 0.02,
    penalty: float = 0.05,
    relative: bool = True,
    seed: int = 0,
    progress: Progress = silent,
) -> dict[Site, Float[Tensor, " kv_head"]]:
    """Train one gate per key-value head on needles; the weights of the model stay as they are."""
    if steps < 1 or rate <= 0 or penalty < 0:
        raise OptionError(
            f"steps={steps}, rate={rate}, penalty={penalty}: steps must be at least 1, the rate "
            "positive and the penalty not negative"
        )
    sites = cached_sites(model)
    batches = _batches_of(instances, window)
    gates = {s: torch.ones(s.n_kv_heads, device=model.device, requires_grad=True) for s in sites}
    full = [_states(model, prompts, rows, {}, window) for prompts, rows in batches]
    optimiser = torch.optim.AdamW(list(gates.values()), lr=rate, weight_decay=0.0)
    rng = np.random.default_rng(seed)
    order: list[int] = []
    for step in range(steps):
        order = order or rng.permutation(len(batches)).tolist()
        which = order.pop()
        for group in optimiser.param_groups:
            group["lr"] = rate * _share_of_rate(step, steps)
        with torch.no_grad():
            for gate in gates.values():
                gate.clamp_(0, 1)
        prompts, rows = batches[which]
        with torch.enable_grad(), frozen(model.module):
            mixed = _states(model, prompts, rows, gates, window)
            distance = (mixed - full[which]).square().mean()
            if relative:
                distance = distance / full[which].square().mean()
            loss = distance + penalty * torch.cat(list(gates.values())).abs().mean()
            slopes = torch.autograd.grad(loss, list(gates.values()), allow_unused=True)
        for gate, slope in zip(gates.values(), slopes, strict=True):
            gate.grad = torch.zeros_like(gate) if slope is None else slope
            if not bool(torch.isfinite(gate.grad).all()):
                raise NonFiniteError(
                    f"{model.name}: the gradients of the gates are not finite; try float32"
                )
        optimiser.step()
        progress("steps", step + 1, steps)
    return {site: gate.detach().clamp(0, 1).double().cpu() for site, gate in gates.items()}


def _share_of_rate(step: int, steps: int) -> float:
    """Return the learning rate of a step relative to the highest one."""
    part = (step + 0.5) / steps
    return max(FLOOR, min(1.0, part / WARM, (1 - part) / WARM))


def _batches_of(instances: Sequence[Instance], window: Window) -> list[tuple[Prompts, slice]]:
    """Batch instances of equal shape; return each with the rows of question and answer."""
    if not instances:
        raise PromptError("there are no needles to train gates on; give at least one instance")
    if max(x.length for x in instances) <= window.tokens:
        raise PromptError(
            f"the longest prompt has {max(x.length for x in instances)} tokens, and the cut cache "
            f"keeps {window.tokens}, so nothing would be cut; give longer prompts or a smaller "
            "window"
        )
    shapes: dict[tuple[int, int, int], list[Instance]] = {}
    for x in instances:
        shapes.setdefault((x.length, len(x.question), len(x.answer)), []).append(x)
    batches = []
    for (length, asked, _), group in shapes.items():
        for start in range(0, len(group), AT_ONCE):
            ids = tuple(x.prompt + x.given for x in group[start : start + AT_ONCE])
            batches.append((Prompts(ids, "needles"), slice(length - asked, None)))
    return batches


@held()
def _states(
    model: Model, prompts: Prompts, rows: slice, gates: dict[Site, Tensor], window: Window
) -> Float[Tensor, "prompt row d_model"]:
    """Return the last hidden states of some rows; with gates, of the mixed run."""

    def mixed(call: Call, site: Site, real: Tensor) -> Tensor:
        heads = list(range(site.n_heads))
        cut = windowed_output(call, site, real, heads, [window] * site.n_heads)
        gate = gates[site].repeat_interleave(site.n_heads // site.n_kv_heads)[None, :, None, None]
        return gate * call.z + (1 - gate) * cut

    heads = tuple(Head(s.layer, h, s.stack) for s in gates for h in range(s.n_heads))
    edits = [Edit("cache-gates", heads, mixed, of_pattern=True)] if gates else []

    ending = output_embedding(model.module)
    seen: list[Tensor] = []

    def note(module: Any, given: tuple[Any, ...]) -> None:
        seen.append(given[0])

    with ExitStack() as stack:
        if not gates:
            stack.enter_context(torch.no_grad())
        if ending is not None:
            handle = ending.register_forward_pre_hook(in_this_thread(note))
            stack.callback(handle.remove)
        out = model.run(prompts, edits)
    states = (seen[-1] if seen else out)[:, rows].float()
    if not bool(torch.isfinite(states).all()):
        raise NonFiniteError(f"{model.name}: the last hidden states are not finite; try float32")
    return states
