"""Claims on memory and cost: bytes that grow with the length, and what sparse attention saves."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
from torch import Tensor

from interp.heads.machine_limits import roofline
from interp.model.calls.call import Call
from interp.model.calls.sites import Site
from papers.evicting import hiding, loss
from papers.finding import Finding, above, claim, exact, on_decoders
from papers.hosts import Host
from papers.sparse_budgets import pages

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


def _exponent(engine: str, short: int, long: int) -> Finding:
    grown = [scored(engine, n)[0] for n in (short, long)]
    return exact(
        f"exponent of the bytes in the length, {short} to {long} tokens, {engine}",
        math.log(grown[1] / grown[0]) / math.log(long / short),
        "exponent",
        "below",
        1.3,
        "growth of the peak of a process of its own, once each",
    )


@claim("Self-attention Does Not Need O(n^2) Memory", "two layers of two heads, random weights")
def linear_memory() -> list[Finding]:
    """Score entropy with the fused engine: bytes at two lengths, and the stored engine's scores."""
    fused, stored = (scored(engine, 4096) for engine in ("fused", "stored"))
    apart = float(np.abs(np.subtract(fused[1], stored[1])).max())
    return [
        _exponent("fused", 4096, 16384),
        exact(
            "bytes of fused attention over those of a stored pattern, 4096 tokens",
            fused[0] / stored[0],
            "share",
            "below",
            0.25,
            "once each",
        ),
        exact(
            "largest difference of the entropy from the stored pattern's",
            apart,
            "nats",
            "below",
            1e-4,
            "4 heads, 4096 tokens",
        ),
    ]


@claim("Generating Long Sequences", "strided maps, and maps of random weights that are recomputed")
def sparse_transformer() -> list[Finding]:
    """Entries of the strided map at two lengths, and bytes when maps are recomputed.

    No loss is measured: the paper uses the strided form for pictures and sound, and for text its
    fixed form, because the strided one is worse there (1.13 bits against .99 on enwik8).
    """
    entries = []
    for n in (256, 4096):  # the stride is the root of the length, as published
        gap = np.arange(n)[:, None] - np.arange(n)
        stride = math.isqrt(n)
        entries.append(int(((gap >= 0) & ((gap < stride) | (gap % stride == 0))).sum()))
    return [
        exact(
            "exponent of the visible pairs in the length, 256 to 4096 tokens",
            math.log(entries[1] / entries[0]) / math.log(16),
            "exponent",
            "below",
            1.6,
            "counted",
        ),
        _exponent("streamed", 4096, 16384),
    ]


@on_decoders("Kinetics")
def kinetics(host: Host) -> list[Finding]:
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

    right = [
        np.exp(-4 * loss(host.model, prompts, 4, *edits))
        for edits in ((), (hiding(host.model, keep, "pages"),))
    ]
    cheaper = (weights + attention) / (weights + share * attention)
    gains = [
        (1 - (1 - right[1]) ** (samples * cheaper)) - (1 - (1 - right[0]) ** samples)
        for samples in (1, 2, 4, 8, 16, 32)
    ]
    part = attention / (weights + attention)
    each = "96 prompts, cost of 1 to 32 samples with all keys"
    what = "prompts answered for the same cost, sparse attention minus full"
    return [
        exact("share of attention in the cost of a token", part, "share", "above", 0.5, "counted"),
        above(what, np.mean(gains, 0), each, unit="share"),
    ]
