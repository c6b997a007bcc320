"""A claim on code: models need the tokens that attention finds, and not the others."""

from __future__ import annotations

import ast
import io
import sysconfig
import tokenize
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from papers.finding import Finding, above, below, claim
from papers.fitting import step_down

SEEDS, STEPS, LENGTH, WORDS, NAMES = (0, 1, 2), 250, 48, 600, 16
PRUNED = 0.4  # share of the tokens of a function


@cache
def _functions() -> tuple[list[list[int]], np.ndarray]:
    """Return tokens of functions of the standard library, and the first word of their names."""
    found: list[tuple[list[str], str]] = []
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if {"site-packages", "test", "tests", "lib2to3"} & set(path.relative_to(root).parts):
            continue
        source = path.read_text(encoding="utf-8", errors="ignore")
        lines = source.splitlines(keepends=True)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef):
                text = "".join(lines[node.lineno - 1 : node.end_lineno])
                word = next((w for w in node.name.lower().split("_") if w), "")
                tokens = [t for t in _tokens(text) if word and word not in t.lower()]
                found.append((tokens[:LENGTH], word))
    names = [w for w, _ in Counter(w for t, w in found if len(t) >= 24).most_common(NAMES)]
    kept = [(t, w) for t, w in found if len(t) >= 24 and w in names]
    number = Counter(t for tokens, _ in kept for t in tokens)
    ids = {t: i + 2 for i, (t, _) in enumerate(number.most_common(WORDS - 2))}
    order = np.random.default_rng(0).permutation(len(kept))
    rows = [[ids.get(t, 1) for t in kept[i][0]] for i in order]
    return rows, np.array([names.index(kept[i][1]) for i in order])


def _tokens(text: str) -> list[str]:
    try:
        read = tokenize.generate_tokens(io.StringIO(text.lstrip()).readline)
        return [t.string for t in read if t.string.strip() and t.type != tokenize.COMMENT]
    except (tokenize.TokenError, IndentationError):
        return []


def _batch(rows: list[list[int]]) -> dict[str, Tensor]:
    ids = torch.zeros(len(rows), LENGTH, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = torch.tensor(row)
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def _trained(rows: list[list[int]], labels: np.ndarray, seed: int) -> Any:
    torch.manual_seed(seed)
    sizes: dict[str, Any] = {
        "vocab_size": WORDS,
        "hidden_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 96,
        "max_position_embeddings": LENGTH,
        "num_labels": NAMES,
        "attn_implementation": "eager",
    }
    config = BertConfig(**sizes)
    model: Any = BertForSequenceClassification(config)
    optimizer, rng = torch.optim.AdamW(model.parameters(), 3e-3), np.random.default_rng(seed)
    for step in range(STEPS):
        some = rng.integers(len(rows), size=48)
        given = _batch([rows[i] for i in some])
        loss = model(**given, labels=torch.tensor(labels[some])).loss
        step_down(optimizer, loss, 3e-3 * min(1, (step + 1) / 30) * (1 - step / STEPS))
    return model.eval()


@torch.no_grad()
def _accuracy(model: Any, rows: list[list[int]], labels: np.ndarray) -> float:
    return float((model(**_batch(rows)).logits.argmax(-1).numpy() == labels).mean())


@torch.no_grad()
def _importance(model: Any, rows: list[list[int]]) -> np.ndarray:
    """Return the mean attention that each token of the vocabulary receives, over the even share."""
    total, number = np.zeros(WORDS), np.full(WORDS, 1e-9)
    given = _batch(rows)
    maps = torch.stack(model(**given, output_attentions=True).attentions).mean((0, 2))
    for row, pattern in zip(rows, maps.numpy(), strict=True):
        received = pattern[: len(row), : len(row)].sum(0)
        np.add.at(total, row, received)
        np.add.at(number, row, 1)
    return total / number


def _pruned(rows: list[list[int]], score: Any) -> list[list[int]]:
    found = []
    for row in rows:
        kept = np.sort(np.argsort(-score(row))[: round(len(row) * (1 - PRUNED))])
        found.append([row[i] for i in kept])
    return found


@claim("Diet Code", "BERT of two layers of width 48, trained on functions of the standard library")
def diet() -> list[Finding]:
    """Name functions from all tokens, from 60 % by mean attention, or from 60 % at random."""
    rows, labels = _functions()
    size = len(rows) * 3 // 4
    losses, gains = [], []
    for seed in SEEDS:
        whole = _trained(rows[:size], labels[:size], seed)
        importance = _importance(whole, rows[: min(size, 600)])
        rng = np.random.default_rng(seed)
        found = []
        for score in (lambda row, x=importance: x[row], lambda row, r=rng: r.random(len(row))):
            some = _pruned(rows, score)
            found.append(
                _accuracy(_trained(some[:size], labels[:size], seed), some[size:], labels[size:])
            )
        losses.append(_accuracy(whole, rows[size:], labels[size:]) - found[0])
        gains.append(found[0] - found[1])
    each = f"3 seeds, {len(rows) - size} functions"
    return [
        below(
            "accuracy with all tokens minus with the 60 % most attended",
            losses,
            each,
            0.03,
            "share",
        ),
        above(
            "accuracy with the most attended tokens minus with random ones",
            gains,
            each,
            unit="share",
        ),
    ]
