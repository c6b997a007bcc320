"""A claim on sentence embeddings that weight words by how much they attend to themselves."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import torch

from interp.core.rank_statistics import paired_spearman
from papers.finding import Finding, above, claim
from training.alike import SEEDS, VOCAB, loaded
from training.batches import build_tokenizer
from training.text import EVENTS, Story, paragraphs

SETS, PAIRS = 12, 60  # sets of pairs of sentences; the first half chooses the head


def _pairs() -> list[tuple[str, str, float]]:
    """Return pairs of sentences, and the share of their rarer words that both have."""
    rng, found = random.Random(0), []
    number = Counter(w for p in paragraphs(300, 3) for w in p.strip(".").split())
    common = {word for word, _ in number.most_common(40)}
    while len(found) < SETS * PAIRS:
        one = Story(rng)
        other = one if rng.random() < 0.7 else Story(rng)
        a, b = (EVENTS[rng.randrange(len(EVENTS))][0](s) for s in (one, other))
        words = [{w.strip('.,?"') for w in text.split()} - common for text in (a, b)]
        if a != b:
            found.append((a, b, len(words[0] & words[1]) / len(words[0] | words[1])))
    return found


@claim("Ditto", "both-ways attention (BERT) trained alike to fill in tokens, 3 seeds")
def ditto() -> Finding:
    """Rank pairs by cosine, words weighted by the diagonal of a head chosen on others, or alike."""
    tokenizer = build_tokenizer(paragraphs(1500, 1), VOCAB, 10_000)
    pairs, gains = _pairs(), []
    truth = np.array([p[2] for p in pairs]).reshape(SETS, PAIRS)
    for seed in SEEDS:
        model = loaded("both_ways", seed)
        units: list[list[np.ndarray]] = [[], []]
        for pair in pairs:
            for side, text in enumerate(pair[:2]):
                units[side].append(_embeddings(model, tokenizer(text)["input_ids"][:64]))
        left, right = (np.stack(side) for side in units)  # [pair, weighting, d]
        cosine = (
            (left * right).sum(-1) / np.linalg.norm(left, axis=-1) / np.linalg.norm(right, axis=-1)
        )
        rank = paired_spearman(cosine.reshape(SETS, PAIRS, -1).swapaxes(1, 2), truth[:, None])
        head = 1 + rank[: SETS // 2, 1:].mean(0).argmax()
        gains.append(rank[SETS // 2 :, head] - rank[SETS // 2 :, 0])
    each = f"{SETS - SETS // 2} sets of {PAIRS} pairs of sentences, mean over three models"
    return above(
        "Spearman correlation with shared words, weighted minus plain mean",
        np.mean(gains, 0),
        each,
        unit="correlation",
    )


@torch.no_grad()
def _embeddings(model: Any, ids: list[int]) -> np.ndarray:
    """Return means of the first and last states over words: alike, and by each diagonal."""
    cache = model.capture([ids], ["map", "resid_pre", "resid_post"])
    states = (cache["resid_pre", 0][0] + cache["resid_post", 1][0]) / 2
    weights = [torch.ones(len(ids))]
    for layer in range(2):
        weights += list(cache["map", layer][0].diagonal(dim1=-2, dim2=-1))
    return torch.stack([(w / w.sum()) @ states for w in weights]).numpy()
