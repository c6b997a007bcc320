"""Measures of token importance side by side, judged by what hiding each token really changes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.attribution.declaration import BoundMethod, choose_methods
from interp.attribution.evaluation.result import Faithfulness
from interp.attribution.evaluation.run import faithfulness, read_texts, resolve
from interp.attribution.example import Example
from interp.core.errors import OptionError
from interp.core.protocols import Progress
from interp.core.steps import finishing
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.attribution.declaration import AttributionMethod
    from interp.attribution.target import Targets
    from interp.model.model import Model

# The published measures, and those of attention patterns and norms that other papers use.
COMPARED = (
    "token_importance",
    "column_concentration",
    "value_weighted:received=true",
    "attention_output_error",
    "mean_attention",
)


@takes_model
@finishing()
def compare_importance(
    model: Model,
    texts: str | Path | Sequence[str],
    methods: Iterable[str | AttributionMethod | BoundMethod] | None = None,
    targets: Targets | None = None,
    *,
    how: str = "hide",
    n_selection: int = 0,
    n_soft_draws: int = 0,
    seed: int = 0,
    batch_size: int = 16,
    resume: Path | None = None,
    progress: Progress | None = None,
) -> Faithfulness:
    """Measure how well measures of token importance predict the effect of hiding tokens.

    Args:
        model: a loaded model, or what `load` accepts.
        texts: texts, or the path of a file with one per line.
        methods: names, groups or methods; by default all published measures of token importance
            and four other measures that caches and pruning use.
        targets: as for `faithfulness`; the model's own first choice by default.
        how: how a token is removed; hide hides it from the attention of all others.
        n_selection: number of first texts on which the head of `ditto` is chosen; they are not
            judged. 0 takes the mean over heads.
        n_soft_draws: random draws of the soft measures; 0 omits these measures.
        seed: seed of these draws.
        batch_size: inputs per forward pass.
        resume: folder in which finished rows are stored.
        progress: see `Progress`.

    Returns:
        The faithfulness of every measure, of random scores and of the effect itself. `spearman` is
        the rank correlation of scores with effects; `against_random` tests it.

    Raises:
        OptionError: `n_selection` is negative or leaves no text to judge.
        PromptError, UnknownName: see `faithfulness`.
    """
    every = read_texts(texts)
    if not 0 <= n_selection < len(every):
        raise OptionError(
            f"n_selection={n_selection} of {len(every)} text(s) leaves nothing to judge on; it "
            "must be at least 0 and less than the number of texts"
        )
    wanted = resolve(model, every, targets)
    chosen = choose_methods(COMPARED if methods is None else methods)
    picked = ""
    if n_selection:
        from interp.attribution.token_importance.ditto import best_diagonal

        seen = [
            Example(model, t, w)
            for t, w in zip(every[:n_selection], wanted[:n_selection], strict=True)
        ]
        picked = best_diagonal(seen, how)
        chosen = [with_head(one, picked) for one in chosen]
    result = faithfulness(
        model,
        every[n_selection:],
        chosen,
        wanted[n_selection:],
        warn=False,
        how=how,
        draws=n_soft_draws,
        seed=seed,
        batch_size=batch_size,
        resume=resume,
        progress=progress,
    )
    provenance: dict[str, Any] = {**result.provenance, "made_by": "compare_importance"}
    if n_selection:
        provenance |= {"chosen_on": n_selection, "chosen_head": picked}
    return replace(result, provenance=provenance)


def with_head(method: BoundMethod, head: str) -> BoundMethod:
    """Give `ditto` without a head this head; return other methods as they are."""
    if method.method.name == "ditto" and not method.options.get("head"):
        (again,) = choose_methods([f"ditto:head={head}"])
        return again
    return method
