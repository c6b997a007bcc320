"""The attention view of a model's heads, to which the cards of an atlas lead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.bundled import plain_texts
from interp.heads.patterns.coding import as_letters, compressed, quantised, triangular
from interp.report.atlas.from_model import LONGEST, default_ids, found_model
from interp.report.atlas.pack import ModelView
from interp.report.view_texts import as_data, readings

if TYPE_CHECKING:
    from interp.heads.patterns import View
    from interp.model.model import Model as LoadedModel
    from interp.report.atlas.document import Atlas


MOST = 1_500_000
"""Bytes of the attention of all heads of a model in the page of an atlas."""


def write_view(atlas: Atlas, model: LoadedModel, page: Path) -> dict[str, ModelView]:
    """Write the attention of a model beside the page of an atlas."""
    entry = found_model(atlas, model)
    if entry is None:
        return {}
    view = repeated_text(model)
    if view is None:
        return {}
    path = page.with_name(f"{page.stem}-{entry['id']}.html")
    view.save_html(path)
    return {entry["id"]: {"file": path.name, **heads_on_text(view)}}


def heads_on_text(view: View) -> dict[str, Any]:
    """Get the texts and the weights of all heads of a short view, in 8 bits; nothing if large."""
    texts, of_stacks = readings(view)
    stacks, size = [], 0
    for stack, sides in zip(view.stacks, of_stacks, strict=True):
        heads = []
        for head, weights in stack.weights.items():
            triangle = triangular(weights)
            letters = as_letters(compressed(quantised(weights, 8), triangle=triangle))
            size += len(letters) + 80
            coded = {"d": letters, "n": list(weights.shape), "t": triangle, "s": 1}
            heads.append({"name": str(head), "block": 1, "bits": 8, "w": coded})
        tokens = {"queries": stack.queries, "keys": stack.keys}
        stacks.append({"name": stack.name, "reading": sides, "heads": heads, **tokens})
    return {"texts": as_data(texts), "stacks": stacks} if size <= MOST else {}


def repeated_text(model: LoadedModel) -> View | None:
    """Return the attention over the beginning of a text, said twice, or over a default prompt.

    On a repeated text previous-token, duplicate-token and induction heads can be told apart.
    None for a model that does not read tokens.
    """
    from interp.core.prompts import Prompts, bos_id
    from interp.heads.patterns import view

    title = f"Attention of {model.name}"
    if model.tokenizer is None:
        prompts = default_ids(model)
        return None if not prompts else view(model, list(prompts[0][:LONGEST]), title=title)
    longest = min(x for x in (LONGEST, model.limit) if x)
    [once] = Prompts.of([plain_texts(model)[0]], model).ids
    once = once[: longest // 2]
    return view(model, [*once, *once[bos_id(model) is not None :]], title=title)
