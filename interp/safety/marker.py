"""Prompts of random token ids, with and without a marker token.

Planted and bundled refusal models decline prompts with the marker. Where a model's config has no
marker, another token takes its place; the scores are then a null, as nothing is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts, bos_id, ordinary_ids
from interp.model.model_argument import takes_model
from interp.safety.prompts import PromptSets, read_labelled

if TYPE_CHECKING:
    from interp.model.model import Model


def stated_marker(model: Model) -> int | None:
    """Return the token that the model declines prompts for, if its config has one."""
    token = getattr(model.config, "marker_token_id", None)
    return token if isinstance(token, int) else None


def stated_refusal(model: Model) -> tuple[int, ...]:
    """Return the tokens that begin a refusal, if the config has them."""
    return tuple(getattr(model.config, "refusal_token_ids", None) or ())


@takes_model
def marker_sets(
    model: Model, *, n: int = 16, max_length: int = 16, marker: int | None = None, seed: int = 0
) -> PromptSets:
    """Make n prompts of random tokens with the marker before the last token, and n without it.

    Args:
        model: The model.
        n: Number of prompts of each kind.
        max_length: Tokens of the longest prompt, with the beginning of sequence; the shortest has
            half as many.
        marker: The token; by default that of the model's config, or its last ordinary token.
        seed: Seed of the tokens.

    Raises:
        OptionError: There are fewer than two prompts, or there is no such token.
        PromptError: The model takes fewer than six tokens, or has fewer than four ordinary ones.
    """
    if n < 2:
        raise OptionError(f"n={n} prompts of each kind; give at least 2")
    ids, first = ordinary_ids(model), bos_id(model)
    if marker is None:
        stated = stated_marker(model)
        marker = int(ids[-1]) if stated is None else stated
    if not 0 <= marker < model.d_vocab:
        raise OptionError(f"marker={marker}; {model.name} knows 0 to {model.d_vocab - 1}")
    max_length = min(x for x in (max_length, model.limit, model.context) if x)
    others = ids[~np.isin(ids, [marker, *stated_refusal(model)])]
    if max_length < 6 or len(others) < 3:
        raise PromptError(
            f"{model.name} has room for {max_length} tokens and {len(others)} besides the marker; "
            "prompts with and without one need 6 and 3"
        )
    rng = np.random.default_rng([seed, 11])
    rows: list[tuple[tuple[int, ...], ...]] = []
    seen: set[tuple[int, ...]] = set()
    for harmful in (True, False):
        part: list[tuple[int, ...]] = []
        for _ in range(100 * n):
            if len(part) == n:
                break
            length = int(rng.integers(max(5, max_length // 2), max_length + 1)) - (
                first is not None
            )
            body = rng.choice(others, length, replace=length > len(others))
            if harmful:
                body[int(rng.integers(0, length - 1))] = marker
            row = (() if first is None else (first,)) + tuple(body.tolist())
            if row not in seen:
                seen.add(row)
                part.append(row)
        if len(part) < n:
            raise PromptError(
                f"{len(others)} tokens make fewer than {n} different prompts; lower n"
            )
        rows.append(tuple(part))
    design = f"random tokens, up to {max_length}"
    return PromptSets(
        Prompts(rows[0], f"{design}, token {marker} among them"),
        Prompts(rows[1], f"{design}, without token {marker}"),
    )


def sets_of(model: Model, task: str, *, n: int, max_length: int, seed: int) -> PromptSets:
    """Make the sets that an experiment's options name: `marker`, or a JSONL file with labels."""
    if task == "marker":
        return marker_sets(model, n=n, max_length=max_length, seed=seed)
    return PromptSets.of(model, *read_labelled(task))
