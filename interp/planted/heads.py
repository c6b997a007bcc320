"""Query and output of one head, for each role of planted heads.

All planted heads of a layer have the same form of key and value, so that they can share a key-value
head (grouped queries). Keys hold the content (the current token, or the copy of the previous one)
in slow rotary pairs, which hardly rotate within the context, and a constant in the fast ones; token
0 (the beginning of sequence) has a separate content slot, to which heads without a match attend.
Values hold the current token, and zero for token 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from interp.planted import rotary
from interp.planted.residual import Residual

# Nats of a matching key above one that does not match; the score of token 0 is half of it.
MATCH = 30.0
KEY_SCALE = 4.0  # size of a content slot in the key; the query carries the rest
MARKER, DECLINE = 1, 2  # tokens of a refusal: the marker, and the output
DECLINING = 2.0  # logit of the refusal, as a multiple of any other prediction's
COUNT = 2.0  # what a counting head writes of a token that stands at every position
SUPPRESSION = 0.5  # fraction of the predicted logit that copy suppression removes
# Scale of random heads' output per value and coordinate, where a copy writes 1: small enough that
# a layer of them damps the noise that it reads and changes no prediction.
NOISE_GAIN = {"noise": 0.04, "output": 0.007}


@dataclass(frozen=True)
class Geometry:
    """Layout of contents and offsets within a head."""

    context: int
    vocab: int
    d_head: int
    theta: float

    @classmethod
    def of(cls, context: int, vocab: int) -> Geometry:
        """Choose the smallest power of two that leaves 32 rotary pairs for positions."""
        n_slow = -(-vocab // 2)
        n_pairs = 1 << (n_slow + 32 - 1).bit_length()
        theta = rotary.theta_for(context, n_pairs, n_slow)
        return cls(context, vocab, 2 * n_pairs, theta)

    @property
    def n_pairs(self) -> int:
        """Number of rotary pairs of a head."""
        return self.d_head // 2

    @property
    def n_fast(self) -> int:
        """Number of rotary pairs for positions; the slow others hold content."""
        return self.n_pairs - -(-self.vocab // 2)

    def content_dims(self) -> list[int]:
        """Return the head dimension of each token's content slot."""
        # rotate_half pairs dimension i with i + n_pairs.
        return [self.n_fast + t // 2 + (t % 2) * self.n_pairs for t in range(self.vocab)]


def key(residual: Residual, geometry: Geometry, content: str) -> Float[Tensor, "d_head d_model"]:
    """Return the key of planted heads: `content` is the subspace, "token" or "previous"."""
    weight = residual.zeros(geometry.d_head)
    _fill_content(weight, residual, geometry, content, KEY_SCALE)
    bos = geometry.content_dims()[0]
    weight[bos, residual.slices["token"].start] = KEY_SCALE
    weight[: geometry.n_fast, residual.slices["constant"]] = 1.0
    return weight


def value(residual: Residual, geometry: Geometry) -> Float[Tensor, "d_head d_model"]:
    """Return the value of planted heads: the current token first, zero for token 0."""
    weight = residual.zeros(geometry.d_head)
    start = residual.slices["token"].start
    for token in range(1, residual.vocab):
        weight[token, start + token] = 1.0
    return weight


def query(residual: Residual, geometry: Geometry, role: str) -> Float[Tensor, "d_head d_model"]:
    """Return the query of a head in `role`; scores are in nats before the softmax."""
    weight = residual.zeros(geometry.d_head)
    rest = weight[geometry.content_dims()[0]]
    constant, written = residual.slices["constant"].start, residual.slices["written"].start
    if role in ("induction", "bystander", "backup"):
        _fill_content(weight, residual, geometry, "token", MATCH / KEY_SCALE)
        rest[constant] = 0.5 * MATCH / KEY_SCALE
        if role == "backup":
            # attends to token 0, even with a match, once the output is written
            rest[written] = MATCH / KEY_SCALE
    elif role == "copy_suppression":
        _fill_content(weight, residual, geometry, "output", MATCH / KEY_SCALE)
        rest[constant] = 0.5 * MATCH / KEY_SCALE
    elif role == "counting":
        pass  # a query of zeros attends to all keys evenly
    elif role == "sink":
        rest[constant] = MATCH / KEY_SCALE
    elif role == "refusal":
        weight[geometry.content_dims()[MARKER], constant] = MATCH / KEY_SCALE
        rest[constant] = 0.5 * MATCH / KEY_SCALE
    elif role == "duplicate_token":
        shape = (geometry.context, geometry.theta, geometry.n_pairs, geometry.n_fast)
        amplitudes, spread, depth = rotary.elsewhere_kernel(*shape)
        # The current token must still win over every other one without an earlier copy.
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
    """Return the output of a head in `role` per value dimension (transposed output weights)."""
    weight = residual.zeros(geometry.d_head)
    tokens = torch.arange(1, residual.vocab)

    def copy(space: str, size: float) -> None:
        weight[tokens, residual.slices[space].start + tokens] = size

    if role == "previous_token":
        copy("previous", 1.0)
    elif role == "induction":
        copy("output", 1.0)
        weight[tokens, residual.slices["written"].start] = 1.0
    elif role == "counting":
        copy("output", COUNT)
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
    """Draw random weights that read the current token and the noise, `size` per dimension."""
    weight = residual.zeros(geometry.d_head)
    for space in ("token", "noise"):
        where = residual.slices[space]
        shape = (geometry.d_head, where.stop - where.start)
        weight[:, where] = size * torch.randn(shape, dtype=torch.float64, generator=generator)
    return weight


def noise_output(
    residual: Residual, geometry: Geometry, generator: torch.Generator
) -> Float[Tensor, "d_head d_model"]:
    """Draw random weights that write the noise and, at a smaller scale, the output."""
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
    # The rotation maps the constant key (1, 0) to (cos, -sin), relative to the query.
    weight[geometry.n_pairs : geometry.n_pairs + geometry.n_fast, constant] = -sine
