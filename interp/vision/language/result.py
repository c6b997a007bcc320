"""Rows of changes to the tokens of a picture: their effect on the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.vision.language.prompts import PicturePrompt


def token_effects(
    changes: Sequence[str],
    measured: tuple[str, str],
    change: Float[np.ndarray, "row prompt"],
    random: Float[np.ndarray, "row prompt"],
    kept: Float[np.ndarray, "row prompt"],
    chosen: Sequence[Sequence[tuple[int, ...]]],
    prompts: Sequence[PicturePrompt],
    made: Mapping[str, Any],
) -> ResultRows:
    """Return a row per change to the tokens of pictures.

    Args:
        changes: name of each change.
        measured: metric and unit.
        change: the change of the answer.
        random: the same with random tokens; NaN where nothing is chosen.
        kept: number of tokens of the picture that are kept.
        chosen: their positions, per change and prompt.
        prompts: the prompts.
        made: the provenance.

    Returns:
        The columns change, score (mean over prompts) with sem, n, null (the mean with random
        tokens), kept (mean number of tokens kept) and tokens (mean number of tokens of a picture).
        Arrays: random and kept_tokens, `[row, prompt]`; chosen.
    """
    tokens = np.array([float(p.image.sum()) for p in prompts])
    columns = {
        "change": changes, "score": change.mean(1), "sem": standard_error(change),
        "n": len(prompts), "null": random.mean(1), "kept": kept.mean(1), "tokens": tokens.mean(),
    }  # fmt: skip
    return ResultRows(
        "ImageTokenEffects", columns, ("change",), made,
        dict(zip(("metric", "unit"), measured, strict=True)), change,
        arrays={"random": random, "kept_tokens": kept, "chosen": tuple(map(tuple, chosen))},
    )  # fmt: skip
