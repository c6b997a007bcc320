"""Judge a claim that a feature of a sparse dictionary fires on some tokens.

The codes of a document are predicted by least squares: from their mean, from bins of position, and
from these with the tokens that the claim names. All is fitted on the same documents, and no
coefficient is negative, so that tokens on which a feature is silent never count for it. A document
on which the feature does not fire and the claim names no token says nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.core.statistics import redraw_counts
from interp.core.tokens import words
from interp.model.layer_tensors import run_at
from interp.profiles.claim_examples import BEFORE, EACH
from interp.profiles.claim_fit import REFITS
from interp.profiles.hypothesis import require_sense
from interp.profiles.predictions import prediction_of
from interp.profiles.run import next_document
from interp.profiles.verdict import Tested
from interp.profiles.verdict_numbers import LEFT, OF_LOSS, VerdictNumbers

if TYPE_CHECKING:
    from jaxtyping import Float
    from torch import Tensor

    from interp.core.protocols import Progress
    from interp.dictionaries.dictionary import Dictionary
    from interp.model.model import Model
    from interp.profiles.corpus import TextWindow
    from interp.profiles.dealt import DealtDocuments
    from interp.profiles.hypothesis import Hypothesis

MODELS = {
    "even": ("mean",),
    "position": ("position",),
    "alone": ("mean", "claim"),
    "with_position": ("position", "claim"),
    "random_alone": ("mean", "random"),
    "random_keys": ("position", "random"),
}
"""Predictions of the codes, and what each of them knows."""
_REFITTED = ("position", "alone", "with_position")
OTHER_FEATURES = "other features, median"
WITHOUT, MEAN_CODE = "loss without the feature", "loss with its mean code everywhere"
N_OTHERS = 20  # random other features that fire on the documents of the fit


@dataclass(frozen=True, eq=False)
class FeaturePage:
    """One document: the codes of some features, and what the predictions know.

    Args:
        window: the document.
        first: number of its first tokens that are left out, as they are of the dictionary.
        codes: of the features, the judged one first.
        known: by name, "mean", "position", and the tokens named by the "claim", by the claim as it
            is read on "other" tokens, and by as many "random" ones.
    """

    window: TextWindow
    first: int
    codes: Float[np.ndarray, "pos feature"]
    known: Mapping[str, Float[np.ndarray, "pos _"]]

    def columns(self, name: str, claim: str = "claim") -> Float[np.ndarray, "pos column"]:
        """Return what one prediction knows, with the claim on these tokens or on other ones."""
        return np.hstack([self.known[claim if x == "claim" else x] for x in MODELS[name]])

    @property
    def says(self) -> bool:
        """Whether the feature fires, or the claim names a token."""
        return bool(self.codes[:, 0].any() or self.known["claim"].any())


@dataclass(frozen=True, eq=False)
class FeatureAnswer:
    """Measurements of one question about a feature, before they are put into words.

    Args:
        model: the model.
        said: the claim.
        dictionary: the dictionary.
        fits: documents that fit.
        read: documents that judge.
        seed: seed of random choices.
    """

    model: Model
    said: Hypothesis
    dictionary: Dictionary
    fits: Sequence[FeaturePage]
    read: Sequence[FeaturePage]
    seed: int
    limited = None

    @classmethod
    def of(
        cls,
        model: Model,
        said: Hypothesis,
        dealt: DealtDocuments,
        seed: int,
        progress: Progress | None,
    ) -> FeatureAnswer:
        """Read the codes of the documents, and what the claim says of them."""
        from interp.dictionaries import load_dictionary

        assert said.feature is not None
        folder, number = said.feature
        dictionary = load_dictionary(Path(folder), model)
        [feature] = dictionary.chosen([number])
        weights = dictionary.W_enc[:, feature], dictionary.W_dec[feature]
        digest = hashlib.sha256(b"".join(x.numpy().tobytes() for x in weights)).hexdigest()[:8]
        said = replace(said, asked=f"{said.asked} (weights sha256 {digest})")
        reader, fits, fresh = dealt.reader(model), dealt.fits, dealt.fresh
        for window in fits[:3] if model.kind == "causal" else ():
            other, every = next_document(fits, fits.index(window)), np.arange(len(window.ids))
            require_sense(said, reader, window.ids, other.ids, every)
        first, rows = 0, []
        for at, window in enumerate([*fits, *fresh]):
            first, found = _rows(model, dictionary, window)
            rows.append(found)
            if progress is not None:
                progress("documents", at + 1, len(fits) + len(fresh))
        fires = sum((dictionary.encode(x) > 0).sum(0) for x in rows[: len(fits)])
        assert isinstance(fires, torch.Tensor)
        others = [int(f) for f in fires.nonzero().flatten() if f != feature]
        some = np.random.default_rng([seed, 37]).permutation(others)[:N_OTHERS].tolist()
        pages, longest = [], max(len(window.ids) for window in [*fits, *fresh])
        places = np.log2(1 + np.arange(longest)).astype(int)
        for at, window in enumerate([*fits, *fresh]):
            codes = dictionary.encode(rows[at])[:, [feature, *some]].double().numpy()
            group = fits if at < len(fits) else fresh
            other = next_document(group, group.index(window))
            claim, elsewhere = (
                said.tokens(
                    reader.read(np.resize(x, len(window.ids)).tolist()), model.kind == "causal"
                )[first:]
                for x in (window.ids, other.ids)
            )
            rng = np.random.default_rng([seed, at, 17])
            known = {
                "mean": np.ones((len(codes), 1)),
                "position": np.eye(places[-1] + 1)[places[first : len(window.ids)]],
                "claim": claim,
                "other": elsewhere,
                "random": rng.permutation(claim),
            }
            pages.append(FeaturePage(window, first, codes, known))
        made = cls(model, said, dictionary, pages[: len(fits)], pages[len(fits) :], seed)
        # a refusal must not depend on held-back documents, of which the answer alone is known
        made.require_sense(pages[: len(fits)] if dealt.held_judge else pages)
        return made

    def require_sense(self, pages: Sequence[FeaturePage]) -> None:
        """Refuse a claim that names every token or none, and a feature that never fires."""
        named = np.vstack([page.known["claim"] for page in pages]).any(1)
        if named.all() or not named.any():
            what = "every token" if named.all() else "no token"
            raise OptionError(
                f"{self.said.asked}: it names {what} of {len(pages)} documents, so that it says"
                " nothing; give another hypothesis or corpus"
            )
        if not any(page.codes[:, 0].any() for page in pages):
            raise OptionError(
                f"{self.said.head} does not fire on any of {len(pages)} documents; name another"
                " feature, or give documents on which it does"
            )

    @property
    def reference(self) -> str:
        """The prediction that the claim improves on: the mean if it reads no tokens."""
        reads = any((page.known["claim"] != page.known["other"]).any() for page in self.read)
        return "position" if reads else "even"

    @property
    def judged(self) -> str:
        """The prediction from the claim."""
        return "with_position" if self.reference == "position" else "alone"

    @property
    def controls(self) -> tuple[str, ...]:
        """Predictions that should be worse."""
        if self.reference == "even":
            return ("random_alone",)
        return "random_keys", f"other_text_{self.judged}"

    @cached_property
    def coefficients(self) -> dict[str, Float[np.ndarray, "column feature"]]:
        """Coefficients of every prediction, for every feature."""
        return {name: _fitted(name, self.fits, np.ones(len(self.fits))) for name in MODELS}

    @cached_property
    def errors(self) -> dict[str, Float[np.ndarray, "document feature"]]:
        """Summed squared errors of every prediction, 0 on documents that say nothing."""
        found = {
            name: [_errors(page, name, x) for page in self.read]
            for name, x in self.coefficients.items()
        }
        found[f"other_text_{self.judged}"] = [
            _errors(page, self.judged, self.coefficients[self.judged], "other")
            for page in self.read
        ]
        says = np.array([page.says for page in self.read])[:, None]
        return {name: np.stack(values) * says for name, values in found.items()}

    @cached_property
    def tested(self) -> Tested:
        """The tests of the verdict."""
        own = {name: x[:, 0] for name, x in self.errors.items()}
        return Tested.of(own, self.reference, self.judged, self.controls)

    def _refits(self) -> dict[str, Float[np.ndarray, "document draw"]]:
        """Squared errors by draws of the documents of the fit."""
        rng = np.random.default_rng([self.seed, 19])
        one = [replace(page, codes=page.codes[:, :1]) for page in (*self.fits, *self.read)]
        fits, read = one[: len(self.fits)], one[len(self.fits) :]
        drawn = redraw_counts(len(fits), REFITS, rng)
        return {
            name: np.hstack(
                [
                    np.stack([_errors(page, name, x) * page.says for page in read])
                    for x in (_fitted(name, fits, counts) for counts in drawn)
                ]
            )
            for name in _REFITTED
        }

    def numbers(self, seed: int) -> VerdictNumbers:
        """Return the numbers of the verdict, with their intervals."""
        own, spread = {name: x[:, 0] for name, x in self.errors.items()}, self._refits()
        numbers = VerdictNumbers(len(self.read), seed, [], [])
        numbers.mean_share(LEFT, own, self.reference, self.judged, spread)
        for name in ("position", self.judged, *self.controls):
            numbers.share(name, own, "even", name, spread)
        codes = [page.codes[:, :1] for page in self.read]
        for at, entry in enumerate(self.said.entries):
            named = [page.known["claim"][:, at : at + 1] for page in self.read]
            pairs = [*zip(codes, named, strict=True)]
            held = np.array([(x * y).sum() for x, y in pairs])
            fired = np.array([((x > 0) * y).sum() for x, y in pairs])
            counts = np.array([y.sum() for y in named])
            numbers.ratio(f"activation: {entry.name}", held, np.array([x.sum() for x in codes]))
            numbers.ratio(f"tokens: {entry.name}", counts, np.array([len(x) for x in codes], float))
            numbers.ratio(f"fires: {entry.name}", fired, counts)
        if self.read[0].codes.shape[1] > 1:
            under, best = (self.errors[x][:, 1:].sum(0) for x in (self.reference, self.judged))
            shares = 1 - best[under > 0] / under[under > 0]
            numbers.alone(OTHER_FEATURES, float(np.median(shares)) if len(shares) else np.nan)
        sites = [self.dictionary.site_in(self.model)]
        predicts = not isinstance(prediction_of(self.model, sites, seed), str)
        if self.model.kind == "causal" and predicts:
            few = self.read[:OF_LOSS]
            own_loss, without, even, described = np.array([self._losses(x) for x in few]).T
            n = np.array([len(page.window.ids) - 1 for page in few], float)
            of_loss = VerdictNumbers(len(few), seed, numbers.rows, numbers.quantiles)
            of_loss.ratio(WITHOUT, without - own_loss, n, "nats/token")
            of_loss.ratio(MEAN_CODE, even - own_loss, n, "nats/token")
            of_loss.ratio("causal share", even - described, even - own_loss)
        return numbers

    def _predicted(self, page: FeaturePage, name: str) -> Float[np.ndarray, " pos"]:
        return page.columns(name) @ self.coefficients[name][:, 0]

    def _losses(self, page: FeaturePage) -> list[float]:
        """Return the summed loss as it is, without the feature, with its mean, and as predicted."""
        d, ids = self.dictionary, page.window.ids
        assert self.said.feature is not None
        written, codes = d.written()[self.said.feature[1]], page.codes[:, 0]
        truth, losses = torch.as_tensor(ids[1:])[:, None], []
        predicted = [self._predicted(page, name) for name in ("even", self.judged)]
        for code in (codes, np.zeros_like(codes), *predicted):
            change = np.r_[np.zeros(page.first), code - codes]
            added = torch.from_numpy(change).to(written)[None, :, None] * written

            def see(x: Tensor, added: Tensor = added) -> Tensor | None:
                return x + added.to(x) if added.any() else None

            logits, _ = run_at(
                self.model, Prompts((ids,)), d.site_in(self.model), {d.site_out: see}
            )
            log_p = logits[0, :-1].float().log_softmax(-1).cpu()
            losses.append(float(-log_p.gather(1, truth).sum(dtype=torch.double)))
        return losses

    def examples(self) -> list[dict[str, Any]]:
        """Return the tokens on which the prediction is too large, and too small, the most first."""
        chosen = []
        for sign, kind in ((1, "said"), (-1, "unsaid")):
            differ = []
            for page in self.read:
                said, did = self._predicted(page, self.judged), page.codes[:, 0]
                at = int((sign * (said - did)).argmax())
                texts, token = words(self.model, page.window.ids), at + page.first
                differ.append(
                    {
                        "kind": kind,
                        "document": page.window.name,
                        "query": texts[token],
                        "text": "".join(texts[max(0, token - BEFORE) : token + 1]),
                        "said": float(said[at]),
                        "did": float(did[at]),
                    }
                )
            differ = [x for x in differ if sign * (x["said"] - x["did"]) > 0]
            chosen += sorted(differ, key=lambda x: sign * (x["did"] - x["said"]))[:EACH]
        return chosen


def _fitted(
    name: str, pages: Sequence[FeaturePage], counts: Float[np.ndarray, " page"]
) -> Float[np.ndarray, "column feature"]:
    """Fit the codes of every feature by least squares, without negative coefficients."""
    from scipy.optimize import nnls

    used = [(c, page.columns(name), page.codes) for c, page in zip(counts, pages, strict=True)]
    gram = sum(c * x.T @ x for c, x, _ in used)
    right = sum(c * x.T @ y for c, x, y in used)
    assert isinstance(gram, np.ndarray)
    assert isinstance(right, np.ndarray)
    root = np.linalg.cholesky(gram + 1e-9 * np.trace(gram) * np.eye(len(gram)))
    return np.stack([nnls(root.T, x)[0] for x in np.linalg.solve(root, right).T], 1)


def _errors(
    page: FeaturePage, name: str, coefficients: Float[np.ndarray, "column feature"], *claim: str
) -> Float[np.ndarray, " feature"]:
    return ((page.codes - page.columns(name, *claim) @ coefficients) ** 2).sum(0)


def _rows(
    model: Model, dictionary: Dictionary, window: TextWindow
) -> tuple[int, Float[Tensor, "pos d_in"]]:
    """Return the number of first tokens that are left out, and the activations of the others."""
    from interp.dictionaries.activations import FIRST, activation_rows

    site, place = dictionary.site_in(model), dictionary.site
    return FIRST, activation_rows(model, Prompts((window.ids,)), site, (place, place))[0]
