"""Reading of a model's own attention code by watching the softmax and the two products around it.

BLOOM, Falcon, GPT-J, GPT-Neo, XLNet and many research models compute attention explicitly instead
of calling transformers' attention interface. Whatever the tensors are called, a product is followed
by a softmax, and the softmax by a product with the values. This torch function mode observes those
three calls inside each module, without a table of families. If a module calls
`scaled_dot_product_attention` itself, that single call suffices.

The steps between product and softmax are followed as a formula (`score_formula`), from which the
attention can be recomputed from q and k in tiles. A run of such an attention need not keep its
pattern. Streamed, the module computes as it always does, and nothing of its pattern is kept. Fused
(`placeholders`), neither its products nor its softmax are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from interp.core.errors import UnreadableAttention
from interp.model.calls.call import Call, ComputedCall, RecordedCall
from interp.model.hooks.formula_call import call_of
from interp.model.hooks.inference import in_this_thread
from interp.model.hooks.multihead import MULTIHEAD, MultiheadCall
from interp.model.hooks.score_formula import (
    Formula,
    Formulas,
    Product,
    followed,
    product_of,
    step_of,
)

_SOFTMAX = {torch.softmax, F.softmax, Tensor.softmax}
_PRODUCT = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
ADDED_PRODUCTS = {torch.baddbmm, Tensor.baddbmm}
_EINSUM = {torch.einsum, torch.functional.einsum}
PRODUCTS = _PRODUCT | ADDED_PRODUCTS | _EINSUM
SDPA = F.scaled_dot_product_attention

# set while a function of transformers' attention interface runs, which is reported already
inside_interface: ContextVar[bool] = ContextVar("interp_inside_interface", default=False)


@dataclass
class _Open:
    """Observed parts of an attention that is not complete yet."""

    product: Product | None
    products: int
    scores: Tensor | None  # None where only the formula is kept
    formula: Formula | None
    numel: int  # of the pattern
    batch: int


def product_in(func: Callable, args: tuple, kwargs: Mapping[str, Any]) -> Product | None:
    """Return the factors of a product of two tensors, and the letters of an einsum's axes."""
    letters = None
    if func in _EINSUM:
        equation, *operands = args
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
        if len(operands) != 2 or "." in equation or "->" not in equation:
            return None
        inputs, output = equation.replace(" ", "").split("->")
        left, right = operands
        letters = (*inputs.split(","), output)
    elif func in ADDED_PRODUCTS:
        rest = list(args[1:])
        left = kwargs["batch1"] if "batch1" in kwargs else rest.pop(0)
        right = kwargs["batch2"] if "batch2" in kwargs else rest.pop(0)
    else:
        left = args[0] if args else kwargs["input"]
        right = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("mat2"))
    if not isinstance(right, Tensor) or left.dim() < 3 or right.dim() < 3:
        return None
    return Product(left, right, None, (), letters)


def by_letters(x: Tensor, have: str, want: str) -> Tensor:
    """Permute axes to another order of their letters."""
    return x.permute([have.index(letter) for letter in want])


class SoftmaxWatch(TorchFunctionMode):
    """Mode that reports attention calls as the products and softmaxes of modules run.

    Args:
        show: receives the module and the call.
        stack: modules that are running, with the batch size of their inputs; innermost last.
        streamable: modules whose pattern is not kept, since their calls follow from formulas.
        derive: also report, with a recorded call, the call that its formula gives.
    """

    def __init__(
        self,
        show: Callable[[nn.Module, Call], None],
        stack: list[tuple[nn.Module, int]],
        streamable: frozenset[nn.Module] = frozenset(),
        *,
        derive: bool = False,
    ):
        super().__init__()
        self.show, self.stack, self.streamable, self.derive = show, stack, streamable, derive
        self.formulas = Formulas()
        self.products: dict[nn.Module, list[Product]] = {}
        self.order: dict[nn.Module, int] = {}  # products of the module's running forward
        self.open: dict[nn.Module, _Open] = {}

    def forget(self, module: nn.Module) -> None:
        """Drop what an ended module left unused: other products are not attention."""
        self.products.pop(module, None)
        self.order.pop(module, None)
        self.open.pop(module, None)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is MULTIHEAD and self.stack and not inside_interface.get():
            given = MultiheadCall.of(self.stack[-1][0], args, kwargs)
            if given is not None:
                return self._multihead(self.stack[-1][0], given)
        out = func(*args, **kwargs)
        if not self.stack or inside_interface.get() or not isinstance(out, Tensor):
            return out
        module, batch = self.stack[-1]
        if func in PRODUCTS:
            product = product_in(func, args, kwargs)
            if product is not None:
                product.out, product.shape = out, tuple(out.shape)
                return self._multiplied(module, func, product, (args, kwargs))
        elif func is SDPA:
            return self._fused(module, args, kwargs, out)
        else:
            if len(self.formulas):
                self._follow(func, args, kwargs, out)
            if func in _SOFTMAX:
                self._softmax(module, batch, args, kwargs, out)
        return out

    def _follow(self, func: Callable, args: tuple, kwargs: Mapping[str, Any], out: Tensor) -> None:
        step = step_of(func, args, kwargs, self.formulas)
        if step is not None:
            self.formulas.set(out, followed(*step, tuple(out.shape), out.dtype))
        elif args and out is args[0]:  # changed in place in an unknown way
            self.formulas.set(out, None)

    def _seen(self, module: nn.Module, call: Call) -> None:
        call.watched = True
        self.show(module, call)

    def _softmax(self, module: nn.Module, batch: int, args, kwargs, out: Tensor) -> None:
        seen = self.products.pop(module, None)
        scores = args[0] if args else kwargs["input"]
        if not seen or scores.dim() < 3:
            return
        batch = scores.shape[0] if scores.dim() == 4 else batch
        light = module in self.streamable
        formula = self.formulas.of(out)
        self.open[module] = _Open(
            None if light else seen[-1],
            len(seen),
            None if light else scores,
            formula,
            out.numel(),
            batch,
        )

    def _multiplied(
        self, module: nn.Module, func: Callable, product: Product, given: tuple[tuple, Mapping]
    ) -> Tensor:
        attention, out = self.open.get(module), product.out
        assert out is not None
        if attention is None or product.left.numel() != attention.numel:
            order = self.order.get(module, 0)
            self.order[module] = order + 1
            formula = product_of(product, order, getattr(func, "__name__", ""), given)
            self.formulas.set(out, formula)
            product.out = None
            self.products.setdefault(module, []).append(product)
            return out
        del self.open[module]
        formula = self.formulas.of(product.left)
        if module in self.streamable:
            arrange = Arranged(product, attention.batch)
            call, back = arrange.derived(module, formula, product, out), arrange.back
        else:
            call, back = self._recorded(attention, formula, product, out)
        z = call.z
        self._seen(module, call)
        return out if call.z is z else back(call.z).to(out.dtype)

    def _recorded(
        self, attention: _Open, formula: Formula | None, product: Product, out: Tensor
    ) -> tuple[RecordedCall, Callable[[Tensor], Tensor]]:
        arrange = Arranged(product, attention.batch)
        first, scores = attention.product, attention.scores
        assert first is not None
        assert scores is not None
        single = attention.products == 1 and (first.letters is None) == (product.letters is None)
        one = attention.formula
        if not single and one is not None and one.is_of_one_product(attention.batch):
            single, first = True, Product(one.left, one.right, None, (), one.letters)
        q, k = arrange.factors(first) if single else (None, None)
        call = RecordedCall(
            arrange.values(product.right),
            arrange.mixed(out),
            arrange.rows(scores),
            arrange.rows(product.left),
            q,
            k,
        )
        # scores of several products, such as content and place: the others are terms of the formula
        if self.derive and formula is not None:
            call.derived, call.order = arrange.call(formula, product, out), formula.order
        return call, arrange.back

    def _multihead(self, module: nn.Module, given: MultiheadCall) -> tuple[Tensor, Tensor | None]:
        """Report the attention of a `torch.nn.MultiheadAttention` and return its output."""
        z, weights = given.mixed()
        call = given.call(z)
        self._seen(module, call)
        return given.projected(call.z), weights

    def _fused(self, module: nn.Module, args, kwargs, out: Tensor) -> Tensor:
        call = sdpa_call(args, kwargs, out)
        if call is None:
            return out
        self._seen(module, call)
        return call.z.to(out.dtype)


def sdpa_call(args: tuple, kwargs: Mapping[str, Any], out: Tensor) -> ComputedCall | None:
    """Return the call of torch's own attention function; None if it has no batch or head axis."""
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
    given = dict(zip(names, args, strict=False)) | dict(kwargs)
    q, k, v = given["query"], given["key"], given["value"]
    if q.dim() != 4:
        return None
    scale = given.get("scale")
    return ComputedCall(
        q,
        k,
        v,
        out,
        scale=q.shape[-1] ** -0.5 if scale is None else scale,
        mask=given.get("attn_mask"),
        causal=bool(given.get("is_causal", False)),
    )


class Arranged:
    """Axes of an attention in the order batch, head, position, d, from those of its last product.

    `[batch, head, query, key] @ [batch, head, key, d]`, possibly with merged axes; or, of an
    einsum, from the letters: key is summed over, d is new, values have no query.
    """

    def __init__(self, product: Product, batch: int) -> None:
        self.batch, self.letters, self.shape = batch, product.letters, product.shape
        if self.letters is None:
            return
        left, right, out = self.letters
        (key,) = set(left) & set(right) - set(out)
        (d,) = set(right) - set(left)
        (query,) = set(left) - set(right)
        both = "".join(x for x in out if x in left and x in right)
        self._rows, self._values, self._mixed = both + query + key, both + key + d, both + query + d

    def _four(self, x: Tensor) -> Tensor:
        return x if x.dim() == 4 else x.reshape(self.batch, -1, *x.shape[-2:])

    def rows(self, x: Tensor) -> Tensor:
        """Arrange scores or a pattern."""
        return self._four(x) if self.letters is None else by_letters(x, self.letters[0], self._rows)

    def values(self, x: Tensor) -> Tensor:
        """Arrange values."""
        if self.letters is None:
            return self._four(x)
        return by_letters(x, self.letters[1], self._values)

    def mixed(self, x: Tensor) -> Tensor:
        """Arrange the product of pattern and values."""
        return (
            self._four(x) if self.letters is None else by_letters(x, self.letters[2], self._mixed)
        )

    def back(self, z: Tensor) -> Tensor:
        """Undo `mixed`."""
        if self.letters is None:
            return z.reshape(self.shape)
        return by_letters(z, self._mixed, self.letters[2])

    def factors(self, first: Product) -> tuple[Tensor, Tensor]:
        """Return q and k of the first product."""
        if first.letters is None:
            return self._four(first.left), self._four(first.right).transpose(-1, -2)
        left, right, out = first.letters
        (d,) = set(left) & set(right) - set(out)
        (query,), (key,) = set(left) - set(right), set(right) - set(left)
        both = "".join(x for x in out if x in left and x in right)
        q = by_letters(first.left, left, both + query + d)
        return q, by_letters(first.right, right, both + key + d)

    def call(self, formula: Formula, product: Product, out: Tensor) -> ComputedCall | None:
        """Return the call that a formula gives; None if one of its tensors does not fit."""
        if self.letters is not None and self.letters[0] != self._rows:
            return None  # the pattern's axes are not in the order of the formula
        first = Product(formula.left, formula.right, None, (), formula.letters)
        q, k = self.factors(first)
        return call_of(formula, self.values(product.right), self.mixed(out), (q, k))

    def derived(
        self, module: nn.Module, formula: Formula | None, product: Product, out: Tensor
    ) -> ComputedCall:
        """Return the call that a formula gives."""
        call = None if formula is None else self.call(formula, product, out)
        if call is None:
            raise unknown_step(module)
        return call


def unknown_step(module: nn.Module, name: str = "") -> UnreadableAttention:
    """Return the error of an attention whose scores cannot be followed on some inputs."""
    step = f" ({name})" if name else ""
    return UnreadableAttention(
        f"{type(module).__name__} computes its scores on these inputs in a step that cannot be "
        f"recomputed in tiles{step}, unlike on the inputs that it was checked with; use "
        "engine='stored'"
    )


@contextmanager
def watching(
    model: nn.Module,
    show: Callable[[nn.Module, Call], None],
    streamable: Mapping[nn.Module, int | None] | None = None,
    *,
    made: Callable[..., SoftmaxWatch] | None = None,
    derive: bool = False,
    among: Iterable[nn.Module] | None = None,
) -> Iterator[None]:
    """Report each attention that `model` computes outside transformers' interface in the block.

    With `among` only what runs inside these modules is watched.
    """
    stack: list[tuple[nn.Module, int]] = []
    if made is not None:
        watch = made(show, stack, streamable or {})
    else:
        watch = SoftmaxWatch(show, stack, frozenset(streamable or ()), derive=derive)

    def enter(module: nn.Module, args: tuple, kwargs: dict) -> None:
        # the batch axis comes first in the inputs of modules, also if they flatten it later
        given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.dim() >= 2]
        if not stack:
            watch.__enter__()  # outside of these modules, functions are not watched
        stack.append((module, given[0].shape[0] if given else 1))

    def leave(module: nn.Module, args: object, output: object) -> None:
        if stack and stack[-1][0] is module:  # another hook may have raised before it was entered
            stack.pop()
            watch.forget(module)
            if not stack:
                watch.__exit__(None, None, None)

    # hooks belong to the module and run in every thread, the mode only in this one
    begin, end = in_this_thread(enter), in_this_thread(leave)
    handles = []
    try:
        outer = (model,) if among is None else among
        parts = dict.fromkeys(m for part in outer for m in part.modules())
        for module in parts:
            if isinstance(module, (nn.Softmax, nn.Dropout)):
                continue  # a softmax that is a module belongs to its parent module
            handles.append(module.register_forward_pre_hook(begin, with_kwargs=True))
            handles.append(module.register_forward_hook(end, always_call=True))
        yield
    finally:
        for handle in handles:
            handle.remove()
        if stack:
            watch.__exit__(None, None, None)
