"""Descriptions of heads by texts: a sparse decomposition of what they write (TextSpan)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.result import Result
from interp.model.model_argument import takes_model
from interp.vision.images import image_batch, image_provenance
from interp.vision.parts import image_parts

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

Array = np.ndarray


@dataclass(frozen=True, eq=False, repr=False)
class HeadDescriptions(Result):
    """Texts whose directions explain most of what heads write, in order of choice.

    A row is a head and a rank. The score is the share of the variance over held-out images that the
    texts up to this rank explain; the null is the mean of the same share for random banks, chosen
    and judged alike, and `p` the share of random banks, counting this one, that explain as much.

    Args:
        labels: the heads.
        places: stack, layer and head of each.
        texts: chosen texts, the first choice first.
        explained: share of the held-out variance that each further text explains, per image, so
            that its mean over images is the share.
        null: shares of random banks.
        provenance: model, images and options.
    """

    labels: tuple[str, ...]
    places: tuple[tuple[str, int, int], ...] = field(repr=False)
    texts: tuple[tuple[str, ...], ...]
    explained: Float[Array, "head rank image"] = field(repr=False)
    null: Float[Array, "head bank rank"] = field(repr=False)
    provenance: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _units = ("part", "stack", "layer", "head", "rank")

    @property
    def per_prompt(self) -> Float[Array, "row image"]:  # type: ignore[override]
        """Share of the variance that the texts up to a rank explain, per held-out image."""
        rows = self._every()
        return rows if self._kept is None else rows[list(self._kept)]

    def _every(self) -> Float[Array, "row image"]:
        return self.explained.cumsum(1).reshape(-1, self.explained.shape[2])

    def _rows(self) -> pd.DataFrame:
        import pandas as pd

        ranks, every = self.explained.shape[1], self._every()
        score = every.mean(1).reshape(len(self.labels), ranks)
        reached = (self.null >= score[:, None] - 1e-12).sum(1)
        place = [np.repeat([p[i] for p in self.places], ranks) for i in range(3)]
        return pd.DataFrame({
            "part": np.repeat(self.labels, ranks), "stack": place[0], "layer": place[1],
            "head": place[2], "rank": np.tile(np.arange(1, ranks + 1), len(self.labels)),
            "text": [t for mine in self.texts for t in mine], "metric": "explained_variance",
            "score": score.ravel(), "sem": every.std(1, ddof=1) / every.shape[1] ** 0.5,
            "null": self.null.mean(1).ravel(),
            "p": ((1 + reached) / (1 + self.null.shape[1])).ravel(),
            "n": every.shape[1], "unit": "share of variance",
        })  # fmt: skip

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> np.ndarray:
        return super()._bounds_of(frame, level).clip(0.0, 1.0)  # a share

    def __repr__(self) -> str:
        shown = [f"{h}: {', '.join(t[:3])}" for h, t in zip(self.labels, self.texts, strict=True)]
        return f"HeadDescriptions({'; '.join(shown[:3])}{'; ...' if len(shown) > 3 else ''})"


@takes_model
def describe_heads(
    model: Model,
    images: Any,
    bank: Float[Array, "text d"],
    texts: Sequence[str],
    *,
    heads: Sequence[str] | None = None,
    ranks: int = 5,
    banks: int = 19,
    span: bool = False,
    seed: int = 0,
    batch_size: int = 64,
) -> HeadDescriptions:
    """Describe heads by the texts of a bank whose directions explain what they write.

    On half of the images, drawn at random, texts are chosen greedily: the one whose direction holds
    most of the variance of the head's contribution to the image embedding; it is then removed from
    the contributions and from the other texts, and so on (orthogonal matching pursuit). The
    variance that the chosen texts explain is measured on the other half. With `span=True` texts are
    first projected to the span of the head's contributions and ranked by the spread of the
    contributions along them, unequal lengths included, as in the published code. A text then counts
    for what is left of it in that span, and random banks explain much too: for a head that writes
    along one direction, all of it.

    Args:
        model: an image tower with an embedding, or a classifier.
        images: images; see `interp.vision.image_batch`.
        bank: embeddings of the texts, in the space of the image embedding.
        texts: the texts.
        heads: heads to describe, such as L3H1, also of a pooling attention; those of the last four
            layers by default.
        ranks: number of texts per head.
        banks: number of random banks: as many Gaussian directions, treated in the same way.
        span: project texts to the span of the contributions first, as published.
        seed: seed of the split and of the random banks.
        batch_size: images that run together.

    Reference: Gandelsman et al. 2024, "Interpreting CLIP's Image Representation via Text-Based
    Decomposition" (arXiv 2310.05916), algorithm 1.

    Raises:
        OptionError: bank and texts have different numbers, the bank another width than the
            embedding, or too few images or texts for the ranks.

    Unit: share of variance.

    Cost: One forward pass, and a decomposition per head and random bank.

    Null: random banks of as many directions.

    Not for: heads without a direct effect; a text can be chosen because nothing in the bank fits.
    """
    pixels = image_batch(model, images)
    parts = image_parts(model, pixels, batch_size=batch_size)
    given, names = np.asarray(bank, dtype=float), tuple(map(str, texts))
    width = parts.output.shape[1]
    if given.ndim != 2 or given.shape != (len(names), width):
        raise OptionError(
            f"a bank of shape {given.shape} for {len(names)} texts; the output of {model.name} has "
            f"{width} entries: give [{len(names)}, {width}]"
        )
    if not 1 <= ranks <= min(len(names), width):
        raise OptionError(
            f"ranks={ranks}; give 1 to {min(len(names), width)}, as there are {len(names)} texts "
            f"of {width} entries"
        )
    if len(pixels) < 4:
        raise OptionError(f"{len(pixels)} images; describing heads needs at least 4, in two halves")
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(pixels))
    learn, judge = order[: len(order) // 2], order[len(order) // 2 :]
    last = sorted({layer for _, layer, _ in parts.places})[-4:]
    asked = (
        [h for h, p in zip(parts.labels, parts.places, strict=True) if p[1] in last]
        if heads is None
        else [str(Head.parse(h)) for h in heads]
    )
    known = dict(zip(parts.labels, parts.places, strict=True))
    known |= zip(parts.pooling_labels, parts.pooling_places, strict=True)
    unknown = set(asked) - set(known)
    if unknown:
        raise OptionError(f"{model.name} has no head {', '.join(sorted(unknown))}")
    chosen, explained = [], []
    null: list[list[Array]] = []
    for name in asked:
        written = parts.written(name)
        mine, shares = text_span(written[learn], given, ranks, written[judge], span=span)
        chosen.append(tuple(names[i] for i in mine))
        explained.append(shares)
        null.append([])
        for _ in range(banks):
            x = rng.standard_normal(given.shape)
            shares = text_span(written[learn], x, ranks, written[judge], span=span)[1]
            null[-1].append(shares.mean(1).cumsum())
    places = tuple(known[h] for h in asked)
    return HeadDescriptions(
        tuple(asked), places, tuple(chosen), np.array(explained),
        np.array(null).reshape(len(asked), banks, ranks),
        image_provenance(
            model, pixels, "describe_heads", seed=seed, ranks=ranks, texts=len(names), span=span,
            null=f"{banks} banks of random directions",
        ),
    )  # fmt: skip


def text_span(
    learn: Float[Array, "image d"],
    bank: Float[Array, "text d"],
    ranks: int,
    judge: Float[Array, "image d"],
    *,
    span: bool = False,
) -> tuple[list[int], Float[Array, "rank image"]]:
    """Choose directions of a bank greedily, and measure what each explains on other vectors.

    Args:
        learn: vectors on which directions are chosen.
        bank: directions to choose from; their lengths do not matter.
        ranks: number of directions.
        judge: vectors on which the explained variance is measured.
        span: project directions to the span of `learn` and rank by the spread along them, as in the
            published code.

    Returns:
        Indices of the directions, and the squared projection of each vector in `judge`, from which
        the mean of `learn` is subtracted, on each direction that the ones before it leave, divided
        by the mean squared length; a direction with nothing left explains 0.
    """
    rest = learn - learn.mean(0)
    new = judge - learn.mean(0)
    total = max(float(np.square(new).sum(1).mean()), 1e-300)
    left = bank / np.maximum(np.linalg.norm(bank, axis=1, keepdims=True), 1e-300)
    if span:
        size, basis = np.linalg.svd(learn, full_matrices=False)[1:]
        basis = basis[size > 1e-9 * max(float(size[0]), 1e-300)]
        left = left @ basis.T @ basis
    found: list[int] = []
    shares = []
    for _ in range(ranks):
        length = np.linalg.norm(left, axis=1)
        # of a text inside the span of the chosen ones only rounding is left
        unit = np.where(length > 1e-6, 1 / np.maximum(length, 1e-300), 0.0)[:, None] * left
        held = np.square(rest @ (left if span else unit).T).sum(0)
        held[found] = -1.0
        best = int(held.argmax())
        d = unit[best]
        found.append(best)
        shares.append(np.square(new @ d) / total)
        rest = rest - np.outer(rest @ d, d)
        left = left - np.outer(left @ d, d)
    return found, np.array(shares)
