"""Explanation of a difference of two models, or of two prompts, by any attribution method."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Float

from interp.attribution.declaration import choose_methods
from interp.attribution.example import Example
from interp.attribution.target import one_each
from interp.core.errors import OptionError, PromptError
from interp.core.prompt_means import prompt_means
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.model.content import model_provenance, result_provenance
from interp.model.model_argument import one_model

if TYPE_CHECKING:
    from interp.attribution.declaration import AttributionMethod, BoundMethod
    from interp.attribution.target import Targets

Array = np.ndarray
DifferenceBy = Literal["position", "token"]


def explain_difference(
    model: Any,
    prompts: Sequence[Any],
    method: str | AttributionMethod | BoundMethod = "integrated_gradients",
    target: Targets | None = None,
    *,
    other_model: Any = None,
    other_prompts: Sequence[Any] | None = None,
    per: DifferenceBy = "position",
    position: int = -1,
    clusters: Sequence[str] | None = None,
) -> ResultRows:
    """Attribute the difference of a target between two models, or between two prompts.

    The score of a row is the mean over pairs of the contribution on the first side minus that on
    the second, in the unit of the method. With a complete method the rows of a pair sum to the
    difference of the targets, up to the notes' residual. The null of every row is no difference;
    `p` tests it, paired over pairs.

    Args:
        model: the first model.
        prompts: one prompt per pair, for the first model.
        method: a method of `interp list methods`.
        target: one target for all pairs, or one per pair; a single default target is the first
            side's own first choice, and explains both sides.
        other_model: the second model, with the same tokens; the first one by default.
        other_prompts: the prompt of the second side of each pair; the same prompts by default.
        per: "position": one row per position, for prompts of one length; "token": one row per
            token, over the pairs that contain it, all its occurrences summed.
        position: output position of the target, negative from the end.
        clusters: a label per pair where pairs share something.

    Returns:
        One row per position or token, and one row for the difference of the targets, with metric
        "target".

    Raises:
        OptionError: there is no second side, or lengths or vocabularies do not fit.
        PromptError: there are no prompts.
    """
    first = one_model(model)
    second = first if other_model is None else one_model(other_model)
    inputs = [prompts] if isinstance(prompts, str) else list(prompts)
    beside = inputs if other_prompts is None else list(other_prompts)
    if not inputs:
        raise PromptError("no prompts given; give at least one")
    if other_model is None and other_prompts is None:
        raise OptionError(
            "there is nothing to compare with: give other_model (--against), or other_prompts"
        )
    if len(beside) != len(inputs):
        raise OptionError(
            f"{len(inputs)} prompts and {len(beside)} other prompts; give one for each pair"
        )
    if per not in ("position", "token"):
        raise OptionError(f"unknown per={per!r}; known: position, token")
    targets = one_each(target, len(inputs))
    if None in targets and _vocabulary(first) != _vocabulary(second):
        raise OptionError(
            f"{first.name} and {second.name} have different vocabularies, so the first one's top "
            "prediction may not be a token of the other; name what to explain: target= (-t)"
        )
    [chosen] = choose_methods([method])
    pairs, scores, values, residuals = [], [], [], []
    for one, two, wanted in zip(inputs, beside, targets, strict=True):
        left = Example(first, one, wanted, position)
        right = Example(second, two, left.target if wanted is None else wanted, position)
        if per == "position" and len(left) != len(right):
            raise OptionError(
                f"the two prompts of a pair have {len(left)} and {len(right)} tokens, so positions "
                "do not correspond; use per='token'"
            )
        if per == "position" and other_prompts is None and left.ids != right.ids:
            raise OptionError(
                f"{first.name} and {second.name} split the same prompt into different tokens; use "
                "by='token'"
            )
        results = chosen.of(left), chosen.of(right)
        pairs.append((left, right))
        scores.append((results[0].scores, results[1].scores))
        values.append(left.value - right.value)
        if results[0].residual is not None and results[1].residual is not None:
            residuals.append(abs(results[0].residual - results[1].residual))
    about, rows = (_by_position if per == "position" else _by_token)(pairs, scores)
    kind = chosen.method.unit
    unit = pairs[0][0].target.unit if kind == "target" else kind
    about = [{"metric": chosen.label, "unit": unit} | one for one in about]
    about.append(
        {
            "metric": "target",
            "unit": pairs[0][0].target.unit,
            per: -1 if per == "position" else "(target)",
        }
    )
    per_prompt = np.vstack([rows, values])
    ids = Prompts(tuple(left.ids for left, _ in pairs))
    provenance = result_provenance(
        first,
        "interp.attribution.explain_difference",
        ids,
        method=chosen.label,
        by=per,
        target=pairs[0][0].target.name,
    ) | {"other": model_provenance(second)}
    what = f"largest |difference - sum of contributions| of a pair ({pairs[0][0].target.unit})"
    notes = {what: max(residuals)} if residuals else {}
    return prompt_means(
        about,
        (per,),
        per_prompt,
        np.where(np.isnan(per_prompt), np.nan, 0.0),
        clusters=clusters,
        notes=notes,
        provenance=provenance,
    )


def _vocabulary(model: Any) -> Any:
    return model.d_vocab if model.tokenizer is None else model.tokenizer.get_vocab()


def _by_position(
    pairs: Sequence[tuple[Example, Example]], scores: Sequence[tuple[Array, Array]]
) -> tuple[list[dict[str, Any]], Float[Array, "row pair"]]:
    """Return one row per position."""
    lengths = sorted({len(left) for left, _ in pairs})
    if len(lengths) > 1:
        raise OptionError(
            f"prompts have {lengths[0]} to {lengths[-1]} tokens, so positions do not correspond; "
            "use per='token'"
        )
    about: list[dict[str, Any]] = []
    for i in range(lengths[0]):
        seen = dict.fromkeys(e.tokens[i] for pair in pairs for e in pair)
        about.append({"position": i, "token": " / ".join(list(seen)[:3])})
    return about, np.stack([a - b for a, b in scores], axis=1)


def _by_token(
    pairs: Sequence[tuple[Example, Example]], scores: Sequence[tuple[Array, Array]]
) -> tuple[list[dict[str, Any]], Float[Array, "row pair"]]:
    """Return one row per token, NaN in the pairs without it."""
    names = dict.fromkeys(t for pair in pairs for e in pair for t in e.tokens)
    row = {name: i for i, name in enumerate(names)}
    contributions = np.full((len(names), len(pairs)), np.nan)
    for at, (pair, each) in enumerate(zip(pairs, scores, strict=True)):
        for sign, example, mine in zip((1, -1), pair, each, strict=True):
            for token, score in zip(example.tokens, mine, strict=True):
                before = contributions[row[token], at]
                contributions[row[token], at] = (0.0 if np.isnan(before) else before) + sign * score
    return [{"token": name} for name in names], contributions
