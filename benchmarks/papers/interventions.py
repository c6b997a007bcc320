"""Claims on what parts of a model carry: refusals, facts, and early layers of an encoder."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

import interp
from benchmarks.paper_findings import Finding
from interp import alignment, circuits, lens, safety
from interp.bundled.refusal_text import requests
from interp.bundled.reorder_text import reorder_pairs
from interp.circuits.facts import Fact
from interp.model.edits import zero
from papers.finding import above, below, claim
from papers.hosts import Host
from training.train import own_torch
from training.train_refusal import NO, Recipe, build_tokenizer, encoded, trained_refusal
from training.word_model import fit, small_gpt2


@torch.no_grad()
def declined(module: Any, given: Any, heads: Any = ()) -> float:
    """Return the share of requests that a model declines without some heads."""
    ids, length, _ = map(torch.from_numpy, encoded(given))
    model = interp.load(module, name="refusal", tokenizer=build_tokenizer(64))
    said = []
    for row, n in zip(ids.tolist(), length.tolist(), strict=True):
        logits = model.run([row[:n]], edits=[zero(heads)] if heads else [])
        said.append(int(logits[0, -1].argmax()) == NO)
    return float(np.mean(said))


@claim("RDSHA / AHD", "models of training/train_refusal.py with and without head dropout, 3 seeds")
def safety_heads() -> list[Finding]:
    """Leave out the four heads of largest projection on the refusal direction, or four others."""
    lost: dict[str, list[float]] = {"top": [], "random": [], "spread": []}
    recipe = replace(Recipe(), steps=600)
    for seed in range(3):
        made = requests(80_000 + seed, 160)
        first, judged = made[:80], [r for r in made[80:] if r.harmful]
        found = {}
        for dropout in (0.0, 0.3):
            with own_torch(seed, 1):
                module = trained_refusal(recipe, seed, head_dropout=dropout)[0]
            model = interp.load(module, name="refusal", tokenizer=build_tokenizer(64))
            bad, good = ([r.text for r in first if r.harmful == x] for x in (True, False))
            table = safety.refusal_projection_scores(model, bad, good).to_pandas()
            order = table.sort_values("score", ascending=False)
            heads = list(zip(order.layer, order["head"], strict=True))
            others = np.random.default_rng(seed).permutation(len(heads) - 4)[:4] + 4
            found[dropout] = (
                declined(module, judged, heads[:4]),
                declined(module, judged, [heads[i] for i in others]),
            )
        lost["top"].append(found[0.0][0] - found[0.0][1])
        lost["spread"].append(found[0.3][0] - found[0.0][0])
    return [
        below(
            "harmful requests declined without the four heads of largest projection minus without"
            " four others",
            lost["top"],
            "3 seeds, 40 requests each",
            -0.2,
            "share",
        ),
        above(
            "harmful requests declined without these four heads, trained with head dropout minus"
            " without it",
            lost["spread"],
            "3 seeds, 40 requests each",
            0.2,
            "share",
        ),
    ]


def knowing(seed: int) -> tuple[Any, list[Fact]]:
    """Train a small model on facts: two tokens of a subject, two of a relation, an object."""
    subjects, relations, objects = 40, 5, 30
    rng = np.random.default_rng(seed)
    names = rng.permutation(100)[: 2 * subjects].reshape(-1, 2) + 3
    asked = np.arange(2 * relations).reshape(-1, 2) + 103
    rows = [
        [0, *names[s].tolist(), *asked[r].tolist(), 113 + int(rng.integers(objects))]
        for s in range(subjects)
        for r in range(relations)
    ]
    with own_torch(seed, 1):
        torch.manual_seed(seed)
        model = small_gpt2(vocab=143, layers=5, d_model=48, heads=4, d_mlp=192, context=8)
        ids = torch.tensor(rows)
        recipe = replace(Recipe(), steps=400)

        def loss_at(step: int) -> tuple[torch.Tensor, list[float]]:
            return nn.functional.cross_entropy(model(ids[:, :5]).logits[:, -1], ids[:, 5]), []

        fit(model, loss_at, recipe)
    return model.eval(), [Fact(tuple(r[:5]), (1, 3), r[5]) for r in rows]


@claim("Does Knowledge Localization Hold True", "small models trained on 200 random facts, 3 seeds")
def relations_in_attention() -> list[Finding]:
    """Restore attention or MLPs after noise on the subject and on the relation."""
    shares: dict[str, list[float]] = {"subject": [], "relation": []}
    for seed in range(3):
        module, facts = knowing(seed)
        model = interp.load(module, name=f"facts {seed}")
        for noise in ("subject", "relation"):
            best = {
                what: float(
                    circuits.causal_tracing(
                        model, facts[::4], what, corrupt=noise, n_samples=3, null=False
                    )
                    .to_pandas()
                    .share.max()
                )
                for what in ("attention", "mlp")
            }
            shares[noise].append(best["attention"] - best["mlp"])
            if noise == "relation":
                shares.setdefault("part", []).append(best["attention"])
    return [
        above(
            "largest share of the effect of noise on the relation that one layer's attention"
            " restores",
            shares["part"],
            "3 seeds, 50 facts each",
            0.3,
            "share",
        ),
        above(
            "share restored by attention minus by MLP: noise on the relation minus noise on the"
            " subject",
            np.subtract(shares["relation"], shares["subject"]),
            "3 seeds, 50 facts each",
            unit="share",
        ),
    ]


@claim("DecoderLens", kind="translator")
def decoder_lens(host: Host) -> list[Finding]:
    """Let the decoder read the first encoder layer: are the words right, and is their order?"""
    model = host.model
    words, rises = [], []
    for pair in reorder_pairs(90_000, 60):
        given = alignment.encode_pairs(model, [(" ".join(pair.source), " ".join(pair.target))])
        read = lens.decoder_lens(model, given.prompts).arrays["top_tokens"]
        own, n = set(pair.target), len(pair.target)
        known = [np.mean([w.strip() in own for w in row[:n]]) for row in read[1:]]
        right = [
            np.mean([w.strip() == t for w, t in zip(row, pair.target, strict=False)])
            for row in read[1:]
        ]
        words.append(float(known[0]))
        rises.append(float((known[-1] - known[0]) - (right[-1] - right[0])))
    return [
        above(
            "decoded words that translate some source word, first of two encoder layers",
            words,
            "60 pairs",
            0.9,
            "share",
        ),
        below(
            "rise to the last layer of the share of words that translate some source word, minus"
            " that of words in the right place",
            rises,
            "60 pairs",
            unit="share",
        ),
    ]
