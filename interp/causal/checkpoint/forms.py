"""The three forms of a checkpoint without some heads: zeroed, smaller and compact."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from interp.causal.checkpoint.choose import Removed
from interp.causal.checkpoint.indices import HeadIndices, axis_of, columns_of, head_indices
from interp.core.errors import OptionError
from interp.model.calls.sites import Site, softmax_sites

if TYPE_CHECKING:
    from interp.model.model import Model

FoldedMeans = Mapping[tuple[str, int], Tensor]
"""Mean z of every head, `[head, d_v]`, by stack and layer."""
FORMS = ("zeroed", "smaller", "compact")
_HEADS = ("num_heads", "num_attention_heads", "n_heads", "n_head", "num_attn_heads")
_KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_kv_heads")
_GROUPS = ("num_key_value_groups", "num_kv_groups")
_WIDTHS = ("split_size", "all_head_size", "inner_dim", "embed_dim", "hidden_size", "q_size")


@dataclass(frozen=True, eq=False)
class Slimmed:
    """A module without some heads.

    Args:
        module: the module, whose class and config can load it, apart from `changed`.
        means: "none", "folded", or the reason why means are not folded.
        changed: for the compact form, the shapes of parameters and the attributes of modules.
        notes: what was kept that was to be removed.
    """

    module: Any
    means: str
    changed: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def zeroed(model: Model, removed: Removed, means: FoldedMeans | None) -> Slimmed:
    """Return a copy of the same size with the removed heads' weights set to zero.

    The rows of the output projection are zero, which removes the head exactly. Queries are zero
    too, and keys and values of a kv group without heads, where no norm follows them.
    """
    module = copy.deepcopy(model.module)
    text = "none" if means is None else "folded"
    if means is not None and not _have_biases(module, removed):
        means, text = None, f"not folded: {type(module).__name__} has no output bias; zero instead"
    for site, heads in removed.items():
        if heads:
            _fold(module, site, heads, means)
            _zero(module, site, heads, head_indices(model, site))
    return Slimmed(module, text)


def smaller(model: Model, removed: Removed, means: FoldedMeans | None) -> Slimmed:
    """Return a smaller model of the same class, whose config has fewer heads."""
    config = copy.deepcopy(model.config)
    cannot = f"{model.name}: the config of {type(model.module).__name__} cannot express"
    others = [site for site, heads in removed.items() if heads and site.kind != "softmax"]
    if others:
        raise OptionError(
            f"{cannot} fewer heads of {others[0].name} ({others[0].kind}); choose the form zeroed"
        )
    removed = {site: heads for site, heads in removed.items() if site.kind == "softmax"}
    kept = {site: _kept(site, heads) for site, heads in removed.items()}
    sizes = {(len(k.heads), len(k.kv_heads)) for k in kept.values()}
    if len(sizes) > 1 or any(k.filled for k in kept.values()):
        counts = ", ".join(f"{s.name} {len(k.heads)}" for s, k in list(kept.items())[:4])
        raise OptionError(
            f"{cannot} different numbers of heads per layer or kv group ({counts}, ...); keep "
            "equally many (--set equal), or choose the form zeroed or compact"
        )
    [(n_heads, n_kv_heads)] = sizes
    d_head = {site.d_head for site in removed}
    if not hasattr(config, "num_attention_heads") or len(d_head) > 1 or not _own_width(model):
        raise OptionError(f"{cannot} a head dimension of its own; use zeroed or compact")
    config.num_attention_heads = n_heads
    if hasattr(config, "num_key_value_heads"):
        config.num_key_value_heads = n_kv_heads
    config.head_dim = d_head.pop()
    text = "none" if means is None else "folded"
    if means is not None and not _have_biases(model.module, removed):
        if not hasattr(config, "attention_bias"):
            name = type(model.module).__name__
            means, text = None, f"not folded: {name} has no output bias; zero instead"
        else:
            config.attention_bias = True
    try:
        module: Any = type(model.module)(config)
    except (ValueError, TypeError, RuntimeError, AssertionError) as error:
        raise OptionError(f"{cannot} {n_heads} heads ({str(error).splitlines()[0]})") from error
    module = module.to(dtype=model.dtype).eval()
    if means is not None and not _have_biases(module, removed):
        means, text = None, f"not folded: {type(module).__name__} has no output bias; zero instead"
        config.attention_bias = model.config.attention_bias
        module = type(model.module)(config).to(dtype=model.dtype).eval()
    module.load_state_dict(_resized_state(model, kept, removed, means, module, cannot))
    module.generation_config = getattr(model.module, "generation_config", None)
    return Slimmed(module, text)


def _resized_state(
    model: Model,
    kept: Mapping[Site, _Keep],
    removed: Removed,
    means: FoldedMeans | None,
    module: Any,
    cannot: str,
) -> dict[str, Tensor]:
    """Return the tensors of the original, cut to the shapes of the smaller module."""
    source = copy.deepcopy(model.module).cpu()
    folded = _folded_biases(source, removed, means)
    slices = {n: x for site, k in kept.items() for n, x in _slices(model, site, k).items()}
    state, target = source.state_dict(), module.state_dict()
    tensors: dict[str, Tensor] = {}
    for name, like in target.items():
        here = folded.get(name, state.get(name))
        if here is None:  # a bias that the config adds
            here = torch.zeros_like(like)
        elif here.shape != like.shape and name in slices:
            axis, index = slices[name]
            here = here.index_select(axis, index.to(here.device))
        if here.shape != like.shape:
            raise OptionError(f"{cannot} these sizes: the shape of {name} differs")
        tensors[name] = here
    if dropped := [x for x in folded if x not in target]:
        raise OptionError(f"{cannot} the bias {dropped[0]}")
    return tensors


def compact(model: Model, removed: Removed, means: FoldedMeans | None) -> Slimmed:
    """Return a copy whose attention matrices lack the removed heads, layer by layer.

    A layer without heads keeps one, of zeros, and so does a kv group that has fewer heads than the
    largest group left in its layer: the groups of a layer have one size. No layer gets larger.
    """
    module = copy.deepcopy(model.module)
    kept = {site: _kept(site, heads) for site, heads in removed.items()}
    biases = _folded_biases(module, removed, means)
    shapes: dict[str, list[int]] = {}
    attributes: dict[str, dict[str, int]] = {}
    notes = []
    for site, keep in kept.items():
        if keep.filled:  # these heads stay and write nothing
            _zero(module, site, keep.filled, head_indices(model, site))
            number = len(keep.filled)
            several = f"{number} heads" if number > 1 else "one head"
            notes.append(f"{site.name} keeps {several} of zeros")
        if not removed[site]:
            continue
        for name, (axis, index) in _slices(model, site, keep).items():
            owner_name, _, key = name.rpartition(".")
            owner: Any = module.get_submodule(owner_name)
            old = getattr(owner, key)
            new = old.detach().index_select(axis, index.to(old.device)).contiguous()
            setattr(owner, key, nn.Parameter(new, requires_grad=old.requires_grad))
            shapes[name] = list(new.shape)
        for owner_name in {site.module, *_linear_modules(model, site)}:
            changed = _attributes(module.get_submodule(owner_name), site, keep)
            if changed:
                attributes[owner_name] = changed
    for name, bias in biases.items():
        owner_name, _, key = name.rpartition(".")
        setattr(module.get_submodule(owner_name), key, nn.Parameter(bias, requires_grad=False))
        shapes[name] = list(bias.shape)
    text = "none" if means is None else "folded"
    return Slimmed(module, text, {"shapes": shapes, "attributes": attributes}, tuple(notes))


@dataclass(frozen=True, eq=False)
class _Keep:
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]  # one per group of kept heads
    filled: tuple[int, ...]  # removed heads that stay, as zeros, so that groups have one size


def _kept(site: Site, removed: Sequence[int]) -> _Keep:
    groups: dict[int, list[int]] = {}
    for h in range(site.n_heads):
        if h not in removed:
            groups.setdefault(site.kv_head(h), []).append(h)
    groups = groups or {0: []}
    size = max(1, *map(len, groups.values()))
    filled: list[int] = []
    for group, heads in groups.items():
        spare = [h for h in removed if site.kv_head(h) == group]
        filled += spare[: size - len(heads)]
    heads = sorted([*filled, *(h for heads in groups.values() for h in heads)])
    return _Keep(tuple(heads), tuple(groups), tuple(filled))


def _own_width(model: Model) -> bool:
    """Return True if the width of a head is not derived from the number of heads."""
    if getattr(model.config, "head_dim", None) is not None:
        return True
    first = softmax_sites(model.sites)[0]
    return "head_dim" in vars(model.module.get_submodule(first.module))


def _slices(model: Model, site: Site, keep: _Keep) -> dict[str, tuple[int, Tensor]]:
    """Return for every resized parameter of an attention its axis and the indices that stay."""
    located = head_indices(model, site)
    if not located.whole:
        raise OptionError(
            f"{model.name}: the queries, keys and values of {site.name} are not plain matrices "
            "with rows for every head; use the form zeroed"
        )
    rows: dict[str, list[Tensor]] = {}
    for part in ("q", "k", "v"):
        index = located.index[part][list(keep.heads if part == "q" else keep.kv_heads)]
        rows.setdefault(located.module[part], []).append(index.flatten())
    slices: dict[str, tuple[int, Tensor]] = {}
    for name, parts in rows.items():
        index = torch.cat(parts)
        if bool((index < 0).any()):
            raise OptionError(
                f"{model.name}: the rows of single heads in {name} cannot be separated; use "
                "the form zeroed"
            )
        index = index.sort().values
        module: Any = model.module.get_submodule(name)
        slices[f"{name}.weight"] = axis_of(module, "out"), index
        if module.bias is not None:
            slices[f"{name}.bias"] = 0, index
    assert site.projection is not None
    projection = model.module.get_submodule(site.projection)
    slices[f"{site.projection}.weight"] = axis_of(projection, "in"), columns_of(site, keep.heads)
    attention = model.module.get_submodule(site.module)
    for key, parameter in attention.named_parameters(recurse=False):
        if (
            parameter.dim() == 1 and len(parameter) == site.n_heads
        ):  # one number per head, such as a sink
            slices[f"{site.module}.{key}"] = 0, torch.tensor(keep.heads)
    return slices


def _attributes(module: nn.Module, site: Site, keep: _Keep) -> dict[str, int]:
    """Set the sizes that a module remembers; return those that changed."""
    n, n_kv = len(keep.heads), len(keep.kv_heads)
    width, old_width = n * site.d_head, site.n_heads * site.d_head
    wanted = dict.fromkeys(_HEADS, (site.n_heads, n))
    wanted |= dict.fromkeys(_KV_HEADS, (site.n_kv_heads, n_kv))
    wanted |= dict.fromkeys(_GROUPS, (site.n_heads // site.n_kv_heads, n // n_kv))
    wanted |= dict.fromkeys(_WIDTHS, (old_width, width))
    changed = {}
    for key, (old, new) in wanted.items():
        if isinstance(had := vars(module).get(key), int) and had == old != new:
            changed[key] = new
    changed |= linear_sizes(module)
    for key, new in changed.items():
        setattr(module, key, new)
    return changed


def linear_sizes(module: nn.Module) -> dict[str, int]:
    """Set the sizes that a linear module remembers to those of its matrix; return them."""
    sizes: dict[str, int] = {}
    weight: Any = getattr(module, "weight", None)
    if isinstance(module, nn.Linear):
        sizes = {"in_features": weight.shape[1], "out_features": weight.shape[0]}
    elif type(module).__name__ == "Conv1D":
        sizes = {"nx": weight.shape[0], "nf": weight.shape[1]}
    for key, new in sizes.items():
        setattr(module, key, new)
    return sizes


def _linear_modules(model: Model, site: Site) -> set[str]:
    assert site.projection is not None
    return {*head_indices(model, site).module.values(), site.projection}


def _have_biases(module: Any, removed: Removed) -> bool:
    return all(
        getattr(module.get_submodule(site.projection), "bias", None) is not None
        for site, heads in removed.items()
        if heads
    )


def _folded_biases(module: Any, removed: Removed, means: FoldedMeans | None) -> dict[str, Tensor]:
    """Return output biases that hold what the removed heads write on average."""
    biases: dict[str, Tensor] = {}
    for site, heads in removed.items() if means is not None else ():
        if heads and means is not None:
            projection = module.get_submodule(site.projection)
            bias = getattr(projection, "bias", None)
            added = _written(projection, site, heads, means)
            biases[f"{site.projection}.bias"] = added if bias is None else bias.detach() + added
    return biases


def _written(projection: Any, site: Site, heads: Sequence[int], means: FoldedMeans) -> Tensor:
    weight = projection.weight.detach()
    rows = weight.movedim(axis_of(projection, "in"), 0)[columns_of(site, heads).to(weight.device)]
    z = means[site.stack, site.layer][list(heads)].flatten().to(weight.device, torch.double)
    return (z @ rows.double()).to(weight.dtype)


def _fold(module: Any, site: Site, heads: Sequence[int], means: FoldedMeans | None) -> None:
    if means is not None:
        projection = module.get_submodule(site.projection)
        with torch.no_grad():
            projection.bias += _written(projection, site, heads, means)


def _zero(module: Any, site: Site, heads: Sequence[int], located: HeadIndices) -> None:
    projection = module.get_submodule(site.projection)
    left = {site.kv_head(h) for h in range(site.n_heads) if h not in heads}
    kept = {"q": [h for h in range(site.n_heads) if h not in heads], "k": [*left], "v": [*left]}
    with torch.no_grad():
        columns = columns_of(site, heads).to(projection.weight.device)
        projection.weight.index_fill_(axis_of(projection, "in"), columns, 0)
        for part, name in located.module.items():
            index = located.index[part]
            gone = [h for h in range(len(index)) if h not in kept[part]]
            # Falcon gives each head its keys and values, which its group shares as rows
            rows = index[gone].flatten()
            rows = rows[~torch.isin(rows, index[kept[part]])]
            if part in located.normed or bool((rows < 0).any()):
                continue
            owner = module.get_submodule(name)
            rows = rows.to(owner.weight.device)
            owner.weight.index_fill_(axis_of(owner, "out"), rows, 0)
            if owner.bias is not None:
                owner.bias.index_fill_(0, rows, 0)
