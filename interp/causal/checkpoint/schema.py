"""Schema of a certificate: the fields that it must have, and the type of each."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from interp.causal.checkpoint.forms import FORMS
from interp.causal.game.interventions import REMOVALS

FORMAT = "interp certificate 1"
NUMBER, OPTIONAL_NUMBER, ANY = "a number", "a number or null", "any JSON value"
_INTERVAL = {"value": NUMBER, "low": OPTIONAL_NUMBER, "high": OPTIONAL_NUMBER, "n": int}
_SIZE = dict.fromkeys(
    (
        "parameters",
        "nonzero_parameters",
        "parameter_bytes",
        "file_bytes",
        "cache_bytes_per_token",
        "heads",
    ),
    int,
)
_RANDOM = {
    "n": int,
    "unit": ("heads", "kv_groups", "layers"),
    "kind": str,
    "mean": NUMBER,
    "low": NUMBER,
    "high": NUMBER,
    "share_at_least_as_good": NUMBER,
}
_REPAIR = {
    "steps": int,
    "rate": NUMBER,
    "rounds": int,
    "seed": int,
    "n_prompts": int,
    "prompts": str,
    "first_loss": NUMBER,
    "last_loss": NUMBER,
}
_SPEC = {
    "source": str,
    "measure": (None, str),
    "n": (None, int),
    "max_length": (None, int),
    "seed": int,
}
_TASK = {
    "task": str,
    "task_hash": str,
    "spec": ({}, _SPEC),
    "unit": str,
    "higher_is_better": bool,
    "held_out": [int],
    "clusters": int,
    "before": _INTERVAL,
    "after": _INTERVAL,
    "change": _INTERVAL,
    "unrepaired?": _INTERVAL,
    "random?": _RANDOM,
}
SCHEMA: dict[str, Any] = {
    "format": (FORMAT,),
    "form": FORMS,
    "kind": REMOVALS,
    "means": str,
    "mlp_means": str,
    "notes": [str],
    "seed": int,
    "n_random": int,
    "chosen": ANY,
    "source": str,
    "repair": (None, _REPAIR),
    "original": {
        "name": str,
        "revision": (None, str),
        "class": str,
        "dtype": str,
        "content_hash": str,
    },
    "content_hash": str,
    "removed": [str],
    "removed_mlps": [str],
    "size": {"before": _SIZE, "after": _SIZE},
    "tokens_per_second": {"before?": NUMBER, "after?": NUMBER},
    "logits": {"difference": NUMBER, "allowed": NUMBER},
    "means_hash": (None, str),
    "tasks": [_TASK],
    "files": {"*": str},
    "versions": {"*": str},
}
"""A type; a tuple of alternatives (values, types or schemas); a list with the schema of its items;
or fields, of which those with "?" may be absent. "*" stands for any names."""
_NAMES = {int: "a whole number of 0 or more", str: "text", bool: "true or false"}


def require_schema(value: Any, schema: Any = None, where: str = "") -> None:
    """Check a certificate, or a part of it."""
    schema = SCHEMA if schema is None else schema
    place = where or "the certificate"
    if isinstance(schema, tuple):
        _require_one_of(value, schema, place)
    elif isinstance(schema, list):
        if not isinstance(value, list):
            raise ValueError(f"{place} is {_shown(value)}, not a list")
        for at, each in enumerate(value):
            require_schema(each, schema[0], f"{where}[{at}]")
    elif isinstance(schema, Mapping):
        _require_fields(value, schema, where)
    elif schema in (NUMBER, OPTIONAL_NUMBER):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not ((is_number and math.isfinite(value)) or (schema != NUMBER and value is None)):
            raise ValueError(f"{place} is {_shown(value)}, not {schema}")
    elif schema is not ANY and (type(value) is not schema or (schema is int and value < 0)):
        raise ValueError(f"{place} is {_shown(value)}, not {_NAMES[schema]}")


def _require_one_of(value: Any, schema: tuple[Any, ...], place: str) -> None:
    known = [each for each in schema if each in (None, {}) or isinstance(each, str)]
    if any(type(value) is type(each) and value == each for each in known):
        return
    others = [each for each in schema if each not in known]
    if not others:
        raise ValueError(f"{place} is {_shown(value)}, not one of {', '.join(map(repr, known))}")
    require_schema(value, others[0], place)


def _require_fields(value: Any, schema: Mapping[str, Any], where: str) -> None:
    if not isinstance(value, dict):
        raise ValueError(f"{where or 'the file'} is {_shown(value)}, not an object with fields")
    dot = f"{where}." if where else ""
    if "*" in schema:
        for name, each in value.items():
            require_schema(each, schema["*"], f"{dot}{name}")
        return
    known = {name.removesuffix("?"): each for name, each in schema.items()}
    missing = [name for name in schema if not name.endswith("?") and name not in value]
    unknown = [name for name in value if name not in known]
    if missing or unknown:
        what = f"{dot}{missing[0]} is missing" if missing else f"{dot}{unknown[0]} is unknown"
        raise ValueError(what)
    for name, each in value.items():
        require_schema(each, known[name], f"{dot}{name}")


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
