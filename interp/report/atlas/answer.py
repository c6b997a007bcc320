"""The first line of an atlas: what was found, in one sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from interp.core.ties import ordered_by
from interp.report.atlas.document import Atlas, Model

FEW = 3  # roles that are named


def answer_line(document: Atlas) -> str:
    """Return what the page says: what changed, the roles of a model's heads, or those of models."""
    models = document["models"]
    if document["comparisons"]:
        one = document["comparisons"][0]
        names = {model["id"]: model["name"] for model in models}
        return f"{names[one['a']]} and {names[one['b']]}: {_first(one)}"
    if len(models) > 1:
        return _of_models(models)
    return _of_model(models[0], document["title"]) if models else document["title"]


def _of_model(model: Model, title: str) -> str:
    """Say what the heads of a model do, or what its first result says, or name its best head."""
    if "profile" in model:
        return f"{model['name']} on {model['profile']['corpus']}: {_first(model['profile'])}"
    if summary := _with_roles(model):
        return f"{model['name']}: {summary}"
    if model["results"]:
        return f"{model['results'][0]['title'].rstrip('?')}: {_first(model['results'][0])}"
    return f"{model['name']}: {_best_head(model) or title}"


def _first(part: Mapping[str, Any]) -> str:
    """Return the first sentence of a part, without most of what it lists."""
    listed = part["text"].partition(". ")[0].rstrip(".").split("; ")
    more = [f"{len(listed) - FEW} more"] if len(listed) > FEW + 1 else []
    return "; ".join([*listed[: FEW if more else None], *more])


def _best_head(model: Model) -> str:
    """Name the head at the end of the first metric that the metric declares."""
    for metric in model["metrics"]:
        known = [(x, i) for i, x in enumerate(metric["score"]) if x is not None]
        if known:
            sizes = {"low": lambda x: -x[0], "both": lambda x: abs(x[0])}
            score, at = ordered_by(known, sizes.get(metric["end"], lambda x: x[0]))[0]
            head = model["heads"][at]["label"]
            return f"first by {metric['name']}: {head} {score:.3g} {metric['unit']}"
    return ""


def _with_roles(model: Model) -> str:
    """Say how many heads have a role, and which; nothing where no head was judged."""
    judged = [role for role in model["roles"] if role is not None]
    if not judged:
        return ""
    n = sum(role != "unclear" for role in judged)
    text = f"{n} of {len(judged)} heads have a role"
    return text + _listed([(f"{count} {name}", count) for name, count in _found(model).items()])


def _of_models(models: list[Model]) -> str:
    """Say in how many models each role was found."""
    there = Counter(name for model in models for name in _found(model))
    heads = sum(len(model["heads"]) for model in models)
    text = f"{len(models)} models with {heads:,} heads"
    return text + _listed([(f"{name} in {n}", n) for name, n in there.items()])


def _found(model: Model) -> dict[str, int]:
    """Return the number of heads of each role that was found; one with two roles counts twice."""
    names = {role["id"]: role["name"] for role in model["legend"]}
    return {
        names[one["role"]]: len(one["heads"])
        for one in model["statements"]
        if one["found"] and one["role"] in names
    }


def _listed(found: list[tuple[str, int]]) -> str:
    """List the most frequent, after a colon; nothing where none was found."""
    if not found:
        return ""
    first = ordered_by(found, lambda x: x[1])[:FEW]
    more = f" and {len(found) - FEW} further roles" if len(found) > FEW else ""
    return f": {', '.join(text for text, _ in first)}{more}"
