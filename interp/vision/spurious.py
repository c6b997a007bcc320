"""Locate-Then-Correct: heads that decide by a spurious cue, and the accuracy without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from interp.core.errors import OptionError
from interp.core.intervals import difference_of_shares, share_interval
from interp.core.statistics import holm
from interp.model.model_argument import takes_model
from interp.vision.direct_effects import output_directions, target_of
from interp.vision.images import image_batch, image_provenance
from interp.vision.parts import ImageParts, image_parts
from interp.vision.result import ImageScores

if TYPE_CHECKING:
    import pandas as pd

    from interp.model.model import Model

Array = np.ndarray
Repair = Literal["mean", "projection", "both"]
REPAIRS = ("mean", "projection", "both")


@dataclass(frozen=True, eq=False)
class CuedImages:
    """Images, their parts, and what is right and what the cue suggests.

    Args:
        parts: contributions of all parts to the outputs.
        labels: right class of each image.
        cues: class that the cue suggests; -1 without a cue.
        directions: direction of the output for each class.
        scale: factor of each image (the inverse norm of an embedding).
    """

    parts: ImageParts
    labels: Int[Array, " image"]
    cues: Int[Array, " image"]
    directions: Float[Array, "class out"]
    scale: Float[Array, " image"]

    @property
    def biased(self) -> Bool[Array, " image"]:
        """True where the cue suggests a wrong class."""
        return (self.cues >= 0) & (self.cues != self.labels)

    @property
    def logits(self) -> Float[Array, "image class"]:
        """Class logits, or similarities to the texts of the classes."""
        return self.parts.output @ self.directions.T

    def of_heads(self) -> Float[Array, "image head class"]:
        """Direct contribution of every head to every class."""
        return (
            np.einsum("iho,co->ihc", self.parts.heads, self.directions) * self.scale[:, None, None]
        )


def cued_images(
    model: Model, images: Any, labels: Any, cues: Any, texts: Array | None, batch_size: int
) -> CuedImages:
    """Decompose images and check labels and cues."""
    parts = image_parts(model, images, batch_size=batch_size)
    directions, scale, _ = output_directions(parts, texts)
    classes = target_of(model, parts, labels, directions)
    suggested = np.asarray(cues)
    if suggested.shape != classes.shape or suggested.dtype.kind not in "iu":
        raise OptionError(
            f"give one cue for each of the {len(classes)} images: the class it suggests, or -1"
        )
    if suggested.min() < -1 or suggested.max() >= len(directions):
        raise OptionError(f"a cue is outside -1 to {len(directions) - 1}, the classes of the model")
    return CuedImages(parts, classes, suggested, directions, scale)


@dataclass(frozen=True, eq=False, repr=False)
class SpuriousVotes(ImageScores):
    """Shares of votes of wrong images minus those of right ones; rows are heads.

    Votes are counts, and where all images vote alike their spread is 0 though the shares are not
    known exactly. The standard error and the interval are those of shares with one vote more for
    the head and one more against it (`difference_of_shares`), which are never 0. Columns
    `votes_wrong` and `votes_right` have the counts.
    """

    def _rows(self) -> pd.DataFrame:
        return super()._rows().assign(sem=self._errors(0.95)[0])

    def _bounds_of(self, frame: pd.DataFrame, level: float) -> np.ndarray:
        return self._errors(level)[1]

    def _errors(self, level: float) -> tuple[Array, Array]:
        """Return the standard error and the interval of each row; NaN without a score."""
        wrong = self.notes["of them wrong"]
        right = self.notes["images whose cue conflicts"] - wrong
        if not wrong or not right:
            number = len(self.parts)
            return np.full(number, np.nan), np.full((number, 2), np.nan)
        votes = np.array(self.extra["votes_wrong"]), np.array(self.extra["votes_right"])
        return difference_of_shares(votes[0], wrong, votes[1], right, level)


@takes_model
def locate_spurious_heads(
    model: Model,
    images: Any,
    labels: Any,
    cues: Any,
    *,
    texts: Float[Array, "text d"] | None = None,
    n_permutations: int = 999,
    seed: int = 0,
    batch_size: int = 64,
) -> SpuriousVotes:
    """Find heads that decide images wrongly where a cue suggests a wrong class, by votes.

    Read are images whose cue suggests another class than theirs. Each votes for the head that adds
    most to the model's choice: to its logit minus that of the right class where the choice is
    wrong, and minus that of the runner-up where it is right. The score is a head's share of the
    votes of wrong images minus its share of those of right ones. A head is `spurious` if the score
    exceeds 1 / (heads with a vote), the published rule, and also differs from shuffled outcomes
    (Holm's correction over heads, 5 %) and the wrong images choose what the cue suggests more often
    than chance; it is a `target` head if the reverse difference does. The second condition is this
    project's: without it a model that ignores the cue has such heads too.

    Args:
        model: a classifier of images, or a tower with an image embedding.
        images: images; see `interp.vision.image_batch`.
        labels: right class of each image.
        cues: class that the cue of each image suggests; -1 without a cue.
        texts: text embeddings of the classes, for an image tower.
        n_permutations: shufflings of right and wrong.
        seed: seed of the shufflings.
        batch_size: images that run together.

    Returns:
        A row per head with `p_holm`, `spurious` and `target`. `per_prompt` has the linearised
        difference of shares.

    Reference: Yeo et al. 2025, "Debiasing CLIP: Interpreting and Correcting Bias in Attention
    Heads" (arXiv 2505.17425); code wj210/CLIP_LTC.

    Raises:
        OptionError: labels or cues do not fit, or no image has a cue of another class.

    Unit: share of votes.

    Cost: One forward pass (two for a model of two towers).

    Null: 1 / (heads with a vote), beside a permutation test.

    Not for: heads that pass a cue on through later layers, which have no direct effect.
    """
    pixels = image_batch(model, images)
    held = cued_images(model, pixels, labels, cues, texts, batch_size)
    biased = held.biased
    if not biased.any():
        raise OptionError(
            "no image has a cue that suggests another class than its own; give images whose cue "
            "conflicts with their class"
        )
    votes, wrong, chosen = _votes(held, biased)
    number = held.parts.heads.shape[1]
    score = _difference(votes, wrong, number)
    p = _permuted(votes, wrong, number, score, n_permutations, seed)
    corrected = holm(p)
    least = 1 / len(set(votes.tolist()))
    follows = _follows(chosen[wrong], held.cues[biased][wrong], len(held.directions))
    known = (corrected < 0.05) & follows
    spurious, target = (score > least) & known, (score < -least) & known
    each = _influence(votes, wrong, number, score)
    counts = [np.bincount(votes[x], minlength=number) for x in (wrong, ~wrong)]
    return SpuriousVotes(
        held.parts.labels,
        held.parts.places,
        ("spurious_votes",) * number,
        ("share of votes",) * number,
        each,
        np.full(number, least),
        extra={
            "p_holm": tuple(corrected.tolist()),
            "spurious": tuple(spurious.tolist()),
            "target": tuple(target.tolist()),
            "votes_wrong": tuple(counts[0].tolist()),
            "votes_right": tuple(counts[1].tolist()),
        },
        notes={
            "images whose cue conflicts": int(biased.sum()),
            "of them wrong": int(wrong.sum()),
            "wrong images follow the cue": follows,
        },
        provenance=image_provenance(
            model, pixels, "locate_spurious_heads", seed=seed, permutations=n_permutations
        ),
    )


def _votes(
    held: CuedImages, biased: Bool[Array, " image"]
) -> tuple[Int[Array, " image"], Bool[Array, " image"], Int[Array, " image"]]:
    """Return the head each image votes for, whether it is wrong, and what the model chose."""
    logits, heads = held.logits[biased], held.of_heads()[biased]
    labels, row = held.labels[biased], np.arange(int(biased.sum()))
    chosen = logits.argmax(1)
    wrong = chosen != labels
    rest = logits.copy()
    rest[row, chosen] = -np.inf
    other = np.where(wrong, labels, rest.argmax(1))
    return (heads[row, :, chosen] - heads[row, :, other]).argmax(1), wrong, chosen


def _difference(
    votes: Int[Array, " image"], wrong: Bool[Array, " image"], number: int
) -> Float[Array, " head"]:
    frequencies = [
        np.bincount(votes[x], minlength=number) / max(x.sum(), 1) for x in (wrong, ~wrong)
    ]
    return frequencies[0] - frequencies[1]


def _influence(
    votes: Int[Array, " image"],
    wrong: Bool[Array, " image"],
    number: int,
    score: Float[Array, " head"],
) -> Float[Array, "head image"]:
    """Return values per image whose mean is the score and whose spread gives its error.

    A difference of two shares is not a mean over images; its linearisation has the same mean and
    the standard error of the difference, with the numbers of wrong and right images held.
    """
    cast = (votes[None] == np.arange(number)[:, None]).astype(float)
    values = np.repeat(score[:, None], len(votes), 1)
    if wrong.all() or not wrong.any():
        return np.full(values.shape, np.nan)
    for which, sign in ((wrong, 1.0), (~wrong, -1.0)):
        share = cast[:, which].mean(1, keepdims=True)
        values[:, which] += sign * len(votes) / which.sum() * (cast[:, which] - share)
    return values


def _permuted(
    votes: Int[Array, " image"],
    wrong: Bool[Array, " image"],
    number: int,
    score: Float[Array, " head"],
    draws: int,
    seed: int,
) -> Float[Array, " head"]:
    if wrong.all() or not wrong.any():
        return np.ones(number)
    rng = np.random.default_rng(seed)
    drawn = np.stack([_difference(votes, rng.permutation(wrong), number) for _ in range(draws)])
    beyond = (np.abs(drawn) >= np.abs(score) - 1e-12).sum(0)
    return (1 + beyond) / (1 + draws)


def _follows(chosen: Array, cues: Array, classes: int) -> bool:
    """Return True if wrong choices are what the cue suggests more often than chance."""
    if not len(chosen) or classes < 3:
        return bool(len(chosen))  # with two classes, a wrong choice is always the cue's
    low = share_interval(int((chosen == cues).sum()), len(chosen))[0]
    return low > 1 / (classes - 1)
