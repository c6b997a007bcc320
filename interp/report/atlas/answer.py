"""The first line of an atlas: what was found, in one sentence."""

from __future__ import annotations

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
    found = [r for r in model["legend"] if r["count"] and r["id"] not in ("unclear", "several")]
    found.sort(key=lambda role: -role["count"])
    n = sum(role != "unclear" for role in judged)
    named = ", ".join(f"{role['count']} {role['name']}" for role in found[:FEW])
    more = f" and {len(found) - FEW} further roles" if len(found) > FEW else ""
    return f"{n} of {len(judged)} heads have a role" + (f": {named}{more}" if found else "")


def _of_models(models: list[Model]) -> str:
    """Say in how many models each role was found."""
    there: dict[str, int] = {}
    for model in models:
        for role in model["legend"]:
            if role["count"] and role["id"] not in ("unclear", "several"):
                there[role["name"]] = there.get(role["name"], 0) + 1
    heads = sum(len(model["heads"]) for model in models)
    order = sorted(there.items(), key=lambda x: -x[1])
    named = ", ".join(f"{name} in {n}" for name, n in order[:FEW])
    more = f" and {len(order) - FEW} further roles" if len(order) > FEW else ""
    said = f"{len(models)} models with {heads:,} heads"
    return f"{said}: {named}{more}" if order else said
