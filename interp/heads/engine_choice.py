"""Name of the engine that runs on a model, as provenance states it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interp.model.model import Model


def engine_used(model: Model, engine: str) -> str:
    """Return the engine that runs when this one is requested, as provenance names it.

    Attention in custom code whose pattern cannot be recomputed is stored with any engine.
    """
    if model.elsewhere is not None:
        return "rows in blocks, where the model runs"
    apart = {
        "stored (recorded)": [site.name for site in model.sites if site.recorded],
        "rows of maps in blocks": [site.name for site in model.sites if site.kind != "softmax"],
    }
    for how, names in apart.items():
        if len(names) == len(model.sites):
            return how
    return "; ".join(
        [engine, *(f"{how} in {', '.join(names)}" for how, names in apart.items() if names)]
    )
