"""Cards of features: where they are active, which logits they move, and which heads write them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.files import write_page
from interp.core.presenter import drawn, present
from interp.core.result import Result
from interp.dictionaries.profile import known_errors, mean_known

if TYPE_CHECKING:
    import pandas as pd

Array = np.ndarray
MEASURED = ("activation", "density")
"""Metrics of a card with a value per prompt."""


@dataclass(frozen=True)
class FeatureExample:
    """Position at which a feature has one of its largest codes, with the tokens around it.

    Args:
        prompt: index of the prompt.
        position: index of the token in the prompt.
        activation: the code there.
        start: position of the first token that is shown.
        tokens: texts of the tokens from there; ids for a model without a tokenizer.
        codes: the feature's code at each of them; NaN at positions that are left out.
    """

    prompt: int
    position: int
    activation: float
    start: int
    tokens: tuple[str, ...]
    codes: tuple[float, ...]


@dataclass(frozen=True)
class FeatureCard:
    """Inputs that activate one feature, and its effects.

    Args:
        feature: the feature.
        examples: its largest codes, largest first.
        promoted: tokens whose logits its direction raises most, with the effects.
        suppressed: tokens whose logits it lowers most.
        logit_effect: largest absolute effect on a logit; NaN if there is none to compute.
        logit_null: the same for random directions of the same norm, mean.
        logit_p: share of random directions, counting this one, with as large an effect.
        heads: by head, its share of the norm of the decoder row; empty unless the place is z.
        head_null: largest share of a head in a random direction, mean.
        head_p: share of random directions, counting this one, with as large a share.
        of_examples: by head, its share of the absolute contributions to the code, mean over the
            examples.
    """

    feature: int
    examples: tuple[FeatureExample, ...]
    promoted: tuple[tuple[str, float], ...]
    suppressed: tuple[tuple[str, float], ...]
    logit_effect: float
    logit_null: float
    logit_p: float
    heads: tuple[float, ...]
    head_null: float
    head_p: float
    of_examples: tuple[float, ...]

    @property
    def main_head(self) -> int | None:
        """Head with the largest share of the decoder row; None unless the place is z."""
        return int(np.argmax(self.heads)) if self.heads else None


@dataclass(frozen=True, eq=False, repr=False)
class FeatureCards(Result):
    """One card per feature.

    A row is a feature and a metric:

    - `activation`: mean code at the positions where the feature is active, mean over the prompts
      that have one;
    - `density`: share of positions where it is active, mean over prompts;
    - `logit_effect`: largest absolute effect of one unit of code on a logit;
    - `head_share`: share of the decoder row's norm in the head that has most of it (z only).

    `null` is the same on shuffled tokens for the first two, and the mean of random directions for
    the others, with the rank among them as `p`. The last two are of weights, so they have no error.

    Args:
        cards: the cards.
        measured: `activation` and `density` on every prompt; NaN without an active position.
        shuffled: the same on the prompts with shuffled tokens.
        layer: layer of the dictionary.
        notes: reasons why logit effects or shares of heads are absent.
        clusters: a label per prompt where prompts share something.
    """

    cards: tuple[FeatureCard, ...] = field(repr=False)
    measured: Float[Array, "card metric prompt"] = field(repr=False)
    shuffled: Float[Array, "card metric prompt"] = field(repr=False)
    layer: int
    notes: tuple[str, ...] = ()
    clusters: tuple[str, ...] | None = field(default=None, repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _units = ("feature",)
    _holds = (FeatureCard, FeatureExample)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics that the features have."""
        logits = any(c.promoted for c in self.cards)
        heads = any(c.heads for c in self.cards)
        return (*MEASURED, *["logit_effect"] * logits, *["head_share"] * heads)

    @property
    def per_prompt(self) -> Float[Array, "row prompt"]:  # type: ignore[override]
        """Value of every row on every prompt; NaN for values of weights."""
        rows = self._all_rows()
        return rows if self._kept is None else rows[list(self._kept)]

    def _all_rows(self) -> Float[Array, "row prompt"]:
        number, _, prompts = self.measured.shape
        of_weights = np.full((number, len(self.metrics) - len(MEASURED), prompts), np.nan)
        return np.concatenate([self.measured, of_weights], 1).reshape(-1, prompts)

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        mean, n = mean_known(self.measured)
        null, _ = mean_known(self.shuffled)
        rows = []
        for i, card in enumerate(self.cards):
            values = {
                name: (mean[i, m], null[i, m], np.nan, n[i, m], unit)
                for m, (name, unit) in enumerate(zip(MEASURED, ("code", "share"), strict=True))
            }
            values["logit_effect"] = (
                card.logit_effect,
                card.logit_null,
                card.logit_p,
                1,
                "logit per code",
            )
            values["head_share"] = (
                max(card.heads, default=np.nan),
                card.head_null,
                card.head_p,
                1,
                "share of norm",
            )
            main = np.nan if card.main_head is None else card.main_head
            for name in self.metrics:
                score, nothing, p, count, unit = values[name]
                rows.append(
                    {
                        "feature": card.feature,
                        "metric": name,
                        "score": score,
                        "null": nothing,
                        "n": count,
                        "unit": unit,
                        "p": p,
                        "main_head": main,
                    }
                )
        return pd.DataFrame(rows).assign(sem=known_errors(self._all_rows(), self.clusters))

    def kept_cards(self) -> tuple[FeatureCard, ...]:
        """Return the cards of the rows, each once: all of them, or those that `top` kept."""
        if self._kept is None:
            return self.cards
        return tuple(
            self.cards[i] for i in dict.fromkeys(r // len(self.metrics) for r in self._kept)
        )

    def examples(self) -> pd.DataFrame:
        """Return one row per example: feature, prompt, position, activation, token, context."""
        import pandas as pd

        columns = ["feature", "prompt", "position", "activation", "token", "context"]
        rows = [
            (
                c.feature,
                x.prompt,
                x.position,
                x.activation,
                x.tokens[x.position - x.start],
                "".join(x.tokens),
            )
            for c in self.kept_cards()
            for x in c.examples
        ]
        return pd.DataFrame(rows, columns=columns)

    def logits(self) -> pd.DataFrame:
        """Return one row per feature and token: effect on its logit.

        `null` is the largest absolute effect of random directions, to compare a feature's with.
        """
        import pandas as pd

        columns = ["feature", "token", "logit_effect", "null"]
        rows = [
            (c.feature, token, effect, c.logit_null)
            for c in self.kept_cards()
            for token, effect in (*c.promoted, *c.suppressed[::-1])
        ]
        return pd.DataFrame(rows, columns=columns)

    def head_shares(self) -> pd.DataFrame:
        """Return one row per feature and head: shares of the decoder row and of the examples."""
        import pandas as pd

        columns = ["feature", "layer", "head", "decoder", "examples", "null"]
        rows = [
            (
                c.feature,
                self.layer,
                h,
                share,
                c.of_examples[h] if c.of_examples else np.nan,
                c.head_null,
            )
            for c in self.kept_cards()
            for h, share in enumerate(c.heads)
        ]
        return pd.DataFrame(rows, columns=columns)

    def page(self, *, title: str = "Features") -> str:
        """Return a self-contained page with one card per feature."""
        return drawn("page", self, title=title).decode()

    def save_html(self, path: str | os.PathLike, *, title: str | None = None) -> None:
        """Write the page; raises StoreError, and an existing file is then unchanged."""
        write_page(path, self.page(title=title or "Features").encode())

    def __repr__(self) -> str:
        cards = self.kept_cards()
        known = self._rows().set_index(["feature", "metric"])["score"]
        lines = [f"Cards of {len(cards)} features of layer {self.layer}:"]
        for c in cards[:8]:
            text = f"  F{c.feature}: active at {known[c.feature, 'density']:.1%} of positions"
            if c.examples:
                first = c.examples[0]
                token = first.tokens[first.position - first.start]
                text += f", mean {known[c.feature, 'activation']:.3g}, most at {token!r}"
            if c.promoted:
                token, effect = max(c.promoted[0], c.suppressed[0], key=lambda pair: abs(pair[1]))
                text += f", moves the logit of {token!r} by {effect:+.3g} (null {c.logit_null:.3g})"
            if c.heads:
                text += f", L{self.layer}H{c.main_head} {max(c.heads):.0%} (null {c.head_null:.0%})"
            lines.append(text)
        return "\n".join([*lines, *self.notes])


present(FeatureCards, page="interp.report.feature_cards:cards_page")
