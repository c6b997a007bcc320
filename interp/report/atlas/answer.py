"""The first line of an atlas: what was found, in one sentence."""

from __future__ import annotations

from collections import Counter

from interp.report.atlas.document import Atlas, Model

FEW = 3  # roles that are named


def answer_line(document: Atlas) -> str:
    """Return what the page says: what changed, the roles of a model's heads, or those of models."""
    models = document["models"]
    if document["comparisons"]:
        one = document["comparisons"][0]
        names = {model["id"]: model["name"] for model in models}
        first = one["text"].partition(". ")[0].rstrip(".")
        return f"{names[one['a']]} and {names[one['b']]}: {first}"
    if len(models) > 1:
        return _of_models(models)
    if not models:
        return document["title"]
    (model,) = models
    said = _with_roles(model)
    if "profile" in model:
        said = model["profile"]["text"].partition(". ")[0].rstrip(".")
        return f"{model['name']} on {model['profile']['corpus']}: {said}"
    return f"{model['name']}: {said}" if said else f"{document['title']}: {model['name']}"


def _with_roles(model: Model) -> str:
    """Say how many heads have a role, and which; nothing where no head was judged."""
    judged = [role for role in model["roles"] if role is not None]
    if not judged:
        return ""
    n = sum(role != "unclear" for role in judged)
    said = f"{n} of {len(judged)} heads have a role"
    return said + _listed([(f"{count} {name}", count) for name, count in _found(model).items()])


def _of_models(models: list[Model]) -> str:
    """Say in how many models each role was found."""
    there = Counter(name for model in models for name in _found(model))
    heads = sum(len(model["heads"]) for model in models)
    said = f"{len(models)} models with {heads:,} heads"
    return said + _listed([(f"{name} in {n}", n) for name, n in there.items()])


def _found(model: Model) -> dict[str, int]:
    """Return the number of heads of each role that was found; one with two roles counts twice."""
    names = {role["id"]: role["name"] for role in model["legend"]}
    return {
        names[one["role"]]: len(one["heads"])
        for one in model["statements"] if one["found"] and one["role"] in names
    }  # fmt: skip


def _listed(found: list[tuple[str, int]]) -> str:
    """List the most frequent, after a colon; nothing where none was found."""
    if not found:
        return ""
    first = sorted(found, key=lambda x: -x[1])[:FEW]
    more = f" and {len(found) - FEW} further roles" if len(found) > FEW else ""
    return f": {', '.join(text for text, _ in first)}{more}"
