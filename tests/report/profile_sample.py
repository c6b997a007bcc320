"""A profile with made-up numbers: entries, position alone, no description, and other facts."""

from __future__ import annotations

from typing import Any

import numpy as np

from interp.profiles import Profile
from interp.profiles.judgement import PROBABILITIES

SINK = "share of attention"
PATTERN = "share of the pattern explained"
TOKENS = ["Tom", " said", " hi", ".", " He", " ran", " home", ".", "\n", " Then"]


def numbers(head: int, rules: float) -> dict[str, tuple[float, str]]:
    """Return value and unit of every metric."""
    return {
        "off_sink": (0.9, SINK),
        "entropy": (1.5, "nats"),
        "pattern": (2.0, "nats per query"),
        "explained_offset": (0.2, PATTERN),
        "explained_position": (0.1 * (head + 1), PATTERN),
        "explained_list": (rules, PATTERN),
        "list_beyond_position": (rules - 0.1 * (head + 1), PATTERN),
        "explained_rules": (rules, PATTERN),
        "explained_tokens": (0.7, PATTERN),
        "needs_context": (0.3, PATTERN),
        "beyond_position": (rules - 0.1 * (head + 1), PATTERN),
        "control_swapped_document": (0.08, PATTERN),
        "loss_without": (0.012 * head, "nats per token"),
    }


def entry(number: int, rule: str, phrase: str, share: float) -> dict[str, Any]:
    return {
        "number": number,
        "rule": rule,
        "queries": "",
        "name": rule,
        "phrase": phrase,
        "place": False,
        "avoided": False,
        "share": {"value": share, "low": share - 0.02, "high": share + 0.02},
        "position": 0.05,
        "nats": 1.5,
        "gain": {"value": 0.2, "low": 0.17, "high": 0.23},
        "members": [],
    }


def example(name: str, kind: str, token: str = "Tom", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "kind": kind,
        "document": "stories.jsonl:7",
        "offset": 0,
        "position": 6,
        "tokens": [token, *TOKENS[1:]],
        "gaps": [4],
        "query": 6,
        "keys": [[0, 0.85], [3, 0.1]],
        "surprise": 0.42,
        **more,
    }


def profile(
    *, model: str = "hub/base", corpus: str = "stories.jsonl", token: str = "Tom", heads: int = 4
) -> Profile:
    """Two layers of heads: entries at heads 0 and 1, position at 2, not described from 3 on."""
    rows, descriptions, examples = [], [], []
    for layer in (0, 1):
        for head in range(heads):
            name = f"L{layer}H{head}"
            where = {"stack": "decoder", "layer": layer, "head": head}
            status = ("described", "in part", "described", "not described")[min(head, 3)]
            entries = []
            if head < 2:
                entries = [entry(1, "induction", "to the token after an earlier copy", 0.4)]
            if head == 0:
                entries[0]["number"] = 2
                entries = [entry(1, "previous_token", "to the token just before", 0.6), *entries]
            every = numbers(head, 0.5)
            every |= {
                f"entry:{x['rule']}": (x["share"]["value"], f"{SINK} off the sink") for x in entries
            }
            rows += [
                {
                    **where,
                    "metric": metric,
                    "score": value,
                    "low": value - 0.01,
                    "high": value + 0.01,
                    "null": float("nan"),
                    "n": 60,
                    "unit": unit,
                }
                for metric, (value, unit) in every.items()
            ]
            descriptions.append(
                {
                    **where,
                    "name": name,
                    "status": status,
                    "entries": entries,
                    "numbers": {
                        said: {"value": 0.9, "low": 0.85, "high": 0.95}
                        for said in (
                            "off_sink",
                            "distance",
                            "explained_position",
                            "pattern",
                            "explained_list",
                        )
                    },
                    "writes": {"raises": [[f" {token}", 1.5], [" ran", 0.7]], "how": "by the OV"},
                }
            )
            examples += [
                example(name, kind, token)
                for kind in ("strongest", "strongest", "strongest", "uniform", "surprise")
            ]
    made = {
        "model_id": model,
        "content_hash": "a" * 64,
        "corpus": corpus,
        "corpus_hash": corpus,
        "documents_used": 60,
        "documents_read": 100,
        "queries": 900,
        "seed": 0,
    }
    quantiles = np.array([[row["score"]] * len(PROBABILITIES) for row in rows])
    return Profile(tuple(rows), quantiles, tuple(descriptions), tuple(examples), made)
