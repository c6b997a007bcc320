"""Interleaved Markov chains, attention at each lag on them, and the lag with the most attention.

x_t depends on x_{t-k}, with one unknown lag k per sequence: the sequence is k chains with one
transition matrix, interleaved. A model that knows the matrix P must infer the lag from the
sequence: the likelihood of lag k is the product of P[x_{t-k}, x_t].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.core.prompts import Prompts, bos_id, ordinary_ids
from interp.core.ties import ordered_by
from interp.heads.trials import Lab
from interp.model.calls.call import Call
from interp.model.calls.sites import Site

if TYPE_CHECKING:
    from interp.model.model import Model


@dataclass(frozen=True, eq=False)
class LagMasses:
    """Attention mass at each lag per prompt, head and row, with the true and likeliest lags.

    `mass[site][trial, head, row, lag]` is the mass on x_{t+1-k}; `likeliest` are the lags of
    maximum likelihood given the tokens visible to each row.
    """

    mass: dict[Site, Float[Tensor, "trial head row lag"]]
    true: Int[np.ndarray, " trial"]
    likeliest: Int[np.ndarray, "trial row"]
    law: str
    # label of prompts that share a transition matrix, or at least a round over the lags
    rounds: tuple[str, ...]
    # share of rows where the model's top token is the most probable one under the true lag
    model_right: float

    @property
    def right(self) -> dict[Site, Float[Tensor, "trial head"]]:
        """Return the mass at the true lag, averaged over rows."""
        return {site: self._at_true(x.mean(2)) for site, x in self.mass.items()}

    @property
    def wrong(self) -> dict[Site, Float[Tensor, "trial head"]]:
        """Return the mass per wrong lag, averaged over rows and these lags."""
        masses = {}
        for site, x in self.mass.items():
            each = x.mean(2)
            masses[site] = (each.sum(-1) - self._at_true(each)) / (each.shape[-1] - 1)
        return masses

    def _at_true(self, each: Float[Tensor, "trial head lag"]) -> Float[Tensor, "trial head"]:
        at = torch.as_tensor(self.true - 1)[:, None, None].expand(*each.shape[:2], 1)
        return each.gather(-1, at).squeeze(-1)

    def agreement(self) -> dict[Head, tuple[float, float]]:
        """Return per decoder head how often its top lag is the true one and the likeliest one."""
        rates = {}
        for site, x in self.mass.items():
            picked = 1 + x.argmax(-1).numpy()  # trial head row
            true = (picked == self.true[:, None, None]).mean((0, 2))
            likely = (picked == self.likeliest[:, None]).mean((0, 2))
            for head in range(x.shape[1]):
                rates[Head(site.layer, head)] = float(true[head]), float(likely[head])
        return rates

    def notes(self) -> dict[str, Any]:
        """Return the notes for the record of a score."""
        each = self.agreement()
        best = ordered_by(each, lambda head: each[head][1])[0]
        bayes = float((self.likeliest == self.true[:, None]).mean())
        return {
            "law": self.law,
            "likeliest lag is the true one": f"{bayes:.3f} of rows",
            "best head": f"{best} picks the true lag in {each[best][0]:.3f} and the likeliest in "
            f"{each[best][1]:.3f} of rows",
            "model": f"its first choice is that of the true lag in {self.model_right:.3f} of rows",
        }


def lag_masses(
    model: Model, lab: Lab, lags: int, states: int, length: int, sequences: int
) -> LagMasses:
    """Run a model on interleaved chains of every lag; rows are the second half of each prompt."""
    if lags < 2 or sequences < 1:
        raise OptionError(
            f"lags={lags}, sequences={sequences}: there must be at least 2 lags and 1 sequence"
        )
    rng, bos = np.random.default_rng(lab.seed), bos_id(model)
    first = () if bos is None else (bos,)
    ends = [x for x in (model.limit, model.context) if x is not None]
    length = min([length, *(end - len(first) for end in ends)])
    if length < 4 * lags:
        raise PromptError(
            f"sequences of {length} tokens are too short to distinguish {lags} lags; use "
            f"length={4 * lags} or more"
        )
    each = -(-sequences // lags)
    # a new matrix per round over the lags: a score on one matrix says little about others
    laws = [_law(model, states, rng) for _ in range(each)]
    whose = laws[0][2]
    true = np.tile(np.arange(1, lags + 1), each)
    law_of = [laws[at // lags][0] for at in range(len(true))]
    tokens_of = [laws[at // lags][1] for at in range(len(true))]
    chains = np.stack(
        [interleaved(law, int(k), length, rng) for law, k in zip(law_of, true, strict=True)]
    )
    rows = np.arange(length // 2, length)
    likeliest = np.array(
        [
            [likeliest_lag(law, c[: t + 1], lags) for t in rows]
            for law, c in zip(law_of, chains, strict=True)
        ]
    )
    at = torch.as_tensor(rows + len(first))
    keys = at[:, None] + 1 - torch.arange(1, lags + 1)  # row, lag
    masses: dict[Site, list[Tensor]] = {}
    right = []

    def visit(site: Site, call: Call, real: Tensor) -> None:
        model.require_finite(call, site)
        pattern = call.pattern(at.to(call.z.device))[0].double().cpu()
        mine = pattern.gather(-1, keys.expand(len(pattern), -1, -1))
        masses.setdefault(site, []).append(mine)

    every = zip(chains, true, law_of, tokens_of, strict=True)
    for done, (chain, k, law, tokens) in enumerate(every):
        prompts = Prompts(((*first, *tokens[chain].tolist()),), "chains")
        logits = model.read(prompts, visit, last=len(rows))[0, -len(rows) :].cpu().numpy()
        best = law[chain[rows + 1 - k]].argmax(-1)
        right.append(float((logits[:, tokens].argmax(-1) == best).mean()))
        lab.progress("selective_induction", done + 1, len(true))
    stacked = {site: torch.stack(x) for site, x in masses.items()}
    rounds = tuple(f"round {at // lags}" for at in range(len(true)))
    return LagMasses(stacked, true, likeliest, whose, rounds, float(np.mean(right)))


def _law(
    model: Model, states: int, rng: np.random.Generator
) -> tuple[Float[np.ndarray, "state state"], Int[np.ndarray, " state"], str]:
    """Return the transition matrix, the token of each state, and the matrix's description."""
    stated = getattr(model.config, "transition_matrix", None)
    if stated is not None:
        law = np.asarray(stated, dtype=float)
        fits = law.ndim == 2 and law.shape[0] == law.shape[1] < model.d_vocab
        if not (fits and (law >= 0).all() and np.allclose(law.sum(1), 1)):
            raise PromptError(
                f"{model.name}: the transition_matrix of its config is not valid: it must be "
                f"square, with rows that sum to 1 and fewer states than tokens"
            )
        return law, np.arange(1, len(law) + 1), f"the model's own, {len(law)} states"
    ids = ordinary_ids(model)
    if states > len(ids):
        raise PromptError(
            f"{model.name} has {len(ids)} tokens, too few to draw {states} states "
            f"from; lower states"
        )
    law = transition(states, rng)
    whose = f"random, {states} states, another in every round over the lags"
    return law, rng.choice(ids, states, replace=False), whose


def transition(states: int, rng: np.random.Generator) -> Float[np.ndarray, "state state"]:
    """Draw a random transition matrix, each row from a flat Dirichlet distribution."""
    if states < 2:
        raise OptionError(f"states={states}: a chain needs at least 2 states")
    return rng.dirichlet(np.ones(states), states)


def stationary(law: Float[np.ndarray, "state state"]) -> Float[np.ndarray, " state"]:
    """Return the stationary distribution of a transition matrix."""
    n = len(law)
    equations = np.vstack([law.T - np.eye(n), np.ones(n)])
    solution = np.linalg.lstsq(equations, np.append(np.zeros(n), 1), rcond=None)[0]
    return np.clip(solution, 0, None) / np.clip(solution, 0, None).sum()


def interleaved(
    law: Float[np.ndarray, "state state"],
    lag: int,
    length: int,
    rng: np.random.Generator,
) -> Int[np.ndarray, " pos"]:
    """Draw one sequence: the first `lag` states are stationary, then x_t follows x_{t-lag}."""
    if not 1 <= lag < length:
        raise OptionError(
            f"lag {lag} in a sequence of {length}: the lag must lie between 1 and {length - 1}"
        )
    states = np.empty(length, dtype=np.int64)
    states[:lag] = rng.choice(len(law), lag, p=stationary(law))
    for t in range(lag, length):
        states[t] = rng.choice(len(law), p=law[states[t - lag]])
    return states


def likelihoods(
    law: Float[np.ndarray, "state state"], states: Int[np.ndarray, " pos"], lags: int
) -> Float[np.ndarray, "pos lag"]:
    """Return P[x_{t-k}, x_t] for k from 1 to `lags`, from the first t with all lags."""
    t = np.arange(lags, len(states))
    return np.stack([law[states[t - k], states[t]] for k in range(1, lags + 1)], 1)


def likeliest_lag(
    law: Float[np.ndarray, "state state"], states: Int[np.ndarray, " pos"], lags: int
) -> int:
    """Return the lag of maximum likelihood."""
    with np.errstate(divide="ignore"):
        return 1 + int(np.log(likelihoods(law, states, lags)).sum(0).argmax())
