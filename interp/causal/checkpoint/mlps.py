"""MLPs that are removed from a checkpoint: their matrices, and what replaces their output."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.causal.checkpoint.forms import Slimmed, linear_sizes
from interp.causal.checkpoint.indices import axis_of, plain_linear
from interp.causal.gating.units import block_of, located_mlps
from interp.core.errors import OptionError
from interp.core.interrupts import held, holding
from interp.model.calls.sites import Where

if TYPE_CHECKING:
    from interp.model.model import Model

MlpMeans = Mapping[str, Float[Tensor, " d_model"]]
"""Mean output of every removed MLP, by label."""


@dataclass(frozen=True)
class RemovedMlp:
    """Matrices of an MLP.

    Args:
        label: such as L0MLP.
        output: name of the linear module that writes to the residual stream.
        inputs: names of the linear modules that make its hidden units.
        width: number of hidden units.
    """

    label: str
    output: str
    inputs: tuple[str, ...]
    width: int


def removed_mlps(model: Model, labels: Sequence[str]) -> tuple[RemovedMlp, ...]:
    """Return the matrices of MLPs by name, such as L0MLP."""
    known = dict(located_mlps(model)) if labels else {}
    mlps = []
    for label in labels:
        if label not in known or list(labels).count(label) > 1:
            what = "is named twice" if label in known else "does not exist"
            raise OptionError(
                f"{model.name}: the MLP {label} {what}; the MLPs are {', '.join(known)}"
            )
        name = known[label].module
        module = model.module.get_submodule(name)
        if not plain_linear(module):
            raise OptionError(
                f"{model.name}: {label} cannot be removed: a {type(module).__name__} writes its "
                "output, not a plain float matrix; remove heads only"
            )
        weight: Any = module.weight
        width = int(weight.shape[axis_of(module, "in")])
        mlps.append(RemovedMlp(label, name, _inputs(model, known[label], width), width))
    if len({mlp.output for mlp in mlps}) < len(mlps) or _shared(model, mlps):
        raise OptionError(f"{model.name}: MLPs cannot be removed: layers share their weights")
    return tuple(mlps)


def _inputs(model: Model, where: Where, width: int) -> tuple[str, ...]:
    """Return the linear modules of the block that write `width` units, or gates and units."""
    attentions = tuple(f"{site.module}." for site in model.sites)
    block = block_of(model, where)
    names = []
    for name, module in model.module.get_submodule(block).named_modules(prefix=block):
        if name == where.module or not plain_linear(module) or name.startswith(attentions):
            continue
        weight: Any = module.weight
        if int(weight.shape[axis_of(module, "out")]) in (width, 2 * width):
            names.append(name)
    return tuple(names)


def _shared(model: Model, mlps: Sequence[RemovedMlp]) -> bool:
    outputs = [where.module for _, where in located_mlps(model)] if mlps else []
    return any(outputs.count(mlp.output) > 1 for mlp in mlps)


@held()
@torch.no_grad()
def mlp_means(model: Model, mlps: Sequence[RemovedMlp], prompts: Any) -> dict[str, Tensor]:
    """Return the mean output of MLPs over the tokens of prompts, in float64."""
    total: dict[str, Tensor] = {}
    count = 0
    for ids in prompts.ids:
        with ExitStack() as stack:
            for mlp in mlps:

                def add(module: nn.Module, args: Any, output: Tensor, at: str = mlp.label) -> None:
                    total[at] = total.get(at, 0) + output.double().flatten(0, -2).sum(0)

                owner = model.module.get_submodule(mlp.output)
                stack.callback(owner.register_forward_hook(add).remove)
            model.run({"input_ids": torch.tensor([list(ids)], device=model.device)})
        count += len(ids)
    return {label: x / count for label, x in total.items()}


@holding
@contextmanager
def without_output(
    module: nn.Module, mlps: Sequence[RemovedMlp], means: MlpMeans | None
) -> Iterator[None]:
    """Replace the output of MLPs by zero or their mean in this block."""
    with ExitStack() as stack:
        for mlp in mlps:
            other = None if means is None else means[mlp.label]

            def hook(module: nn.Module, args: Any, out: Tensor, other: Any = other) -> Tensor:
                return torch.zeros_like(out) if other is None else other.to(out).expand_as(out)

            owner = module.get_submodule(mlp.output)
            stack.callback(owner.register_forward_hook(hook).remove)
        yield


def without_mlps(
    model: Model, slim: Slimmed, mlps: Sequence[RemovedMlp], means: MlpMeans | None, form: str
) -> tuple[Slimmed, str]:
    """Return the module without MLPs, and "none", "folded" or why their means are not folded.

    "zeroed" keeps the sizes. "compact" and "smaller" keep one hidden unit of zeros; "smaller" needs
    a config with a width for every layer, or the removal of every MLP.
    """
    if not mlps:
        return slim, "none"
    module = slim.module
    text = "none" if means is None else "folded"
    has_bias = all(module.get_submodule(mlp.output).bias is not None for mlp in mlps)
    if means is not None and form != "compact" and not has_bias:
        means = None
        text = f"not folded: the MLPs of {type(module).__name__} have no output bias; zero instead"
    shapes: dict[str, list[int]] = {}
    with torch.no_grad():
        for mlp in mlps:
            for name in (mlp.output, *mlp.inputs):
                one = module.get_submodule(name)
                one.weight.zero_()
                if one.bias is not None:
                    one.bias.zero_()
            if means is not None:
                owner = module.get_submodule(mlp.output)
                mean = means[mlp.label].to(owner.weight)
                if owner.bias is None:
                    shapes[f"{mlp.output}.bias"] = list(mean.shape)
                owner.bias = nn.Parameter(mean.clone(), requires_grad=False)
    if form == "zeroed":
        return slim, text
    cut = dict(_cuts(module, mlps))
    notes = slim.notes + tuple(f"{mlp.label} keeps one hidden unit of zeros" for mlp in mlps)
    if form == "smaller":
        return replace(slim, module=_resized(model, module, mlps, cut), notes=notes), text
    attributes: dict[str, dict[str, int]] = {}
    for name, (axis, index) in cut.items():
        owner_name, _, key = name.rpartition(".")
        one = module.get_submodule(owner_name)
        new = getattr(one, key).detach().index_select(axis, index.to(one.weight.device)).clone()
        setattr(one, key, nn.Parameter(new, requires_grad=False))
        shapes[name] = list(new.shape)
        attributes[owner_name] = linear_sizes(one)
    changed = {
        "shapes": dict(slim.changed.get("shapes", {})) | shapes,
        "attributes": dict(slim.changed.get("attributes", {})) | attributes,
    }
    return replace(slim, changed=changed, notes=notes), text


def _cuts(module: Any, mlps: Sequence[RemovedMlp]) -> Iterator[tuple[str, tuple[int, Tensor]]]:
    """Yield every resized parameter with its axis and the indices that stay."""
    for mlp in mlps:
        owner = module.get_submodule(mlp.output)
        yield f"{mlp.output}.weight", (axis_of(owner, "in"), torch.tensor([0]))
        for name in mlp.inputs:
            one = module.get_submodule(name)
            axis = axis_of(one, "out")
            index = torch.arange(0, one.weight.shape[axis], mlp.width)
            if one.bias is not None:
                yield f"{name}.bias", (0, index)
            yield f"{name}.weight", (axis, index)


def _resized(
    model: Model,
    module: Any,
    mlps: Sequence[RemovedMlp],
    cut: Mapping[str, tuple[int, Tensor]],
) -> Any:
    """Return a module of the same class whose config has the widths."""
    config = copy.deepcopy(module.config)
    every = [label for label, _ in located_mlps(model)]
    gone = {mlp.label for mlp in mlps}
    width = getattr(config, "intermediate_size", None)
    cannot = f"{model.name}: the config of {type(module).__name__} cannot express"
    if isinstance(width, (list, tuple)) and len(width) == len(every):
        config.intermediate_size = [
            1 if x in gone else w for x, w in zip(every, width, strict=True)
        ]
    elif isinstance(width, int) and gone == {*every}:
        config.intermediate_size = 1
    else:
        raise OptionError(
            f"{cannot} the width of these MLPs ({', '.join(sorted(gone)[:3])}, ...); choose the "
            "form zeroed or compact"
        )
    new = type(module)(config).to(dtype=model.dtype).eval()
    state = module.state_dict()
    for name, like in new.state_dict().items():
        if name in cut and name in state:
            axis, index = cut[name]
            state[name] = state[name].index_select(axis, index.to(state[name].device))
        if name not in state or state[name].shape != like.shape:
            raise OptionError(f"{cannot} these sizes: the shape of {name} differs")
    new.load_state_dict(state)
    new.generation_config = getattr(model.module, "generation_config", None)
    return new
