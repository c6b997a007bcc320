"""Policies: functions that are called at each step of a generation and decide how it goes on.

    def unsure(step: Step) -> Action | None:
        p = step.logits.softmax(-1)
        return Action(stop=p.max(-1).values < 0.1)

    model.generate(prompts, 20, policy=unsure)

A policy that reads attention states the activations in its attribute `names`, as `capture` does.
Published ones are in `interp.policies`, a file each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from interp.core.errors import InterpError, OptionError

if TYPE_CHECKING:
    from interp.model.capture import ActivationCache
    from interp.model.edits import Edit
    from interp.model.transformer import Transformer


@dataclass(frozen=True, eq=False)
class Step:
    """One step of a generation: what was written, and what the model would write next.

    Args:
        model: the model.
        ids: all tokens so far, of the decoder of an encoder-decoder.
        start: columns of `ids` that were given, padding included.
        logits: scores of the next token; with beams their log-probabilities.
        cache: the activations that the policy names, of this step alone.
        inputs: the module's inputs of the prompts, a row per prompt; beams of a prompt follow one
            another.
        beside: function of further edits whose block runs the module beside the generation.
    """

    model: Transformer
    ids: Int[Tensor, "row pos"]
    start: int
    logits: Float[Tensor, "row d_vocab"]
    cache: ActivationCache
    inputs: Mapping[str, Any] = field(repr=False)
    beside: Callable[[Sequence[Edit]], AbstractContextManager[None]] = field(repr=False)

    @property
    def number(self) -> int:
        """Tokens written so far."""
        return self.ids.shape[1] - self.start


@dataclass(frozen=True, eq=False)
class Action:
    """Decision of a policy; what is None stays as it is.

    Args:
        logits: scores of the next token in place of the model's.
        edits: edits from the next step on, in place of those of earlier decisions.
        stop: end before the next token, for all rows or for each.
    """

    logits: Float[Tensor, "row d_vocab"] | None = None
    edits: Sequence[Edit] | None = None
    stop: bool | Bool[Tensor, " row"] = False


Policy = Callable[[Step], Action | None]


def decided(policy: Policy, step: Step) -> Action:
    """Return the decision of a policy, checked."""
    name = getattr(policy, "__name__", type(policy).__name__)
    at = f"policy {name} at step {step.number}"
    try:
        action = policy(step)
    except InterpError:
        raise
    except Exception as error:  # any error of a user-supplied function is reported by its name
        raise OptionError(f"{at} raised {type(error).__name__}: {error}") from error
    if action is None:
        return Action()
    if not isinstance(action, Action):
        raise OptionError(f"{at} returned {type(action).__name__}; expected an Action or None")
    logits = action.logits
    if logits is not None:
        if tuple(logits.shape) != tuple(step.logits.shape):
            raise OptionError(
                f"{at} returned logits of shape {tuple(logits.shape)}; expected "
                f"{tuple(step.logits.shape)}"
            )
        if bool(logits.isnan().any()) or bool((logits.amax(-1) == -torch.inf).any()):
            raise OptionError(f"{at} returned logits with NaN, or that allow no token")
    rows = len(step.ids)
    if isinstance(action.stop, Tensor) and tuple(action.stop.shape) != (rows,):
        raise OptionError(
            f"{at} returned stop of shape {tuple(action.stop.shape)}; expected one bool, or one "
            f"for each of {rows} rows"
        )
    return action
