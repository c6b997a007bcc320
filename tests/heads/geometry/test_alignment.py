"""CKA and PWCCA against small reference implementations, and what they must not depend on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from heads.geometry.layers import uniform, value

from interp.heads.geometry._alignment import linear_cka, projection_weighted


def outputs(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).standard_normal(shape))


def unbiased_hsic(k: np.ndarray, m: np.ndarray) -> float:
    """Song et al. 2012, equation 5, with kernels of tokens by tokens."""
    n = len(k)
    k, m = k - np.diag(np.diag(k)), m - np.diag(np.diag(m))
    one = np.ones(n)
    total = np.trace(k @ m) + (one @ k @ one) * (one @ m @ one) / ((n - 1) * (n - 2))
    return (total - 2 / (n - 2) * (one @ k @ m @ one)) / (n * (n - 3))


def biased_hsic(k: np.ndarray, m: np.ndarray) -> float:
    h = np.eye(len(k)) - 1 / len(k)
    return float(np.trace(k @ h @ m @ h))


@pytest.mark.parametrize(("debiased", "hsic"), [(True, unbiased_hsic), (False, biased_hsic)])
def test_cka_equals_its_definition_by_kernels(debiased, hsic) -> None:
    x = outputs(1, 3, 14, 5) @ outputs(5, 5, seed=1) + 2.0
    x[:, 1] += x[:, 0]
    found = linear_cka(x, x, debiased)[0]
    for i in range(3):
        for j in range(3):
            k, m = (a @ a.T for a in (x[0, i].numpy(), x[0, j].numpy()))
            expected = hsic(k, m) / np.sqrt(hsic(k, k) * hsic(m, m))
            assert float(found[i, j]) == pytest.approx(expected, abs=1e-9)


def reference_pwcca(x: np.ndarray, y: np.ndarray) -> float:
    """Morcos et al. 2018, by whitening with covariances."""
    x, y = x - x.mean(0), y - y.mean(0)

    def whitening(a: np.ndarray) -> np.ndarray:
        size, vectors = np.linalg.eigh(a.T @ a)
        return vectors / np.sqrt(size) @ vectors.T

    white_x, white_y = whitening(x), whitening(y)
    left, correlation, _ = np.linalg.svd(white_x @ x.T @ y @ white_y)
    canonical = x @ white_x @ left[:, : len(correlation)]
    weight = np.abs(canonical.T @ x).sum(1)
    return float(weight @ correlation / weight.sum())


@pytest.mark.parametrize("widths", [(4, 4), (3, 6), (6, 3)])
def test_pwcca_equals_its_definition_by_covariances(widths) -> None:
    shared = outputs(40, 2)
    x = torch.cat([shared, outputs(40, widths[0] - 2, seed=1)], 1) @ outputs(widths[0], widths[0])
    noise = outputs(40, 2, seed=5) * torch.tensor([0.3, 1.0])  # equal correlations have no order
    y = torch.cat([shared + noise, outputs(40, widths[1] - 2, seed=2)], 1)
    found = projection_weighted(x[None, None], y[None, None], 0, torch.float64)
    assert float(found) == pytest.approx(reference_pwcca(x.numpy(), y.numpy()), abs=1e-9)


def test_canonical_correlations_of_another_library() -> None:
    linear = pytest.importorskip("cca_zoo.linear")
    x, y = outputs(60, 1), outputs(60, 1, seed=1)
    x = torch.cat([x + y, outputs(60, 1, seed=3)], 1)
    model = linear.CCA(n_components=1).fit((x.numpy(), y.numpy()))
    expected = float(model.score((x.numpy(), y.numpy())))
    found = projection_weighted(
        y[None, None], x[None, None], 0, torch.float64
    )  # one direction: no weights
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_turned_and_shifted_outputs_are_aligned_and_noise_is_not() -> None:
    x = outputs(20, 1, 30, 8)
    turn = torch.linalg.qr(outputs(8, 8, seed=3)).Q
    same = 3 * x @ turn + 1
    other = outputs(20, 1, 30, 8, seed=4)
    for debiased in (True, False):
        assert float(linear_cka(x, same, debiased).min()) == pytest.approx(1)
    assert float(projection_weighted(x, same, 4, torch.float64).min()) == pytest.approx(1)
    noise = linear_cka(x, other, True)[:, 0, 0]
    error = float(noise.std() / len(noise) ** 0.5)
    assert abs(float(noise.mean())) < 4 * error
    assert float(linear_cka(x, other, False).mean()) > 0.15  # what debiasing removes


def test_short_prompts_and_constant_outputs_have_no_alignment() -> None:
    layer = uniform(3)
    assert torch.isnan(value("cka", layer)).all()
    assert torch.isnan(value("pwcca", uniform(8))).all()  # not more than twice 4 directions
    layer = uniform(12)
    layer.call.z = torch.ones(1, 2, 12, 4)
    assert torch.isnan(value("cka", layer)).all()
    assert torch.isnan(value("pwcca", layer)).all()


def test_rounding_is_no_direction() -> None:
    """Heads that read few different tokens have few directions; the others are rounding."""
    draw = torch.Generator().manual_seed(0)
    read = torch.randn(1, 2, 12, 2, generator=draw, dtype=torch.double)
    exact = read @ torch.randn(1, 2, 2, 8, generator=draw, dtype=torch.double)
    noise = torch.randn(exact.shape, generator=draw, dtype=torch.double)
    rounded = exact * (1 + 3e-8 * noise)  # as float32 activations are
    found = projection_weighted(rounded, rounded, 4, torch.float32)
    truth = projection_weighted(exact, exact, 2, torch.float64)
    torch.testing.assert_close(found, truth, rtol=0, atol=1e-5)
