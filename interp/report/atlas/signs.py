"""Colour and letter of every role: a role is never shown by its colour alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from markupsafe import Markup

from interp.draw.colours import ink
from interp.draw.svg import element
from interp.report.atlas.document import Atlas, Role

# Searched for: at least 0.1 apart in OKLab for normal, protan, deutan and tritan vision, from each
# other and from the colours of several and of unclear roles; on white and (the second) on black.
_COLOURS = {
    "induction": ("#0072b2", "#3fa7e6"),
    "previous_token": ("#7d460b", "#b44e32"),
    "duplicate_token": ("#989401", "#94ab39"),
    "copying": ("#cc086c", "#c1758d"),
    "retrieval": ("#f98696", "#dfb39d"),
    "sink": ("#acb8fe", "#8dfc8e"),
    "positional": ("#2291f8", "#85d90c"),
    "syntax": ("#521a6e", "#8d56ac"),
    "refusal": ("#032ebb", "#2b62ef"),
}
_ALIKE = {"previous": "previous_token", "no_op": "sink", "position": "positional"}
_COLOURED = 8  # roles, those of the most heads; the others are grey and told apart by letters
_GREY = ("#8a939b", "#7d868e")
_SEVERAL, _UNCLEAR = ("#1b1f23", "#e4e8ec"), ("#dfe4e8", "#2c343b")
UNCLEAR, SEVERAL = "unclear", "several"
POSITION, RULE = "position", "rule:"  # roles of heads on text; the name of a rule follows


class Sign(NamedTuple):
    """Colour, letter and texts with which a role is drawn."""

    role: str  # its `id`
    name: str
    letter: str  # one letter, "" for heads whose role is unclear
    class_: str  # of its colour
    colours: tuple[str, str]  # on a light and on a dark page


def signs(document: Atlas) -> dict[str, Sign]:
    """Return the sign of each role of a document by its `id`, in the order of the legends."""
    roles: dict[str, Role] = {}
    for model in document["models"]:
        for role in model["legend"]:
            roles.setdefault(role["id"], role)
    colours = _colours_of(document, roles)
    by_role: dict[str, Sign] = {}
    taken: set[str] = set()
    for at, (name, role) in enumerate(roles.items()):
        own = {UNCLEAR: "", SEVERAL: "+"}
        letter = own[name] if name in own else _letter(role["name"], taken)
        taken.add(letter)
        by_role[name] = Sign(name, role["name"], letter, f"role{at}", colours[name])
    return by_role


def _colours_of(document: Atlas, roles: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the colours of each role: those of the most heads have one, the others are grey."""
    counts = dict.fromkeys(roles, 0)
    for model in document["models"]:
        for role in model["legend"]:
            counts[role["id"]] += role["count"]
    colours = {UNCLEAR: _UNCLEAR, SEVERAL: _SEVERAL}
    others = [name for name in counts if name not in colours]
    first = sorted(others, key=lambda name: -counts[name])[:_COLOURED]
    for name in first:
        plain = name.removeprefix(RULE)
        if own := _COLOURS.get(_ALIKE.get(plain, plain)):
            colours[name] = own
    free = [one for one in _COLOURS.values() if one not in colours.values()]
    for name in others:
        if name not in colours:
            colours[name] = free.pop(0) if name in first else _GREY
    return colours


def _letter(name: str, taken: set[str]) -> str:
    """Return the first letter of a name that no other role has, then any free letter."""
    free = (c for c in name.upper() if c.isalnum() and c.isascii() and c not in taken)
    rest = (c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789" if c not in taken)
    return next(free, None) or next(rest, "*")


def sign_rules(found: Iterable[Sign]) -> str:
    """Return the style rules of the colours: `--c`, and `--i`, which is readable on it."""
    light, dark = (
        "".join(
            f".{sign.class_}{{--c:{sign.colours[at]};--i:{ink(sign.colours[at])}}}"
            for sign in found
        )
        for at in (0, 1)
    )
    return f"{light}@media screen and (prefers-color-scheme:dark){{{dark}}}"


def badge(sign: Sign) -> Markup:
    """Return the letter of a role on its colour; the name stands beside it or in its title."""
    return element("i", sign.letter, class_=f"badge {sign.class_}", aria_hidden="true")
