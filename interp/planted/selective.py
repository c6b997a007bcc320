"""Planted model that infers the lag of interleaved Markov chains and copies from it.

Three layers, as constructed by D'Angelo et al. 2025 (arXiv 2509.08184), for lags 1 to K and a
transition matrix P. Layer 1: row t attends to x_{t-1} .. x_{t-K} with the logits
log P[x_{t-k}, x_t], so its weights are the normalised likelihoods of the lags. Layer 2 averages
these over the past. Layer 3 attends to x_{t+1-k} for the lag with the largest average, and copies
it; the unembedding maps a token to log P of its successors.

A weight states the token that it belongs to, not its lag. Positions therefore carry their phase, t
modulo K, and layers 1 and 2 have one head per phase of the row: for rows of one phase the phase of
a key determines its lag. Rows of another phase attend to the first token, whose value is zero. This
needs learned positions, so the model is a GPT-2; its norms and MLPs are switched off by their
parameters.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from interp.core.errors import OptionError
from interp.core.random_state import drawn_with
from interp.planted.assemble import BOS, NORM_EPSILON, NORM_WEIGHT, Planted
from interp.planted.residual import random_rotation
from interp.planted.rotary import _least_amplitude

if TYPE_CHECKING:
    from transformers import GPT2LMHeadModel

N_PAIRS = 32  # pairs of coordinates that hold a position
REST = 60.0  # nats by which an inactive head prefers the first token
SHARPNESS = 3e4  # nats per unit of the lags' average, so that the largest dominates
NOISE = 0.05


def selective_induction(
    *,
    layers: int = 3,
    heads: int = 4,
    kv_heads: int | None = None,
    lags: int = 3,
    vocab: int = 6,
    context: int = 256,
    seed: int = 0,
) -> Planted:
    """Build selective induction over lags 1 to `lags`: tokens 1 and up are the states of the chain.

    The transition matrix is `config.transition_matrix`, drawn from `seed`. Token 0 begins a
    sequence.
    """
    _check(layers, heads, kv_heads, lags, vocab, context)
    plan = _Plan(heads, lags, vocab, context, seed)
    roles: dict[str, list[tuple[int, int]]] = {}
    weights: dict[str, Tensor] = {}
    stages = {i * layers // 3: i for i in range(3)}
    for layer in range(layers):
        stage = stages.get(layer)
        wanted = [] if stage is None else plan.roles(stage)
        order = torch.randperm(heads, generator=plan.generator).tolist()
        placed = dict(zip(order, wanted, strict=False))
        parts = [plan.head(placed.get(head)) for head in range(heads)]
        for head in range(heads):
            role = placed[head][0] if head in placed else "noise"
            roles.setdefault(role, []).append((layer, head))
        prefix = f"transformer.h.{layer}.attn."
        into = torch.cat([torch.cat([part[i] for part in parts]) for i in range(3)])
        weights[prefix + "c_attn.weight"] = plan.turned(into).T
        weights[prefix + "c_proj.weight"] = plan.turned(torch.cat([part[3] for part in parts]))
    embedding, positions, unembedding = plan.tables()
    weights["transformer.wte.weight"] = plan.turned(embedding)
    weights["transformer.wpe.weight"] = plan.turned(positions)
    weights["lm_head.weight"] = plan.turned(unembedding)
    model: Any = _gpt2(weights, plan, layers)
    # no detector is named, since nothing is guaranteed on repeated random tokens
    return Planted("selective_induction", model, roles, {}, plan.subspaces(), seed)


class _Plan:
    """Coordinates of the stream and the weights of each role, before the rotation."""

    def __init__(self, heads: int, lags: int, vocab: int, context: int, seed: int):
        self.heads, self.lags, self.vocab, self.context = heads, lags, vocab, context
        self.generator = torch.Generator().manual_seed(seed)
        states = vocab - 1
        # a flat Dirichlet distribution per row: exponential numbers, normalised
        drawn = torch.rand(states, states, dtype=torch.float64, generator=self.generator)
        law = -torch.log1p(-drawn)
        self.law = law / law.sum(1, keepdim=True)
        widths = {
            "token": vocab,
            "output": vocab,
            "phase": lags,
            "likelihood": lags,
            "lag": lags,
            "late": 1,
            "constant": 1,
            "noise": 8,
            "position": 2 * N_PAIRS,
        }
        self.at, start = {}, 0
        for name, width in widths.items():
            self.at[name] = slice(start, start + width)
            start += width
        self.width = start
        # one unused coordinate, for the mean that the norms subtract
        self.d_model = math.ceil((start + 1) / heads) * heads
        self.d_head = max(self.d_model // heads, vocab + lags + 2 * N_PAIRS + 2)
        self.d_model = self.d_head * heads
        turn = random_rotation(self.d_model - 1, self.generator)
        across = torch.linalg.svd(torch.ones(1, self.d_model, dtype=torch.float64)).Vh[1:]
        self.rotation = (turn @ across)[:start]  # orthonormal rows with mean zero
        # From the highest frequency at integer positions down to one period over the context.
        slow = 2 * math.pi / max(context, 64)
        self.frequency = np.geomspace(0.9 * math.pi, slow, N_PAIRS)
        self.content = slice(0, vocab)
        self.phase = slice(vocab, vocab + lags)
        self.place = slice(vocab + lags, vocab + lags + 2 * N_PAIRS)
        self.rest = vocab + lags + 2 * N_PAIRS

    def turned(self, weight: Tensor) -> Tensor:
        """Rotate rows over the stream to the model's coordinates."""
        return weight @ self.rotation

    def subspaces(self) -> dict[str, Tensor]:
        """Return an orthonormal basis of each part of the stream."""
        return {name: self.rotation[where].float() for name, where in self.at.items()}

    def zeros(self, rows: int) -> Tensor:
        """Return zero weights over the stream."""
        return torch.zeros(rows, self.width, dtype=torch.float64)

    def roles(self, stage: int) -> list[tuple[str, int]]:
        """Return role and phase of the heads of a stage."""
        if stage == 2:
            return [("selective_induction", 0)]
        return [(("likelihood", "average")[stage], phase) for phase in range(self.lags)]

    def tables(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return token and position embeddings, and the unembedding."""
        embedding, unembedding = self.zeros(self.vocab), self.zeros(self.vocab)
        for token in range(self.vocab):
            embedding[token, self.at["token"].start + token] = 1.0
        states = slice(self.at["output"].start + 1, self.at["output"].stop)
        unembedding[1:, states] = self.law.clamp_min(1e-30).log().T
        unembedding[BOS, states] = -30.0  # token 0 never occurs within a sequence
        t = torch.arange(self.context)
        positions = self.zeros(self.context)
        positions[:, self.at["constant"]] = 1.0
        positions[t[1:], self.at["phase"].start + t[1:] % self.lags] = 1.0
        # first row with a source at every lag; position 0 holds the first token
        positions[t > self.lags, self.at["late"]] = 1.0
        angle = t[:, None] * torch.as_tensor(self.frequency)
        positions[:, self.at["position"]] = torch.cat([angle.cos(), angle.sin()], 1)
        return embedding, positions, unembedding

    def head(self, role: tuple[str, int] | None) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return query, key, value (rows: head dimensions) and the output per value dimension."""
        if role is None:
            return self._noise()
        query, key = self.zeros(self.d_head), self.zeros(self.d_head)
        value, out = self.zeros(self.d_head), self.zeros(self.d_head)
        token, phase = self.at["token"].start, self.at["phase"].start
        constant = self.at["constant"].start
        key[self.rest, token + BOS] = 1.0
        each = range(self.lags)
        if role[0] == "likelihood":
            log_law = self.law.clamp_min(1e-30).log()
            for source in range(1, self.vocab):
                key[self.content.start + source, token + source] = 1.0
                query[source, token + 1 : token + self.vocab] = log_law[source - 1]
            self._window(query, key, range(1, self.lags + 1))
            # attends to token 0 unless the row has this phase and a source at every lag
            query[self.rest, constant] = 3 * REST
            query[self.rest, phase + role[1]] = -2 * REST
            query[self.rest, self.at["late"]] = -2 * REST
            for k in each:
                value[k, phase + (role[1] - k - 1) % self.lags] = 1.0
                out[k, self.at["likelihood"].start + k] = 1.0
        elif role[0] == "average":
            query[self.rest, constant] = REST
            query[self.rest, phase + role[1]] = -REST
            for k in each:
                value[k, self.at["likelihood"].start + k] = 1.0
                # lag k + 1 of a row of this phase is a key of the phase below
                out[k, self.at["lag"].start + (role[1] - k) % self.lags] = 1.0
        else:
            for k in each:
                key[self.phase.start + k, phase + k] = 1.0
                query[self.phase.start + k, self.at["lag"].start + k] = SHARPNESS
            # keys of one phase have equal scores, so the window selects the nearest of the best
            # phase
            self._window(query, key, range(self.lags))
            for state in range(1, self.vocab):
                value[state, token + state] = 1.0
                out[state, self.at["output"].start + state] = 1.0
        return query * self.d_head**0.5, key, value, out

    def _window(self, query: Tensor, key: Tensor, offsets: range) -> None:
        """Add a score of 0 at these distances and far below it elsewhere."""
        lower = np.full(self.context, -np.inf)
        upper = np.full(self.context, -20.0 - math.log(self.context))
        lower[list(offsets)] = upper[list(offsets)] = 0.0
        cosine, sine = _least_amplitude(lower, upper, self.frequency)[0]
        place, at = self.place.start, self.at["position"].start
        for i in range(N_PAIRS):
            c, s = float(cosine[i]), float(sine[i])
            query[place + i, at + i] = c
            query[place + i, at + N_PAIRS + i] = s
            query[place + N_PAIRS + i, at + N_PAIRS + i] = c
            query[place + N_PAIRS + i, at + i] = -s
            key[place + i, at + i] = 1.0
            key[place + N_PAIRS + i, at + N_PAIRS + i] = 1.0

    def _noise(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Draw a random head with scores of about a nat, whose output is never read."""
        parts = [self.zeros(self.d_head) for _ in range(4)]
        for i, part in enumerate(parts):
            for space in ("noise",) if i == 3 else ("token", "noise"):
                where = self.at[space]
                shape = (self.d_head, where.stop - where.start)
                drawn = torch.randn(shape, dtype=torch.float64, generator=self.generator)
                part[:, where] = drawn * (NOISE if i > 1 else 1.0)
        return tuple(parts)  # type: ignore[return-value]


def _gpt2(weights: dict[str, Tensor], plan: _Plan, layers: int) -> GPT2LMHeadModel:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(
        vocab_size=plan.vocab,
        n_positions=plan.context,
        n_embd=plan.d_model,
        n_layer=layers,
        n_head=plan.heads,
        n_inner=8,
        layer_norm_epsilon=NORM_EPSILON,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=BOS,
        eos_token_id=None,
        tie_word_embeddings=False,
        dtype="float32",
    )
    config.transition_matrix = plan.law.tolist()
    with drawn_with(None), torch.device("cpu"):
        model = GPT2LMHeadModel(config).float()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in weights:
                parameter.copy_(weights.pop(name))
            elif "ln_" in name and name.endswith("weight"):
                parameter.fill_(NORM_WEIGHT)
            else:
                parameter.zero_()  # biases and MLPs
    assert not weights, f"weights without a parameter of their name: {sorted(weights)}"
    model.config.name_or_path = "planted:selective_induction"
    return model.eval()


def _check(
    layers: int, heads: int, kv_heads: int | None, lags: int, vocab: int, context: int
) -> None:
    wrong: dict[str, Any] = {
        f"layers={layers}: needs at least 3": layers < 3,
        f"lags={lags}: needs at least 2": lags < 2,
        f"heads={heads}: needs at least one per lag, {lags}": heads < lags,
        f"kv_heads={kv_heads}: GPT-2 has no grouped heads, so it must be {heads}": kv_heads
        not in (None, heads),
        f"vocab={vocab}: needs at least 4 tokens": vocab < 4,
        f"context={context}: needs at least {4 * lags} positions": context < 4 * lags,
    }
    for what, holds in wrong.items():
        if holds:
            raise OptionError(f"planted model 'selective_induction': {what}")
