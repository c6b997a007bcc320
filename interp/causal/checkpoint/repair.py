"""Repair of a model without some heads: a few steps of training towards the original's outputs.

kept = prune_in_rounds(model, task, "ablation", keep=8, rounds=3, repair=20)
save_pruned(model, kept, "smaller", tasks=[task])
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from interp.causal.checkpoint.choose import Removed, checked_removal, head_names, heads_by_name
from interp.causal.checkpoint.indices import columns_of, require_removable
from interp.causal.checkpoint.mlps import removed_mlps, without_output
from interp.causal.methods import importances
from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.interrupts import holding
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.ties import ordered
from interp.model.load import load
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

BATCH = 8  # prompts per step
DIVERGED = 10.0  # a loss this many times the first stops the training
SMALL = 0.1  # nats per token: a smaller first loss counts as this


@dataclass(frozen=True, eq=False)
class Repaired:
    """Model with trained weights, and the parts that are to be removed from it.

    Args:
        model: the trained copy; the removed parts are still there and must be ablated.
        removed: the heads to remove.
        mlps: labels of the MLPs to remove.
        about: steps, rate, rounds, seed, prompts, and the loss of the first and last step in nats
            per token.
    """

    model: Model
    removed: Removed
    mlps: tuple[str, ...] = ()
    about: Mapping[str, Any] = field(default_factory=dict)


@takes_model
def repair_pruned(
    model: Model,
    heads: Removed | Sequence[Any],
    prompts: Any,
    *,
    steps: int,
    mlps: Sequence[str] = (),
    rate: float = 3e-4,
    seed: int = 0,
    start: Model | None = None,
    progress: Progress | None = None,
) -> Repaired:
    """Train a copy of the model without some heads to predict what the original predicts.

    The loss is the divergence of the original's next-token distribution from the copy's, mean over
    the tokens of the prompts. Removed parts are zero throughout.

    Args:
        model: the original, which is not changed.
        heads: the heads to remove.
        prompts: texts or token ids; give none of the prompts that the result is judged on.
        steps: number of steps of Adam, with 8 prompts each.
        mlps: labels of the MLPs to remove.
        rate: learning rate.
        seed: seed of the order of the prompts.
        start: a repaired model to go on from; the original by default.
        progress: see `Progress`.

    Raises:
        OptionError: the model is not a causal language model, the training diverges, or `steps` or
            `rate` is not positive.

    Unit: nats per token.

    Cost: Two forward passes and a backward pass per prompt and step.

    Null: the model without repair, which the certificate states.

    Not for: few prompts, which the copy memorises, as held-out values then show.

    Reference: Hinton et al. 2015, "Distilling the Knowledge in a Neural Network".
    """
    if steps < 1 or not (math.isfinite(rate) and rate > 0):
        raise OptionError(f"repair: steps={steps}, rate={rate}; both must be positive")
    require_removable(model)
    if model.kind != "causal":
        raise OptionError(
            f"{model.name}: repair predicts the next token, and this is not a causal language "
            "model; save it without repair"
        )
    given = Prompts.of(prompts, model)
    gone = heads if isinstance(heads, dict) else heads_by_name(model, heads)
    module: Any = copy.deepcopy((start or model).module)
    module.requires_grad_(True)
    parts = removed_mlps(model, mlps)
    optimiser = torch.optim.Adam(module.parameters(), lr=rate)
    rng = np.random.default_rng([seed, 31])
    order: list[int] = []
    losses: list[float] = []
    with _without_heads(module, gone), without_output(module, parts, None):
        for step in range(1, steps + 1):
            while len(order) < min(BATCH, len(given)):
                order += rng.permutation(len(given)).tolist()
            batch, order = order[:BATCH], order[BATCH:]
            losses.append(_backward(model, module, [given.ids[i] for i in batch]))
            _require_finite(model, losses, rate)
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimiser.step()
            optimiser.zero_grad()
            if progress is not None:
                progress("repair", step, steps)
        losses.append(_backward(model, module, [given.ids[i] for i in batch]))
        _require_finite(model, losses, rate)
    module.requires_grad_(False)
    module.zero_grad()
    about = {
        "steps": steps,
        "rate": rate,
        "rounds": 1,
        "seed": seed,
        "n_prompts": len(given),
        "prompts": given.design,
        "first_loss": losses[0],
        "last_loss": losses[-1],
    }
    trained = load(module, tokenizer=model.tokenizer, name=model.name, check=False)
    return Repaired(trained, gone, tuple(mlps), about)


@takes_model
def prune_in_rounds(
    model: Model,
    task: Task,
    by: str,
    keep: int,
    *,
    rounds: int = 1,
    repair_steps: int = 20,
    rate: float = 3e-4,
    reference: Any = None,
    seed: int = 0,
    progress: Progress | None = None,
    **options: Any,
) -> Repaired:
    """Remove heads in rounds: score the remaining heads, remove the least important, and repair.

    Args:
        model: the model, which is not changed.
        task: the task that scores heads; give none of the prompts that the result is judged on.
        by: an importance, as in `interp importance`.
        keep: number of heads to keep.
        rounds: number of rounds, each of which removes about equally many heads.
        repair_steps: steps of `repair_pruned` after each round.
        rate: learning rate of the repair.
        reference: prompts of the repair; those of the task by default.
        seed: seed of scores and repairs.
        progress: see `Progress`.
        options: of `Game`.

    Raises:
        OptionError: as `repair_pruned`, or `keep` or `rounds` is out of range.

    Unit: nats per token.

    Cost: In each round that of the importance and of the repair.

    Null: the model without repair, which the certificate states.

    Not for: heads that must be equally many in every layer; choose these with `ranked_heads`.
    """
    n = sum(site.n_heads for site in model.sites)
    if not 0 < keep < n or not 0 < rounds <= n - keep:
        raise OptionError(
            f"keep={keep} of {n}, rounds={rounds}; keep and remove at least 1 head, in at most as "
            "many rounds as heads are removed"
        )
    several = len(model.stacks) > 1
    left = head_names({site: tuple(range(site.n_heads)) for site in model.sites}, several)
    gone: list[str] = []
    current, repaired, first = model, None, math.nan
    for number, count in enumerate(np.linspace(n, keep, rounds + 1)[1:].round().astype(int)):
        values: dict[str, Any] = {"seed": seed, "progress": progress} | options
        values |= {"without": gone} if gone else {}
        [scores] = importances(current, task, [by], **values).values()
        worst = ordered(scores.helps(), lowest=True)[: len(left) - int(count)]
        gone += [scores.players.labels[i] for i in worst]
        left = [x for x in left if x not in gone]
        repaired = repair_pruned(
            model,
            gone,
            task.prompts if reference is None else reference,
            steps=repair_steps,
            rate=rate,
            seed=seed + number,
            start=current,
            progress=progress,
        )
        current = repaired.model
        first = repaired.about["first_loss"] if number == 0 else first
    assert repaired is not None
    removed = checked_removal(model, repaired.removed)
    about = dict(repaired.about) | {"rounds": rounds, "seed": seed, "first_loss": first}
    return Repaired(repaired.model, removed, (), about)


def _backward(model: Model, module: nn.Module, ids: Sequence[Sequence[int]]) -> float:
    """Add the gradients of the divergence from the original; return its mean over tokens."""
    total, n = 0.0, sum(map(len, ids))
    for length in sorted({len(x) for x in ids}):  # equal lengths need no padding
        rows = torch.tensor([list(x) for x in ids if len(x) == length], device=model.device)
        with torch.no_grad():
            wanted = model.run({"input_ids": rows}).double().log_softmax(-1)
        with torch.enable_grad():
            log_p = module(input_ids=rows).logits.double().log_softmax(-1)
            lost = (wanted.exp() * (wanted - log_p)).sum() / n
            lost.backward()
        total += float(lost.detach())
    return total


def _require_finite(model: Model, losses: Sequence[float], rate: float) -> None:
    last = losses[-1]
    if not math.isfinite(last) or last > DIVERGED * max(losses[0], SMALL):
        raise OptionError(
            f"{model.name}: the repair diverges at step {len(losses)} (loss {losses[0]:.3g} to "
            f"{last:.3g} nats per token at rate {rate:g}); nothing was written; use a lower rate"
        )


@holding
@contextmanager
def _without_heads(module: Any, removed: Removed) -> Iterator[None]:
    """Set z of removed heads to zero in the forward passes of this block."""
    with ExitStack() as stack:
        for site, heads in removed.items():
            if not heads:
                continue
            assert site.projection is not None
            projection = module.get_submodule(site.projection)
            mask = torch.ones(site.n_heads * site.d_v, dtype=projection.weight.dtype)
            mask[columns_of(site, heads)] = 0
            mask = mask.to(projection.weight.device)

            def hook(module: nn.Module, args: Any, mask: Tensor = mask) -> Any:
                return (args[0] * mask, *args[1:])

            stack.callback(projection.register_forward_pre_hook(hook).remove)
        yield
