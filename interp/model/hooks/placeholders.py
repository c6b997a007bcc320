"""Fused reading of a model's own attention code: placeholders stand for its scores and patterns.

The product of queries and keys is not computed. A tensor of its shape, which takes the memory of
one number, stands for it; each step on it is followed as a formula, and at the product with the
values the visitor computes the output in tiles. A step that is not known, or a value that is read,
raises an error: every entry of a placeholder is NaN, so none can pass for a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from interp.core.errors import OptionError
from interp.model.calls.call import Call
from interp.model.hooks.multihead import MultiheadCall
from interp.model.hooks.score_formula import (
    IN_PLACE,
    RESHAPING,
    TYPING,
    Formula,
    FormulaStep,
    Product,
    followed,
    product_of,
    step_of,
)
from interp.model.hooks.softmax_watch import (
    PRODUCTS,
    SDPA,
    Arranged,
    SoftmaxWatch,
    inside_interface,
    product_in,
    sdpa_call,
    unknown_step,
)

# Functions that read no entry of a tensor.
_READS_SHAPE = frozenset(
    (
        "size",
        "dim",
        "ndimension",
        "numel",
        "nelement",
        "element_size",
        "is_floating_point",
        "__get__",
        "__len__",
        "get_device",
        "is_contiguous",
        "stride",
    )
)
# Their result has the type that they give to an empty tensor.
_UNARY = frozenset((*TYPING, "softmax", "dropout", "contiguous", "clone", "detach", "tanh"))


def placeholder(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return a tensor of NaN that takes the memory of one number."""
    return torch.full((), torch.nan, dtype=dtype, device=device).expand(shape)


def _tensors(x: object) -> Iterator[Tensor]:
    if isinstance(x, Tensor):
        yield x
    elif isinstance(x, (list, tuple)):
        for inner in x:
            yield from _tensors(inner)


def _on_meta(x: object) -> object:
    """Return an argument with tensors that have shapes and types only."""
    if isinstance(x, Tensor):
        return torch.empty(x.shape, dtype=x.dtype, device="meta")
    return type(x)(map(_on_meta, x)) if isinstance(x, (list, tuple)) else x


def _shape(func: Callable, args: tuple, kwargs: Mapping[str, Any]) -> tuple[int, ...]:
    given = {name: _on_meta(x) for name, x in kwargs.items()}
    return tuple(func(*map(_on_meta, args), **given).shape)


class PlaceholderWatch(SoftmaxWatch):
    """SoftmaxWatch that computes no scores and no pattern of the modules that can be streamed."""

    def __init__(
        self,
        show: Callable[[nn.Module, Call], None],
        stack: list[tuple[nn.Module, int]],
        streamable: Mapping[nn.Module, int | None],
    ):
        super().__init__(show, stack, frozenset(streamable))
        self.places = streamable
        self.batches: dict[nn.Module, int] = {}  # of patterns, whose axes may be merged later

    def forget(self, module: nn.Module) -> None:
        """Drop what an ended module left unused."""
        super().forget(module)
        self.batches.pop(module, None)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if len(self.formulas):
            if func in PRODUCTS and (product := product_in(func, args, kwargs)) is not None:
                pattern = self.formulas.of(product.left)
                if pattern is not None and pattern.lazy and pattern.is_pattern:
                    return self._mixed(func, pattern, product, args, kwargs)
            step = step_of(func, args, kwargs, self.formulas)
            if step is not None and step[1].lazy:
                return self._on_placeholder(func, *step)
            if any(self._is_placeholder(x) for x in _tensors((*args, *kwargs.values()))):
                raise unknown_step(self._inner(), getattr(func, "__name__", ""))
        if self.stack and not inside_interface.get():
            module, _ = self.stack[-1]
            if module in self.places:
                if func is SDPA:
                    return self._in_place_of_sdpa(module, args, kwargs)
                if func in PRODUCTS and self.order.get(module, 0) == self.places[module]:
                    return self._scores(module, func, args, kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    def _inner(self) -> nn.Module:
        return self.stack[-1][0] if self.stack else nn.Module()

    def _is_placeholder(self, x: Tensor) -> bool:
        formula = self.formulas.of(x)
        return formula is not None and formula.lazy

    def _stand_in(self, formula: Formula, device: torch.device) -> Tensor:
        stands = placeholder(formula.shape, formula.dtype, device)
        self.formulas.set(stands, formula)
        return stands

    def _scores(self, module: nn.Module, func: Callable, args: tuple, kwargs: Mapping) -> Tensor:
        """Return the placeholder of the product of queries and keys."""
        product = product_in(func, args, kwargs)
        if product is None:
            return func(*args, **kwargs)
        product.shape = _shape(func, args, kwargs)
        order = self.order.get(module, 0)
        self.order[module] = order + 1
        formula = product_of(product, order, getattr(func, "__name__", ""), (args, kwargs))
        if formula is None:
            raise unknown_step(module, getattr(func, "__name__", ""))
        return self._stand_in(replace(formula, lazy=True), product.left.device)

    def _on_placeholder(self, func: Callable, step: FormulaStep, formula: Formula) -> Any:
        mine = step.args[step.at]
        if step.name in _READS_SHAPE:
            out = func(*step.args, **step.kwargs)
            if not isinstance(out, Tensor):
                return out
            raise unknown_step(self._inner(), "a view")
        new = followed(step, formula, *self._result(func, step, formula, mine))
        if new is None:
            raise unknown_step(self._inner(), step.name)
        if step.name == "softmax" and self.stack:
            module, batch = self.stack[-1]
            self.batches[module] = formula.shape[0] if len(formula.shape) == 4 else batch
        if step.name in IN_PLACE:
            self.formulas.set(mine, new)
            return mine
        return self._stand_in(new, mine.device)

    def _result(
        self, func: Callable, step: FormulaStep, formula: Formula, mine: Tensor
    ) -> tuple[tuple[int, ...], torch.dtype]:
        """Return the shape and the type of a step's result."""
        if step.name in RESHAPING:
            rest = (torch.empty(formula.shape, device="meta"), *step.args[1:])
            return tuple(func(*rest, **step.kwargs).shape), formula.dtype
        if step.name in _UNARY:
            empty = torch.empty((0,) * mine.dim(), dtype=mine.dtype, device=mine.device)
            return formula.shape, func(empty, *step.args[1:], **step.kwargs).dtype
        if step.name in IN_PLACE or step.name == "masked_fill":
            return formula.shape, formula.dtype
        others = [x for i, x in enumerate(step.args) if i != step.at] + list(step.kwargs.values())
        numbers = [x for x in others if isinstance(x, (Tensor, int, float))]
        numbers = [x for x in numbers if not isinstance(x, Tensor) or x.dtype != torch.bool]
        dtype = formula.dtype
        for x in numbers:
            dtype = torch.promote_types(dtype, torch.result_type(mine, x))
        shapes = [tuple(x.shape) for x in others if isinstance(x, Tensor)]
        return tuple(torch.broadcast_shapes(formula.shape, *shapes)), dtype

    def _mixed(
        self, func: Callable, formula: Formula, product: Product, args: tuple, kwargs: Mapping
    ) -> Tensor:
        """Report the attention, and return the output that its visitor computed."""
        module, batch = self.stack[-1]
        product.shape = _shape(func, args, kwargs)
        batch = self.batches.get(module, batch)
        out = product.right.new_zeros(()).expand(product.shape)
        arrange = Arranged(product, batch)
        call = arrange.derived(module, formula, product, out)
        z = call.z
        self._seen(module, call)
        return arrange.back(_assigned(module, call, z)).to(out.dtype)

    def _multihead(self, module: nn.Module, given: MultiheadCall) -> tuple[Tensor, Tensor | None]:
        """Report the attention, and return the output that its visitor computed."""
        if module not in self.places:
            return super()._multihead(module, given)
        call = given.call(given.value.new_zeros(()).expand(given.shape))
        z = call.z
        self._seen(module, call)
        shape = given.weights_shape
        weights = None if shape is None else placeholder(shape, z.dtype, z.device)
        return given.projected(_assigned(module, call, z)), weights

    def _in_place_of_sdpa(self, module: nn.Module, args: tuple, kwargs: Mapping) -> Tensor:
        out = args[0] if args else kwargs["query"]
        value = args[2] if len(args) > 2 else kwargs["value"]
        out = value.new_zeros(()).expand(*out.shape[:-1], value.shape[-1])
        call = sdpa_call(args, kwargs, out)
        if call is None:
            return SDPA(*args, **kwargs)
        z = call.z
        self._seen(module, call)
        return _assigned(module, call, z).to(out.dtype)


def _assigned(module: nn.Module, call: Call, z: Tensor) -> Tensor:
    if call.z is z:
        raise OptionError(
            f"{type(module).__name__}: no visitor assigned call.z, and a fused run has no other"
            " output"
        )
    return call.z
