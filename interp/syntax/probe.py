"""Linear probe over all heads that finds head words from attention weights alone.

The score of a pair is a weighted sum of every head's attention from the dependent and to it, with
one weight per head and direction (Clark et al. 2019, "What Does BERT Look At?", the attention-only
probe; the words themselves are not read). Fitted on the choosing sentences by cross-entropy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float

from interp.syntax.attention import WordAttention

Array = np.ndarray
_NUMBERS = 60_000_000  # maximum attention weights in memory during the fit, 240 MB
_PENALTY = 1e-4  # penalty on the squared weights
_STEPS = 60


@dataclass(frozen=True, eq=False)
class Probe:
    """Probe with one weight per head for attention from the dependent and one for that to it."""

    leaving: Float[Array, " head"]
    received: Float[Array, " head"]
    loss: float  # final loss in nats per dependent
    n: int  # number of dependents used in the fit

    def score(self, value: Float[Array, "head word word"]) -> Float[Array, "dependent head"]:
        """Return the score of each (dependent, head) pair; no word is its own head."""
        out = np.tensordot(self.leaving, value, 1) + np.tensordot(self.received, value, 1).T
        np.fill_diagonal(out, out.min() - 1.0)
        return out - out.min()


def fit_probe(attention: WordAttention, *, seed: int = 0) -> Probe:
    """Fit the probe to some sentences; a random part of them if memory is limited."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(attention))
    chosen, used, width = [], 0, 0
    for i in order:
        n = len(attention.sentences[i])
        width = max(width, n)
        used += n
        if chosen and 2 * len(attention.heads) * used * width > _NUMBERS:
            break
        chosen.append(int(i))
    x, target, real = _rows(attention, chosen)
    weights = torch.zeros(x.shape[1], requires_grad=True)
    best = torch.optim.LBFGS([weights], max_iter=_STEPS, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        score = torch.einsum("rfw,f->rw", x, weights).masked_fill(~real, -torch.inf)
        return torch.nn.functional.cross_entropy(score, target)

    def closure() -> torch.Tensor:
        best.zero_grad()
        total = loss() + _PENALTY * weights.square().sum()
        total.backward()
        return total

    best.step(closure)
    with torch.no_grad():
        final = float(loss())
    values = weights.detach().double().numpy()
    half = len(values) // 2
    return Probe(values[:half], values[half:], final, len(target))


def _rows(
    attention: WordAttention, kept: list[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return per dependent the features of all candidates, the gold head, and a candidate mask."""
    width = max(len(attention.sentences[i]) for i in kept)
    features, target, real = [], [], []
    for i in kept:
        sentence, value = attention.sentences[i], attention.values[i]
        n = len(sentence)
        both = np.concatenate([value, value.swapaxes(1, 2)])  # [feature, dependent, candidate]
        for word, head in enumerate(sentence.heads):
            if head < 0:
                continue
            row = np.zeros((both.shape[0], width), dtype=np.float32)
            row[:, :n] = both[:, word]
            features.append(row)
            target.append(head)
            mask = np.zeros(width, dtype=bool)
            mask[:n] = True
            mask[word] = False
            real.append(mask)
    return torch.from_numpy(np.stack(features)), torch.tensor(target), torch.tensor(np.stack(real))
