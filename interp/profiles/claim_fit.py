"""Row models of a hypothesis and of what should do worse, fitted on some documents for the others.

All models are fitted on the same documents: position; the hypothesis alone, and with position; a
random hypothesis that names as many keys of each query, alone and with position. The judged
documents choose and fit nothing. The hypothesis read on another document keeps its parameters.

A hypothesis says where a head attends to, so that its keys never count for less than the others:
without this, the keys that a head avoids would explain it as well as those that it attends to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.errors import OptionError
from interp.core.statistics import redraw_counts
from interp.profiles.first_look import row_divergence, uniform_rows
from interp.profiles.log_linear import (
    PASSES,
    Features,
    Fit,
    Sheet,
    fit_row_models,
    log_rows,
    position_features,
)
from interp.profiles.rows_read import AttentionRows, read_rows

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

    from interp.model.calls.sites import Site
    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow
    from interp.profiles.hypothesis import Hypothesis
    from interp.profiles.reading import TokenReader

MODELS = {
    "position": ("position",),
    "alone": ("claim",),
    "with_position": ("position", "claim"),
    "random_keys": ("position", "random"),
    "random_alone": ("random",),
    "other_sentence": ("position", "foreign"),
    "other_sentence_alone": ("foreign",),
}
"""Row models, and the features that each of them has."""
_JUDGED = ("alone", "with_position")
REFITTED = ("position", *_JUDGED)
_MOVED = 2  # passes of a fit that starts at that of all documents: one Newton step
REFITS = 12  # draws of the documents of the fit, of which the spread is added to intervals


@dataclass(frozen=True, eq=False)
class ClaimPage:
    """One document: the rows of all heads of one attention, and the features of row models.

    Args:
        window: the document.
        rows: the rows.
        claim: features of the hypothesis.
        other: the same on the tokens of another document, for documents that judge.
        random: the same of random keys, as many for each query.
        of_kind: attention off the sink of all queries of the kind that it is limited to.
        whole: the same of all queries that were read.
        foreign: features of a sentence about something else, if the hypothesis is a sentence.
    """

    window: TextWindow
    rows: AttentionRows
    claim: Float[Tensor, "feature row pos"]
    other: Float[Tensor, "feature row pos"]
    random: Float[Tensor, "feature row pos"]
    of_kind: Float[Tensor, " head"]
    whole: Float[Tensor, " head"]
    foreign: Float[Tensor, "feature row pos"] | None = None

    @property
    def models(self) -> dict[str, tuple[str, ...]]:
        """Row models whose features are known."""
        known = self.foreign is not None
        return {name: kinds for name, kinds in MODELS.items() if known or "foreign" not in kinds}

    def features(self, names: Sequence[str], **instead: Tensor) -> Features:
        """Return the features of one row model."""
        position = position_features(self.window.queries, len(self.window.ids))
        known = {"position": position, "claim": self.claim, "random": self.random} | instead
        if self.foreign is not None:
            known["foreign"] = self.foreign
        return Features.of(torch.cat([known[name] for name in names]))


class ClaimPages:
    """Reader of documents for a hypothesis about one head.

    Args:
        model: the model.
        site: the attention of the head.
        reader: reader of the model's tokens.
        hypothesis: the hypothesis.
        seed: seed of the random keys.
    """

    def __init__(
        self, model: Model, site: Site, reader: TokenReader, hypothesis: Hypothesis, seed: int
    ) -> None:
        self.model, self.site, self.reader = model, site, reader
        self.hypothesis, self.seed = hypothesis, seed
        self.foreign = hypothesis.foreign(seed)

    def page(self, window: TextWindow, other: TextWindow | None, number: int) -> ClaimPage:
        """Run the model on one document and evaluate the hypothesis on it, and on another one."""
        found: list[AttentionRows] = []
        text, queries, said = self.reader.read(window.ids), window.queries, self.hypothesis
        read_rows(
            self.model,
            window if said.at is None else replace(window, queries=np.arange(2, len(text))),
            sorted(self.reader.special),
            lambda _, rows: found.append(rows),
            [self.site],
        )
        [rows] = found
        of_kind = whole = rows.weight.sum(1)
        if said.at is not None:
            kind = torch.from_numpy(said.at.mask(text)[2:])
            of_kind, rows = rows.weight[:, kind].sum(1), rows.at(queries - 2)
        claim = elsewhere = said.features(text, queries)
        if other is not None:
            tokens = np.resize(np.asarray(other.ids), len(window.ids)).tolist()
            elsewhere = said.features(self.reader.read(tokens), queries)
        rng = np.random.default_rng([self.seed, number, 17])
        return ClaimPage(
            window,
            rows,
            claim,
            elsewhere,
            shuffled(claim, rows.visible, rng),
            of_kind,
            whole,
            None if self.foreign is None else self.foreign.features(text, queries),
        )


def shuffled(
    claim: Float[Tensor, "feature row pos"], visible: Tensor, rng: np.random.Generator
) -> Float[Tensor, "feature row pos"]:
    """Exchange the visible keys of every query at random: as many are named, but not which."""
    new = torch.zeros_like(claim)
    for row, seen in enumerate(visible):
        keys = seen.nonzero().flatten()
        new[:, row, keys] = claim[:, row, keys[torch.from_numpy(rng.permutation(len(keys)))]]
    return new


class ClaimFit:
    """Row models of a hypothesis, for every head of one attention.

    Args:
        pages: the documents of the fit.
        head: number of the head that the hypothesis is about.
        seed: seed of the draws of documents.
    """

    def __init__(self, pages: Sequence[ClaimPage], head: int, seed: int) -> None:
        self.pages, self.head = pages, head
        rng = np.random.default_rng([seed, 19])
        n = len(pages)
        drawn = redraw_counts(n, REFITS, rng)
        self._used: dict[str, Tensor] = {}
        fits = {name: self._fitted(name, np.ones(n)) for name in pages[0].models}
        for name in _JUDGED:
            fits[name] = self._without_avoided(name, fits[name])
        self.parameters = {name: fit.parameters for name, fit in fits.items()}
        self.refits = []
        for counts in drawn:
            refit = {}
            for name in REFITTED:
                mine = slice(head, head + 1)
                start = Fit(fits[name].parameters[mine], fits[name].curvature[mine])
                refit[name] = self._fitted(name, counts, start).parameters
            self.refits.append(refit)

    @cached_property
    def _features(self) -> dict[str, list[Features]]:
        models = self.pages[0].models
        return {
            name: [page.features(kinds) for page in self.pages] for name, kinds in models.items()
        }

    def _without_avoided(self, name: str, fit: Fit) -> Fit:
        """Fit a row model again, until no entry makes its keys count for less than others."""
        n_entries = len(self.pages[0].claim)
        used = torch.ones(fit.parameters.shape, dtype=torch.bool)
        while (avoided := fit.parameters[:, -n_entries:] < 0).any():
            used[:, -n_entries:] &= ~avoided
            self._used[name] = used
            fit = self._fitted(name, np.ones(len(self.pages)))
        return fit

    def _fitted(
        self, name: str, counts: Float[np.ndarray, " page"], start: Fit | None = None
    ) -> Fit:
        """Fit one row model on documents that count so often; from a fit, only the one head."""
        heads = slice(None) if start is None else slice(self.head, self.head + 1)
        pages = zip(counts.tolist(), self._features[name], self.pages, strict=True)
        used = [(c, f, page) for c, f, page in pages if c]
        observed = sum(c * (f.mass(page.rows.mass[heads]) @ f.table.T) for c, f, page in used)
        weight = sum(c * page.rows.weight[heads].sum(1) for c, _, page in used)
        assert isinstance(observed, torch.Tensor)
        assert isinstance(weight, torch.Tensor)

        def sheets(chosen: Int[Tensor, " head"]) -> Any:
            for c, f, page in used:
                yield Sheet(f, page.rows.visible, c * page.rows.weight[heads][chosen])

        passes = PASSES if start is None else _MOVED
        free = self._used[name][heads] if name in self._used else None
        return fit_row_models(sheets, observed, weight, start=start, used=free, passes=passes)

    def nats(self, page: ClaimPage) -> dict[str, Float[np.ndarray, " head"]]:
        """Return the divergence of a document's rows from every row model, by head."""
        rows = page.rows
        values = {"even": row_divergence(rows, uniform_rows(rows.visible)).sum(1)}
        for name, kinds in page.models.items():
            values[name] = _divergence(page.features(kinds), self.parameters[name], rows)
        for name in _JUDGED:
            swapped = page.features(MODELS[name], claim=page.other)
            values[f"other_text_{name}"] = _divergence(swapped, self.parameters[name], rows)
        return {name: x.double().numpy() for name, x in values.items()}

    def refitted(self, page: ClaimPage) -> dict[str, Float[np.ndarray, " draw"]]:
        """Return the divergence from the models of every draw of the documents of the fit."""
        rows, at = page.rows, slice(self.head, self.head + 1)
        mine = AttentionRows(rows.mass[at], rows.visible, rows.weight[at], rows.sink[at])
        values = {}
        for name in REFITTED:
            features = page.features(MODELS[name])
            drawn = [_divergence(features, refit[name], mine) for refit in self.refits]
            values[name] = torch.cat(drawn).double().numpy()
        return values


def _divergence(
    features: Features, parameters: Float[Tensor, "head feature"], rows: AttentionRows
) -> Float[Tensor, " head"]:
    logits = features.logits(parameters)
    return row_divergence(rows, log_rows(logits, rows.visible)).sum(1)


def attention_on_entries(
    hypothesis: Hypothesis, pages: Sequence[ClaimPage], head: int
) -> Mapping[str, Float[np.ndarray, "page entry"]]:
    """Return the attention off the sink on each entry's keys, of a head and of even attention."""
    held, even, pairs, named = [], [], 0, np.zeros(len(hypothesis.entries), int)
    for page in pages:
        rows = page.rows
        seen = page.claim * rows.visible
        held.append(torch.einsum("rk,frk->f", rows.mass[head], seen).numpy())
        share = rows.weight[head] / rows.visible.sum(-1).clamp_min(1)
        even.append(torch.einsum("r,frk->f", share, seen).numpy())
        pairs += int(rows.visible.sum())
        if hypothesis.program is None:
            named += seen.ne(0).sum((1, 2)).numpy()
    if hypothesis.program is None and named.max() in (0, pairs):
        what = "every key" if named.any() else "no key"
        raise OptionError(
            f"{hypothesis.asked}: it names {what} that {hypothesis.head} may see off the sink, on"
            f" {len(pages)} documents, so that it says nothing; give another hypothesis or corpus"
        )
    return {"held": np.stack(held).astype(float), "even": np.stack(even).astype(float)}
