"""Segments: what each position of a prompt stands for, which predicates compare by name.

A predicate of a call with segments is also given `segments`, indexed by positions as tokens are:
`segments[key] == "image"`. Where queries and keys are of two sequences, as in cross attention, the
sequence is named as well: `segments.keys[key] == "audio"`, `segments.queries[query] == "special"`.
A position outside of the prompt is in no segment.

The name of a segment that is part of another has the other one before it: "text/user" is "user" and
"text".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from interp_kernels.errors import InvalidAttention

if TYPE_CHECKING:
    import torch
    from jaxtyping import Int
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Segments:
    """The segment of each position of a batch, as the number of its name.

    Args:
        names: names of the segments.
        keys: number of the segment of each key, along the key axis.
        queries: the same of each query, counted along the axis of the queries' own sequence; None
            where queries and keys are of one sequence.
    """

    names: tuple[str, ...]
    keys: Int[Tensor, "#batch key_pos"]
    queries: Int[Tensor, "#batch query_pos"] | None = None

    def check(self, batch: int, last: int, key: int, device: torch.device) -> None:
        """Check that there is one number per key, and per query where these have their own.

        Args:
            batch: rows of the call.
            last: one past the last query, counted along the queries' own sequence.
            key: number of keys.
            device: device of the call.

        Raises:
            InvalidAttention: shape, dtype or device do not fit the call.
        """
        from interp_kernels.checks import check_dense  # imports torch

        for axis, labels, size in (("key", self.keys, key), ("query", self.queries, last)):
            if labels is None and axis == "query":
                continue
            check_dense(f"the number of the segment of each {axis}", labels)
            assert labels is not None
            whole = not (labels.is_floating_point() or labels.is_complex())
            fits = labels.ndim == 2 and labels.shape[0] in (1, batch)
            fits = fits and (
                labels.shape[1] == size or (axis == "query" and labels.shape[1] > size)
            )
            if not (whole and fits):
                raise InvalidAttention(
                    f"segments of each {axis} are {labels.dtype} {list(labels.shape)}; expected "
                    f"whole numbers [{batch} or 1, {size}]"
                )
            if labels.device != device:
                raise InvalidAttention(f"segments are on {labels.device}, q on {device}; move them")

    def of_prompt(
        self, row: int, start: int, end: int, into: Callable[[Tensor], Any] | None = None
    ) -> PromptSegments:
        """Return the segments of one prompt.

        Args:
            row: row of the batch.
            start: index of the prompt's first position.
            end: index after its last key.
            into: converts the numbers to what predicates index; by default to ids.
        """
        from interp_kernels.prompt_ids import prompt_ids  # imports torch

        into = into or prompt_ids
        keys, queries = (
            None if labels is None else into(labels[row % len(labels), start:last])
            for labels, last in ((self.keys, end), (self.queries, None))
        )
        return PromptSegments(self.names, keys, queries)


class PromptSegments:
    """The segments of one prompt, indexed by positions.

    Args:
        names: names of the segments.
        of_keys: their numbers by position of a key: tensor, array or symbols.
        of_queries: the same by position of a query; None where both are of one sequence.
    """

    def __init__(self, names: tuple[str, ...], of_keys: Any, of_queries: Any = None) -> None:
        from interp_kernels.prompt_ids import prompt_ids  # imports torch

        self.names = names
        self.of_keys, self.of_queries = prompt_ids(of_keys), prompt_ids(of_queries)

    def __getitem__(self, index: Any) -> NamedAt:
        if self.of_queries is not None:
            raise TypeError(
                "queries and keys are of two sequences; write segments.keys[key] or "
                "segments.queries[query]"
            )
        return NamedAt(self.names, self.of_keys[index])

    @property
    def keys(self) -> PromptSegments:
        """Segments of the sequence of the keys."""
        return PromptSegments(self.names, self.of_keys)

    @property
    def queries(self) -> PromptSegments:
        """Segments of the sequence of the queries."""
        own = self.of_keys if self.of_queries is None else self.of_queries
        return PromptSegments(self.names, own)


class NamedAt:
    """Segments at some positions: compare them with a name, or with those at other positions."""

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, names: tuple[str, ...], number: Any) -> None:
        self.names, self.number = names, number

    def __eq__(self, other: object) -> Any:
        return reduce(lambda a, b: a | b, (self.number == n for n in self._numbers(other)))

    def __ne__(self, other: object) -> Any:
        return reduce(lambda a, b: a & b, (self.number != n for n in self._numbers(other)))

    def _numbers(self, other: Any) -> Sequence[Any]:
        if isinstance(other, NamedAt):
            return [other.number]
        if not isinstance(other, str):
            raise TypeError(f"a segment was compared with {other!r}; compare it with its name")
        found = numbers_of(self.names, other)
        if not found:
            known = dict.fromkeys(part for name in self.names for part in name.split("/"))
            raise ValueError(f"unknown segment {other!r}; known: {', '.join(known)}")
        return found


def numbers_of(names: Sequence[str], name: str) -> list[int]:
    """Return the numbers of the segments that are, or are part of, the one with a name."""
    return [number for number, path in enumerate(names) if name in path.split("/")]
