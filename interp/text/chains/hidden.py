"""Suppression of sentences: later tokens cannot attend to them, in any layer and head.

The tokens of the sentence itself still attend as before. This loses nothing: what they compute
cannot reach later tokens. It avoids rows that see hidden keys only, which a mask of large negative
numbers turns into uniform attention over hidden and future keys alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.cache.windows import cached_heads
from interp.causal.measures import divergence
from interp.core.errors import OptionError
from interp.core.protocols import Progress, silent
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from interp.model.edits import Edit
from interp.model.inputs import takes
from interp.model.model import Model
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain
from interp.text.chains.vertical import BLOCK, first_keys

FLOOR = 1e-9
"""Added to a divergence before its logarithm, as published."""

Spans = Sequence[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Suppression:
    """Changes made by hiding sentences.

    Args:
        sentences: the hidden sentences.
        divergence: mean over the tokens of each later sentence of the divergence KL(before ||
            after) of their predictions, in nats, `[hidden, sentence]`; NaN for the hidden sentence
            and earlier ones.
        log_divergence: the same of log(KL + 1e-9), as published.
        answer: log odds of the answer before minus after, in nats, `[hidden]`; NaN without answer.
        base: log odds of the answer before, in nats.
    """

    sentences: tuple[int, ...]
    divergence: Float[np.ndarray, "hidden sentence"]
    log_divergence: Float[np.ndarray, "hidden sentence"]
    answer: Float[np.ndarray, " hidden"]
    base: float


def hide_spans(model: Model, spans: Sequence[Spans]) -> Edit:
    """Make the edit under which tokens after a span of keys cannot attend to it.

    Attention is computed again in blocks of rows, so memory is linear in the length.
    """

    def new_z(call: Call, site: Site, real: Tensor) -> Tensor:
        if call.z.shape[0] != len(spans) or not bool(real.all()):
            raise OptionError(
                f"spans of {len(spans)} prompts are hidden in a batch of {call.z.shape[0]}; run "
                "one unpadded prompt per list of spans"
            )
        return _without(call, spans)

    number = sum(map(len, spans))
    return Edit(
        "hide-spans",
        cached_heads(model),
        new_z,
        of_pattern=True,
        detail=f"{number} spans of {len(spans)} prompts",
    )


def _without(call: Call, spans: Sequence[Spans]) -> Tensor:
    """Compute z with the keys of each prompt's spans hidden from the rows after them."""
    first = min((b for mine in spans for _, b in mine), default=call.z.shape[2])
    batch, heads, queries, keys = *call.z.shape[:3], call.v.shape[2]
    z = call.z.clone()
    key = torch.arange(keys, device=z.device)
    size = max(1, BLOCK // (batch * heads * keys))
    for start in range(first, queries, size):
        rows = torch.arange(start, min(start + size, queries), device=z.device)
        end = int(rows[-1]) + 1  # no later key is seen
        gone = torch.zeros(batch, len(rows), end, dtype=torch.bool, device=z.device)
        for at, mine in enumerate(spans):
            for a, b in mine:
                gone[at] |= (rows[:, None] >= b) & (key[:end] >= a) & (key[:end] < b)
        part = first_keys(call, end)
        scores = part.scores(rows)
        scores[..., :end].masked_fill_(gone[:, None], torch.finfo(scores.dtype).min)
        z[:, :, start : start + len(rows)] = part.mix(part.normalised(scores)).to(z.dtype)
    return z


def answer_log_odds(
    logits: Float[Tensor, "row d_vocab"], answer: Sequence[int]
) -> Float[Tensor, ""]:
    """Sum the log odds of the answer's tokens in nats; probabilities would saturate."""
    x = logits.double()
    ids = torch.as_tensor(list(answer), device=x.device)[:, None]
    answer_logits = x.gather(1, ids)[:, 0]
    others = x.scatter(1, ids, -torch.inf).logsumexp(1)
    return (answer_logits - others).sum()


@takes_model
def suppression_effects(
    model: Model,
    chain: Chain,
    sentences: Sequence[int] | None = None,
    *,
    later: bool = True,
    temperature: float = 1.0,
    batch_size: int = 4,
    beyond: bool = False,
    progress: Progress | None = None,
) -> Suppression:
    """Measure what hiding each sentence from all later tokens changes.

    The effect on a sentence is read at the positions that predict its tokens and lie after the
    hidden sentence.

    Args:
        model: the model.
        chain: the text.
        sentences: the sentences to hide, one at a time; all by default.
        later: measure the effect on every later sentence, which keeps the predictions of the whole
            chain (tokens x vocabulary numbers); False measures the answer alone.
        temperature: of the predictions; .6 in the published analysis.
        batch_size: hidden sentences per forward pass.
        beyond: allow more tokens than the config states.
        progress: callback with the name of the step, the steps done and their total.

    Raises:
        PromptError: the chain does not fit the model.
        OptionError: a sentence does not exist, an option is out of range, or there is nothing to
            measure.

    Unit: nats.

    Cost: One forward pass per hidden sentence, whose attention is computed a second time.

    Reference: Bogdan et al. 2025, "Thought Anchors"; there, the divergence is over the union of
    the nuclei of probability .9999, here over the vocabulary.

    Not for: sentences that repeat one another: each is missed only if all are hidden.

    Null: none; compare with the other sentences.
    """
    chosen = tuple(range(len(chain)) if sentences is None else map(int, sentences))
    if temperature <= 0 or batch_size < 1:
        raise OptionError(f"temperature={temperature}, batch_size={batch_size}: both must be > 0")
    if wrong := [i for i in chosen if not 0 <= i < len(chain)]:
        raise OptionError(f"no sentence {wrong[0]}; {chain.name} has 0 to {len(chain) - 1}")
    if not later and not chain.answer:
        raise OptionError(f"{chain.name} has no answer, and later=False measures nothing else")
    chain.fits(model, beyond=beyond)
    progress, n = progress or silent, len(chain.prompt)
    keep = n if later else len(chain.answer) + 1
    before = _logits(model, chain, keep, None)[0]
    base = _odds(before, chain)
    shape = (len(chosen), len(chain))
    kl, log_kl, answer = np.full(shape, np.nan), np.full(shape, np.nan), np.full(shape[0], np.nan)
    for start in range(0, len(chosen), batch_size):
        part = chosen[start : start + batch_size]
        with model.edited(hide_spans(model, [[chain.spans[i]] for i in part])):
            after = _logits(model, chain, keep, len(part))
        for at, (hidden, logits) in enumerate(zip(part, after, strict=True), start):
            answer[at] = base - _odds(logits, chain)
            if later:
                _divergences(before, logits, chain, hidden, temperature, kl[at], log_kl[at])
        progress("suppression", min(start + batch_size, len(chosen)), len(chosen))
    return Suppression(chosen, kl, log_kl, answer, base)


def _logits(model: Model, chain: Chain, keep: int, copies: int | None) -> Tensor:
    """Return the last logits of a chain, of several copies where it is edited."""
    ids = torch.tensor([chain.prompt] * (copies or 1), device=model.device)
    inputs: dict[str, object] = {"input_ids": ids}
    if keep < ids.shape[1] and "logits_to_keep" in takes(model.module):
        inputs["logits_to_keep"] = keep
    with torch.no_grad():
        return model.run(inputs)[:, -keep:]


def _odds(logits: Tensor, chain: Chain) -> float:
    n = len(chain.answer)
    return float(answer_log_odds(logits[-n - 1 : -1], chain.answer)) if n else np.nan


def _divergences(
    before: Tensor,
    after: Tensor,
    chain: Chain,
    hidden: int,
    temperature: float,
    kl: np.ndarray,
    log_kl: np.ndarray,
) -> None:
    """Write the effect on each sentence after a hidden one."""
    end = chain.spans[hidden][1]
    for i in range(hidden + 1, len(chain)):
        a, b = chain.spans[i]
        rows = slice(max(a - 1, end), b - 1)
        old, new = (x[rows].double() / temperature for x in (before, after))
        each = divergence(old, new).cpu().numpy()
        if len(each):
            kl[i], log_kl[i] = each.mean(), np.log(each + FLOOR).mean()
