"""Resampling of sentences: how the answer changes when a text is continued without them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.protocols import Progress, silent
from interp.core.standard_errors import standard_error
from interp.model.inputs import cache_argument, given_cache, takes
from interp.model.model import Model
from interp.model.model_argument import takes_model
from interp.text.chains.chain import Chain, require_answer

SIMILAR = 0.8
"""Cosine similarity from which a resampled sentence counts as the same, as published."""

Embed = Callable[[Sequence[Sequence[int]]], Float[np.ndarray, "sentence d"]]


@dataclass(frozen=True, eq=False)
class Rollouts:
    """Probability of the answer in continuations from before each sentence.

    Args:
        probability: probability of the answer after each rollout from before each sentence,
            `[sentence + 1, rollout]`; the last row holds the whole chain in every rollout.
        different: True where the resampled sentence differs in meaning from the one removed,
            `[sentence, rollout]`.
    """

    probability: Float[np.ndarray, "place rollout"]
    different: np.ndarray

    @property
    def resampling(self) -> Float[np.ndarray, "sentence 2"]:
        """Rise of the answer's probability by each sentence, and its standard error."""
        return np.array(
            [
                _difference(self.probability[i + 1], self.probability[i])
                for i in range(len(self.different))
            ]
        )

    @property
    def counterfactual(self) -> Float[np.ndarray, "sentence 2"]:
        """The same against rollouts whose new sentence differs; NaN where none does."""
        return np.array(
            [
                _difference(self.probability[i + 1], self.probability[i][mine])
                for i, mine in enumerate(self.different)
            ]
        )


def _difference(one: np.ndarray, other: np.ndarray) -> tuple[float, float]:
    if not len(other):
        return np.nan, np.nan
    error = np.hypot(standard_error(one), standard_error(other))
    return float(one.mean() - other.mean()), float(error)


@takes_model
def rollout_effects(
    model: Model,
    chain: Chain,
    *,
    n_rollouts: int = 16,
    max_new_tokens: int | None = None,
    temperature: float = 1.0,
    similar: float = SIMILAR,
    embed: Embed | None = None,
    seed: int = 0,
    beyond: bool = False,
    progress: Progress | None = None,
) -> Rollouts:
    """Continue a chain from before each sentence, and read the probability of its answer.

    A rollout keeps the text up to the sentence, samples new tokens up to the length of the chain,
    and appends the question; the answer's probability is read and not sampled, which has a smaller
    error than counting right answers. The new sentence is taken to be as long as the one removed.

    Args:
        model: the model, which must be able to continue text.
        chain: the text with its question and answer.
        n_rollouts: continuations from each place.
        max_new_tokens: most tokens of a continuation; by default as many as the rest of the chain.
        temperature: of the sampling.
        similar: cosine similarity from which a new sentence counts as the same.
        embed: function from lists of ids to vectors; by default the mean of the model's centred
            input embeddings, which sees words and not their order (published: a sentence encoder).
        seed: seed of the sampling.
        beyond: allow more tokens than the config states.
        progress: callback with the name of the step, the steps done and their total.

    Raises:
        PromptError: the chain does not fit the model.
        OptionError: the chain has no answer, or an option is out of range.

    Unit: probability.

    Cost: `n_rollouts` continuations per sentence, sampled together with a cache.

    Reference: Bogdan et al. 2025, "Thought Anchors": resampling importance is the accuracy from
    after the sentence minus that from before it. The published counterfactual importance has the
    opposite sign of the one here, which is positive where a sentence makes the answer more likely.

    Not for: models that do not continue text sensibly; the effect is then noise of the
    sampling.

    Null: none; compare with the other sentences.
    """
    require_answer(chain)
    if n_rollouts < 2 or temperature <= 0 or (max_new_tokens is not None and max_new_tokens < 1):
        raise OptionError(
            f"n_rollouts={n_rollouts}, temperature={temperature}, max_new_tokens={max_new_tokens}: "
            "give at least 2 rollouts, a temperature above 0 and at least 1 token"
        )
    chain.fits(model, beyond=beyond)
    progress = progress or silent
    generator = torch.Generator().manual_seed(seed)
    vectors = _mean_embedding(model) if embed is None else embed
    n = len(chain)
    probability = np.empty((n + 1, n_rollouts))
    different = np.zeros((n, n_rollouts), dtype=bool)
    for i, (a, b) in enumerate(chain.spans):
        number = len(chain.ids) - a
        number = number if max_new_tokens is None else min(number, max(max_new_tokens, b - a))
        new = sampled_continuations(
            model, chain.ids[:a], number, n_rollouts, temperature, generator
        )
        probability[i] = _answer_probability(model, chain, new)
        parts = [chain.ids[a:b], *new[:, a:b].tolist()]
        each = np.asarray(vectors(parts), dtype=np.float64)
        each = each / np.maximum(np.linalg.norm(each, axis=1, keepdims=True), 1e-12)
        different[i] = each[1:] @ each[0] < similar
        progress("rollouts", i + 1, n)
    whole = torch.tensor([chain.ids], device=model.device)
    probability[n] = _answer_probability(model, chain, whole)[0]
    return Rollouts(probability, different)


def sampled_continuations(
    model: Model,
    prefix: Sequence[int],
    number: int,
    copies: int,
    temperature: float,
    generator: torch.Generator,
) -> Tensor:
    """Sample continuations of a prefix; return prefix and continuation, `[copy, token]`.

    An empty prefix begins with a token drawn from the whole vocabulary. The generator is one of
    the CPU, so that a seed draws the same on every device.
    """
    device = model.device
    if len(prefix):
        ids = torch.tensor([list(prefix)], device=device).expand(copies, -1)
    else:
        shape = (copies, 1)
        ids = torch.randint(model.d_vocab, shape, generator=generator).to(device)
        number -= 1
    cache, new = None, ids
    keep = {"logits_to_keep": 1} if "logits_to_keep" in takes(model.module) else {}
    name = cache_argument(model.module)
    with torch.no_grad():
        for _ in range(number):
            out = model.module(input_ids=new, use_cache=True, **keep, **{name: cache})
            cache = given_cache(out)
            below = (out.logits[:, -1].double() / temperature).softmax(-1).cumsum(-1)
            point = torch.rand(copies, 1, generator=generator, dtype=torch.double).to(below)
            new = (below <= point * below[:, -1:]).sum(-1, keepdim=True)
            ids = torch.cat([ids, new], 1)
    return ids


def _answer_probability(model: Model, chain: Chain, ids: Tensor) -> np.ndarray:
    end = torch.tensor([chain.question + chain.answer], device=ids.device)
    n = len(chain.answer)
    with torch.no_grad():
        inputs = {"input_ids": torch.cat([ids, end.expand(len(ids), -1)], 1)}
        logits = model.run(inputs)[:, -n - 1 : -1].double().log_softmax(-1)
    answer = torch.tensor(chain.answer, device=ids.device)[None, :, None].expand(len(ids), -1, 1)
    return logits.gather(2, answer)[..., 0].sum(1).exp().cpu().numpy()


def _mean_embedding(model: Model) -> Embed:
    table = model.module.get_input_embeddings().weight.detach().double()  # type: ignore[operator]
    table = table - table.mean(0)  # what all tokens share would make any two sentences alike

    def embed(parts: Sequence[Sequence[int]]) -> np.ndarray:
        means = [table[list(part)].mean(0) for part in parts]
        return torch.stack(means).cpu().numpy()

    return embed
