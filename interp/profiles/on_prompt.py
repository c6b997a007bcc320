"""A description of heads on one prompt: which rules fire, and what they explain of a row."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.errors import OptionError
from interp.core.ties import ordered_by
from interp.profiles.corpus import TextWindow
from interp.profiles.first_look import Look
from interp.profiles.log_linear import logits_of_position
from interp.profiles.reading import CorpusWords
from interp.profiles.rows_read import FLOOR, described_sites
from interp.profiles.rules import KeyRule, chosen_rules

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from interp.model.model import Model
    from interp.profiles.result import Profile

FIRST = 12  # heads that are listed for a rule of the user


class PromptRules:
    """The rules on one prompt, beside what a profile says of the heads.

    Args:
        model: the model.
        ids: token ids of the prompt.
        profile: a profile of the model; without one rules are evaluated and rows not explained.
        rules: rules of the user, which no description has.

    Raises:
        OptionError: the model has no attention whose rows are described, or two rules have one
            name.
        UnknownName: the profile has a rule that is not declared here.
    """

    def __init__(
        self,
        model: Model,
        ids: Sequence[int],
        profile: Profile | None = None,
        rules: Sequence[KeyRule] = (),
    ) -> None:
        fitted = None if profile is None else profile.row_model
        has_text = model.tokenizer is not None
        named = {rule.name: rule for rule in rules}
        known = chosen_rules(
            None if fitted is None else [named.pop(x, x) for x in fitted.rules], has_text
        )
        if fitted is None:  # a rule of the user stands for a declared one of its name
            known = [rule for rule in known if rule.name not in named]
        added = [*named.values()]
        self.rules = chosen_rules([*known, *added], has_text)
        self.n_known, self.profile, self.fitted = len(known), profile, fitted
        corpus = fitted and CorpusWords(
            fitted.names, tuple(fitted.frequent.tolist()), tuple(fitted.common.tolist())
        )
        sites = described_sites(model)
        look = Look(model, sites, self.rules, torch.zeros(0, 0), corpus)
        self.n = len(ids)
        window = TextWindow("", tuple(ids), 0, np.arange(self.n), 0, 0)
        self.masks = look.masks(window).numpy()
        self.visible: dict[tuple[str, int], Bool[np.ndarray, "row pos"]] = {}
        names = {place.start: (site.stack, site.layer) for site, place in look.places.items()}
        look.rows(
            window, lambda at, rows: self.visible.update({names[at.start]: rows.visible.numpy()})
        )
        self.places = {
            (str(one["stack"]), int(one["layer"]), int(one["head"])): at
            for at, one in enumerate(() if profile is None else profile.descriptions)
        }

    def firing(self, query: int, key: int) -> list[int]:
        """Return the numbers of the rules that fire on a pair."""
        return np.flatnonzero(self.masks[:, query, key]).tolist()

    def explain(
        self,
        head: tuple[str, int, int],
        weights: Float[np.ndarray, "query_pos key_pos"],
        query: int,
        key: int,
    ) -> dict[str, Any]:
        """Return the rules on a pair, and how much of its row the description explains."""
        if not (0 <= query < self.n and 0 <= key < self.n):
            raise OptionError(f"query {query}, key {key}: the prompt has {self.n} tokens")
        visible = self.visible.get(head[:2])
        if visible is None:
            return {"rules": [], "sink": False, "why": "this attention has no described rows"}
        at = self.places.get(head)
        fired = [self._rule(rule, at) for rule in self.firing(query, key)]
        answer: dict[str, Any] = {
            "rules": ordered_by(fired, lambda rule: abs(rule["nats"] or 0)),
            "sink": bool(key <= query and not visible[query, key] and weights[query, key] > 0),
        }
        if at is None or self.fitted is None:
            answer["why"] = "no profile of this head is loaded, so its row is not explained"
            return answer
        mine = np.where(visible[query], weights[query], 0.0).astype(np.float64)
        off = float(mine.sum())
        if off < FLOOR or visible[query].sum() < 2:
            answer["why"] = f"only {100 * off:.1f} % of this row is off the sink, or one key is"
            return answer
        row = mine / off
        models = self._models(at, visible[query], query)
        nats = [_divergence(row, one) for one in models]
        shares = [1 - x / nats[0] if nats[0] > 1e-9 else None for x in nats[1:]]
        answer["row"] = {
            "off_sink": off,
            "even": nats[0],
            "position": nats[1],
            "rules": nats[2],
            "explained_position": shares[0],
            "explained_rules": shares[1],
            "weight": float(row[key]),
            "predicted": float(models[2][key]),
        }
        return answer

    def _rule(self, rule: int, at: int | None) -> dict[str, Any]:
        one = self.rules[rule]
        known = at is not None and self.fitted is not None and rule < self.n_known
        nats = float(self.fitted.parameters[at, rule]) if known else None  # type: ignore[union-attr]
        return {"name": one.name, "phrase": one.phrase, "nats": nats, "own": rule >= self.n_known}

    def _models(
        self, at: int, visible: Bool[np.ndarray, " pos"], query: int
    ) -> list[Float[np.ndarray, " pos"]]:
        """Return the even row, that of position, and that of the rules, over the visible keys."""
        assert self.fitted is not None
        position = torch.from_numpy(self.fitted.position[at : at + 1])
        base = logits_of_position(position, np.array([query]), self.n)[0, 0].numpy()
        rules = self.fitted.parameters[at] @ self.masks[: self.n_known, query]
        return [_softmax(x, visible) for x in (np.zeros(self.n), base, base + rules)]

    def own_scores(
        self, patterns: dict[tuple[str, int, int], Float[np.ndarray, "query_pos key_pos"]]
    ) -> list[dict[str, Any]]:
        """Return how much attention heads pay to the rules of the user, beside what is predicted.

        The prediction is that of the head's description in the profile; without one, the even row.
        """
        scores = []
        for rule in range(self.n_known, len(self.rules)):
            mask, heads = self.masks[rule], []
            for head, weights in patterns.items():
                visible = self.visible.get(head[:2])
                if visible is None:
                    continue
                mass = np.where(visible, weights, 0.0)
                off = mass.sum(1)
                rows = np.flatnonzero((off >= FLOOR) & (visible.sum(1) > 1))
                total = off[rows].sum()
                if not total:
                    continue
                guess = sum(
                    off[q] * self._predicted(head, visible, q)[mask[q]].sum() for q in rows.tolist()
                )
                heads.append(
                    (head, float(mass[rows][mask[rows]].sum() / total), float(guess / total))
                )
            heads.sort(key=lambda one: one[2] - one[1])
            one = self.rules[rule]
            scores.append(
                {
                    "name": one.name,
                    "phrase": one.phrase,
                    "fires": int(mask.sum()),
                    "described": self.fitted is not None,
                    "heads": heads[:FIRST],
                }
            )
        return scores

    def _predicted(
        self, head: tuple[str, int, int], visible: Bool[np.ndarray, "row pos"], query: int
    ) -> Float[np.ndarray, " pos"]:
        at = self.places.get(head)
        if at is None or self.fitted is None:
            return _softmax(np.zeros(self.n), visible[query])
        return self._models(at, visible[query], query)[2]


def _softmax(
    logits: Float[np.ndarray, " pos"], visible: Bool[np.ndarray, " pos"]
) -> Float[np.ndarray, " pos"]:
    shown = np.where(visible, logits, -np.inf)
    exponentials = np.exp(shown - shown[visible].max())
    return exponentials / exponentials.sum()


def _divergence(row: Float[np.ndarray, " pos"], model: Float[np.ndarray, " pos"]) -> float:
    """Return the KL divergence of a row from a model's row, in nats."""
    there = row > 0
    return float((row[there] * np.log(row[there] / np.maximum(model[there], 1e-22))).sum())
