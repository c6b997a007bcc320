"""RCStat: attention logits of the generated text to the prompt, relative to those to itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.attribution.declaration import Scores, attribution
from interp.attribution.example import Example
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.calls.sites import Site

SHARE, FEWEST = 4, 2  # by default the last quarter, and at least two tokens, count as generated


@attribution(unit="logit", signed=False, needs="patterns", softmax_only=True)
def rcstat(example: Example, *, generated: int = 0, heads: int = 0, stack: str = "") -> Scores:
    """Compute how far logits of the output to a prompt token exceed those within the output.

    The last tokens of the input count as generated, the others as the prompt. For each head, X is
    the logit before the softmax (scaled, before masks) of a generated query to the prompt token,
    drawn uniformly over generated queries; Y is the logit of a generated query to a generated key
    that it sees, drawn uniformly over these pairs. The score of the prompt token is the expectation
    of max(X - Y, 0), X and Y independent, averaged over heads. It is computed exactly, without the
    paper's upper bound. Scores of generated tokens are 0. It does not depend on the target. The
    notes name the heads with the largest expectation over the whole prompt.

    Not for: explanations: a large logit does not show that the model uses the token, nor, since
    logits are compared across queries, that the token receives attention. `bundled:deceive`
    misleads it.

    Args:
        example: the input and its target.
        generated: number of last tokens that count as generated; 0 for a quarter of the input, at
            least two.
        heads: number of heads with the largest expectation over the whole prompt to average over; 0
            for all.
        stack: name of the stack, if the model has several.

    Reference: Mahapatra et al. 2025, "RCStat: A Statistical Framework for using Relative
    Contextualization in Transformers" (arXiv 2506.19549).
    """
    from interp.attribution.decomposition import one_stack

    n, sites = len(example), one_stack(example, stack)
    count = generated or max(FEWEST, n // SHARE)
    if not 1 <= count < n:
        raise OptionError(
            f"generated={generated} leaves no prompt or no output of {n} tokens; give 1 to {n - 1}"
        )
    if not 0 <= heads <= sum(s.n_heads for s in sites):
        raise OptionError(
            f"heads={heads} is out of range; give 0 to {sum(s.n_heads for s in sites)}"
        )
    excesses: dict[Site, Tensor] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if site in sites:
            rows = torch.arange(n - count, n, device=call.z.device)
            logits = call.scores(rows)[0].double().cpu()
            excesses[site] = relative(logits, call.visible(rows)[0].cpu(), n - count)

    example.model.read(example.inputs, visit, last=1)
    names = [f"L{s.layer}H{h}" for s in sites for h in range(s.n_heads)]
    each = torch.cat([excesses[s] for s in sites])  # [head of any layer, prompt]
    order = each.mean(1).argsort(descending=True).tolist()
    chosen = order[:heads] if heads else order
    scores = torch.zeros(n, dtype=torch.double)
    scores[: n - count] = each[chosen].mean(0)
    largest = ", ".join(f"{names[i]} {float(each[i].mean()):.3g}" for i in order[:3])
    notes = {"generated": count, "expected excess": float(each.mean()), "largest heads": largest}
    return Scores(scores.numpy(), notes=notes)


def relative(
    logits: Float[Tensor, "head generated key"],
    seen: Bool[Tensor, "#head generated key"],
    start: int,
) -> Float[Tensor, "head prompt"]:
    """Compute the mean of max(X - Y, 0) for each prompt key, over X and Y independent."""
    seen = seen.expand(logits.shape)
    rows = []
    for x, there in zip(logits, seen, strict=True):
        output_logits = x[:, start:][there[:, start:]].sort().values
        sums = torch.cat([output_logits.new_zeros(1), output_logits.cumsum(0)])
        cross = x[:, :start].contiguous()
        below = torch.searchsorted(output_logits, cross)
        excess = (below * cross - sums[below]) / max(len(output_logits), 1)
        counted = there[:, :start]
        excess = torch.where(counted, excess, 0.0).sum(0)
        rows.append(excess.clamp_min(0) / counted.sum(0).clamp_min(1))
    return torch.stack(rows)
