"""Claims on memory and cost: bytes and processes, and attention that can be replaced."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AttentionInterface

import interp
from interp.core.prompts import Prompts
from interp.heads.machine_limits import roofline
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from papers.evicting import KINDS, hiding, loss, ranked
from papers.finding import Numbers, claim, on_decoders
from papers.fitting import step_down
from papers.hosts import SIX_LAYERS, Host
from papers.sparse_blocks import pages
from training.alike import VOCAB, corpora
from training.batches import repeats
from training.deep import SEEDS, deep, deep_module

ROOT = Path(__file__).parents[2]
SCORED = """
import json, sys
import interp
from benchmarks.attention import peak_of
from benchmarks.long_contexts_rooms import ids_of, model_of
engine, tokens = sys.argv[1], int(sys.argv[2])
model, found = model_of(), []
def run(n):
    table = interp.score(model, "entropy", [ids_of(n)], null="none", engine=engine)
    found[:] = table.to_pandas().score.tolist()
run(96)  # loads and compiles everything
print(json.dumps([peak_of(lambda: run(tokens)), found]))
"""


@cache
def scored(engine: str, tokens: int) -> tuple[float, list[float]]:
    """Return the growth of the peak in MiB of scoring one prompt, and the scores of the heads."""
    command = [sys.executable, "-c", SCORED, engine, str(tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    growth, scores = json.loads(done.stdout.splitlines()[-1])
    return growth, scores


def _exponent(engine: str, short: int, long: int) -> float:
    grown = [scored(engine, n)[0] for n in (short, long)]
    return math.log(grown[1] / grown[0]) / math.log(long / short)


@claim("Self-attention Does Not Need O(n^2) Memory")
def linear_memory() -> Numbers:
    """Score entropy with the fused engine: bytes at two lengths, and the stored engine's scores."""
    fused, stored = (scored(engine, 4096) for engine in ("fused", "stored"))
    apart = np.abs(np.subtract(fused[1], stored[1])).max()
    return _exponent("fused", 4096, 16384), fused[0] / stored[0], apart


@claim("Generating Long Sequences")
def sparse_transformer() -> Numbers:
    """Entries of the strided map at two lengths, and bytes when maps are recomputed.

    No loss is measured: the paper uses the strided form for pictures and sound, and for text its
    fixed form, because the strided one is worse there (1.13 bits against .99 on enwik8).
    """
    entries = []
    for n in (256, 4096):  # the stride is the root of the length, as published
        gap = np.arange(n)[:, None] - np.arange(n)
        stride = math.isqrt(n)
        entries.append(int(((gap >= 0) & ((gap < stride) | (gap % stride == 0))).sum()))
    exponent = math.log(entries[1] / entries[0]) / math.log(16)
    return exponent, _exponent("streamed", 4096, 16384)


@on_decoders("Kinetics")
def kinetics(host: Host) -> Numbers:
    """Right answers per cost of repeated sampling, with all keys or with a quarter of them.

    Cost of a token: operations, and bytes times the operations that a machine does meanwhile;
    weights are read once for 256 samples. A sample is right with the product of the probabilities
    of its tokens, so the share of prompts answered by so many samples is exact.
    """
    prompts = [x.ids for x in host.asked(96, 0, passages=20)]
    parts = roofline(host.model, prompts, machine="989000,3350").to_pandas()
    parts = parts[parts.stage == "decode"].set_index("part")
    intensity, batch, share = 989_000 / 3_350, 256, 0.25
    weights = parts.operations["parameters"] + intensity * parts.bytes["parameters"] / batch
    attention = parts.operations["attention"] + intensity * parts.bytes["attention"]

    def keep(call: Call, site: Site) -> Tensor:
        return pages(call, site, int(share * call.z.shape[2]))

    few = hiding(host.model, keep)
    right = [np.exp(-4 * loss(host.model, prompts, 4, *edits)) for edits in ((), (few,))]
    cheaper = (weights + attention) / (weights + share * attention)
    gains = [
        (1 - (1 - right[1]) ** (samples * cheaper)) - (1 - (1 - right[0]) ** samples)
        for samples in (1, 2, 4, 8, 16, 32)
    ]
    return attention / (weights + attention), np.mean(gains, 0)


METRICS = ("entropy", "induction", "previous_token")
ONE = """
import json, sys
import torch, torch.distributed as dist
import interp
from interp.heads.spread import spread_scores

torch.set_num_threads(1)
rank, number, store, ids, metrics = json.loads(sys.argv[1])
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=number)
found = spread_scores(interp.load("bundled:induction"), ids, metrics)
print(json.dumps({k: v.tolist() for k, v in found.items()}))
dist.destroy_process_group()
"""


def _in_processes(ids: list[int], number: int) -> list[dict[str, np.ndarray]]:
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        given = [json.dumps([rank, number, store, ids, METRICS]) for rank in range(number)]
        running = [
            subprocess.Popen([sys.executable, "-c", ONE, one], stdout=subprocess.PIPE, text=True)
            for one in given
        ]
        said = [process.communicate()[0].splitlines()[-1] for process in running]
    return [{k: np.array(v) for k, v in json.loads(line).items()} for line in said]


@claim("A Unified View of Long-Sequence Models")
def spread() -> Numbers:
    """Score a prompt of 240 tokens in one process, and spread over two and four."""
    rng = np.random.default_rng(0)
    ids = [int(x) for x in rng.integers(5, 200, 120)] * 2
    table = interp.score(
        interp.load("bundled:induction"), list(METRICS), Prompts((tuple(ids),)), null="none"
    ).to_pandas()
    worst = 0.0
    for number in (2, 4):
        for found in _in_processes(ids, number):
            for name in METRICS:
                rows = table[table["metric"] == name]
                whole = rows.pivot(index="layer", columns="head", values="score").to_numpy()
                worst = max(worst, float(np.abs(found[name] - whole).max()))
    return worst


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


@claim("Beyond KV Caching")
def shared() -> Numbers:
    """Train with the last two of six layers on the pattern of the fourth, or with their own."""
    rises = [_losses(deep_module(s, (4, 5))) - _losses(deep_module(s)) for s in SEEDS]
    return tuple(np.array(rises).T)


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


@claim("RecurFormer")
def recurrences() -> Numbers:
    """Replace the third of heads with most recency by recurrences, or a third of the others."""
    rises, others = [], []
    for seed in SEEDS:
        left = [(i, h) for i in range(6) for h in range(4) if (i, h) not in _recent(seed)]
        drawn = np.random.default_rng(seed).permutation(len(left))[:8]
        plain = _losses(_with_recurrences(seed, []))  # trained as long
        rises.append(_losses(_with_recurrences(seed, _recent(seed))) - plain)
        others.append(_losses(_with_recurrences(seed, [left[i] for i in drawn])) - plain)
    return *np.array(rises).T, (np.array(others) - rises).mean(1)
