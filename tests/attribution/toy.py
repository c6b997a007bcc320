"""A model without attention: token embeddings, blocks of a chosen kind, a sum, a read-out."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from interp.attribution import Example
from interp.attribution.target import Target
from interp.model.model import Model

VOCAB, WIDTH = 11, 8
IDS = torch.tensor([[3, 1, 4, 1, 5]])


class Toy(nn.Module):
    """Logits `[batch, vocab]` of the sum of the tokens; `block` maps `[batch, pos, width]`."""

    def __init__(self, block: nn.Module):
        super().__init__()
        self.config = SimpleNamespace(vocab_size=VOCAB, hidden_size=WIDTH)
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.block = block
        self.out = nn.Linear(WIDTH, VOCAB, bias=False)

    def get_input_embeddings(self) -> nn.Module:
        return self.embed

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.out(self.block(self.embed(input_ids)).sum(1))


class Gated(nn.Module):
    """A norm, and an MLP whose two sides are multiplied; no biases."""

    def __init__(self, f=F.silu):
        super().__init__()
        self.norm = nn.RMSNorm(WIDTH)
        self.gate, self.up, self.down = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(3))
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(x)
        return x + self.down(self.f(self.gate(h)) * self.up(h))


class OwnNorm(nn.Module):
    """A norm written out inside something larger."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = self.inner(x)
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def example(block: nn.Module, seed: int = 0) -> Example:
    """Five tokens of the toy, and the logit of class 2."""
    draw = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        module = Toy(block)
        for p in module.parameters():
            p.copy_(torch.randn(p.shape, generator=draw))
    model = Model(module.eval(), "toy", ())
    return Example(model, IDS, Target("class 2", lambda out, real: out[:, 2], 0, "logit"))
