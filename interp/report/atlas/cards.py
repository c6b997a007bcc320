"""Cards of heads: evidence of the role, ablation effects, results with the head, nearest heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from interp.draw.parts import FoundPart
from interp.heads.roles.result import HeadRole
from interp.report.atlas.document import Card, Effect, Evidence, Link, Metric, Model, Nearest
from interp.report.atlas.scores import finite

if TYPE_CHECKING:
    from jaxtyping import Float

MOST = 4096  # heads of all models up to which the nearest of each are found
OWN, OTHER = 3, 2  # nearest heads in the same model, and in each of the others
LEAST = 4  # metrics that a profile needs
ALIKE = 0.5  # least similarity of a head that is named
HOW = "cosine of standardised scores over {} metrics"


def card_of(
    model: Model,
    at: int,
    head: HeadRole | None,
    parts: Sequence[FoundPart],
    near: Sequence[Nearest],
) -> Card:
    """Return what is known of one head beside its scores; empty if nothing is."""
    card: Card = {}
    if head is not None and head.evidence:
        card["evidence"] = [
            Evidence(
                role=e.role,
                text=e.text,
                metric=e.metric,
                score=finite(e.score),
                null=finite(e.null),
                p=finite(e.p),
            )
            for e in head.evidence
        ]
    label = model["heads"][at]["label"]
    effects = [_effect(metric, at) for metric in model["metrics"] if metric["group"] == "causal"]
    if some := [one for one in effects if one is not None]:
        card["effects"] = some
    links: list[Link] = [
        {"part": one.part["id"], "text": one.notes.get(label, str(one.part["title"]))}
        for one in parts
        if label in one.part["heads"] or label in one.notes
    ]
    if links:
        card["parts"] = links
    if near:
        card["nearest"] = list(near)
    return card


def _effect(metric: Metric, at: int) -> Effect | None:
    """Return the effect of one head on a task; None where it was not measured."""
    value, n = metric["score"][at], metric["n"][at]
    if value is None:
        return None
    name, _, stated = metric["name"].partition(":")
    options = {part.partition("=")[0]: part.partition("=")[2] for part in stated.split(",") if part}
    kind = options.get("kind")
    how = f"{name.replace('_', ' ')}{f', {kind}' if kind else ''}"
    return {
        "task": options.get("task", metric["name"]),
        "intervention": how,
        "value": value,
        "low": metric.get("score_low", [None] * (at + 1))[at],
        "high": metric.get("score_high", [None] * (at + 1))[at],
        "unit": metric["unit"],
        "n": int(n or 0),
    }


def nearest_heads(models: Mapping[str, Model]) -> dict[tuple[str, str], list[Nearest]]:
    """Return the nearest heads of each head by its scores, by id of the model and label.

    The profile of a head is its scores over the metrics, each standardised over the heads of its
    model. Models of together more than `MOST` heads have none.
    """
    out: dict[tuple[str, str], list[Nearest]] = {}
    some = list(models.values())
    if sum(len(model["heads"]) for model in some) > MOST:
        return out
    for a in some:
        for b in [a, *(model for model in some if model is not a)]:
            names = _shared(a, b)
            if len(names) < LEAST:
                continue
            similar = _profiles(a, names) @ _profiles(b, names).T
            if a is b:
                np.fill_diagonal(similar, -np.inf)
            keep = OWN if a is b else OTHER
            order = np.argsort(-similar, axis=1, kind="stable")[:, :keep]
            how = HOW.format(len(names))
            for i, place in enumerate(a["heads"]):
                nearest: list[Nearest] = [
                    {
                        "model": b["id"],
                        "label": b["heads"][j]["label"],
                        "similarity": round(float(similar[i, j]), 3),
                        "how": how,
                    }
                    for j in order[i]
                    if similar[i, j] >= ALIKE
                ]
                if nearest:
                    out.setdefault((a["id"], place["label"]), []).extend(nearest)
    return out


def _shared(a: Model, b: Model) -> list[str]:
    """Return the metrics that have a score of every head in both models."""

    def whole(model: Model) -> list[str]:
        return [
            metric["name"]
            for metric in model["metrics"]
            if metric["group"] != "causal" and None not in metric["score"]
        ]

    there = set(whole(b))
    return [name for name in whole(a) if name in there]


def _profiles(model: Model, names: Sequence[str]) -> Float[np.ndarray, "head metric"]:
    """Return the standardised scores of every head, of length one."""
    by_name = {metric["name"]: metric["score"] for metric in model["metrics"]}
    scores = np.array([by_name[name] for name in names], dtype=float).T
    spread = scores.std(0)
    scaled = (scores - scores.mean(0)) / np.where(spread > 0, spread, 1.0)
    length = np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / np.where(length > 0, length, 1.0)
