"""Query and key positions that are explained: given, named by a predicate, or attended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from interp.core.errors import OptionError, UnknownName
from interp.heads.declaration import bound, detector
from interp.model.segments import prompt_segments

if TYPE_CHECKING:
    from jaxtyping import Bool, Float

    from interp.core.prompts import Prompts
    from interp.model.model import Model

STRONGEST = "strongest"


class Places:
    """Rule that names (query, key) positions.

    Args:
        at: "strongest" (each query's most attended key), the name of a detector such as
            "induction", a detector or a predicate of (query, key), (query, key, tokens) or (query,
            key, segments), or pairs of positions, which may count from the end.

    Raises:
        OptionError, UnknownName: It is none of these.
    """

    def __init__(self, at: Any = STRONGEST) -> None:
        self.pairs: tuple[tuple[int, int], ...] | None = None
        self.predicate: Callable[..., Any] | None = None
        self.label = at if isinstance(at, str) else ""
        if isinstance(at, str):
            if at != STRONGEST:
                self.predicate = _detector(at)
        elif hasattr(at, "predicate"):  # a declared detector
            self.predicate, self.label = at.predicate, at.name
        elif callable(at):
            declared = detector(at)
            self.predicate, self.label = declared.predicate, declared.name
        else:
            self.pairs = _pairs(at)
            self.label = " ".join(f"{q},{k}" for q, k in self.pairs)

    def of(
        self,
        model: Model,
        prompts: Prompts,
        seen: Bool[Tensor, "query key"],
        pattern: Float[Tensor, "query key"],
    ) -> list[tuple[int, int]]:
        """Return the pairs of one prompt, the only one of `prompts`: visible ones alone."""
        [ids], [roles] = prompts.ids, prompts.roles or [None]
        n = len(ids)
        if self.pairs is not None:
            return [_inside(pair, n, seen) for pair in self.pairs]
        if self.predicate is None:
            return [(i, int(pattern[i].argmax())) for i in range(1, n) if bool(seen[i].any())]
        place = torch.arange(n)
        tokens = torch.tensor(list(ids))
        named = prompt_segments(model, tokens, roles)
        chosen = self.predicate(place[:, None], place[None, :], tokens, named)
        both = torch.as_tensor(chosen).expand(n, n) & seen.cpu()
        return [(i, j) for i, j in both.nonzero().tolist()]


def _detector(name: str) -> Callable[..., Any]:
    from interp.core.declaration import parse_name
    from interp.core.registry import METRICS

    known = [n for n, entry in METRICS.items() if entry.kind == "detector"]
    asked, _ = parse_name(name)
    if asked not in known and not asked.endswith(".py"):
        raise UnknownName("rule of positions", name, [STRONGEST, *known])
    declared = bound(name)
    options = declared.options

    def predicate(query: Any, key: Any, tokens: Any, segments: Any) -> Any:
        return declared.analysis.predicate(query, key, tokens, segments, **options)

    return predicate


def _pairs(at: Any) -> tuple[tuple[int, int], ...]:
    try:
        pairs = tuple((int(q), int(k)) for q, k in at)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"at={at!r}; expected {STRONGEST!r}, the name of a detector, a predicate, or pairs of "
            "(query, key) positions"
        ) from error
    if not pairs:
        raise OptionError("at holds no pair of positions; give at least one")
    return pairs


def _inside(pair: tuple[int, int], n: int, seen: Tensor) -> tuple[int, int]:
    if not all(-n <= x < n for x in pair):
        raise OptionError(f"the pair {pair} lies outside a prompt of {n} tokens")
    query, key = (x % n for x in pair)
    if not bool(seen[query, key]):
        raise OptionError(f"position {query} does not see position {key}; give a visible key")
    return query, key
