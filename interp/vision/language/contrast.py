"""Answers against a second run that sees less of the picture: without it, AvisC, DAMRO.

What the second run predicts as well does not come from the picture. It is subtracted from the
logits; tokens that are unlikely in the first run cannot win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import UnknownName
from interp.core.interrupts import held
from interp.core.result_rows import ResultRows
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.inference import in_this_thread
from interp.vision.language.importance import class_attention
from interp.vision.language.prompts import (
    PicturePrompt,
    logits_after,
    prompts_with_pictures,
    provenance,
    require_option,
    text_sites,
)
from interp.vision.language.result import token_effects

if TYPE_CHECKING:
    from interp.model.model import Model

BRANCHES = ("no image", "blind", "outliers")


def contrast_pictures(
    model: Model,
    inputs: Mapping[str, Any],
    answers: Sequence[int],
    *,
    branches: Sequence[str] = ("no image", "blind"),
    alpha: float = 1.0,
    beta: float = 0.1,
    gamma: float = 0.5,
    lam: float = 1.0,
    outliers: int = 10,
    n_random: int = 3,
    seed: int = 0,
) -> ResultRows:
    """Subtract a second run on less of the picture, and measure p(answer).

    The second run sees the tokens of the picture that a branch keeps; the embeddings of the others
    are zero. The logits are (1 + alpha) l - alpha l', without tokens of l < log beta + max l.

    `no image` keeps none. `blind` keeps the blind tokens of AvisC: attention of the last token,
    averaged over heads and over the layers that attend to the picture most (the fewest whose shares
    of the mass on it sum to `gamma`), at least `lam` standard deviations above the mean. `outliers`
    keeps the patches that the class token of the vision tower attends to most, as in DAMRO.

    Args:
        model: the model.
        inputs: prompts with pictures, from `model.inputs(text=..., images=...)`.
        answers: the token of the answer to each prompt.
        branches: second runs to compare.
        alpha: weight of the second run.
        beta: smallest probability of a token, relative to the most likely one.
        gamma: see above.
        lam: see above.
        outliers: number of patches of the branch `outliers`, read in the last layer of the tower.
        n_random: random sets of the null, as large as what a branch keeps.
        seed: seed of the random sets.

    Returns:
        A row per branch with the change of p(answer); see `token_effects` for the columns.

    Raises:
        UnknownName: there is no such branch.
        OptionError: an option is out of its range.
        PromptError: the inputs hold no pictures, the answers do not fit, or the tower has no class
            token or other patches than the text has placeholders.
        UnreadableAttention: the model does not read pictures inside text.

    Reference: Woo et al. 2024 (AvisC, arXiv 2405.17820); Gong et al. 2024 (DAMRO, arXiv
    2410.04514); combination as in both.

    Unit: change of the probability of the answer.

    Cost: One run on the prompts, and one per branch and random set.

    Null: random sets of as many tokens of the picture.

    Not for: answers that the first run already gives for sure: nothing is left to gain.
    """
    for branch in branches:
        if branch not in BRANCHES:
            raise UnknownName("branch", branch, BRANCHES)
    require_option(len(branches) > 0, "branches: give at least one")
    require_option(alpha >= 0, f"alpha={alpha:g}: give 0 or more")
    require_option(0 < beta <= 1, f"beta={beta:g}: give a number above 0, up to 1")
    require_option(0 < gamma <= 1, f"gamma={gamma:g}: give a number above 0, up to 1")
    require_option(outliers >= 1 and n_random >= 1, "outliers and draws are at least 1")
    view, prompts = prompts_with_pictures(model, inputs, answers)
    rng = np.random.default_rng(seed)
    shape = len(branches), len(prompts)
    change, random, counts = np.zeros(shape), np.full(shape, np.nan), np.zeros(shape)
    chosen: list[list[tuple[int, ...]]] = [[] for _ in branches]
    for j, prompt in enumerate(prompts):
        places = prompt.image.nonzero().flatten()
        first = logits_after(view, prompt.inputs)
        before = float(first.softmax(-1)[prompt.answer])

        def effect(
            keep: Tensor,
            prompt: PicturePrompt = prompt,
            first: Tensor = first,
            before: float = before,
        ) -> float:
            second = _seeing_only(view, prompt, keep)
            p = combined(first, second, alpha, beta).softmax(-1)[prompt.answer]
            return float(p) - before

        for i, branch in enumerate(branches):
            keep = places[_kept(view, prompt, branch, gamma, lam, outliers)]
            change[i, j], counts[i, j] = effect(keep), len(keep)
            if 0 < len(keep) < len(places):
                sets = [places[rng.permutation(len(places))[: len(keep)]] for _ in range(n_random)]
                random[i, j] = np.mean([effect(s) for s in sets])
            chosen[i].append(tuple(keep.tolist()))
    options = {
        "alpha": alpha,
        "beta": beta,
        "gamma": gamma,
        "lam": lam,
        "outliers": outliers,
        "draws": n_random,
        "seed": seed,
        "answers": tuple(map(int, answers)),
    }
    settings = provenance(view, inputs, "interp.vision.language.contrast_pictures", **options)
    measured = "contrast", "probability of the answer"
    return token_effects(branches, measured, change, random, counts, chosen, prompts, settings)


def combined(
    first: Float[Tensor, " vocabulary"],
    second: Float[Tensor, " vocabulary"],
    alpha: float,
    beta: float,
) -> Float[Tensor, " vocabulary"]:
    """Return (1 + alpha) first - alpha second; -inf for tokens unlikely in the first run."""
    contrasted = (1 + alpha) * first - alpha * second
    return contrasted.masked_fill(first < np.log(beta) + first.max(), -torch.inf)


def blind_tokens(
    weights: Float[Tensor, "layer image_token"], gamma: float, lam: float
) -> Bool[Tensor, " image_token"]:
    """Return the tokens of a picture whose attention stands out, as AvisC defines them."""
    mass = weights.sum(-1)
    share = mass / mass.sum()
    order = share.argsort(descending=True, stable=True)
    number = int((share[order].cumsum(0) < gamma - 1e-12).sum()) + 1
    mean = weights[order[:number]].mean(0)
    return mean >= mean.mean() + lam * mean.std()


def _kept(
    view: Model, prompt: PicturePrompt, branch: str, gamma: float, lam: float, outliers: int
) -> Bool[Tensor, " image_token"]:
    number = int(prompt.image.sum())
    if branch == "no image":
        return torch.zeros(number, dtype=torch.bool)
    if branch == "outliers":
        require_option(outliers < number, f"outliers={outliers}: a picture has {number} tokens")
        keep = torch.zeros(number, dtype=torch.bool)
        best = class_attention(view, prompt).argsort(descending=True, stable=True)
        keep[best[:outliers]] = True
        return keep
    rows: dict[Site, Tensor] = {}

    def visit(site: Site, call: Call, real: Tensor) -> None:
        if not site.of_tower:
            at = torch.tensor([call.z.shape[2] - 1], device=call.z.device)
            rows[site] = call.pattern(at)[:, :, 0].double().mean(1).cpu()

    view.read(prompt.inputs, visit)
    weights = torch.stack([rows[s][0][prompt.image] for s in text_sites(view)])
    return blind_tokens(weights, gamma, lam)


@held()
def _seeing_only(view: Model, prompt: PicturePrompt, keep: Tensor) -> Tensor:
    """Return the last logits with the embeddings of all other tokens of the picture at zero."""
    hidden = prompt.image.clone()
    hidden[keep] = False
    where = text_sites(view)[0].streams["resid_pre"]
    block = view.module.get_submodule(where.module)

    def without(module: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        x = args[0] if args else kwargs["hidden_states"]
        x = x.masked_fill(hidden.to(x.device)[:, None], 0)
        return ((x, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": x})

    handle = block.register_forward_pre_hook(in_this_thread(without), with_kwargs=True)
    try:
        return logits_after(view, prompt.inputs)
    finally:
        handle.remove()
