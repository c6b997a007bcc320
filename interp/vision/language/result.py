"""Rows of changes to the tokens of a picture: their effect on the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float

from interp.core.presenter import present
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
    """Return a row per change to the tokens of pictures."""
    tokens = np.array([float(p.image.sum()) for p in prompts])
    columns = {
        "change": changes,
        "score": change.mean(1),
        "sem": standard_error(change),
        "n": len(prompts),
        "null": random.mean(1),
        "kept": kept.mean(1),
        "tokens": tokens.mean(),
    }
    return ResultRows(
        "ImageTokenEffects",
        columns,
        ("change",),
        made,
        dict(zip(("metric", "unit"), measured, strict=True)),
        change,
        arrays={"random": random, "kept_tokens": kept, "chosen": tuple(map(tuple, chosen))},
    )


def image_token_effects_summary(found: ResultRows) -> str:
    """Return the change of the answer under each change to the tokens."""
    lines = [f"ImageTokenEffects: {found.metric} ({found.unit})"]
    for row in found:
        ends = "" if np.isnan(row["low"]) else f" [{row['low']:.3g}, {row['high']:.3g}]"
        null = "" if np.isnan(row["null"]) else f", random tokens {row['null']:.3g}"
        lines.append(
            f"  {row['change']}: {row['score']:.3g}{ends}{null}; {row['kept']:.3g} of "
            f"{row['tokens']:.3g} tokens kept"
        )
    return "\n".join(lines)


present("ImageTokenEffects", summary=image_token_effects_summary)
