"""Terms of attention scores by what they depend on: contents of queries, of keys, and positions.

Relative families add to the product of queries and keys further products, such as that of queries
and embeddings of distances (DeBERTa, XLNet, Conformers). This torch function mode follows a run
from its inputs. A tensor is a content if it depends on the inputs, and remembers the projections
that it comes from; a product of a content with something that does not depend on the inputs is a
term, which is followed through sums, scaling and rearrangement. A term belongs to the queries or to
the keys of an attention by the projection that it shares with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import ComputedCall
from interp.model.hooks.score_formula import IN_PLACE
from interp.model.hooks.softmax_watch import ADDED_PRODUCTS, PRODUCTS, product_in

Root = tuple[int, ...]  # a projection, then the parts that it was split into
_JOINS = {torch.cat, torch.concat}


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_SPLITS = _names("__getitem__ chunk split split_with_sizes tensor_split unbind select narrow")
_SUMS = _names("add __add__ __radd__ __iadd__ add_ sub subtract __sub__ __isub__ sub_")
_SCALED = _names("mul multiply __mul__ __rmul__ __imul__ mul_ div true_divide __truediv__ div_")
_FILLED = _names("zeros_like ones_like full_like new_zeros new_ones new_full new_tensor new_empty")
_SHAPED = _names("view_as reshape_as expand_as type_as to")  # of another only the shape or type
_REARRANGED = _names(
    "view reshape view_as flatten unflatten squeeze unsqueeze permute transpose movedim contiguous"
    " clone detach to type_as type float half bfloat16 double expand expand_as gather index_select"
    " __getitem__ narrow roll as_strided __get__ clamp_min"
)


def contents(inputs: Mapping[str, Any]) -> list[Tensor]:
    """Return those of a model's inputs that hold contents: tokens, pixels or sound, not places."""
    places = ("mask", "position", "type", "bbox")
    return [
        x
        for name, x in inputs.items()
        if isinstance(x, Tensor) and not any(p in name for p in places)
    ]


@dataclass(frozen=True, eq=False)
class _Term:
    """A term of a tensor: the roots of its content, and its numbers, or None for the tensor's."""

    roots: frozenset[Root]
    numbers: Tensor | None

    def of(self, whole: Tensor) -> Tensor:
        """Return the numbers of a term of a tensor."""
        return whole if self.numbers is None else self.numbers

    def after(self, func: Callable, more: tuple, kwargs: Mapping[str, Any]) -> _Term:
        """Return the term after a function that treats all terms alike."""
        numbers = None if self.numbers is None else func(self.numbers, *more, **kwargs)
        return _Term(self.roots, numbers)


class ScoreTerms(TorchFunctionMode):
    """Mode in which a model runs, so that terms of its scores are known by their origin.

    Args:
        inputs: tensors that hold the contents of the prompts.
    """

    def __init__(self, inputs: Iterable[Tensor]) -> None:
        super().__init__()
        self._roots: MutableMapping[Tensor, frozenset[Root]] = WeakTensorKeyDictionary()
        # of tensors whose terms are all known
        self._terms: MutableMapping[Tensor, tuple[_Term, ...]] = WeakTensorKeyDictionary()
        self._new = count()
        for x in inputs:
            self._roots[x] = frozenset({(next(self._new),)})

    def of(self, call: ComputedCall, name: str) -> dict[str, Tensor]:
        """Return the terms that are added to scores and depend on queries, or on keys, alone.

        The rest of what is added depends on neither: it is of positions.
        """
        by_kind: dict[str, Tensor] = {}
        of_queries, of_keys = self._content([call.q]), self._content([call.k])
        added = [x for x in (call.bias, call.mask) if x is not None and self._content([x])]
        for x in added:
            for term in self._terms.get(x, (_Term(frozenset(), None),)):
                mine, theirs = (_shared(term.roots, roots) for roots in (of_queries, of_keys))
                if mine == theirs:
                    raise UnreadableAttention(
                        f"{name} adds to its scores what depends on the inputs, but is not a "
                        "product of its queries or of its keys, so contents and positions cannot "
                        "be told apart"
                    )
                kind = "content_to_position" if mine else "position_to_content"
                numbers = term.of(x)
                by_kind[kind] = by_kind[kind] + numbers if kind in by_kind else numbers
        return by_kind

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        given = args[:1] if name in _SHAPED else (*args, *kwargs.values())
        roots = frozenset() if name in _FILLED else self._content(given)
        if not roots:
            return func(*args, **kwargs)
        of_first = self._kept(args[0], name) if args else None
        out = func(*args, **kwargs)
        if isinstance(out, Tensor) and out.dtype != torch.bool:  # bools tell of padding
            terms = None
            if func is F.linear or func in PRODUCTS:
                terms, roots = self._multiplied(func, args, kwargs, roots)
            elif name in _SUMS:
                terms = None if kwargs else self._summed(name, args, out, of_first)
            elif func in _JOINS:
                terms = self._joined(args[0], args[1:], kwargs)
            elif of_first is not None and self._passes(name, args, kwargs):
                terms = self._passed(func, args, kwargs, out, of_first)
            self._set(out, self._split(roots) if name in _SPLITS else roots, terms)
        elif isinstance(out, (list, tuple)):
            for x in out:
                if isinstance(x, Tensor):
                    self._set(x, self._split(roots) if name in _SPLITS else roots, None)
        elif name == "__setitem__":
            self._set(args[0], roots, None)
        return out

    def _set(self, x: Tensor, roots: frozenset[Root], terms: tuple[_Term, ...] | None) -> None:
        self._roots[x] = roots
        self._terms.pop(x, None)
        if terms is not None:
            self._terms[x] = terms

    def _content(self, given: Iterable[Any]) -> frozenset[Root]:
        """Return the roots of all tensors among some arguments; empty if none is a content."""
        roots: frozenset[Root] = frozenset()
        for x in given:
            if isinstance(x, Tensor):
                roots |= self._roots.get(x, frozenset())
            elif isinstance(x, (list, tuple)):
                roots |= self._content(x)
        return roots

    def _kept(self, x: Any, name: str) -> tuple[_Term, ...] | None:
        """Return the terms of an argument, whose numbers a function is about to change in place."""
        terms = self._terms.get(x) if isinstance(x, Tensor) else None
        if terms is None or name not in IN_PLACE:
            return terms
        return tuple(_Term(t.roots, x.clone() if t.numbers is None else t.numbers) for t in terms)

    def _split(self, roots: frozenset[Root]) -> frozenset[Root]:
        part = next(self._new)
        return frozenset((*root, part) for root in roots)

    def _passes(self, name: str, args: tuple, kwargs: Mapping[str, Any]) -> bool:
        """Return True if a function treats every term of its first argument alike."""
        if name in _SCALED:
            return not self._content(args[1:])
        zeros = name == "pad" and len(args) == 2 and not kwargs.get("value")
        return name in _REARRANGED or zeros

    def _passed(
        self,
        func: Callable,
        args: tuple,
        kwargs: Mapping[str, Any],
        out: Tensor,
        of_first: tuple[_Term, ...],
    ) -> tuple[_Term, ...] | None:
        """Return the terms after a function of one tensor; None if it changed them in place."""
        if not any(out is x for x in args):
            return tuple(term.after(func, args[1:], kwargs) for term in of_first)
        in_place = getattr(func, "__name__", "") in IN_PLACE
        return None if in_place else of_first  # such as a change of type to the same type

    def _multiplied(
        self, func: Callable, args: tuple, kwargs: Mapping[str, Any], roots: frozenset[Root]
    ) -> tuple[tuple[_Term, ...] | None, frozenset[Root]]:
        """Return terms and roots of a product: both new where one factor is not a content."""
        if func is F.linear:
            factors = args[:1]
        else:
            product = product_in(func, args, kwargs)
            factors = () if product is None else (product.left, product.right)
        content = [x for x in factors if self._content([x])]
        if len(content) != 1 or (func is not F.linear and func in ADDED_PRODUCTS):
            return None, roots
        before = (term.roots for term in self._terms.get(content[0], ()))
        return (_Term(roots.union(*before), None),), frozenset({(next(self._new),)})

    def _joined(
        self, parts: Sequence[Tensor], more: tuple, kwargs: Mapping[str, Any]
    ) -> tuple[_Term, ...] | None:
        """Return the terms of tensors that are put together; 0 at the place of the others."""
        if any(self._content([x]) and x not in self._terms for x in parts):
            return None
        return tuple(
            _Term(
                t.roots,
                torch.cat(
                    [t.of(x) if x is y else torch.zeros_like(y) for y in parts], *more, **kwargs
                ),
            )
            for x in parts
            for t in self._terms.get(x, ())
        )

    def _summed(
        self, name: str, args: tuple, out: Tensor, of_first: tuple[_Term, ...] | None
    ) -> tuple[_Term, ...] | None:
        """Return the terms of a sum; None if those of one side are not known."""
        summands = []
        for at, x in enumerate(args[:2]):
            if not self._content([x]):
                continue
            terms = self._terms.get(x) if at else of_first
            if terms is None:
                return None
            sign = -1 if at and "sub" in name else 1
            summands += [_Term(t.roots, (sign * t.of(x)).expand_as(out)) for t in terms]
        return tuple(summands)


def _shared(roots: frozenset[Root], others: frozenset[Root]) -> bool:
    """Return True if two tensors come from one projection, or from one part of it."""
    return any(a[: len(b)] == b[: len(a)] for a in roots for b in others)
