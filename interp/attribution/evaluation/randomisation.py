"""Sanity check of attribution methods: weights are randomised layer by layer, from the top."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import nn

from interp.attribution.declaration import choose_methods
from interp.attribution.evaluation.run import read_texts, resolve
from interp.attribution.example import Example
from interp.core.errors import InterpError, OptionError
from interp.core.prompt_means import prompt_means
from interp.core.prompts import Prompts
from interp.core.protocols import Progress
from interp.core.rank_statistics import spearman
from interp.core.result_rows import ResultRows
from interp.model.content import result_provenance
from interp.model.load import load
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.attribution.declaration import AttributionMethod, BoundMethod
    from interp.attribution.target import Targets
    from interp.model.model import Model

Array = np.ndarray
NULLS = 20  # random rankings whose mean correlation with the scores is the null


@takes_model
def randomisation_check(
    model: Model,
    texts: str | Path | Sequence[str],
    methods: Iterable[str | AttributionMethod | BoundMethod],
    targets: Targets | None = None,
    *,
    clusters: Sequence[str] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> ResultRows:
    """Measure how far scores change as weights are randomised from the last layer to the first.

    At each step the weights of one more block are permuted at random within each tensor, so that
    their distributions stay; all blocks above it, and the modules after the last block, are
    permuted already. The last step permutes the embeddings too. The score is the rank correlation
    of |scores| with those of the unchanged model, for the same target. A method whose scores hardly
    change does not depend on what the model has learned.

    Args:
        model: a loaded model, or what `load` accepts.
        texts: texts, or the path of a file with one per line.
        methods: names, with options as `name:option=value`, or methods.
        targets: as for `faithfulness`; the unchanged model's own first choice by default.
        clusters: a label per text where texts share something.
        seed: seed of the permutations.
        progress: see `Progress`.

    Returns:
        A row per method and step, with the correlation for random rankings as null. Errors are over
        texts; there is one draw of random weights.

    Raises:
        OptionError: the model has no list of blocks with its attention layers.
        PromptError, UnknownName: see `faithfulness`.

    Reference: Adebayo et al. 2018, "Sanity Checks for Saliency Maps".
    """
    prompts, chosen = read_texts(texts), choose_methods(methods)
    wanted = resolve(model, prompts, targets)
    examples = [Example(model, t, w) for t, w in zip(prompts, wanted, strict=True)]
    before = [[_sizes(one, e) for e in examples] for one in chosen]
    steps = cascade(model)
    changed = copy.deepcopy(model.module)
    rng = np.random.default_rng(seed)
    about, rows, nulls, notes = [], [], [], {}
    for number, (name, modules) in enumerate(steps):
        for path in modules:
            _permute(changed.get_submodule(path) if path else changed, rng)
        other = load(changed, tokenizer=model.tokenizer, name=f"{model.name}, random", check=False)
        others = [Example(other, e.inputs, e.target) for e in examples]
        for k, one in enumerate(chosen):
            correlations, null = np.full((2, len(examples)), np.nan)
            for i, e in enumerate(others):
                try:
                    after = _sizes(one, e)
                except InterpError as error:
                    notes.setdefault(f"{one.label}, {name}", str(error))
                    continue
                mine = before[k][i]
                where = ~e.special if (~e.special).sum() > 2 else np.ones(len(e), bool)
                correlations[i] = _rank(mine[where], after[where])
                drawn = [_rank(mine[where], rng.random(where.sum())) for _ in range(NULLS)]
                null[i] = np.mean(drawn)
            about.append(
                {
                    "metric": "rank correlation",
                    "method": one.label,
                    "step": number + 1,
                    "randomised": name,
                    "unit": "correlation",
                }
            )
            rows.append(correlations)
            nulls.append(null)
        if progress is not None:
            progress("layers", number + 1, len(steps))
    provenance = result_provenance(
        model,
        "interp.attribution.randomisation_check",
        Prompts(tuple(e.ids for e in examples)),
        seed=seed,
        methods=[one.label for one in chosen],
    )
    return prompt_means(
        about,
        ("method", "step", "randomised"),
        np.stack(rows),
        np.stack(nulls),
        clusters=clusters,
        notes=notes,
        provenance=provenance,
    )


def cascade(model: Model) -> list[tuple[str, list[str]]]:
    """Return the steps of the cascade: a name, and the paths of the modules to randomise."""
    blocks: dict[str, str] = {}
    for site in model.sites:
        parts = site.module.split(".")
        numbers = [i for i, part in enumerate(parts) if part.isdigit()]
        if not numbers:
            raise OptionError(
                f"{model.name}: {site.module} does not lie in a list of blocks, so layers cannot "
                "be randomised one by one"
            )
        blocks.setdefault(".".join(parts[: numbers[0] + 1]), f"{site.stack} layer {site.layer}")
    paths = list(blocks)
    inside = {p: {id(w) for w in model.module.get_submodule(p).parameters()} for p in paths}
    every = set().union(*inside.values())
    embedding = _owners(model.module, _embeddings(model.module))
    after = [
        name
        for name, module in model.module.named_modules()
        if [*module.parameters(recurse=False)]
        and not {id(w) for w in module.parameters(recurse=False)} & every
        and name not in embedding
    ]
    steps = [(f"from {blocks[p]}", [p]) for p in reversed(paths)]
    steps[0] = (steps[0][0], [*after, *steps[0][1]])
    return [*steps, ("and the embeddings", embedding)]


def _embeddings(module: nn.Module) -> list[nn.Module]:
    return [m for m in module.modules() if isinstance(m, nn.Embedding)]


def _owners(module: nn.Module, given: Sequence[nn.Module]) -> list[str]:
    """Return the paths of these modules, and of those that share their weights."""
    weights = {id(w) for m in given for w in m.parameters()}
    return [
        name
        for name, m in module.named_modules()
        if {id(w) for w in m.parameters(recurse=False)} & weights
    ]


def _permute(module: nn.Module, rng: np.random.Generator) -> None:
    with torch.no_grad():
        seen: set[int] = set()
        for weight in module.parameters():
            if id(weight) in seen:  # tied to another
                continue
            seen.add(id(weight))
            order = torch.from_numpy(rng.permutation(weight.numel())).to(weight.device)
            weight.copy_(weight.flatten()[order].reshape(weight.shape))


def _sizes(one: BoundMethod, example: Example) -> Float[Array, " token"]:
    return np.abs(one.of(example).scores)


def _rank(a: Array, b: Array) -> float:
    return float(spearman(np.stack([a, b]))[0, 1])
