"""Discrete codes of heads by a sparse autoencoder: the algorithm, its control and its statistics.

This follows the authors' published code, which is more specific than the paper: one autoencoder for
all heads, tied bias before and after, unit rows, Adam at 1e-3 over the whole training set at once.
Their code removes the gradient along each row; here rows are normalised in the forward pass, so
that no gradient points along them.

Reference: O'Neill and Bui 2024, "Sparse Autoencoders Enable Scalable and Reliable Circuit
Identification in Language Models".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.ties import ordered
from interp.model.locate.head_outputs import head_outputs, writing_weights

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model

Array = np.ndarray
RATE = 1e-3


def head_results(
    model: Model, task: ContrastTask, position: str
) -> tuple[Float[Tensor, "example head d_model"], list[str]]:
    """Stack what every head writes, on clean prompts first and then on corrupted ones."""
    if len(model.stacks) != 1:
        raise OptionError(
            f"{model.name} has {len(model.stacks)} stacks; codes compare heads of one stack"
        )
    if position not in ("mean", "last") and not all(position in r for r in task.roles or ({},)):
        known = sorted(set.intersection(*(set(r) for r in task.roles))) if task.roles else []
        raise OptionError(
            f"position {position!r}: give mean, last or a role that every prompt has"
            f" ({', '.join(known) or 'this task has none'})"
        )
    weights = [writing_weights(model, site) for site in model.sites]
    names = [f"L{site.layer}H{h}" for site in model.sites for h in range(site.n_heads)]
    out = torch.zeros(2 * len(task), len(names), model.d_model)
    with torch.no_grad():
        for batch in task.batches():
            for side, prompts in enumerate((batch.clean, batch.corrupted)):
                cache = model.capture(prompts, ("z", "attn_out"))
                parts = []
                for site, mine in zip(model.sites, weights, strict=True):
                    z, added = cache["z", site.layer].float(), cache["attn_out", site.layer]
                    z = z.transpose(1, 2)  # prompt pos head d_v
                    if position != "mean":
                        at = [
                            len(prompts.ids[0]) - 1
                            if position == "last"
                            else task.roles[i][position]
                            for i in batch.which
                        ]
                        rows = torch.arange(len(z)), torch.tensor(at)
                        z, added = z[rows][:, None], added[rows][:, None]
                    parts.append(head_outputs(mine, z, added).mean(z))
                rows = torch.tensor(batch.which) + side * len(task)
                out[rows] = torch.cat(parts, 1).cpu()
    return out, names


@dataclass
class Autoencoder:
    """Weights of the sparse autoencoder."""

    encoder: Float[Tensor, "code d_model"]
    bias: Float[Tensor, " code"]
    decoder: Float[Tensor, "d_model code"]
    tied: Float[Tensor, " d_model"]

    @classmethod
    def new(cls, d_model: int, codes: int, generator: torch.Generator) -> Autoencoder:
        """Make an untrained autoencoder: random rows of length 1, no biases.

        Untrained, it acts as a random hash.
        """
        encoder = torch.randn(codes, d_model, generator=generator)
        decoder = torch.randn(d_model, codes, generator=generator)
        return cls(_unit(encoder), torch.zeros(codes), _unit(decoder), torch.zeros(d_model))

    def hidden(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... code"]:
        """Compute the hidden activations, which are not negative."""
        return ((x - self.tied) @ _unit(self.encoder).T + self.bias).relu()

    def reconstructed(self, hidden: Float[Tensor, "... code"]) -> Float[Tensor, "... d_model"]:
        """Reconstruct the input from the hidden activations."""
        return hidden @ _unit(self.decoder).T + self.tied

    def loss(self, x: Float[Tensor, "row d_model"], sparsity: float) -> Float[Tensor, ""]:
        """Compute the mean squared error, plus the mean activation weighted by `sparsity`."""
        hidden = self.hidden(x)
        return (self.reconstructed(hidden) - x).square().mean() + sparsity * hidden.abs().mean()

    def codes(self, x: Float[Tensor, "example head d_model"]) -> Int[Array, "example head"]:
        """Return the most active unit of every example and head; the first if none is active."""
        with torch.no_grad():
            return self.hidden(x).argmax(-1).numpy()


def _unit(x: Tensor) -> Tensor:
    return x / x.norm(dim=-1, keepdim=True).clamp_min(1e-12)


def train_autoencoder(
    x: Float[Tensor, "example head d_model"],
    *,
    codes: int,
    sparsity: float,
    epochs: int,
    seed: int,
) -> tuple[Autoencoder, list[float]]:
    """Train an autoencoder on some examples, with the outputs of all heads as rows."""
    generator = torch.Generator().manual_seed(seed)
    model = Autoencoder.new(x.shape[-1], codes, generator)
    weights = [model.encoder, model.bias, model.decoder, model.tied]
    for w in weights:
        w.requires_grad_(True)
    best = torch.optim.Adam(weights, lr=RATE)
    rows, losses = x.flatten(0, 1), []
    for _ in range(epochs):
        loss = model.loss(rows, sparsity)
        best.zero_grad()
        loss.backward()
        best.step()
        with torch.no_grad():
            for w in (model.encoder, model.decoder):
                w.copy_(_unit(w))
        losses.append(float(loss.detach()))
    for w in weights:
        w.requires_grad_(False)
    return model, losses


def only_positive(
    codes: Int[Array, "example head"], positive: Array, *, normalise: bool = False
) -> Float[Array, " head"]:
    """Count the codes that a head has on positive examples and on no negative one."""
    seen, other = _seen(codes[positive]), _seen(codes[~positive])
    width = max(seen.shape[1], other.shape[1])
    seen, other = (np.pad(s, ((0, 0), (0, width - s.shape[1]))) for s in (seen, other))
    counts = (seen & ~other).sum(1).astype(np.float64)
    return counts / np.maximum((seen | other).sum(1), 1) if normalise else counts


def _seen(codes: Int[Array, "example head"]) -> Array:
    """Return a mask of the codes that every head has, `[head, code]`."""
    n_heads = codes.shape[1]
    seen = np.zeros((n_heads, int(codes.max(initial=0)) + 1), dtype=bool)
    seen[np.arange(n_heads)[None, :].repeat(len(codes), 0), codes] = True
    return seen


def pairs_only_positive(
    codes: Int[Array, "example head"], positive: Array
) -> Float[Array, "head head"]:
    """Count the pairs of codes that two heads have together on positive examples only."""
    n_heads, n = codes.shape[1], int(codes.max()) + 1
    out = np.zeros((n_heads, n_heads))
    for a in range(n_heads):
        together = codes[:, a, None].astype(np.int64) * n + codes[:, a + 1 :]
        for i, b in enumerate(range(a + 1, n_heads)):
            yes = np.unique(together[positive, i])
            no = np.unique(together[~positive, i])
            out[a, b] = out[b, a] = len(np.setdiff1d(yes, no, assume_unique=True))
    return out


def heads_of_pairs(pairs: Float[Array, "head head"]) -> Float[Array, " head"]:
    """Count how often each head is named in the top pairs, as the authors do.

    The list of all ordered pairs, in descending order of their count, is read until half as many
    names as there are ordered pairs have been read; every pair has two names.
    """
    n_heads = len(pairs)
    order = np.array(ordered(pairs.ravel()), dtype=int)
    names = np.stack(np.unravel_index(order, pairs.shape), 1).ravel()[: n_heads**2 // 2]
    return np.bincount(names, minlength=n_heads).astype(np.float64)


def softmax(x: Float[Array, " head"]) -> Float[Array, " head"]:
    """Apply a softmax, called the probability of a head by the authors; it keeps the order."""
    e = np.exp(x - x.max())
    return e / e.sum()


OVER = ("none", "heads", "layer")


def shared(
    score: Float[Array, " head"], over: str, layers: Int[Array, " head"]
) -> Float[Array, " head"]:
    """Return counts unchanged (`none`), or their softmax over all heads or over each layer's heads.

    A softmax within each layer changes the order: in a layer with one high count the other heads
    score low.
    """
    if over == "none":
        return score
    if over == "heads":
        return softmax(score)
    out = np.zeros(len(score))
    for layer in np.unique(layers):
        out[layers == layer] = softmax(score[layers == layer])
    return out


def permuted(
    codes: Int[Array, "example head"],
    n_pairs: int,
    *,
    draws: int,
    seed: int,
    normalise: bool = False,
    over: str = "none",
    layers: Int[Array, " head"] | None = None,
) -> tuple[Float[Array, " head"], Float[Array, " head"]]:
    """Compute p values of the score by random exchange of the two sides of each pair.

    The score is `only_positive`, then `shared`, with their options. The first p value is for each
    head separately; the second compares with the largest score of any head in each draw, which
    controls the family-wise error rate over heads.
    """
    rng = np.random.default_rng(seed)
    positive = np.arange(2 * n_pairs) < n_pairs
    places = np.zeros(codes.shape[1], dtype=int) if layers is None else layers

    def scored(codes: Int[Array, "example head"]) -> Float[Array, " head"]:
        return shared(only_positive(codes, positive, normalise=normalise), over, places)

    score = scored(codes)
    exceeded, largest = np.ones(len(score)), np.ones(len(score))
    for _ in range(draws):
        flip = rng.random(n_pairs) < 0.5
        mixed = codes.copy()
        mixed[:n_pairs][flip] = codes[n_pairs:][flip]
        mixed[n_pairs:][flip] = codes[:n_pairs][flip]
        drawn = scored(mixed)
        exceeded += drawn >= score
        largest += drawn.max() >= score
    return exceeded / (draws + 1), largest / (draws + 1)
