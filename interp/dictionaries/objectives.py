"""Trainable dictionaries: losses of each architecture, with straight-through gradients.

Activations are scaled to a mean squared norm of their width, so coefficients do not depend on the
model. The loss of a batch is the mean squared error per entry, plus a term for sparsity:

    standard   c * mean over rows of the sum of codes (rows of the decoder have norm 1)
    gated      c * sum of relu(gate), and the error of relu(gate) through a frozen decoder
    jumprelu   c * number of codes, through a rectangle of width `BANDWIDTH` around the threshold
    topk, batchtopk   none: k codes are kept

all divided by the width. The gradient of jumprelu with respect to its threshold is
-(threshold / bandwidth) * rectangle((pre - threshold) / bandwidth) times that of its output.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from interp.dictionaries.dictionary import Dictionary

TRAINED = ("standard", "topk", "batchtopk", "jumprelu", "gated")
BANDWIDTH = 0.5  # in units of scaled activations
THRESHOLD = 0.1  # of jumprelu before it is set to the wanted number of codes
AUXILIARY = 1 / 32  # weight of the error that dead features reconstruct


class _Jump(torch.autograd.Function):
    """pre where it exceeds the threshold, with the published gradient for the threshold."""

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(pre, threshold)
        return pre * (pre > threshold)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        pre, threshold = ctx.saved_tensors
        near = ((pre - threshold).abs() < BANDWIDTH / 2).to(grad)
        by_threshold = (-(threshold / BANDWIDTH) * near * grad).flatten(0, -2).sum(0)
        return (pre > threshold) * grad, by_threshold


class _Count(torch.autograd.Function):
    """1 where pre exceeds the threshold, with the same rectangle as gradient."""

    @staticmethod
    def forward(ctx: Any, pre: Tensor, threshold: Tensor) -> Tensor:  # type: ignore[override]
        ctx.save_for_backward(pre, threshold)
        return (pre > threshold).to(pre)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:  # type: ignore[override]
        pre, threshold = ctx.saved_tensors
        near = ((pre - threshold).abs() < BANDWIDTH / 2).to(grad)
        return None, (-(1 / BANDWIDTH) * near * grad).flatten(0, -2).sum(0)


class Trainable(nn.Module):
    """Parameters of a dictionary in training, on scaled activations.

    Args:
        architecture: one of `TRAINED`.
        d_in: entries that are read.
        d_out: entries that are reconstructed.
        d_sae: number of features.
        k: codes per row.
        mean: mean of the scaled activations to reconstruct, where `b_dec` starts.
        transcoder: whether another place is reconstructed; `b_dec` is then not subtracted.
        generator: source of the initial directions.
    """

    topk_threshold: Tensor

    def __init__(
        self,
        architecture: str,
        d_in: int,
        d_out: int,
        d_sae: int,
        k: int,
        mean: Float[Tensor, " d_out"],
        transcoder: bool,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        self.architecture, self.k, self.transcoder = architecture, k, transcoder
        rows = torch.randn(d_sae, d_out, generator=generator)
        rows = rows / rows.norm(dim=1, keepdim=True)
        reading = rows
        if transcoder:
            reading = torch.randn(d_sae, d_in, generator=generator)
            reading = reading / reading.norm(dim=1, keepdim=True)
        self.W_dec = nn.Parameter(rows.clone())
        self.W_enc = nn.Parameter(reading.T.clone())
        self.b_enc = nn.Parameter(torch.zeros(d_sae))
        self.b_dec = nn.Parameter(mean.clone())
        if architecture == "jumprelu":
            self.log_threshold = nn.Parameter(torch.full((d_sae,), THRESHOLD).log())
        if architecture == "gated":
            self.b_mag = nn.Parameter(torch.zeros(d_sae))
            self.r_mag = nn.Parameter(torch.zeros(d_sae))
        self.register_buffer("topk_threshold", torch.tensor(0.0))

    def pre(self, x: Tensor) -> Tensor:
        """Compute the codes before their activation."""
        return (x if self.transcoder else x - self.b_dec) @ self.W_enc + self.b_enc

    def codes(self, pre: Tensor) -> Tensor:
        """Compute the codes of a batch in training."""
        if self.architecture == "standard":
            return pre.relu()
        if self.architecture == "jumprelu":
            return _Jump.apply(pre.relu(), self.log_threshold.exp())
        if self.architecture == "gated":
            size = (pre - self.b_enc) * self.r_mag.exp() + self.b_mag
            return size.relu() * (pre > 0)
        flat = pre.relu()
        if self.architecture == "topk":
            best = flat.topk(self.k, -1)
            return torch.zeros_like(flat).scatter(-1, best.indices, best.values)
        threshold = flat.flatten().topk(self.k * len(flat)).values[-1].detach()
        if self.training:
            positive = threshold.clamp_min(1e-6)
            seen = self.topk_threshold
            seen.copy_(positive if float(seen) == 0 else 0.99 * seen + 0.01 * positive)
        return flat * (flat >= threshold)

    def loss(
        self, x: Tensor, y: Tensor, coefficient: float, dead: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the loss of a batch, its codes and its reconstruction."""
        pre = self.pre(x)
        codes = self.codes(pre)
        reconstruction = codes @ self.W_dec + self.b_dec
        width = y.shape[1]
        total = (reconstruction - y).square().sum(1).mean()
        if self.architecture == "standard":
            total = total + coefficient * codes.sum(1).mean()
        elif self.architecture == "jumprelu":
            number = _Count.apply(pre, self.log_threshold.exp())
            total = total + coefficient * number.sum(1).mean()
        elif self.architecture == "gated":
            gate = pre.relu()
            through = gate @ self.W_dec.detach() + self.b_dec.detach()
            total = total + coefficient * gate.sum(1).mean()
            total = total + (through - y).square().sum(1).mean()
        if dead is not None and bool(dead.any()):
            total = total + AUXILIARY * self._auxiliary(pre, (y - reconstruction).detach(), dead)
        return total / width, codes, reconstruction

    def _auxiliary(self, pre: Tensor, error: Tensor, dead: Tensor) -> Tensor:
        """Return the error left when the strongest dead features reconstruct the error (AuxK)."""
        number = int(dead.sum())
        at_most = max(1, error.shape[1] // 2)
        some = pre.masked_fill(~dead, -torch.inf).topk(min(at_most, number), -1)
        codes = torch.zeros_like(pre).scatter(-1, some.indices, some.values)
        missed = (codes @ self.W_dec - error).square().sum(1).mean()
        return min(number / at_most, 1.0) * missed

    @torch.no_grad()
    def unit_rows(self) -> None:
        """Scale the decoder's rows to norm 1."""
        self.W_dec.div_(self.W_dec.norm(dim=1, keepdim=True).clamp_min(1e-8))

    @torch.no_grad()
    def remove_parallel(self) -> None:
        """Remove from the decoder's gradient the part along each row, which the norm undoes."""
        if self.W_dec.grad is not None:
            along = (self.W_dec.grad * self.W_dec).sum(1, keepdim=True)
            self.W_dec.grad -= along * self.W_dec

    @torch.no_grad()
    def dictionary(self, scale_in: float, scale_out: float, **about: Any) -> Dictionary:
        """Return the dictionary on unscaled activations."""
        b_enc = self.b_enc.detach().clone() / scale_out
        parts: dict[str, Tensor] = {}
        architecture = self.architecture
        if architecture == "batchtopk":
            architecture = "jumprelu"
            parts["threshold"] = torch.full_like(b_enc, float(self.topk_threshold) / scale_out)
        elif architecture == "jumprelu":
            parts["threshold"] = self.log_threshold.detach().exp() / scale_out
        elif architecture == "gated":
            parts = {
                "b_gate": b_enc,
                "b_mag": self.b_mag.detach() / scale_out,
                "r_mag": self.r_mag.detach().clone(),
            }
            b_enc = torch.zeros_like(b_enc)
        return Dictionary(
            architecture,
            self.W_enc.detach() * (scale_in / scale_out),
            self.W_dec.detach().clone(),
            b_enc,
            self.b_dec.detach() / scale_out,
            parts=parts,
            k=self.k if architecture == "topk" else None,
            **about,
        )
