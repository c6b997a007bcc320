"""Cost of attribution methods: forward and backward passes of the model, and seconds."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from interp.attribution.declaration import choose_methods
from interp.attribution.evaluation.run import read_texts, resolve
from interp.attribution.example import Example
from interp.core.errors import InterpError
from interp.core.interrupts import holding
from interp.core.prompt_means import prompt_means
from interp.core.prompts import Prompts
from interp.core.result_rows import ResultRows
from interp.model.content import result_provenance
from interp.model.hooks.inference import in_this_thread
from interp.model.model_argument import takes_model

if TYPE_CHECKING:
    from interp.attribution.declaration import AttributionMethod, BoundMethod
    from interp.attribution.target import Targets
    from interp.model.model import Model

COUNTED = {"forward passes": "inputs", "backward passes": "inputs", "seconds": "s"}


@dataclass(eq=False)
class PassCounts:
    """Inputs that ran through a model, forward and backward."""

    forward: int = 0
    backward: int = 0


@holding
@contextmanager
def counted_passes(module: nn.Module) -> Iterator[PassCounts]:
    """Count the inputs of this thread's runs of a model, each input of a batch once."""
    counts = PassCounts()

    def leave(inner: nn.Module, args: tuple, kwargs: dict, output: Any) -> None:
        x = _first_tensor(output)
        if x is None:
            return
        counts.forward += len(x)
        if x.requires_grad and torch.is_grad_enabled():
            x.register_hook(count)

    def count(g: Tensor) -> None:
        counts.backward += len(g)

    handle = module.register_forward_hook(in_this_thread(leave), with_kwargs=True)
    try:
        yield counts
    finally:
        handle.remove()


def _first_tensor(output: Any) -> Tensor | None:
    if isinstance(output, Tensor):
        return output
    values = output.values() if hasattr(output, "values") else output
    return next((x for x in values if isinstance(x, Tensor) and x.dim() > 1), None)


@takes_model
def method_cost(
    model: Model,
    texts: str | Path | Sequence[str],
    methods: Iterable[str | AttributionMethod | BoundMethod],
    targets: Targets | None = None,
) -> ResultRows:
    """Measure what each attribution method costs per text: passes of the model, and seconds.

    Every method gets a fresh example, so that nothing is shared between methods; the pass that
    computes the target's value is included. Passes are counted in inputs: a batch of eight is
    eight. Runs of single layers are not passes of the model, and count only as seconds. Seconds are
    of this machine, in this process; the first text warms up and is measured twice.

    Args:
        model: a loaded model, or what `load` accepts.
        texts: texts, or the path of a file with one per line.
        methods: names, with options as `name:option=value`, or methods.
        targets: as for `faithfulness`.

    Returns:
        A row per method and kind of cost; NaN where a method fails, with its message in the notes.

    Raises:
        PromptError, UnknownName, OptionError: see `faithfulness`.
    """
    prompts, chosen = read_texts(texts), choose_methods(methods)
    wanted = resolve(model, prompts, targets)
    costs = np.full((len(COUNTED), len(chosen), len(prompts)), np.nan)
    notes, ids = {}, []
    for i, (text, target) in enumerate(zip(prompts, wanted, strict=True)):
        ids.append(Example(model, text, target).ids)
        for k, one in enumerate(chosen):
            for _ in range(2 if i == 0 else 1):
                try:
                    with counted_passes(model.module) as passes:
                        began = time.perf_counter()
                        one.of(Example(model, text, target))
                        spent = time.perf_counter() - began
                except InterpError as error:
                    notes.setdefault(one.label, str(error))
                    break
                costs[:, k, i] = passes.forward, passes.backward, spent
    provenance = result_provenance(
        model,
        "interp.attribution.method_cost",
        Prompts(tuple(ids)),
        methods=[one.label for one in chosen],
    )
    about = [
        {"metric": kind, "method": one.label, "unit": unit}
        for kind, unit in COUNTED.items()
        for one in chosen
    ]
    values = costs.reshape(-1, len(prompts))
    return prompt_means(about, ("method",), values, notes=notes, provenance=provenance)
