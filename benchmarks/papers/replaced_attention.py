"""Claims on attention that can be replaced: by the layer before, or by a recurrence."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

from papers.evicting import KINDS, NOTICED, ranked
from papers.finding import Finding, above, below, claim
from papers.fitting import step_down
from papers.hosts import SIX_LAYERS
from training.alike import VOCAB, corpora
from training.batches import repeats
from training.deep import SEEDS, deep, deep_module

DEEP = "models of six layers of four heads, three seeds, trained on text and copies"
FURTHER = 100  # steps of training with recurrences


@torch.no_grad()
def _losses(module: Any) -> np.ndarray:
    """Return the loss on held-out text and on copies."""
    found = []
    for rows, scored in (SIX_LAYERS.rows(kind, 32) for kind in KINDS):
        ids = torch.tensor(rows)
        logits = module(ids).logits[:, -scored - 1 : -1]
        found.append(float(F.cross_entropy(logits.mT, ids[:, -scored:])))
    return np.array(found)


def _two(what: str, rises: np.ndarray) -> list[Finding]:
    """Return the means over seeds of rises on text and on copies."""
    return [
        below(f"{kind}: {what}", rises[:, i], "3 seeds, 32 rows", NOTICED)
        for i, kind in enumerate(KINDS)
    ]


@claim("Beyond KV Caching", DEEP)
def shared() -> list[Finding]:
    """Train with the last two of six layers on the pattern of the fourth, or with their own."""
    rises = [_losses(deep_module(s, (4, 5))) - _losses(deep_module(s)) for s in SEEDS]
    return _two("loss with a shared pattern minus with own ones", np.array(rises))


class _Recurrences(nn.Module):
    """Outputs of heads as a short convolution of values, summed with a gate that forgets."""

    def __init__(self, heads: Sequence[int], size: int) -> None:
        super().__init__()
        self.heads = list(heads)
        self.near = nn.Parameter(torch.eye(4)[:1].repeat(len(heads), 1))  # weight by distance
        self.gate = nn.Parameter(torch.zeros(len(heads), size))
        self.keep = nn.Parameter(torch.zeros(len(heads)))

    def forward(self, v: Tensor) -> Tensor:
        """Return outputs from the values of these heads, `[row, head, token, d]`."""
        n = v.shape[2]
        near = sum(self.near[:, d, None, None] * F.pad(v, (0, 0, d, 0))[:, :, :n] for d in range(4))
        forget = (v * self.gate[:, None]).sum(-1) + self.keep[:, None]
        total = F.logsigmoid(forget).cumsum(-1)
        later = torch.ones(n, n, dtype=torch.bool).triu(1)
        decay = (total[..., None] - total[..., None, :]).masked_fill(later, -torch.inf).exp()
        return decay * (1 - forget.sigmoid())[..., None, :] @ near


def _attention(module: Any, q: Any, k: Any, v: Any, mask: Any, scaling: float, **_: Any):
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scaling)
    if module.replaced is not None:
        heads = module.replaced.heads
        out = out.index_copy(1, torch.tensor(heads), module.replaced(v[:, heads]))
    return out.transpose(1, 2), None


AttentionInterface.register("recurrent heads", _attention)


def _with_recurrences(seed: int, heads: Sequence[tuple[int, int]]) -> Any:
    """Return the model with recurrences in place of heads, trained for some steps."""
    torch.manual_seed(seed)
    module = deep_module(seed)
    module.set_attn_implementation("recurrent heads")
    for i, layer in enumerate(module.model.layers):
        mine = [h for at, h in heads if at == i]
        layer.self_attn.replaced = _Recurrences(mine, 16) if mine else None
    optimizer = torch.optim.AdamW(module.parameters(), 2e-3, betas=(0.9, 0.98))
    rng = np.random.default_rng(seed)
    for step in range(FURTHER):
        copied, known = repeats(rng, 16, 96, VOCAB)
        ids = torch.tensor(np.concatenate([corpora()[0].rows(rng, 8, 96), copied]))
        counts = torch.cat([torch.ones(8, 96), torch.tensor(known).float()])[:, 1:]
        loss = F.cross_entropy(module(ids).logits[:, :-1].mT, ids[:, 1:], reduction="none")
        step_down(optimizer, (loss * counts).sum() / counts.sum(), 2e-3 * (1 - step / FURTHER))
    return module.eval()


@cache
def _recent(seed: int) -> list[tuple[int, int]]:
    """Return the third of the heads with most recency."""
    return ranked(deep(seed), "recency", SIX_LAYERS.texts(32, judged=False))[:8]


@claim("RecurFormer", DEEP)
def recurrences() -> list[Finding]:
    """Replace the third of heads with most recency by recurrences, or a third of the others."""
    rises, others = [], []
    for seed in SEEDS:
        left = [(i, h) for i in range(6) for h in range(4) if (i, h) not in _recent(seed)]
        drawn = np.random.default_rng(seed).permutation(len(left))[:8]
        plain = _losses(_with_recurrences(seed, []))  # trained as long
        rises.append(_losses(_with_recurrences(seed, _recent(seed))) - plain)
        others.append(_losses(_with_recurrences(seed, [left[i] for i in drawn])) - plain)
    apart = (np.array(others) - rises).mean(1)
    what = "rise of the loss, other heads replaced minus heads of recent tokens, both kinds"
    return [
        *_two("rise of the loss, heads of recent tokens replaced", np.array(rises)),
        above(what, apart, "3 seeds, 32 rows each"),
    ]
