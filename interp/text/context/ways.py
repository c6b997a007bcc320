"""Scores of the sentences of a prompt for its answer: by attention, gradients and ablations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float

from interp.attribution.gradients import embedding_leaves, grads
from interp.cache.windows import cached_heads, cached_sites
from interp.causal.gate_derivatives import frozen
from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.core.statistics import redraw
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.hooks.inference import inference
from interp.model.inputs import takes
from interp.model.model import Model
from interp.text.chains.chain import Chain
from interp.text.chains.hidden import answer_log_odds, hide_spans

CONTEXT_WAYS: Mapping[str, str] = {
    "attention": "attention of the answer's rows to the sentence, mean of all heads",
    "heads": "the same by chosen heads only",
    "gradient": "sum over the sentence of the length of gradient x embedding, of the log odds",
    "ablations": "weight of the sentence in a ridge regression of the log odds on which sentences "
    "are visible",
    "leave_one_out": "log odds lost when the sentence alone is hidden",
}
"""Ways to score sentences; the last two intervene."""
FOUND_BY = tuple(CONTEXT_WAYS)
BASELINE = "position"
"""Baseline that reads nothing: the later a sentence, the higher."""
VISIBLE = 0.5  # share of the sentences that stay visible in a random ablation
PENALTY = 1.0  # of the squared weights of the ridge regression
REDRAWS = 100  # bootstrap draws of the weights' standard errors


@dataclass(frozen=True, eq=False)
class AblationFit:
    """Linear model of the log odds of an answer by which sentences are visible.

    Args:
        weights: effect of each sentence, in nats.
        sems: standard errors by bootstrap over ablations.
        held_out: correlation of predicted and measured log odds on ablations that were not fitted;
            NaN if they do not vary.
    """

    weights: Float[np.ndarray, " sentence"]
    sems: Float[np.ndarray, " sentence"]
    held_out: float


def attention_by_head(
    model: Model, chain: Chain, *, beyond: bool = False
) -> tuple[tuple[Head, ...], Float[np.ndarray, "head sentence"], bool]:
    """Return the attention mass on each sentence from the rows that write the answer.

    Averaged over these rows; only they are formed, so memory is linear in the length. Also returns
    whether each token of the answer is the model's most probable one.
    """
    chain.fits(model, beyond=beyond)
    sites = frozenset(cached_sites(model))
    start = len(chain.ids) + len(chain.question)
    # the row that writes the first answer token is the last of the prompt
    rows = torch.arange(start - 1, start - 1 + len(chain.answer))
    starts, ends = torch.tensor(chain.spans).T
    masses: dict[Site, np.ndarray] = {}

    def visit(site: Site, call: Call, real: torch.Tensor) -> None:
        if site in sites:
            model.require_finite(call, site)
            pattern = call.pattern(rows.to(call.z.device))[0].double().cpu().mean(1)
            total = torch.nn.functional.pad(pattern.cumsum(-1), (1, 0))
            masses[site] = (total[:, ends] - total[:, starts]).clamp_min(0).numpy()

    prompt, n = Prompts((chain.prompt[:-1],), "document"), len(chain.answer)
    logits = model.read(prompt, visit, last=n, streamed=True)
    right = logits[0, -n:].argmax(-1).tolist() == list(chain.answer)
    return cached_heads(model), np.concatenate([masses[s] for s in cached_sites(model)]), right


def gradient_by_sentence(
    model: Model, chain: Chain, *, beyond: bool = False
) -> Float[np.ndarray, " sentence"]:
    """Return per sentence the summed length of gradient x embedding of the answer's log odds."""
    chain.fits(model, beyond=beyond)
    n = len(chain.answer)
    ids = torch.tensor([chain.prompt], device=model.device)
    inputs: dict[str, object] = {"input_ids": ids}
    if "logits_to_keep" in takes(model.module):
        inputs["logits_to_keep"] = n + 1
    with (
        torch.enable_grad(),
        frozen(model.module),
        inference(model.module),
        embedding_leaves(model, None) as leaves,
    ):
        odds = answer_log_odds(model.run(inputs)[0, -n - 1 : -1], chain.answer)
    source, _ = leaves.tensors(1, ids.shape[1])
    [gradient] = grads(model, odds, [source])
    size = (gradient * source.detach())[0].double().norm(dim=-1).cpu().numpy()
    total = np.concatenate([[0.0], np.cumsum(size)])
    return np.array([total[b] - total[a] for a, b in chain.spans])


def log_odds_without(
    model: Model, chain: Chain, hidden: Sequence[Sequence[int]], *, batch_size: int = 4
) -> Float[np.ndarray, " set"]:
    """Return the log odds of the answer with each set of sentences hidden from later tokens."""
    n, odds = len(chain.answer), []
    keep = {"logits_to_keep": n + 1} if "logits_to_keep" in takes(model.module) else {}
    for start in range(0, len(hidden), batch_size):
        part = hidden[start : start + batch_size]
        inputs = {"input_ids": torch.tensor([chain.prompt] * len(part), device=model.device)} | keep
        spans = [[chain.spans[i] for i in mine] for mine in part]
        with torch.no_grad(), model.edited(hide_spans(model, spans)):
            logits = model.run(inputs)[:, -n - 1 : -1]
        odds += [float(answer_log_odds(x, chain.answer)) for x in logits]
    return np.array(odds)


def left_out(
    model: Model, chain: Chain, among: Sequence[int], *, batch_size: int = 4
) -> Float[np.ndarray, " sentence"]:
    """Return the log odds lost with each sentence hidden alone; 0 for those not among the tried."""
    odds = log_odds_without(model, chain, [[], *([i] for i in among)], batch_size=batch_size)
    losses = np.zeros(len(chain))
    losses[list(among)] = odds[0] - odds[1:]
    return losses


def ridge_of_ablations(
    model: Model,
    chain: Chain,
    among: Sequence[int],
    *,
    ablations: int = 64,
    batch_size: int = 4,
    seed: int = 0,
) -> AblationFit:
    """Fit the log odds of the answer as a linear function of which sentences are visible.

    Reference: Cohen-Wang et al. 2024, "ContextCite", which fits the logit of the probability with
    the lasso and removes text; here sentences are hidden, so positions stay.
    """
    if ablations < 4:
        raise OptionError(f"ablations={ablations}: give at least 4")
    rng = np.random.default_rng(seed)
    extra = max(4, ablations // 4)
    visible = rng.random((ablations + extra, len(among))) < VISIBLE
    sets = [[i for i, seen in zip(among, row, strict=True) if not seen] for row in visible]
    odds = log_odds_without(model, chain, sets, batch_size=batch_size)
    fit = fit_of_sets(visible, odds, ablations, rng)
    weights, sems = np.zeros(len(chain)), np.full(len(chain), np.nan)
    weights[list(among)], sems[list(among)] = fit.weights, fit.sems
    return AblationFit(weights, sems, fit.held_out)


def fit_of_sets(
    visible: Bool[np.ndarray, "set sentence"],
    values: Float[np.ndarray, " set"],
    fitted: int,
    rng: np.random.Generator,
) -> AblationFit:
    """Fit values by which sentences are visible, on the first sets; the rest judge the fit."""
    x, y = visible[:fitted].astype(float), values[:fitted]
    weights, offset = _ridge(x, y)
    boot = [_ridge(x[at], y[at])[0] for at in redraw(fitted, REDRAWS, rng)]
    predicted, measured = visible[fitted:] @ weights + offset, values[fitted:]
    varies = np.ptp(predicted) > 0 and np.ptp(measured) > 0
    fit = float(np.corrcoef(predicted, measured)[0, 1]) if varies else np.nan
    return AblationFit(weights, np.std(boot, axis=0, ddof=1), fit)


def _ridge(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float]:
    """Return weights and offset; the offset is not penalised."""
    mean, level = x.mean(0), y.mean()
    centred = x - mean
    gram = centred.T @ centred + PENALTY * np.eye(x.shape[1])
    weights = np.linalg.solve(gram, centred.T @ (y - level))
    return weights, float(level - mean @ weights)
