"""Tiny random-initialised Hugging Face models, one per architecture that the toolkit reads.

for family in zoo.having("sliding-window"):
    model, inputs = family.model("sdpa"), family.inputs(padding="left")
    for stack, layer, pattern in family.expected(model, inputs): ...
"""

from __future__ import annotations

from .causal import CAUSAL
from .encoder import ENCODERS
from .family import Family, output
from .inputs import Padding, real_positions
from .legacy import LEGACY, REFUSED
from .seq2seq import SEQ2SEQ
from .vision import VISIONS

__all__ = ["FAMILIES", "Family", "Padding", "having", "output", "real_positions"]

FAMILIES: dict[str, Family] = {
    family.name: family for family in (*CAUSAL, *ENCODERS, *SEQ2SEQ, *VISIONS, *LEGACY, *REFUSED)
}


def having(*features: str) -> list[Family]:
    """The families with every one of ``features``; an unknown feature is an error."""
    known = {feature for family in FAMILIES.values() for feature in family.features}
    if unknown := set(features) - known:
        raise KeyError(f"no family has {sorted(unknown)}; known: {sorted(known)}")
    return [family for family in FAMILIES.values() if set(features) <= set(family.features)]
