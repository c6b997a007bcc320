"""Thin products measure as whole matrices do; norms and columns are found by what they do."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from interp.heads.weights._composition import _norms, _unit, random_composition
from interp.heads.weights.circuit_sizes import effective_rank
from interp.model.locate.layout import find_columns
from interp.model.locate.linear import LowRank
from interp.model.locate.norms import read_norm


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_a_thin_product_measures_as_the_whole_does():
    m = LowRank(drawn(3, 40, 5), drawn(3, 5, 30, seed=1))
    whole = m.whole()
    values = torch.linalg.svdvals(whole)[:, :5]
    torch.testing.assert_close(m.singular_values(), values)
    torch.testing.assert_close(m.norm(), torch.linalg.matrix_norm(whole))
    torch.testing.assert_close(m.T.whole(), whole.mT)
    for reduced in (m.rows_reduced(), m.columns_reduced()):
        torch.testing.assert_close(torch.linalg.svdvals(reduced)[:, :5], values)
    x = drawn(30, seed=2)
    torch.testing.assert_close((m.rows_reduced() @ x).norm(dim=1), (whole @ x).norm(dim=1))


def test_eigenvalues_are_those_of_the_whole_product():
    m, back = LowRank(drawn(2, 40, 4), drawn(2, 4, 30, seed=1)), drawn(30, 40, seed=2)
    whole = torch.linalg.eigvals(back @ m.whole())
    found = m.eigenvalues(back)
    for a, b in zip(found, whole, strict=True):
        largest = b[b.abs().argsort(descending=True)[:4]]
        distance = (a[:, None] - largest).abs()
        assert distance.amin(0).max() < 1e-9
        assert distance.amin(1).max() < 1e-9


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e4])
def test_a_head_that_writes_nothing_has_no_eigenvalues(scale):
    """What it reads and writes is at right angles; in float32 some rounding is left of that."""
    turn = torch.linalg.qr(drawn(40, 40)).Q
    left, right = turn[:, :4] * scale, turn[:, 4:8].mT
    mixed = LowRank(torch.stack([left, left]).float(), torch.stack([right, left.mT]).float())
    back = torch.eye(40)
    assert torch.linalg.eigvals(mixed.right[0] @ mixed.left[0]).abs().max() > 0
    none, all_ones = mixed.eigenvalues(back)
    assert (none == 0).all()
    torch.testing.assert_close(
        all_ones.real, torch.full((4,), scale**2).double(), rtol=1e-5, atol=0
    )


@pytest.mark.parametrize(
    ("values", "stable", "entropy"),
    [
        ([1.0, 1.0, 1.0, 1.0], 4.0, 4.0),
        ([3.0, 0.0, 0.0], 1.0, 1.0),
        ([2.0, 1.0], 1.25, 1.8898815748423097),  # exp(H(2/3, 1/3)) = 3 / 2^(2/3)
        ([0.0, 0.0], 0.0, 0.0),
    ],
)
def test_effective_ranks_of_known_singular_values(values, stable, entropy):
    x = torch.tensor([values], dtype=torch.float64)
    assert float(effective_rank(x, False)) == pytest.approx(stable, abs=1e-12)
    assert float(effective_rank(x, True)) == pytest.approx(entropy, abs=1e-12)


def test_random_matrices_compose_by_the_root_of_the_width_not_of_the_head():
    """heads.md, section 0: d=768, r=64 gives about 768 ** -0.5 = 0.03608 (measured 0.03601)."""
    assert random_composition(768, 64, 64) == pytest.approx(0.03601, abs=1e-4)
    assert random_composition(256, 16, 32) == pytest.approx(256**-0.5, rel=0.03)


def test_the_baseline_is_the_mean_over_fresh_random_heads():
    d, r = 96, 12
    first, second = (
        LowRank(drawn(24, d, r, seed=s), drawn(24, r, d, seed=s + 1)) for s in (10, 20)
    )
    scores = _norms(_unit(first.rows_reduced()), _unit(second.columns_reduced()))
    assert scores.shape == (24, 24)
    assert float(scores.mean()) == pytest.approx(random_composition(d, r, r), rel=0.02)
    whole = first.whole()[3] @ second.whole()[7]
    expected = whole.norm() / first.whole()[3].norm() / second.whole()[7].norm()
    assert float(scores[3, 7]) == pytest.approx(float(expected), rel=1e-12)


def test_composition_of_the_same_and_of_foreign_directions():
    """One direction passed on: 1; what nobody reads: 0."""
    e = torch.eye(6, dtype=torch.float64)
    write = LowRank(e[:, :1][None], e[1:2][None])  # reads 0, writes 1
    read, other = (LowRank(e[:, i : i + 1][None], e[2:3][None]) for i in (1, 3))
    assert float(_norms(_unit(write.rows_reduced()), _unit(read.columns_reduced()))) == 1.0
    assert float(_norms(_unit(write.rows_reduced()), _unit(other.columns_reduced()))) == 0.0


class Rms(nn.Module):
    """With a gain of one plus the weight, as Gemma has it."""

    def __init__(self, weight: torch.Tensor, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(weight), eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt() * (1 + self.weight)


@pytest.mark.parametrize("width", [2, 7, 48])
def test_norms_are_told_by_what_they_do(width):
    gain, bias = drawn(width).float(), drawn(width, seed=1).float()
    layer = nn.LayerNorm(width)
    with torch.no_grad():
        layer.weight.copy_(gain)
        layer.bias.copy_(bias)
    found = read_norm(layer, (width,))
    assert found is not None
    assert found.centred
    torch.testing.assert_close(found.gain, gain, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found.bias, bias, rtol=1e-5, atol=1e-6)
    rms = read_norm(Rms(gain, 1e-6), (width,))
    assert rms is not None
    assert not rms.centred
    torch.testing.assert_close(rms.gain, 1 + gain, rtol=1e-5, atol=1e-6)
    assert rms.bias.abs().max() == 0


def test_what_is_no_norm_is_not_taken_for_one():
    for module in (
        nn.Identity(),
        nn.Linear(8, 8),
        nn.GELU(),
        nn.Tanh(),
        nn.Softmax(-1),
        Gain(1e-5),
    ):
        assert read_norm(module, (8,)) is None, module


class Gain(nn.Module):
    """Layer scale."""

    def __init__(self, size: float):
        super().__init__()
        self.weight = nn.Parameter(torch.full((8,), size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight


def test_folding_a_norm_is_the_norm_up_to_a_positive_factor():
    layer = nn.LayerNorm(12)
    with torch.no_grad():
        layer.weight.copy_(drawn(12).float())
    norm = read_norm(layer, (12,))
    assert norm is not None
    w, x = drawn(12, 5, seed=2).float(), drawn(4, 12, seed=3).float()
    got, want = x @ norm.fold(w), layer(x).detach() @ w
    got, want = (y / y.norm(dim=1, keepdim=True) for y in (got, want))
    torch.testing.assert_close(got, want)


def test_columns_are_found_through_order_sign_scale_and_offset():
    source = drawn(20, 30)
    index = torch.tensor([29, 3, 3, 0])
    factor = torch.tensor([0.25, -2.0, 1.0, 1.0], dtype=torch.float64)
    target = source[:, index] * factor + torch.tensor([0.0, 5.0, 0.0, -1.0])
    found = find_columns(target, [drawn(20, 30, seed=9), source])
    assert found is not None
    assert found.source == 1
    assert found.index.tolist() == index.tolist()
    torch.testing.assert_close(found.factor, factor)
    torch.testing.assert_close(source[:, found.index] * found.factor + found.offset, target)


def test_columns_that_nearly_match_do_not():
    source = drawn(20, 30)
    assert find_columns(source[:, :4] + 0.02 * drawn(20, 4, seed=5), [source]) is None
    assert find_columns(torch.cat([source[:, :4], drawn(20, 1, seed=6)], 1), [source]) is None


def test_a_constant_column_has_no_matrix_only_an_offset():
    source = drawn(20, 30)
    target = torch.cat([source[:, 4:6], torch.full((20, 1), 0.7)], 1).double()
    found = find_columns(target, [source])
    assert found is not None
    assert found.index.tolist() == [4, 5, -1]
    assert found.take(torch.ones(3, 30))[:, 2].abs().max() == 0
    assert float(found.offset[2]) == pytest.approx(0.7)
