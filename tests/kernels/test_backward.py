"""Gradients without a stored pattern, against autograd through the definition in float64."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from fixtures.kernels import MASKS
from together import over
from torch.utils._python_dispatch import TorchDispatchMode

from interp_kernels import (
    InvalidAttention,
    Output,
    chunked,
    reference,
)
from interp_kernels.backward import attention_with_output


def with_leaves(call, dtype=torch.float64):
    """The call over tensors that ask for gradients."""
    names = [n for n in ("q", "k", "v", "sinks") if getattr(call, n) is not None]
    leaves = {n: getattr(call, n).detach().to(dtype).requires_grad_() for n in names}
    return dataclasses.replace(call, **leaves), list(leaves.values())


def loss(output):
    """A sum in which every number has a weight of its own."""
    draw = torch.Generator().manual_seed(11)
    factor = torch.randn(output.shape, generator=draw, dtype=torch.float64).to(output.dtype)
    return (output * factor).sum()


def stored(call):
    """The output through a stored pattern."""
    return reference.statistics(call, [Output()])["output"]


def gradients(call, dtype=torch.float64, **options):
    """Found in blocks, and by autograd through a stored pattern."""
    call, leaves = with_leaves(call, dtype)
    ours, truth = attention_with_output(call, **options), stored(call)
    torch.testing.assert_close(ours, truth)
    found = torch.autograd.grad(loss(ours), leaves, allow_unused=True)
    exact = torch.autograd.grad(loss(truth), leaves, allow_unused=True)
    return found, exact


@over("heads", [(4, 4), (4, 2), (4, 1)])
@over("mask", MASKS)
def test_the_gradients_are_those_through_a_stored_pattern(calls, mask, heads):
    call = calls.make(heads=heads, **calls.masks(mask, 2, heads[0]))
    for found, exact in zip(*gradients(call, block=5, backend="chunked"), strict=True):
        assert exact.abs().sum() > 0 or mask == "no visible key"
        torch.testing.assert_close(found, exact, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("mask", ["softcap", "sinks", "window"])
def test_against_finite_differences(calls, mask):
    """gradcheck: no formula of ours on either side."""
    call = calls.make(
        batch=1, heads=(2, 1), sizes=(5, 5), widths=(3, 2), **calls.masks(mask, 1, 2, (5, 5))
    )
    call, leaves = with_leaves(call)
    names = ["q", "k", "v", "sinks"][: len(leaves)]

    def run(*tensors):
        there = dataclasses.replace(call, **dict(zip(names, tensors, strict=True)))
        return attention_with_output(there)

    assert torch.autograd.gradcheck(run, leaves)


@pytest.mark.parametrize("scores", [1, 300])
def test_blocks_never_change_a_gradient(calls, monkeypatch, scores):
    call = calls.make(batch=3, heads=(6, 3), sizes=(17, 17), window=9)
    whole, _ = gradients(call)
    monkeypatch.setattr(chunked, "SCORES", scores)
    for block in (1, 6, 100):
        found, _ = gradients(call, block=block)
        for one, other in zip(found, whole, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_error_is_that_of_plain_autograd(calls, dtype):
    call = calls.make(sizes=(60, 60), dtype=dtype, **calls.masks("alibi", 2, 4, (60, 60)))
    _, exact = gradients(call)
    there, leaves = with_leaves(call, dtype)
    found = torch.autograd.grad(loss(attention_with_output(there)), leaves)
    there, leaves = with_leaves(call, torch.float32)
    plain = torch.autograd.grad(loss(stored(there)), leaves)
    for ours, naive, truth in zip(found, plain, exact, strict=True):
        size = truth.abs().max()
        rounding = torch.finfo(dtype).eps * size
        assert ours.dtype == dtype
        allowed = 2 * (naive - truth).abs().max() + 2 * rounding
        assert (ours.double() - truth).abs().max() <= allowed


def test_the_output_alone_is_pytorchs_own(calls, monkeypatch):
    """Its backward keeps no pattern either; whatever it does not serve is done in blocks."""

    def used(*given):
        raise AssertionError("formed blocks")

    plain, _ = with_leaves(calls.make(sizes=(30, 30), widths=(8, 8), heads=(4, 2)), torch.float32)
    masked, _ = with_leaves(calls.make(sizes=(30, 30), window=3), torch.float32)
    torch.testing.assert_close(attention_with_output(plain), stored(plain))
    ours, exact = gradients(calls.make(sizes=(30, 30), widths=(8, 8), heads=(4, 2)))
    for one, other in zip(ours, exact, strict=True):
        torch.testing.assert_close(one, other)
    monkeypatch.setattr("interp_kernels.backward.output_gradients", used)
    attention_with_output(plain).sum().backward()
    with pytest.raises(AssertionError, match="formed blocks"):
        attention_with_output(masked).sum().backward()


class Sizes(TorchDispatchMode):
    """The most numbers any operation returned in one tensor."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        tensors = [x for x in torch.utils._pytree.tree_leaves(found) if isinstance(x, torch.Tensor)]
        self.largest = max([self.largest, *(x.numel() for x in tensors)])
        return found


def test_no_tensor_grows_with_the_square_of_the_length(calls, monkeypatch):
    """Forward and backward, at 4 times the length: blocks are as wide as the keys, no more."""
    monkeypatch.setattr(chunked, "SCORES", 1 << 14)
    found = []
    for tokens in (256, 1024):
        call = calls.make(
            batch=1, heads=(2, 1), sizes=(tokens, tokens), dtype=torch.float32, softcap=3.0
        )
        call, _ = with_leaves(call, torch.float32)
        with Sizes() as sizes:
            loss(attention_with_output(call, block=16, backend="chunked")).backward()
        found.append(sizes.largest)
    assert found[1] <= 4 * found[0]
    assert found[1] < 1024**2 / 4


def test_rows_that_see_nothing_give_no_gradient_and_no_nan(calls):
    padding = torch.arange(6) >= torch.tensor([[0], [4]])
    call, (q, k, v) = with_leaves(calls.make(sizes=(6, 6), key_padding=padding))
    attention_with_output(call).square().sum().backward()
    assert (q.grad[1, :, :4] == 0).all()
    assert all(x.grad.isfinite().all() for x in (q, k, v))
    assert q.grad.abs().sum() > 0


@pytest.mark.parametrize(("batch", "sizes"), [(0, (3, 3)), (2, (0, 3)), (2, (3, 0))])
def test_zero_lengths(calls, batch, sizes):
    call, (q, k, v) = with_leaves(calls.make(batch=batch, sizes=sizes))
    attention_with_output(call).sum().backward()
    assert all(x.grad.shape == x.shape and (x.grad == 0).all() for x in (q, k, v))


def test_gradients_reach_through_the_model_only_where_asked(calls):
    call = calls.make()
    k = call.k.clone().requires_grad_()
    call = dataclasses.replace(call, k=k)
    attention_with_output(call).square().sum().backward()
    assert k.grad.abs().sum() > 0
    assert call.q.grad is None


def test_what_has_no_gradient_is_refused(calls):
    with pytest.raises(InvalidAttention, match="relu weights have no gradient here; softmax has"):
        attention_with_output(calls.make(activation="relu"))
    bias = torch.zeros(13, 13, requires_grad=True)
    with pytest.raises(InvalidAttention, match="the bias requires a gradient"):
        attention_with_output(calls.make(bias=bias))
