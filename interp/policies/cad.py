"""Context-aware decoding (CAD): contrast of runs with and without the context."""

from __future__ import annotations

import math
from typing import Any

from interp.core.errors import OptionError
from interp.model.policy import Action, Policy, Step
from interp.model.second_run import SecondRun


def cad(without: Any, alpha: float = 0.5) -> Policy:
    """Make the policy that contrasts a prompt with the same prompt without its context.

    The next token is that of (1 + alpha) logits with context - alpha logits without it.

    Args:
        without: the prompts without the context, one for each prompt of the generation.
        alpha: strength of the contrast; 0 is the model itself.

    Reference: Shi et al. 2023, "Trusting Your Evidence: Hallucinate Less with Context-aware
    Decoding" (arXiv 2305.14739).

    Raises:
        OptionError: alpha is negative.
    """
    if not 0 <= alpha < math.inf:
        raise OptionError(f"alpha={alpha:g}; give a number from 0")
    other = SecondRun(prompts=without)

    def contrast_context(step: Step) -> Action:
        logits = step.logits.float()
        return Action(logits=(1 + alpha) * logits - alpha * other.logits(step).float())

    return contrast_context
