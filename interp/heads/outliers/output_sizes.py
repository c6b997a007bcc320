"""Size and concentration of head outputs: no-op heads and outliers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from interp.heads.one_call import reduced, sees, visible_mean
from interp.heads.outliers.passes import HeadValues, captured, each_call
from interp.model.calls.call import Call, repeat_kv
from interp.model.calls.sites import Site
from interp.model.model_argument import takes_model
from interp_kernels.reductions import RightProduct

if TYPE_CHECKING:
    from interp.model.model import Model


@takes_model
def value_shortfall(model: Model, prompts: Any, *, engine: str = "auto") -> HeadValues:
    """Measure how far a head's attended values fall short of the usual norm, `[prompt, head]`.

    1 - (sum over keys of attention times value norm) / (mean value norm of the visible keys),
    averaged over the queries that see at least two keys: 0 for a head that attends uniformly, 1 for
    one that attends only to values of size zero, negative for one that prefers large values.

    Unit: share of the usual value norm.

    Cost: One forward pass per prompt.

    Null: 0 for uniform attention.

    Not for: use alone; `written_share` shows whether the head writes little.

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
    """Measure the norm of a head's output over that of the residual stream, `[prompt, head]`.

    The mean over positions of |result| / |resid_pre|, where `result` is what the head adds to the
    stream; near 0 for a no-op head, whatever its attention pattern.

    Unit: share of the stream's norm.

    Cost: One forward pass per prompt.

    Null: the same measure on random weights, as in the experiment `no_op_written`.

    Not for: models that normalise the sum of stream and attention, such as BERT.

    Reference: Bondarenko et al. 2023.
    """

    def measure(site: Site, x: dict[str, Tensor]) -> Tensor:
        stream = x["resid_pre"].norm(dim=-1)
        return (x["result"].norm(dim=-1) / stream[..., None].clamp_min(1e-30)).mean(1)

    return captured(model, prompts, ("result", "resid_pre"), measure)


@takes_model
def result_kurtosis(model: Model, prompts: Any) -> HeadValues:
    """Measure the kurtosis of all entries that a head writes for a prompt; see `kurtosis`.

    Unit: kurtosis.

    Cost: One forward pass per prompt.

    Null: 3 for Gaussian entries.

    Not for: claims that should not depend on the basis.

    Reference: Bondarenko et al. 2023.
    """
    return captured(model, prompts, ("result",), lambda site, x: kurtosis(_rows(x["result"])))


@takes_model
def result_inf_norm(model: Model, prompts: Any) -> HeadValues:
    """Measure the largest absolute entry that a head writes for a prompt.

    Unit: size of an entry.

    Cost: One forward pass per prompt.

    Null: the same measure on random weights, as in the experiment `outliers_inf_norm`.

    Not for: comparing models.

    Reference: Bondarenko et al. 2023.
    """
    return captured(model, prompts, ("result",), lambda site, x: _rows(x["result"]).abs().amax(-1))


def kurtosis(x: Float[Tensor, "*rows entries"], *, beside: float = 0.0) -> Float[Tensor, "*rows"]:
    """Compute the fourth central moment over the squared variance.

    It is 3 for a Gaussian and about n for a single spike among n entries.

    This is not the excess kurtosis; the variance is unbiased. The result is 0 if all entries are
    equal.
    """
    centred = x - x.mean(-1, keepdim=True)
    below = x.var(-1) ** 2 + beside
    return torch.where(below > 0, (centred**4).mean(-1) / below.clamp_min(1e-300), 0.0)


def _rows(result: Float[Tensor, "batch pos head d_model"]) -> Float[Tensor, "batch head entries"]:
    return result.transpose(1, 2).flatten(2)
