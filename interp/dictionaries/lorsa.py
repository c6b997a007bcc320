"""Low-rank sparse attention (Lorsa): many heads of one output dimension in place of a layer's.

A Lorsa layer reads the input x of an attention layer and reconstructs its output:

    A = softmax(mask(q k' / sqrt(d_qk))),  q = x W_Q + b_Q,  k = x W_K + b_K   per query-key head
    z = A (x W_V + b_V)                                         one number per head and position
    y = sum of z W_O over the k heads with the largest |z| * |W_O| at each position, + b_O

Consecutive heads share a query-key head. Of a model with rotary positions, queries and keys are
rotated with its base. The positions' k heads are taken from one sort, so exactly k are kept: a
published implementation compares with the k-th value strictly and so keeps k - 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.calls.call import Call
    from interp.model.model import Model

WEIGHTS = ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V", "b_O")


@dataclass(frozen=True, eq=False, repr=False)
class Lorsa:
    """Weights of a Lorsa layer.

    Args:
        W_Q, W_K: maps to queries and keys.
        W_V: what each head reads of a key.
        W_O: what each head writes.
        b_Q, b_K, b_V, b_O: biases.
        k: heads per position.
        layer: the attention layer that it stands for.
        stack: attention stack.
        rotary: base of rotary positions; None without.
        window: number of keys back that a query sees, itself included; None for all.
        model: name and hash of the model.
    """

    W_Q: Float[Tensor, "qk d_model d_qk"]
    W_K: Float[Tensor, "qk d_model d_qk"]
    W_V: Float[Tensor, "head d_model"]
    W_O: Float[Tensor, "head d_model"]
    b_Q: Float[Tensor, "qk d_qk"]
    b_K: Float[Tensor, "qk d_qk"]
    b_V: Float[Tensor, " head"]
    b_O: Float[Tensor, " d_model"]
    k: int
    layer: int
    stack: str = "decoder"
    rotary: float | None = None
    window: int | None = None
    model: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        heads, qk = len(self.W_V), len(self.W_Q)
        if heads % qk:
            raise OptionError(f"{heads} heads cannot share {qk} query-key heads evenly")
        if not 1 <= self.k <= heads:
            raise OptionError(f"k={self.k} of {heads} heads; give 1 to {heads}")
        if self.rotary is not None and self.W_Q.shape[2] % 2:
            raise OptionError(f"rotary positions need an even size, not {self.W_Q.shape[2]}")

    @property
    def n_heads(self) -> int:
        """Number of heads."""
        return len(self.W_V)

    def scores(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch qk pos pos"]:
        """Compute the logits of attention of every query-key head, with hidden keys at -inf."""
        q = torch.einsum("bpm,hmd->bhpd", x, self.W_Q) + self.b_Q[:, None]
        k = torch.einsum("bpm,hmd->bhpd", x, self.W_K) + self.b_K[:, None]
        if self.rotary is not None:
            q, k = rotated(q, self.rotary), rotated(k, self.rotary)
        s = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        at = torch.arange(x.shape[1], device=x.device)
        gap = at[:, None] - at
        hidden = gap < 0 if self.window is None else (gap < 0) | (gap >= self.window)
        return s.masked_fill(hidden, -torch.inf)

    def patterns(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch qk pos pos"]:
        """Compute the attention of every query-key head."""
        return self.scores(x).softmax(-1)

    def encode(self, x: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos head"]:
        """Compute z of every head, before the choice of k."""
        values = x @ self.W_V.T + self.b_V
        shared = values.unflatten(2, (len(self.W_Q), -1))
        return torch.einsum("bhqk,bkhn->bqhn", self.patterns(x), shared).flatten(2)

    def kept(
        self, z: Float[Tensor, "batch pos head"], k: int | None = None
    ) -> Bool[Tensor, "batch pos head"]:
        """Return the mask of the k heads with the largest |z| * |W_O| at each position."""
        size = z.detach().abs() * self.W_O.detach().norm(dim=1)
        best = size.topk(self.k if k is None else k, -1).indices
        return torch.zeros_like(z, dtype=torch.bool).scatter(-1, best, True)

    def __call__(
        self, x: Float[Tensor, "batch pos d_model"], k: int | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        """Compute the reconstruction of the attention output."""
        z = self.encode(x)
        return (z * self.kept(z, k)) @ self.W_O + self.b_O

    def __repr__(self) -> str:
        return (
            f"Lorsa({self.stack}.{self.layer}: {self.n_heads} heads, {len(self.W_Q)} query-key "
            f"heads of {self.W_Q.shape[2]}, k {self.k})"
        )


def rotated(x: Float[Tensor, "batch head pos d"], base: float) -> Float[Tensor, "batch head pos d"]:
    """Rotate pairs (i, i + d/2) by position / base^(2i/d)."""
    half = x.shape[-1] // 2
    speed = base ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
    angle = torch.arange(x.shape[2], dtype=x.dtype, device=x.device)[:, None] * speed
    first, second = x[..., :half], x[..., half:]
    cos, sin = angle.cos(), angle.sin()
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


@dataclass(eq=False)
class LorsaUnits:
    """Lorsa heads as units: their attention, and the positions at which they are among the k.

    Args:
        lorsa: the layer.
        inputs: function that returns the attention layer's input of the run in progress.
    """

    lorsa: Lorsa
    inputs: Callable[[], Float[Tensor, "batch pos d_model"]]
    kind: str = "lorsa"

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of the heads."""
        return tuple(f"R{h}" for h in range(self.lorsa.n_heads))

    def maps(
        self, call: Call, real: Tensor
    ) -> tuple[Callable[[Tensor], Tensor], Bool[Tensor, "batch unit query_pos"]]:
        """Return the pattern of every head, and where it is kept."""
        lorsa = self.lorsa
        x = self.inputs().to(lorsa.W_Q.device)  # where the layer's weights are
        patterns = lorsa.patterns(x).to(real.device)
        active = lorsa.kept(lorsa.encode(x)).transpose(1, 2).to(real.device)
        share = lorsa.n_heads // len(lorsa.W_Q)

        def rows(index: Tensor) -> Tensor:
            return patterns[:, :, index].repeat_interleave(share, 1)

        return rows, active & real[:, None]


def rotary_base(model: Model) -> float | None:
    """Return the base of a model's rotary positions; None if its config names none."""
    from interp.model.inputs import text_config

    config = text_config(model.config)
    parameters = getattr(config, "rope_parameters", None) or {}
    base = parameters.get("rope_theta") if isinstance(parameters, Mapping) else None
    base = base if base is not None else getattr(config, "rope_theta", None)
    return None if base is None else float(base)
