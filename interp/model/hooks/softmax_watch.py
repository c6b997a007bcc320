"""Reading of a model's own attention code by watching the softmax and the two products around it.

BLOOM, Falcon, GPT-J, GPT-Neo, XLNet and many research models compute attention explicitly instead
of calling transformers' attention interface. Whatever the tensors are called, a product is followed
by a softmax, and the softmax by a product with the values. This torch function mode observes those
three calls inside each module, without a table of families. If a module calls
`scaled_dot_product_attention` itself, that single call suffices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from interp.model.hooks.calls import Call, ComputedCall, RecordedCall
from interp.model.hooks.inference import in_this_thread

_SOFTMAX = {torch.softmax, F.softmax, Tensor.softmax}
_PRODUCT = {torch.matmul, Tensor.matmul, Tensor.__matmul__, torch.bmm, Tensor.bmm}
_ADDED_PRODUCT = {torch.baddbmm, Tensor.baddbmm}
_EINSUM = {torch.einsum, torch.functional.einsum}
_SDPA = F.scaled_dot_product_attention

# set while a function of transformers' attention interface runs, which is reported already
inside_interface: ContextVar[bool] = ContextVar("interp_inside_interface", default=False)


@dataclass
class _Product:
    """Product of two tensors, with the letter of every axis if it was written as an einsum."""

    left: Tensor
    right: Tensor
    out: Tensor
    letters: tuple[str, str, str] | None = None


@dataclass
class _Open:
    """Observed parts of an attention that is not complete yet."""

    product: _Product
    products: int
    scores: Tensor
    pattern: Tensor
    batch: int


def _product(func, args, kwargs, out) -> _Product | None:
    if func in _EINSUM:
        equation, *operands = args
        if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
            operands = list(operands[0])
        if len(operands) != 2 or "." in equation:
            return None
        inputs, output = equation.replace(" ", "").split("->")
        letters = (*inputs.split(","), output)
        return _Product(operands[0], operands[1], out, letters)
    if func in _ADDED_PRODUCT:
        rest = list(args[1:])
        left = kwargs["batch1"] if "batch1" in kwargs else rest.pop(0)
        right = kwargs["batch2"] if "batch2" in kwargs else rest.pop(0)
        return _Product(left, right, out)
    left = args[0]
    right = args[1] if len(args) > 1 else kwargs.get("other", kwargs.get("mat2"))
    return _Product(left, right, out) if isinstance(right, Tensor) else None


def _by_letters(x: Tensor, have: str, want: str) -> Tensor:
    return x.permute([have.index(letter) for letter in want])


class _Watch(TorchFunctionMode):
    def __init__(self, show: Callable[[nn.Module, Call], None], stack: list[tuple[nn.Module, int]]):
        super().__init__()
        self.show, self.stack = show, stack
        self.products: dict[nn.Module, list[_Product]] = {}
        self.open: dict[nn.Module, _Open] = {}

    def forget(self, module: nn.Module) -> None:
        """Drop what an ended module left unused: other products are not attention."""
        self.products.pop(module, None)
        self.open.pop(module, None)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        if not self.stack or inside_interface.get():
            return out
        module, batch = self.stack[-1]
        if func in _SOFTMAX:
            self._softmax(module, batch, args, kwargs, out)
        elif func in _PRODUCT or func in _ADDED_PRODUCT or func in _EINSUM:
            product = _product(func, args, kwargs, out)
            if product is not None and product.left.dim() >= 3 and product.right.dim() >= 3:
                return self._multiplied(module, product)
        elif func is _SDPA:
            return self._fused(module, args, kwargs, out)
        return out

    def _seen(self, module: nn.Module, call: Call) -> None:
        call.watched = True
        self.show(module, call)

    def _softmax(self, module: nn.Module, batch: int, args, kwargs, out: Tensor) -> None:
        seen = self.products.pop(module, None)
        scores = args[0] if args else kwargs["input"]
        if seen and scores.dim() >= 3:
            batch = scores.shape[0] if scores.dim() == 4 else batch
            self.open[module] = _Open(seen[-1], len(seen), scores, out, batch)

    def _multiplied(self, module: nn.Module, product: _Product) -> Tensor:
        attention = self.open.get(module)
        if attention is None or product.left.numel() != attention.pattern.numel():
            self.products.setdefault(module, []).append(product)
            return product.out
        del self.open[module]
        letters = product.letters
        read = _read_matmul if letters is None else partial(_read_einsum, letters=letters)
        call, back = read(attention, product)
        z = call.z
        self._seen(module, call)
        return product.out if call.z is z else back(call.z).to(product.out.dtype)

    def _fused(self, module: nn.Module, args, kwargs, out: Tensor) -> Tensor:
        names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale")
        given = dict(zip(names, args, strict=False)) | kwargs
        q, k, v = given["query"], given["key"], given["value"]
        if q.dim() != 4:
            return out
        scale = given.get("scale")
        call = ComputedCall(
            q, k, v, out,
            scale=q.shape[-1] ** -0.5 if scale is None else scale,
            mask=given.get("attn_mask"),
            causal=bool(given.get("is_causal", False)),
        )  # fmt: skip
        self._seen(module, call)
        return call.z.to(out.dtype)


def _read_matmul(
    attention: _Open, product: _Product
) -> tuple[RecordedCall, Callable[[Tensor], Tensor]]:
    """Read `[batch, head, query, key] @ [batch, head, key, d]`, possibly with merged axes."""
    shape = product.out.shape

    def four(x: Tensor) -> Tensor:
        return x if x.dim() == 4 else x.reshape(attention.batch, -1, *x.shape[-2:])

    q, k = _queries_and_keys(attention, four)
    call = RecordedCall(
        four(product.right), four(product.out), four(attention.scores), four(product.left), q, k
    )
    return call, lambda z: z.reshape(shape)


def _queries_and_keys(
    attention: _Open, four: Callable[[Tensor], Tensor]
) -> tuple[Tensor | None, Tensor | None]:
    """Return the factors of the scores, or None if the scores are a sum of products."""
    first = attention.product
    if attention.products != 1:
        return None, None
    if first.letters is None:
        return four(first.left), four(first.right).transpose(-1, -2)
    left, right, out = first.letters
    (d,) = set(left) & set(right) - set(out)
    (query,), (key,) = set(left) - set(right), set(right) - set(left)
    batch, head = (x for x in out if x in left and x in right)
    q = _by_letters(first.left, left, batch + head + query + d)
    return q, _by_letters(first.right, right, batch + head + key + d)


def _read_einsum(
    attention: _Open, product: _Product, letters: tuple[str, str, str]
) -> tuple[RecordedCall, Callable[[Tensor], Tensor]]:
    """Read axes from the equation: key is summed over, d is new, values have no query."""
    left, right, out = letters
    (key,) = set(left) & set(right) - set(out)
    (d,) = set(right) - set(left)
    (query,) = set(left) - set(right)
    batch, head = (x for x in out if x in left and x in right)
    rows, values, mixed = (
        batch + head + query + key,
        batch + head + key + d,
        batch + head + query + d,
    )
    single = attention.products == 1 and attention.product.letters is not None
    q, k = _queries_and_keys(attention, lambda x: x) if single else (None, None)
    call = RecordedCall(
        _by_letters(product.right, right, values),
        _by_letters(product.out, out, mixed),
        _by_letters(attention.scores, left, rows),
        _by_letters(product.left, left, rows),
        q,
        k,
    )
    return call, lambda z: _by_letters(z, mixed, out)


@contextmanager
def watching(model: nn.Module, show: Callable[[nn.Module, Call], None]) -> Iterator[None]:
    """Report each attention that `model` computes outside transformers' interface in the block."""
    stack: list[tuple[nn.Module, int]] = []
    watch = _Watch(show, stack)

    def enter(module: nn.Module, args: tuple, kwargs: dict) -> None:
        # the batch axis comes first in the inputs of modules, also if they flatten it later
        given = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor) and x.dim() >= 2]
        stack.append((module, given[0].shape[0] if given else 1))

    def leave(module: nn.Module, args: object, output: object) -> None:
        stack.pop()
        watch.forget(module)

    # hooks belong to the module and run in every thread, the mode only in this one
    begin, end = in_this_thread(enter), in_this_thread(leave)
    handles = []
    try:
        for module in model.modules():
            if isinstance(module, (nn.Softmax, nn.Dropout)):
                continue  # a softmax that is a module belongs to its parent module
            handles.append(module.register_forward_pre_hook(begin, with_kwargs=True))
            handles.append(module.register_forward_hook(end, always_call=True))
        with watch:
            yield
    finally:
        for handle in handles:
            handle.remove()
