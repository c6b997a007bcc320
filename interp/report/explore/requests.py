"""Bodies and queries of requests, checked before the model sees them, and the order of requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from interp.core.errors import InterpError, OptionError

Fields = Mapping[str, type]
_NAMES = {str: "text", int: "a whole number", list: "a list", bool: "true or false"}


def fields(given: Any, needed: Fields, optional: Fields) -> dict[str, Any]:
    """Return the fields of a JSON object."""
    if not isinstance(given, Mapping):
        raise OptionError('the body must be a JSON object, such as {"text": "The cat sat"}')
    known = dict(needed) | dict(optional)
    unknown = [str(name) for name in given if name not in known]
    if unknown:
        raise OptionError(f"unknown field {', '.join(unknown)}; known: {', '.join(known)}")
    missing = [name for name in needed if given.get(name) is None]
    if missing:
        raise OptionError(f"field {', '.join(missing)} is missing")
    values = {name: value for name, value in given.items() if value is not None}
    for name, value in values.items():
        kind = known[name]
        for text in value if isinstance(value, list) else [value]:
            require_text(name, text)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise OptionError(f"{name} is {str(value)[:60]!r}; it must be {_NAMES[kind]}")
    return values


def require_text(name: str, value: Any) -> None:
    """Check that a value is no string with half of a surrogate pair, which is not text."""
    if not isinstance(value, str):
        return
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise OptionError(
            f"{name} holds a lone surrogate at character {error.start}, which is not text; "
            "remove it"
        ) from error


def numbers(given: Mapping[str, str], needed: Fields, optional: Fields) -> dict[str, Any]:
    """Return the fields of a query string, with whole numbers read as such."""
    known = dict(needed) | dict(optional)
    read: dict[str, Any] = {}
    for name, value in given.items():
        if known.get(name) is int:
            if not (value.isascii() and value.isdigit() and len(value) <= 15):
                raise OptionError(f"{name} is {value[:60]!r}; it must be a whole number from 0")
            read[name] = int(value)
        else:
            read[name] = value
    return fields(read, needed, optional)


def prompt_of(given: Any) -> str | list[int]:
    """Return the text or the token ids of a prompt."""
    prompt = fields(given, {}, {"text": str, "ids": list})
    if len(prompt) != 1:
        raise OptionError("give exactly one of text and ids")
    if "text" in prompt:
        return prompt["text"]
    ids = prompt["ids"]
    if not ids or not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise OptionError("ids must be a list of at least one token id, all whole numbers")
    return ids


def ablation_of(given: Any, *, at_position: bool = True) -> dict[str, Any]:
    """Return the arguments of `Session.ablate`, or of `Session.write`, which has no position."""
    several = isinstance(given, Mapping) and isinstance(given.get("intervention"), list)
    optional: dict[str, type] = {"intervention": list if several else str, "reference": str}
    optional |= {"position": int} if at_position else {}
    arguments = fields(given, {"prompt": int, "heads": list}, optional)
    if not all(isinstance(head, str) for head in arguments["heads"]):
        raise OptionError('heads must be a list of names, such as ["L1H3"]')
    if several and not all(isinstance(name, str) for name in arguments["intervention"]):
        raise OptionError('intervention must be a name, or a list of names, such as ["zero"]')
    return arguments


GoingOn = Callable[[], None]
LANES = ("prompt", "ablate", "write", "tile")


class NewerRequest(InterpError):
    """Request that a newer one made useless."""


class Turns:
    """One lock for the model, and the newest request of each kind.

    A newer prompt replaces every waiting or running request, since all of them read the prompt
    before it. A newer ablation replaces older ablations and what is written on them. Tiles are
    replaced by tiles of a later view of the map, which the caller numbers.
    """

    def __init__(self) -> None:
        self._model, self._numbers = threading.Lock(), threading.Lock()
        self._newest: dict[str, int] = dict.fromkeys(LANES, 0)
        self._prompts = 0
        self._stopped = False

    def stop(self) -> None:
        """End every waiting, running and later request."""
        self._stopped = True

    @contextmanager
    def taken(self, lane: str, turn: int | None = None) -> Iterator[GoingOn]:
        """Wait for the model and hold it; the yielded function raises once a newer request came."""
        with self._numbers:
            if lane == "prompt":
                self._prompts += 1
            elif lane in ("ablate", "write"):
                self._newest[lane] += 1
                self._newest["write"] += lane == "ablate"
            elif lane == "tile" and turn is not None:
                self._newest[lane] = max(self._newest[lane], turn)
            prompts = self._prompts
            mine = turn if lane == "tile" else self._newest.get(lane)

        def going_on() -> None:
            newer = mine is not None and self._newest.get(lane, 0) > mine
            if self._stopped:
                raise NewerRequest("the server stops")
            if newer or self._prompts > prompts:
                raise NewerRequest(
                    "a newer request replaced this one; ask again if it is still needed"
                )

        with self._model:
            going_on()
            yield going_on
