"""Direct effects of all heads on logits, at many positions of many prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor

from interp.lens.finish import Finish, finish, model_layers, predicting_stack
from interp.model.locate.head_outputs import head_outputs

if TYPE_CHECKING:
    from interp.model.calls.sites import Site
    from interp.model.capture import ActivationCache
    from interp.model.model import Model

BATCH = 8  # prompts whose head outputs are held at once


@dataclass(frozen=True)
class LogitRead:
    """A position whose logits are read.

    Args:
        prompt: index of the prompt.
        row: the position that predicts.
        sources: key positions through which a head's output counts; all of them if None.
        layer: the only layer whose heads are measured; all if None.
    """

    prompt: int
    row: int
    sources: tuple[int, ...] | None = None
    layer: int | None = None


def direct_effects(
    model: Model,
    ids: Sequence[Sequence[int]],
    reads: Sequence[LogitRead],
    towards: Callable[[int], Float[Tensor, " d_vocab"]],
) -> dict[Site, Float[Tensor, "read head"]]:
    """Compute how much every head adds by itself to a combination of logits, at every read.

    The scale of the final norm is held at its value on the prompt; effects through later layers are
    not included. Every prompt runs once; those of equal length run together, so nothing is padded.
    Heads of layers that a read does not measure are 0 there.
    """
    stack = predicting_stack(model)
    layers = {read.layer for read in reads}
    sites = [s for s in model.sites if s.stack == stack and {None, s.layer} & layers]
    weights = {site: model.weights_of(site) for site in sites}
    effects = {site: torch.zeros(len(reads), site.n_heads, dtype=torch.double) for site in sites}
    names = ["resid_post", "z"]
    names += ["map", "v"] if any(read.sources is not None for read in reads) else []
    last = model_layers(model, stack)[-1]
    end: Finish | None = None
    for which in _batches(ids, {read.prompt for read in reads}):
        prompts = [tuple(ids[i]) for i in which]
        some = None if None in layers else sorted({x for x in layers if x is not None} | {last})
        cache = model.capture(prompts, names, stack=stack, layers=some)
        end = end or finish(model, cache, stack)  # checked on the first prompts
        mine = [(k, which.index(r.prompt), r) for k, r in enumerate(reads) if r.prompt in which]
        streams = torch.stack([cache["resid_post", last, stack][i, r.row] for _, i, r in mine])
        wanted = torch.stack([towards(k).to(streams.device) for k, _, _ in mine])
        directions = end.back_all(wanted, streams)
        for site in sites:
            here = [at for at, (_, _, r) in enumerate(mine) if r.layer in (None, site.layer)]
            if here:
                z = torch.stack([_output(cache, site, *mine[at][1:]) for at in here])
                whole = torch.stack([_whole_output(cache, site, *mine[at][1:]) for at in here])
                read = head_outputs(weights[site], whole).along(directions[here])
                rows = [mine[at][0] for at in here]
                effects[site][rows] = (z * read).sum(-1).cpu()
    return effects


def difference(right: int, wrong: int, size: int) -> Float[Tensor, " d_vocab"]:
    """Return the weights of the logit of a token minus that of another."""
    out = torch.zeros(size, dtype=torch.double)
    out[right] += 1
    out[wrong] -= 1
    return out


def against(right: int, others: Sequence[int] | Tensor, size: int) -> Float[Tensor, " d_vocab"]:
    """Return the weights of the logit of a token minus the mean logit of some other tokens."""
    out = torch.zeros(size, dtype=torch.double)
    out[torch.as_tensor(others)] = -1 / len(others)
    out[right] += 1
    return out


def _output(
    own: ActivationCache, site: Site, item: int, read: LogitRead
) -> Float[Tensor, "head d_v"]:
    """Return the heads' outputs at a position, from some keys alone if these are given."""
    if read.sources is None:
        return _whole_output(own, site, item, read)
    keys = list(read.sources)
    pattern = own["map", site.layer, site.stack][item, :, read.row][:, keys].double()
    values = own["v", site.layer, site.stack][item][:, keys].double()
    groups = [site.kv_head(head) for head in range(site.n_heads)]
    return torch.einsum("hk,hkv->hv", pattern, values[groups])


def _whole_output(
    own: ActivationCache, site: Site, item: int, read: LogitRead
) -> Float[Tensor, "head d_v"]:
    return own["z", site.layer, site.stack][item, :, read.row].double()


def _batches(ids: Sequence[Sequence[int]], asked: set[int]) -> list[list[int]]:
    """Return the indices of the prompts in batches of one length."""
    by_length: dict[int, list[int]] = {}
    for i in sorted(asked):
        by_length.setdefault(len(ids[i]), []).append(i)
    return [
        members[first : first + BATCH]
        for members in by_length.values()
        for first in range(0, len(members), BATCH)
    ]
