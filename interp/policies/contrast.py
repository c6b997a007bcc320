"""Contrast of two runs: without the retrieval heads (DeCoRe), or without the context (CAD)."""

from __future__ import annotations

import math
from typing import Any

from interp.core.errors import OptionError
from interp.model.edits import zero
from interp.model.head_arguments import HeadsLike, parse_heads
from interp.model.policy import Action, Policy, Step
from interp.model.second_run import SecondRun


def decore(heads: HeadsLike, alpha: float | None = None) -> Policy:
    """Make the policy that contrasts the model with a run in which some heads are masked.

    The next token is that of (1 + alpha) log p - alpha log p_masked. A run without context, whose
    heads retrieve nothing, loses little, so tokens that only the heads supply gain.

    Args:
        heads: the heads whose output is zero in the other run, such as the best by
            `interp.score(model, "retrieval")`.
        alpha: strength of the contrast; by default the entropy of the model's own prediction in
            nats, so that it acts where the model is unsure.

    Reference: Gema et al. 2024, "DeCoRe: Decoding by Contrasting Retrieval Heads to Mitigate
    Hallucinations" (arXiv 2410.18860). Its plausibility limit is not applied in the published loop
    and not here.

    Raises:
        OptionError: alpha is negative.
    """
    if alpha is not None and not 0 <= alpha < math.inf:
        raise OptionError(f"alpha={alpha:g}; give a number from 0, or None for the entropy")
    masked = SecondRun([zero(parse_heads(heads))])

    def contrast_heads(step: Step) -> Action:
        log_p = step.logits.float().log_softmax(-1)
        other = masked.logits(step).float().log_softmax(-1)
        entropy = -(log_p.exp() * log_p.clamp_min(-1e4)).sum(-1, keepdim=True)
        strength = entropy if alpha is None else alpha
        return Action(logits=(1 + strength) * log_p - strength * other)

    return contrast_heads


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
