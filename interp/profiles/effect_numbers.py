"""Numbers on whether a head matters and what it writes, from the sums over a corpus."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.statistics import RatioBootstrap, holm, sign_flip_ps
from interp.core.ties import FLOOR, ordered
from interp.core.tokens import show
from interp.profiles.ablation_look import CHANGES, DESCRIBED, TOKEN_KINDS, AblationSums
from interp.profiles.gradient_look import GradientSums, entries_of
from interp.profiles.judgement import DRAWS, Number, cluster_sums, ratio
from interp.profiles.writes import HeadWrites

if TYPE_CHECKING:
    from jaxtyping import Float

    from interp.profiles.corpus import TextWindow
    from interp.profiles.first_look import Look
    from interp.profiles.predictions import Prediction

TOKENS_SHOWN = 10  # output tokens raised most, and lowered most
LEAST_LOGIT = 1e-3  # nats by which such a token is raised or lowered
OFTEN = 5  # times a token occurs in the sample, from which it is among those
LEAST_DIVERGENCE = 1e-7  # nats per query that a mean ablation must change, for a causal share


@dataclass(frozen=True, eq=False)
class HeadEffects:
    """Effects of one head.

    Args:
        numbers: number, null, and count of documents, by metric.
        effect: whether it matters, as plain data for its description.
        writes: what it writes, as plain data for its description.
    """

    numbers: Mapping[str, tuple[Number, float, int]] = field(default_factory=dict)
    effect: Mapping[str, Any] = field(default_factory=dict)
    writes: Mapping[str, Any] = field(default_factory=dict)

    def joined(self, exact: HeadEffects | None) -> HeadEffects:
        """Add the numbers of exact ablations."""
        if exact is None:
            return self
        return HeadEffects(
            {**self.numbers, **exact.numbers}, {**self.effect, **exact.effect}, self.writes
        )

    def plain(self) -> dict[str, Any]:
        """Return the parts of a description that are known."""
        parts = {"effect": dict(self.effect), "writes": dict(self.writes)}
        return {name: part for name, part in parts.items() if part}


class _Sums:
    """Sums of windows by cluster of near-duplicates, with one bootstrap for all ratios."""

    def __init__(self, clusters: Sequence[int], seed: int) -> None:
        names, self.at = np.unique(np.asarray(clusters), return_inverse=True)
        self.n = len(names)
        self.draws = RatioBootstrap(self.n, draws=DRAWS, seed=seed)

    def cluster_sums(self, values: np.ndarray) -> np.ndarray:
        """Sum values of windows over clusters."""
        return cluster_sums(values.astype(np.float64), self.at, self.n)

    def ratio(self, top: np.ndarray, under: np.ndarray) -> Number:
        """Return a ratio of sums over documents."""
        return ratio(self.draws, self.cluster_sums(top), self.cluster_sums(under))


class Estimates:
    """Numbers from the sums of the forward and backward pass."""

    def __init__(
        self,
        look: Look,
        writes: HeadWrites,
        windows: Sequence[TextWindow],
        groups: Sequence[Sequence[int]],
        parts: Sequence[GradientSums],
        prediction: Prediction,
        seed: int,
    ) -> None:
        self.look, self.writes, self.parts = look, writes, parts
        self.windows, self.groups, self.prediction = windows, groups, prediction
        mine = [windows[i] for group in groups for i in group]
        self.sums = _Sums([window.cluster for window in mine], seed)
        self.lengths = np.array([len(window.ids) for window in mine], float)
        self.mean = sum(part.z for part in parts) / self.lengths.sum()
        self.predicted = np.array([len(prediction.of(window).tokens) for window in mine], float)
        self.sides = [windows[group[0]].part for group in groups]
        self.counts = np.bincount(np.concatenate([w.ids for w in mine]), minlength=1)
        self.loss = self._all("loss")
        self.change = self._beyond("slope", "slope_by_entry") * -1
        # Under the model's own predictions the changes of a document's tokens are uncorrelated, so
        # the square of their sum is the Fisher information along the change: the KL divergence to
        # second order is half of it.
        self.divergence = self.change**2 / 2

    def _all(self, name: str) -> np.ndarray:
        return np.concatenate([getattr(part, name) for part in self.parts]).astype(np.float64)

    def _beyond(self, whole: str, by_entry: str) -> Float[np.ndarray, "window head"]:
        """Return the sum over tokens of z beyond its mean, times a factor of each entry."""
        at_mean = self._all(by_entry) * self.mean
        at_means = np.zeros((len(self.lengths), self.look.n_heads))
        for site, entries in entries_of(self.look.sites).items():
            each = at_mean[:, entries].reshape(len(at_means), site.n_heads, site.d_v)
            at_means[:, self.look.places[site]] = each.sum(-1)
        return self._all(whole) - at_means

    @property
    def facts(self) -> dict[str, Any]:
        """The settings of the measured effects, for provenance."""
        tokens = float(self.predicted.sum())
        facts: dict[str, Any] = {
            "loss": float(self.loss.sum() / tokens),
            "predicted_tokens": int(tokens),
            "predicted": self.prediction.name,
            "replaced_by": "the mean of the head's output before the output projection, over all "
            "positions of the sample",
        }
        why = self.writes.why_not
        return facts | ({"writes_left_out": why} if why else {})

    def largest(self, n: int, used: Sequence[bool]) -> tuple[int, ...]:
        """Return the heads whose loss changes most to second order, in order of places."""
        size = np.abs((self.change + self.divergence)[np.asarray(used)].sum(0))
        return tuple(sorted(ordered(size)[:n]))

    def heads(self) -> dict[int, HeadEffects]:
        """Return numbers and descriptions of all heads."""
        return {place: self._of(place) for place in range(self.look.n_heads)}

    def _of(self, place: int) -> HeadEffects:
        predicted = self.predicted
        numbers = {
            "loss_without_estimate": self.sums.ratio(self.change[:, place], predicted),
            "ablation_divergence_estimate": self.sums.ratio(self.divergence[:, place], predicted),
        }
        writes: dict[str, Any] = {}
        if not self.writes.why_not:
            copied, weight = self._copied[:, place], self._weight[:, place]
            numbers["written_size"] = self.sums.ratio(self._size[:, place], self.lengths)
            numbers["direct_effect"] = self.sums.ratio(self._direct[:, place], predicted)
            numbers["copies"] = self.sums.ratio(copied, weight)
            writes = {
                "size": numbers["written_size"].plain(),
                "direct": numbers["direct_effect"].plain(),
                "copies": numbers["copies"].plain(),
                **self._tokens(place),
            }
        plain = {name: (one, float("nan"), self.sums.n) for name, one in numbers.items()}
        effect: dict[str, Any] = {
            "loss_estimate": numbers["loss_without_estimate"].plain(),
            "divergence_estimate": numbers["ablation_divergence_estimate"].plain(),
        }
        if self.prediction.mask is not None:
            effect["per"] = self.prediction.name
        return HeadEffects(plain, effect, writes)

    @cached_property
    def _direct(self) -> Float[np.ndarray, "window head"]:
        return self._beyond("direct", "direct_by_entry")

    @cached_property
    def _size(self) -> Float[np.ndarray, "window head"]:
        return self._all("size")

    @cached_property
    def _copied(self) -> Float[np.ndarray, "window head"]:
        return self._all("copied")

    @cached_property
    def _weight(self) -> Float[np.ndarray, "window head"]:
        return self._all("weight")

    @cached_property
    def _often(self) -> tuple[np.ndarray, np.ndarray]:
        """Tokens that occur often enough in the sample, and the map from the stream to them."""
        often = np.flatnonzero(self.counts >= OFTEN)
        return often, self.writes.end.columns(torch.from_numpy(often)).double().cpu().numpy()

    def _tokens(self, place: int) -> dict[str, list[list[Any]]]:
        """Return the output tokens that a head raises and lowers most, on both parts.

        Of the tokens that occur often enough in the sample; each with its effect on the logit where
        the head attends off the sink, beyond the mean of those tokens.
        """
        written, weight = [], []
        for side in (0, 1):
            mine = [part for part, at in zip(self.parts, self.sides, strict=True) if at == side]
            weight.append(sum(float(part.weight[:, place].sum()) for part in mine))
            written.append(np.sum([part.written[place] for part in mine], 0))
        return self.tokens_of(np.stack(written), np.array(weight))

    def tokens_of(
        self, written: Float[np.ndarray, "part d_model"], weight: Float[np.ndarray, " part"]
    ) -> dict[str, list[list[Any]]]:
        """Return the output tokens that a sum of writes raises and lowers most, on both parts."""
        often, columns = self._often
        if not len(often):
            return {"raises": [], "lowers": []}
        both = (written / np.maximum(weight, 1e-9)[:, None]) @ columns
        both -= both.mean(1, keepdims=True)
        size = np.where(np.sign(both[0]) == np.sign(both[1]), both.mean(0), 0.0)
        order = np.array(ordered(size), dtype=int)
        first = [at for at in order[:TOKENS_SHOWN] if size[at] >= LEAST_LOGIT]
        last = [at for at in order[::-1][:TOKENS_SHOWN] if size[at] <= -LEAST_LOGIT]
        return {
            name: [
                [show(self.look.model, int(often[at])), round(float(size[at]), 4)] for at in which
            ]
            for name, which in (("raises", first), ("lowers", last))
        }


def exact_numbers(
    chosen: Sequence[int], parts: Sequence[AblationSums], clusters: Sequence[int], seed: int
) -> dict[int, HeadEffects]:
    """Return the numbers of exact ablations, with p values corrected over the heads."""
    sums = _Sums(clusters, seed)
    change, tokens, divergence, queries = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("change", "tokens", "divergence", "queries")
    )
    # a change per token that is only the rounding of a loss of about 1 nat is none
    change = np.where(np.abs(change) <= FLOOR * tokens[:, None], 0.0, change)
    p = sign_flip_ps(sums.cluster_sums(change[..., 0]).T, seed=seed)
    corrected = holm(p)
    effects = {}
    for k, place in enumerate(chosen):
        loss = sums.ratio(change[:, k, 0], tokens[:, 0])
        kinds = {
            name: sums.ratio(change[:, k, at], tokens[:, at])
            for at, name in enumerate(TOKEN_KINDS, 1)
            if tokens[:, at].sum() > 0
        }
        mean = divergence[:, k, 0]
        real = mean.sum() >= LEAST_DIVERGENCE * queries.sum()
        shares = {
            name: sums.ratio(mean - divergence[:, k, CHANGES.index(name)], mean * real)
            for name in DESCRIBED
        }
        control = shares["swapped_document"]
        nan = float("nan")
        numbers = {"loss_without": (loss, nan)}
        numbers |= {f"loss_without:{name}": (one, nan) for name, one in kinds.items()}
        apart = sums.ratio(mean, queries)
        numbers["ablation_divergence"] = (apart, nan)
        for name in DESCRIBED[:-1]:
            numbers[f"causal_{name}"] = (shares[name], control.value if name == "rules" else nan)
        numbers["control_causal_swapped_document"] = (control, nan)
        about = {
            "loss": loss.plain(),
            "divergence": apart.plain(),
            "p": float(p[k]),
            "p_corrected": float(corrected[k]),
            "by_kind": {
                name: {**one.plain(), "n_tokens": int(tokens[:, at].sum())}
                for at, name in enumerate(TOKEN_KINDS, 1)
                if (one := kinds.get(name)) is not None
            },
            "causal": {name: one.plain() for name, one in shares.items()},
        }
        counted = {name: (one, null, sums.n) for name, (one, null) in numbers.items()}
        effects[place] = HeadEffects(counted, about)
    return effects
