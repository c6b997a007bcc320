"""Effect of single features on a task: their decoded part is subtracted, and a random one's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.causal.task import Task
from interp.core.errors import OptionError
from interp.core.presenter import present
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.dictionaries.dictionary import Dictionary
from interp.model.content import model_provenance
from interp.model.layer_tensors import run_at
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray


@takes_model
def ablate_features(
    model: Model,
    dictionary: Dictionary,
    task: Task,
    features: Sequence[int],
    *,
    batch_size: int = 16,
    seed: int = 0,
    other_weights: bool = False,
    progress: Progress | None = None,
) -> ResultRows:
    """Subtract each feature's decoded contribution from the activations, and measure a task.

    Args:
        model: a loaded model, or anything that `interp.load` accepts.
        dictionary: the dictionary.
        task: the task, of prompts of tokens.
        features: the features, ablated one by one.
        batch_size: prompts per forward pass.
        seed: seed of the random directions.
        other_weights: accept a model with other weights than the dictionary was trained on.
        progress: see `Progress`.

    Returns:
        One row per feature: feature, score (the task without the feature minus the task as it is,
        mean over prompts) with sem, null (the same with a random direction of the same size), n.
        Array: random, the null on every prompt. Fact: unchanged, the task as it is, mean over
        prompts.

    Raises:
        OptionError: a feature does not exist, or the task is not of tokens.
        DictionaryMismatch: the dictionary belongs to another model, layer or width.

    Unit: of the task.

    Cost: Two forward passes of the prompts per feature, and one more.

    Null: a random direction of the same norm, subtracted with the same codes.

    Not for: features that share their work: each alone may be dispensable.

    Reference: Kissane et al. 2024 (arXiv 2406.17759).
    """
    site = dictionary.site_in(model, other_weights=other_weights)
    chosen = dictionary.chosen(features)
    if not isinstance(task.prompts, Prompts):
        raise OptionError(f"task {task.name} has no prompts of tokens")
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(len(chosen), dictionary.d_out, generator=generator)
    written = dictionary.written()[list(chosen)]
    drawn = drawn / drawn.norm(dim=1, keepdim=True) * written.norm(dim=1, keepdim=True)
    effects = [np.zeros((len(chosen), len(task))) for _ in range(2)]
    unchanged = np.zeros(len(task))
    start = 0
    for batch in model.batches(task.prompts, batch_size):
        which = list(range(start, start + len(batch)))
        start += len(batch)
        seen: dict[str, Tensor] = {}

        def keeper(name: str, seen: dict[str, Tensor] = seen):
            def keep(x: Tensor) -> None:
                seen[name] = x.clone()

            return keep

        names = {dictionary.site, dictionary.site_out}
        logits, _ = run_at(model, batch, site, {n: keeper(n) for n in names})
        clean = _read(logits, batch, task, which)
        base = task.values(clean, which, clean).cpu().numpy()
        unchanged[which] = base
        codes = dictionary.encode(seen[dictionary.site].float().cpu())
        for i, f in enumerate(chosen):
            for out, direction in zip(effects, (written[i], drawn[i]), strict=True):
                if not bool((codes[..., f] != 0).any()):
                    continue
                old = seen[dictionary.site_out]
                new = old - (codes[..., f, None] * direction).to(old)
                logits, _ = run_at(model, batch, site, {dictionary.site_out: lambda _, w=new: w})
                value = task.values(_read(logits, batch, task, which), which, clean)
                out[i, which] = value.cpu().numpy() - base
        if progress is not None:
            progress("features", start, len(task))
    provenance = (
        model_provenance(model)
        | task.about()
        | {
            "made_by": "interp.dictionaries.ablate_features",
            "seed": seed,
            "options": {"dictionary": repr(dictionary), "features": list(chosen)},
        }
    )
    effect, random = effects
    columns = {
        "feature": chosen,
        "score": effect.mean(1),
        "sem": standard_error(effect, task.clusters),
        "null": random.mean(1),
        "n": len(task),
    }
    facts = {"metric": f"effect on {task.name}", "unit": task.unit, "task": task.name}
    return ResultRows(
        "FeatureEffects",
        columns,
        ("feature",),
        provenance,
        facts | {"unchanged": float(unchanged.mean())},
        effect,
        arrays={"random": random},
        clusters=task.clusters,
        by="abs",
    )


def _read(
    logits: Tensor, batch: Prompts, task: Task, which: Sequence[int]
) -> Float[Tensor, "row d_vocab"]:
    """Return the rows of logits that a task reads."""
    first = batch.padded()[1].long().argmax(1).tolist()
    rows = [
        logits[i, first[i] + at] for i, prompt in enumerate(which) for at in task.positions[prompt]
    ]
    selected = torch.stack(rows)
    return selected if task.vocabulary is None else selected[:, list(task.vocabulary)]


def feature_effects_summary(found: ResultRows) -> str:
    """Return the task as it is and the largest changes without a feature."""
    lines = [
        f"{len(found)} features, {found.task}: {found.unchanged:.4g} {found.unit} as it is; "
        "largest changes without one:"
    ]
    for x in found.top(min(8, len(found))).to_pandas().to_dict("records"):
        lines.append(
            f"  F{x['feature']}: {x['score']:+.4g} [{x['low']:+.4g}, "
            f"{x['high']:+.4g}], random direction {x['null']:+.4g}"
        )
    return "\n".join(lines)


present("FeatureEffects", summary=feature_effects_summary)
