"""Heads whose queries and keys share directions that say whether a feature matches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from interp.core.ties import ordered_by
from interp.heads.declaration import experiment
from interp.heads.trials import Trials

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Bool, Float
    from torch import Tensor

Feature = Literal["token", "token_before"]


@experiment(
    unit="attention score",
    requires=("tokens", "causal"),
    chance="0: the null exchanges matching and differing keys",
    end="both",
    task="none: what raises a score is not yet what the head does with it",
)
def contrastive_covariance(
    model,
    lab,
    *,
    feature: Feature = "token",
    n: int = 64,
    max_length: int = 24,
    share: float = 0.9,
):
    """Raise the score of a key that matches the query, by the directions that tell it from others.

    A trial is two prompts of random tokens that differ in one token: in one of them a key matches
    the query (the last token), in the other it does not; position and all other tokens are equal.
    The contrastive covariance of a head is the mean of q k^T over matching keys minus that over
    differing ones. Its leading left and right singular vectors, as many as hold `share` of its
    squared singular values, span a subspace of the queries and one of the keys. Score = how much
    higher the matching key's attention score is (before the softmax, scaled as the model does)
    within these subspaces, in trials that did not choose them: each half of the trials is judged by
    the directions of the other half.

    Cost: One forward pass per prompt, two prompts per trial; a singular value decomposition of
    d_head x d_head per head and half.

    Null: the same with matching and differing keys exchanged in random trials.

    Not for: whether the head then attends to the key, which depends on the scores of all others;
    and free text, where what else differs between the two kinds of keys enters the covariance. With
    rotary positions, queries and keys are the rotated ones, averaged over distances.

    Options:
        feature: `token`: the key's token is that of the query, as for a duplicate-token head.
            `token_before`: the token before the key is that of the query, as for induction.
        n: number of trials.
        max_length: tokens per prompt.
        share: share of the squared singular values that the chosen directions hold. The notes give
            their number and the score of all directions together.

    Reference: Lee, Belinkov, Viegas and Wattenberg 2026 (arXiv 2602.04752). The number of
    directions by a share of the squares is a choice made here.
    """
    import numpy as np
    import torch

    from interp.core.errors import OptionError
    from interp.core.prompts import Prompts
    from interp.model.calls.call import repeat_kv

    if feature not in ("token", "token_before"):
        raise OptionError(f"feature={feature!r} does not exist; known: token, token_before")
    if n < 4 or max_length < 6 or not 0 < share <= 1:
        raise OptionError(
            f"n={n}, max_length={max_length}, share={share}: give at least 4 trials, 6 tokens, and "
            "a share above 0, up to 1"
        )
    rng = np.random.default_rng(lab.seed)
    ids, keys = _pairs(model, rng, n, max_length, feature)
    vectors: dict[Any, list[tuple[Tensor, Tensor, float]]] = {}
    batch = 16
    for start in range(0, 2 * n, batch):
        part, at = ids[start : start + batch], torch.tensor(keys[start : start + batch])

        def visit(site, call, real, at=at) -> None:
            model.require_finite(call, site)
            if call.q is None:
                return
            scale = getattr(call, "scale", call.q.shape[-1] ** -0.5)
            k = repeat_kv(call.k, site.n_heads).double().cpu()
            q = call.q[:, :, -1].double().cpu()
            vectors.setdefault(site, []).append((q, k[torch.arange(len(at)), :, at], scale))

        model.read(Prompts(tuple(part)), visit, last=1)
        lab.progress("contrastive_covariance", min(start + batch, 2 * n), 2 * n)
    signs = torch.from_numpy(rng.choice([-1.0, 1.0], n))
    half = torch.from_numpy(rng.permutation(n) % 2 == 0)
    values, null, whole, ranks = {}, {}, {}, {}
    for site in model.sites:
        if site not in vectors:
            nan = torch.full((n, site.n_heads), torch.nan, dtype=torch.double)
            values[site], null[site] = nan, nan
            continue
        q, k = (torch.cat(x) for x in zip(*((a, b) for a, b, _ in vectors[site]), strict=True))
        scale = float(vectors[site][0][2])
        pairs = q.unflatten(0, (n, 2)), k.unflatten(0, (n, 2))
        differences, ranks[site] = _held_out(*pairs, torch.ones(n), half, share)
        values[site] = scale * differences
        null[site] = scale * _held_out(*pairs, signs, half, share)[0]
        each = (pairs[0] * pairs[1]).sum(-1)
        whole[site] = scale * (each[:, 0] - each[:, 1])
    notes = {}
    if whole:
        every = [(float(values[s][:, h].mean()), s, h) for s in whole for h in range(s.n_heads)]
        score, site, head = ordered_by(every, lambda each: each[0])[0]
        notes["directions"] = (
            f"{site.name} head {head}, which scores highest: {float(ranks[site][head]):.0f} of "
            f"{vectors[site][0][0].shape[-1]} directions, with {score:.3g} of the "
            f"{float(whole[site][:, head].mean()):.3g} by which all directions raise the score"
        )
    return Trials(values, null, "matching and differing keys exchanged in random trials", notes)


def _pairs(
    model: Any, rng: np.random.Generator, n: int, length: int, feature: Feature
) -> tuple[list[tuple[int, ...]], list[int]]:
    """Return the prompts, matching and differing in turn, and the position of the key in each."""
    from interp.core.errors import PromptError
    from interp.core.prompts import bos_id, ordinary_ids

    known, bos = ordinary_ids(model), bos_id(model)
    limit = min((x for x in (model.limit, model.context) if x is not None), default=length)
    length = min(length, limit)
    first = int(bos is not None)
    # no token of a prompt repeats but the query's, and one that stands in its place
    size = length - first
    if len(known) < size + 1 or size < 5:
        raise PromptError(
            f"prompts of {size + 1} different tokens need more than the {len(known)} tokens and "
            f"{limit} positions of {model.name}; use a smaller max_length"
        )
    prompts, keys = [], []
    for _ in range(n):
        drawn = rng.choice(known, size + 1, replace=False).tolist()
        other, tokens = drawn[-1], drawn[:-1]
        at = int(rng.integers(0, size - 3))
        for placed in (tokens[-1], other):
            row = list(tokens)
            row[at] = placed
            prompts.append((*([bos] if first else []), *row))
            keys.append(first + at + int(feature == "token_before"))
    return prompts, keys


def _held_out(
    q: Float[Tensor, "trial two head d_head"],
    k: Float[Tensor, "trial two head d_head"],
    signs: Float[Tensor, " trial"],
    half: Bool[Tensor, " trial"],
    share: float,
) -> tuple[Float[Tensor, "trial head"], Float[Tensor, " head"]]:
    """Return differences of scores in directions of the other half, and the number of these."""
    import torch

    out = torch.empty(q.shape[0], q.shape[2], dtype=torch.double)
    sides = torch.stack([signs, -signs], 1).double()  # trial two
    number = torch.zeros(q.shape[2], dtype=torch.double)
    for judged in (half, ~half):
        used = ~judged
        covariance = torch.einsum("tx,txha,txhb->hab", sides[used], q[used], k[used])
        u, s, v = torch.linalg.svd(covariance / used.sum())
        before = s.square().cumsum(-1) - s.square()
        leading = (before < share * s.square().sum(-1, keepdim=True)).double()
        read = torch.einsum("txha,har,hr,hbr->txhb", q[judged], u, leading, u)
        held = torch.einsum("txha,hra,hr,hrb->txhb", k[judged], v, leading, v)
        out[judged] = torch.einsum("tx,txhb,txhb->th", sides[judged], read, held)
        number += leading.sum(-1) / 2
    return out, number
