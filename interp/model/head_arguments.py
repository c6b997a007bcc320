"""Head arguments: one head or several in any notation, and whether a model has them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from interp.core.errors import OptionError
from interp.core.head import Head
from interp.core.result import Result

if TYPE_CHECKING:
    from interp.model.calls.sites import Site

HeadLike = Head | str | tuple[int, int]
HeadsLike = HeadLike | Iterable[HeadLike] | Result
"""Heads as arguments of public functions: one, several, or a result whose rows are heads."""


def parse_heads(heads: HeadsLike) -> tuple[Head, ...]:
    """Parse one head or several, given as `Head`, `"L5H1"`, `(5, 1)` or a result."""
    if isinstance(heads, Result):
        heads = heads.heads()
    if isinstance(heads, (str, Head)):
        heads = [heads]
    elif isinstance(heads, tuple) and len(heads) == 2 and all(isinstance(x, int) for x in heads):
        heads = [heads]  # type: ignore[list-item]
    if not isinstance(heads, Iterable):
        raise OptionError(
            f"{heads!r} is not a head or a list of heads; give 'L5H1', (5, 1), a list of these, or "
            "a result with heads"
        )
    parsed = tuple(Head.parse(h) for h in heads)  # type: ignore[arg-type]
    if not parsed:
        raise OptionError("an edit without heads; name at least one, such as 'L5H1'")
    if len(set(parsed)) < len(parsed):
        raise OptionError(f"a head is named twice in {', '.join(map(str, parsed))}")
    return parsed


def heads_with_stack(
    sites: Sequence[Site], heads: HeadLike | Iterable[HeadLike] | Result, model: str
) -> tuple[Head, ...]:
    """Parse heads and name the stack of each."""
    known = [Head(s.layer, h, s.stack) for s in sites for h in range(s.n_heads)]
    out = []
    for head in parse_heads(heads):
        mine = [x for x in known if x == head]
        if not mine:
            raise OptionError(
                f"{model} has no head {head}; its heads are {known[0]} to {known[-1]}"
            )
        if len(mine) > 1:
            raise OptionError(f"{head} exists in several stacks; name one, as in 'encoder {head}'")
        out += mine
    return tuple(out)


def require_heads(
    sites: Sequence[Site], heads: Iterable[Head], stack: str | None, model: str
) -> None:
    """Raise if a model does not have one of the heads, or has it in several stacks."""
    sizes = {(s.stack, s.layer): s.n_heads for s in sites}
    stacks = tuple(dict.fromkeys(s.stack for s in sites))
    if stack is not None and stack not in stacks:
        raise OptionError(f"no stack {stack!r}; {model} has {', '.join(stacks)}")
    for head in heads:
        fits = ((n, other) for (other, layer), n in sizes.items() if layer == head.layer)
        counts = [n for n, other in fits if stack in (None, other)]
        if not counts or head.head >= max(counts):
            have = f"layers {sorted({s.layer for s in sites})}"
            have = f"{max(counts)} heads in layer {head.layer}" if counts else have
            raise OptionError(f"{model} has no head {head}; it has {have}")
        if stack is None and len(counts) > 1:
            raise OptionError(
                f"{head} exists in several stacks; name one of {', '.join(stacks)} with stack="
            )
