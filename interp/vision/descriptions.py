"""Descriptions of heads by texts: a sparse decomposition of what they write (TextSpan)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.presenter import present
from interp.core.result_rows import ResultRows
from interp.core.standard_errors import standard_error
from interp.core.ties import largest, reaches
from interp.model.model_argument import takes_model
from interp.vision.images import image_batch, image_provenance
from interp.vision.parts import image_parts

if TYPE_CHECKING:
    from interp.model.model import Model

Array = np.ndarray


@takes_model
def describe_heads(
    model: Model,
    images: Any,
    bank: Float[Array, "text d"],
    texts: Sequence[str],
    *,
    heads: Sequence[str] | None = None,
    ranks: int = 5,
    n_random: int = 19,
    span: bool = False,
    seed: int = 0,
    batch_size: int = 64,
) -> ResultRows:
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
        n_random: number of random banks: as many Gaussian directions, treated in the same way.
        span: project texts to the span of the contributions first, as published.
        seed: seed of the split and of the random banks.
        batch_size: images that run together.

    Returns:
        One row per head and rank, in order of choice: part (the head), stack, layer, head, rank,
        text, score (share of the variance over held-out images that the texts up to this rank
        explain) with sem, null (its mean for random banks, chosen and judged alike), p (share of
        random banks, counting this one, that explain as much) and n. `per_prompt` has the share of
        each image. Fact: null_banks, the shares of each bank, `[head, bank, rank]`.

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
    directions, names = np.asarray(bank, dtype=float), tuple(map(str, texts))
    width = parts.output.shape[1]
    if directions.ndim != 2 or directions.shape != (len(names), width):
        raise OptionError(
            f"a bank of shape {directions.shape} for {len(names)} texts; the output of "
            f"{model.name} has {width} entries: give [{len(names)}, {width}]"
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
        mine, shares = text_span(written[learn], directions, ranks, written[judge], span=span)
        chosen.append(tuple(names[i] for i in mine))
        explained.append(shares)
        null.append([])
        for _ in range(n_random):
            x = rng.standard_normal(directions.shape)
            shares = text_span(written[learn], x, ranks, written[judge], span=span)[1]
            null[-1].append(shares.mean(1).cumsum())
    random = np.array(null).reshape(len(asked), n_random, ranks)
    values = np.array(explained).cumsum(1).reshape(-1, len(judge))
    reached = reaches(random, values.mean(1).reshape(-1, 1, ranks))
    stacks, layers, numbers = (
        np.repeat(x, ranks) for x in zip(*(known[h] for h in asked), strict=True)
    )
    columns = {
        "part": np.repeat(asked, ranks),
        "stack": stacks,
        "layer": layers,
        "head": numbers,
        "rank": np.tile(np.arange(1, ranks + 1), len(asked)),
        "text": [text for mine in chosen for text in mine],
        "metric": "explained_variance",
        "score": values.mean(1),
        "sem": standard_error(values),
        "null": random.mean(1).ravel(),
        "p": ((1 + reached.sum(1)) / (1 + n_random)).ravel(),
        "n": len(judge),
        "unit": "share of variance",
    }
    provenance = image_provenance(
        model,
        pixels,
        "describe_heads",
        seed=seed,
        ranks=ranks,
        texts=len(names),
        span=span,
        null=f"{n_random} banks of random directions",
    )
    return ResultRows(
        "HeadDescriptions",
        columns,
        ("part", "stack", "layer", "head", "rank"),
        provenance,
        {"limits": (0.0, 1.0), "null_banks": random},
        values,
    )


def text_span(
    learn: Float[Array, "image d"],
    bank: Float[Array, "text d"],
    ranks: int,
    judge: Float[Array, "image d"],
    *,
    span: bool = False,
) -> tuple[list[int], Float[Array, "rank image"]]:
    """Choose directions of a bank greedily, and measure what each explains on other vectors."""
    rest = learn - learn.mean(0)
    new = judge - learn.mean(0)
    total = max(float(np.square(new).sum(1).mean()), 1e-300)
    left = bank / np.maximum(np.linalg.norm(bank, axis=1, keepdims=True), 1e-300)
    if span:
        size, basis = np.linalg.svd(learn, full_matrices=False)[1:]
        basis = basis[size > 1e-9 * max(float(size[0]), 1e-300)]
        left = left @ basis.T @ basis
    picked: list[int] = []
    shares, everything = [], float(np.square(rest).sum())
    for _ in range(ranks):
        length = np.linalg.norm(left, axis=1)
        # of a text inside the span of the chosen ones only rounding is left
        unit = np.where(length > 1e-6, 1 / np.maximum(length, 1e-300), 0.0)[:, None] * left
        held = np.square(rest @ (left if span else unit).T).sum(0)
        held[picked] = -np.inf
        best = largest(held, scale=everything)
        d = unit[best]
        picked.append(best)
        shares.append(np.square(new @ d) / total)
        rest = rest - np.outer(rest @ d, d)
        left = left - np.outer(left @ d, d)
    return picked, np.array(shares)


def head_descriptions_summary(found: ResultRows) -> str:
    """Return the first texts of the first heads."""
    rows = found.wide().groupby("part", sort=False)["text"]
    shown = [f"{part}: {', '.join(texts.iloc[:3])}" for part, texts in rows]
    return f"HeadDescriptions({'; '.join(shown[:3])}{'; ...' if len(shown) > 3 else ''})"


present("HeadDescriptions", summary=head_descriptions_summary)
