"""What heads write, and how evenly: no-op heads and outliers among the heads' results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.heads.outliers.passes import (
    HeadValues,
    captured,
    each_call,
    reduced,
    sees,
    visible_mean,
)
from interp.model.given import takes_model
from interp.model.hooks.calls import Call, repeat_kv
from interp.model.locate.sites import Site
from interp_kernels.reductions import RightProduct

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def value_shortfall(model: Model, prompts: Any, *, engine: str = "auto") -> HeadValues:
    """How much smaller than the usual values are those a head attends to, `[prompt, head]`.

    1 - (sum over keys of attention times value norm) / (mean value norm of the keys in sight),
    averaged over the queries that see at least two keys: 0 for a head that attends evenly, 1 for
    one that attends to nothing but values of size zero, negative for one that seeks large values.

    Unit: share of the usual value norm.

    Cost: One forward pass per prompt.

    Null: 0 for even attention.

    Not for: use alone; `written_share` says whether the head is silent.

    Reference: Bondarenko et al. 2023.
    """

    def measure(site: Site, call: Call, engine: str) -> tuple[Tensor, ...]:
        size = repeat_kv(call.v.float().norm(dim=-1), call.n_heads)
        got = reduced(call, RightProduct(size[..., None]), engine)[..., 0].double()
        usual = visible_mean(call, size.double())
        several = (sees(call) > 1) & (usual > 0)
        short = torch.where(several, 1 - got / usual.clamp_min(1e-30), torch.nan)
        return (short.nanmean(-1),)

    found = each_call(model, prompts, measure, engine=engine)
    return {site: x[0] for site, x in found.items()}


@takes_model
def written_share(model: Model, prompts: Any) -> HeadValues:
    """Norm of what a head writes over the norm of the stream it is added to, `[prompt, head]`.

    The mean over positions of |z W_O| / |resid_pre|; near 0 for a head that does nothing, whatever
    its attention looks like.

    Unit: share of the stream's norm.

    Cost: One forward pass per prompt.

    Null: the same on random weights, as the experiment `no_op_written` has it.

    Not for: post-norm models.

    Reference: Bondarenko et al. 2023.
    """

    def measure(site: Site, x: dict[str, Tensor]) -> Tensor:
        stream = x["resid_pre"].norm(dim=-1)
        return (x["result"].norm(dim=-1) / stream[..., None].clamp_min(1e-30)).mean(1)

    return captured(model, prompts, ("result", "resid_pre"), measure)


@takes_model
def result_kurtosis(model: Model, prompts: Any) -> HeadValues:
    """Kurtosis of all entries that a head writes for a prompt; see `kurtosis`.

    Unit: kurtosis.

    Cost: One forward pass per prompt.

    Null: 3 for Gaussian entries.

    Not for: statements that do not depend on the basis.

    Reference: Bondarenko et al. 2023.
    """
    return captured(model, prompts, ("result",), lambda site, x: kurtosis(_rows(x["result"])))


@takes_model
def result_inf_norm(model: Model, prompts: Any) -> HeadValues:
    """The largest entry, in size, that a head writes for a prompt.

    Unit: size of an entry.

    Cost: One forward pass per prompt.

    Null: the same on random weights, as the experiment `outliers_inf_norm` has it.

    Not for: comparing models.

    Reference: Bondarenko et al. 2023.
    """
    return captured(model, prompts, ("result",), lambda site, x: _rows(x["result"]).abs().amax(-1))


def kurtosis(x: Float[Tensor, "*rows entries"], *, beside: float = 0.0) -> Float[Tensor, "*rows"]:
    """Fourth central moment over the squared variance: 3 for a Gaussian, about n for a spike of n.

    Not the excess; the variance is unbiased. 0 where all entries are equal.

    Args:
        beside: added to the squared variance; Bondarenko et al. add 1e-6 (run_clm.py), which for
            small activations is more than the variance and takes the kurtosis to 0.
    """
    centred = x - x.mean(-1, keepdim=True)
    below = x.var(-1) ** 2 + beside
    return torch.where(below > 0, (centred**4).mean(-1) / below.clamp_min(1e-300), 0.0)


def _rows(result: Float[Tensor, "batch pos head d_model"]) -> Float[Tensor, "batch head entries"]:
    return result.transpose(1, 2).flatten(2)
