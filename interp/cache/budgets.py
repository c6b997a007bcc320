"""Budgets of key-value heads beyond a window: top-k tokens of the prompt, a quantised tail; a file.

The file is one JSON with, for every layer, a list of its key-value heads: null for a full cache, or
the numbers `sink`, `recent`, `top`, `by` and `bits` of a `Budget`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.cache.windows import KVHead, Window, kv_heads
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.core.files import read_bytes, write_atomically
from interp.core.json_document import json_document, stored_document
from interp.model.model_argument import one_model
from interp.model.rounding import BITS

if TYPE_CHECKING:
    from os import PathLike

SCORES = ("attention", "key_norm", "value_attention")
FORMAT = "interp cache budgets 1"
FIELDS = ("sink", "recent", "top", "by", "bits")


@dataclass(frozen=True)
class Budget(Window):
    """Tokens that a small cache keeps: a window, and of the tokens between sink and window a tail.

    Args:
        sink: first tokens.
        recent: last tokens, the current one included.
        top: number of tokens of the prompt kept in the tail, the best by `by`; 0 drops the tail,
            unless `bits` is given, which then keeps all of it.
        by: score of a prompt's token: "attention", the mean weight that the last 16 rows
            of the prompt give it or one of its 3 neighbours on each side (SnapKV), "key_norm",
            minus the norm of its key, or "value_attention", the former times the sum of the
            absolute values of its value (VATP).
        bits: bits of a number in the tail, 4 or 8, rounded to nearest per token; None for the
            model's own type.

    Raises:
        OptionError: a number is out of range, or the score is not known.
    """

    top: int = 0
    by: str = "attention"
    bits: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.top < 0:
            raise OptionError(f"top={self.top}: it must not be negative")
        if self.by not in SCORES:
            raise UnknownName("score of tokens", self.by, SCORES)
        if self.bits is not None and self.bits not in BITS:
            raise OptionError(f"bits={self.bits}: known are 4 and 8, or None for no rounding")

    @property
    def reads_prompt(self) -> bool:
        """True if prompts are read in full and cut afterwards, so they must come in one call."""
        return bool(self.top) or self.bits is not None

    @classmethod
    def of(cls, window: Window) -> Budget:
        """Return a window as a budget without a tail."""
        return window if isinstance(window, cls) else cls(window.sink, window.recent)


def write_budgets(
    path: str | PathLike, model: Any, windows: Mapping[KVHead, Window | None]
) -> Path:
    """Write what each key-value head of a model keeps as one JSON; return the path."""
    read = one_model(model)
    heads = require_kv_heads(read, windows)
    return write_file(Path(path), read.name, read.content_hash, heads, windows, {})


def write_file(
    path: Path,
    name: str,
    made: str,
    heads: Sequence[KVHead],
    budgets: Mapping[KVHead, Window | None],
    more: Mapping[str, Any],
) -> Path:
    """Write budgets of all heads of a model, given by its name and hash, and further facts."""
    layers: dict[str, list[Any]] = {}
    for head in heads:
        window = budgets.get(head)
        row = None if window is None else {n: getattr(Budget.of(window), n) for n in FIELDS}
        layers.setdefault(str(head.layer), []).append(row)
    content = {"format": FORMAT, "model": name, "content_hash": made, "layers": layers, **more}
    write_atomically(path, json_document(content, indent=1))
    return path


def read_budgets(path: str | PathLike, model: Any) -> dict[KVHead, Budget | None]:
    """Read what each key-value head of a model keeps from a file of `write_budgets`."""
    read = one_model(model)
    try:
        content = stored_document(read_bytes(Path(path)))
        rows = [(int(layer), row) for layer, row in content["layers"].items()]
        budgets = {
            KVHead("decoder", layer, at): None if fields is None else Budget(**fields)
            for layer, row in rows
            for at, fields in enumerate(row)
        }
        content_hash = content["content_hash"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{path} does not hold budgets ({error!r}); give a file of interp.cache.write_budgets"
        ) from error
    require_same(str(content.get("model")), str(content_hash), read)
    if set(budgets) != set(kv_heads(read)):
        raise StoreError(f"{path} names other key-value heads than {read.name} has")
    return budgets


def require_same(name: str, made: str, model: Any) -> None:
    """Raise if something was made for other weights than those of a model."""
    if made != model.content_hash:
        raise OptionError(
            f"this plan was made for {name} (weights {made[:12]}), and {model.name} has weights "
            f"{model.content_hash[:12]}; make a plan for it"
        )


def require_kv_heads(model: Any, named: Mapping[KVHead, Any]) -> tuple[KVHead, ...]:
    """Return the key-value heads of a model; raise if others are named."""
    known = kv_heads(model)
    for head in named:
        if head not in known:
            raise UnknownName("key-value head", str(head), [str(k) for k in known])
    return known
