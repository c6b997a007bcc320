"""The attention view of a model's heads, to which the cards of an atlas lead."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from interp.core.resources import folder
from interp.core.text_file import read_lines
from interp.report.atlas.from_model import LONGEST, default_ids, found_model

if TYPE_CHECKING:
    from interp.heads.patterns import View
    from interp.model.model import Model as LoadedModel
    from interp.report.atlas.document import Atlas


def write_view(atlas: Atlas, model: LoadedModel, page: Path) -> dict[str, str]:
    """Write the attention of a model beside the page of an atlas.

    Args:
        atlas: the atlas.
        model: a loaded model; it is found among the models of the atlas as in `add_model`.
        page: the file of the atlas. The view is `NAME-MODEL.html` in its folder.

    Returns:
        The address of the view by the `id` of the model, for `atlas_page(views=...)`; empty for a
        model that is not in the atlas or that does not read tokens.

    Raises:
        StoreError: the file cannot be written.
        UnreadableAttention: the patterns of the model cannot be read.
    """
    found = found_model(atlas, model)
    if found is None:
        return {}
    view = repeated_text(model)
    if view is None:
        return {}
    path = page.with_name(f"{page.stem}-{found['id']}.html")
    view.save_html(path)
    return {found["id"]: path.name}


def repeated_text(model: LoadedModel) -> View | None:
    """Return the attention over a line of text that is repeated, or over a default prompt.

    On a repeated text previous-token, duplicate-token and induction heads can be told apart.
    None for a model that does not read tokens.
    """
    from interp.core.prompts import Prompts
    from interp.heads.patterns import view

    title = f"Attention of {model.name}"
    if model.tokenizer is None:
        given = default_ids(model)
        return None if not given else view(model, list(given[0][:LONGEST]), title=title)
    lines = read_lines(folder("data") / "prompts.txt")
    line = next(line for line in lines if line)
    ids = Prompts.of(f"{line} {line}", model).ids[0]
    longest = min(x for x in (LONGEST, model.limit) if x)
    return view(model, list(ids[:longest]), title=title)
