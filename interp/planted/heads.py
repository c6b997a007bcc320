"""The query and the output of one head, for each role a head can be planted in.

All heads of a layer that are planted share the form of key and value, so that they may share a
key-value head (grouped queries). Keys hold the content (the current token, or the copy of the
previous one) in slow rotary pairs, which do not turn within the context, and a constant in the
fast ones; token 0 (the beginning of sequence) has a content slot of its own, which is where heads
with nothing to find rest. Values hold the current token, and nothing for token 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.planted import rotary
from interp.planted.residual import Residual

# Nats of a matching key over one that does not match; a resting head is half way.
MATCH = 30.0
KEY_SCALE = 4.0  # size of a content slot in the key; the query carries the rest
MARKER, DECLINE = 1, 2  # tokens of a refusal: what it follows, and what it says
DECLINING = 2.0  # logits of the refusal, over that of any other prediction
SUPPRESSION = 0.5  # part of the predicted logit that copy suppression takes back
# What random heads write, per value and coordinate, where a copy writes 1: little enough that a
# layer of them damps the noise it reads, and that no prediction is drowned.
NOISE_GAIN = {"noise": 0.04, "output": 0.007}


@dataclass(frozen=True)
class Geometry:
    """Where contents and offsets live inside a head."""

    context: int
    vocab: int
    d_head: int
    theta: float

    @classmethod
    def of(cls, context: int, vocab: int) -> Geometry:
        """The smallest power of two that leaves 32 rotary pairs for positions."""
        n_slow = -(-vocab // 2)
        n_pairs = 1 << (n_slow + 32 - 1).bit_length()
        theta = rotary.theta_for(context, n_pairs, n_slow)
        return cls(context, vocab, 2 * n_pairs, theta)

    @property
    def n_pairs(self) -> int:
        """Rotary pairs of a head."""
        return self.d_head // 2

    @property
    def n_fast(self) -> int:
        """Rotary pairs that serve positions; the others are slow and serve content."""
        return self.n_pairs - -(-self.vocab // 2)

    def content_dims(self) -> list[int]:
        """The head dimension of each token's content slot."""
        # rotate_half pairs dimension i with i + n_pairs.
        return [self.n_fast + t // 2 + (t % 2) * self.n_pairs for t in range(self.vocab)]


def key(residual: Residual, geometry: Geometry, content: str) -> Float[Tensor, "d_head d_model"]:
    """The key of planted heads: `content` is the subspace, "token" or "previous"."""
    weight = residual.zeros(geometry.d_head)
    _fill_content(weight, residual, geometry, content, KEY_SCALE)
    bos = geometry.content_dims()[0]
    weight[bos, residual.slices["token"].start] = KEY_SCALE
    weight[: geometry.n_fast, residual.slices["constant"]] = 1.0
    return weight


def value(residual: Residual, geometry: Geometry) -> Float[Tensor, "d_head d_model"]:
    """The value of planted heads: the current token in the first dimensions, zero for token 0."""
    weight = residual.zeros(geometry.d_head)
    start = residual.slices["token"].start
    for token in range(1, residual.vocab):
        weight[token, start + token] = 1.0
    return weight


def query(residual: Residual, geometry: Geometry, role: str) -> Float[Tensor, "d_head d_model"]:
    """The query of a head in `role`; scores are in nats before the softmax."""
    weight = residual.zeros(geometry.d_head)
    rest = weight[geometry.content_dims()[0]]
    constant, written = residual.slices["constant"].start, residual.slices["written"].start
    if role in ("induction", "bystander", "backup"):
        _fill_content(weight, residual, geometry, "token", MATCH / KEY_SCALE)
        rest[constant] = 0.5 * MATCH / KEY_SCALE
        if role == "backup":
            rest[written] = MATCH / KEY_SCALE  # rests, even with a match, once all is written
    elif role == "copy_suppression":
        _fill_content(weight, residual, geometry, "output", MATCH / KEY_SCALE)
        rest[constant] = 0.5 * MATCH / KEY_SCALE
    elif role == "sink":
        rest[constant] = MATCH / KEY_SCALE
    elif role == "refusal":
        weight[geometry.content_dims()[MARKER], constant] = MATCH / KEY_SCALE
        rest[constant] = 0.5 * MATCH / KEY_SCALE
    elif role == "duplicate_token":
        shape = (geometry.context, geometry.theta, geometry.n_pairs, geometry.n_fast)
        amplitudes, spread, depth = rotary.elsewhere_kernel(*shape)
        # The current token must still beat every other one where there is no earlier copy.
        match = depth + spread + rotary.margin(geometry.context)
        _fill_content(weight, residual, geometry, "token", match / KEY_SCALE)
        _fill_offsets(weight, residual, geometry, amplitudes)
    else:
        offsets = tuple(OFFSETS[role])
        shape = (geometry.context, geometry.theta, geometry.n_pairs, geometry.n_fast)
        _fill_offsets(weight, residual, geometry, rotary.window_kernel(offsets, *shape))
    return weight * geometry.d_head**0.5  # attention divides by it


OFFSETS = {"previous_token": range(1, 2), "offset": range(3, 4), "local_window": range(4)}


def output(
    residual: Residual, geometry: Geometry, role: str, generator: torch.Generator
) -> Float[Tensor, "d_head d_model"]:
    """What a head in `role` writes for each value dimension (transpose of the output weights)."""
    weight = residual.zeros(geometry.d_head)
    tokens = torch.arange(1, residual.vocab)

    def copy(space: str, size: float) -> None:
        weight[tokens, residual.slices[space].start + tokens] = size

    if role == "previous_token":
        copy("previous", 1.0)
    elif role == "induction":
        copy("output", 1.0)
        weight[tokens, residual.slices["written"].start] = 1.0
    elif role == "backup":
        copy("output", 1.0)
    elif role == "copy_suppression":
        copy("output", -SUPPRESSION)
    elif role == "duplicate_token":
        copy("duplicate", 1.0)
    elif role == "refusal":
        weight[MARKER, residual.slices["output"].start + DECLINE] = DECLINING
    elif role == "bystander":
        copy("null", 1.0)
    else:
        weight = noise_output(residual, geometry, generator)
    return weight


def noise_input(
    residual: Residual, geometry: Geometry, size: float, generator: torch.Generator
) -> Float[Tensor, "d_head d_model"]:
    """Random weights that read the current token and the noise, `size` per head dimension."""
    weight = residual.zeros(geometry.d_head)
    for space in ("token", "noise"):
        where = residual.slices[space]
        shape = (geometry.d_head, where.stop - where.start)
        weight[:, where] = size * torch.randn(shape, dtype=torch.float64, generator=generator)
    return weight


def noise_output(
    residual: Residual, geometry: Geometry, generator: torch.Generator
) -> Float[Tensor, "d_head d_model"]:
    """Random weights that write the noise and, more faintly, the output."""
    weight = residual.zeros(geometry.d_head)
    for space, size in NOISE_GAIN.items():
        where = residual.slices[space]
        shape = (geometry.d_head, where.stop - where.start)
        weight[:, where] = size * torch.randn(shape, dtype=torch.float64, generator=generator)
    return weight


def _fill_content(
    weight: Tensor, residual: Residual, geometry: Geometry, space: str, size: float
) -> None:
    start = residual.slices[space].start
    for token, dim in enumerate(geometry.content_dims()[1:], start=1):
        weight[dim, start + token] = size


def _fill_offsets(weight: Tensor, residual: Residual, geometry: Geometry, amplitudes) -> None:
    cosine, sine = torch.as_tensor(amplitudes)
    constant = residual.slices["constant"].start
    weight[: geometry.n_fast, constant] = cosine
    # The rotation takes the constant key (1, 0) to (cos, -sin) as seen from the query.
    weight[geometry.n_pairs : geometry.n_pairs + geometry.n_fast, constant] = -sine
