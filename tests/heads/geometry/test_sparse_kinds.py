"""Sparse patterns, selection, spans and blocks at their analytic values."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from heads.geometry.layers import layer_of, patterned, uniform, value

import interp
from interp.core.errors import OptionError
from interp.core.prompts import Prompts
from interp.heads import minference_kinds
from interp.heads.geometry.minference import KINDS, kept_masses

T, SHARP = 40, 60.0
MARGINS = tuple(f"minference_{kind}" for kind in KINDS)
at = torch.arange(T)
behind = at[:, None] - at


def causal_uniform(v: torch.Tensor, heads: int = 1):
    return uniform(v.shape[2], heads=heads, v=v)


# --- blocks ---


def test_self_similarity_of_equal_opposite_and_orthogonal_keys() -> None:
    equal = torch.ones(1, 1, 8, 4)
    opposite = equal * torch.tensor([1, -1]).repeat(4)[None, None, :, None]
    orthogonal = torch.eye(4).repeat(2, 1)[None, None]
    for k, expected in ((equal, 1.0), (opposite, 0.0), (orthogonal, 0.25)):
        for part in "kq":
            found = value("block_self_similarity", layer_of(k, k), size=4, part=part)
            np.testing.assert_allclose(found, expected, atol=1e-6)
    short = value("block_self_similarity", layer_of(equal, equal), size=9)
    assert torch.isnan(short).all()
    with pytest.raises(OptionError, match="part is q or k"):
        value("block_self_similarity", layer_of(equal, equal), part="v")


def test_self_similarity_is_the_mean_of_the_gram_matrix() -> None:
    k = torch.randn(1, 1, 12, 5, generator=torch.Generator().manual_seed(0))
    rows = torch.nn.functional.normalize(k[0, 0].double(), dim=-1)
    gram = [(rows[i : i + 4] @ rows[i : i + 4].T).mean() for i in (0, 4, 8)]
    found = value("block_self_similarity", layer_of(k, k), size=4)
    np.testing.assert_allclose(found, float(torch.stack(gram).mean()), rtol=1e-6)


def test_self_similarity_of_unrelated_keys_is_the_diagonal() -> None:
    k = torch.randn(2, 2, 400, 256, generator=torch.Generator().manual_seed(1))
    found = value("block_self_similarity", layer_of(k, k), size=4)
    np.testing.assert_allclose(found, 0.25, atol=0.005)


# --- kinds of MInference ---


def planted_kinds() -> torch.Tensor:
    """Scores of an A-shape head, and of one with four columns and four diagonals."""
    a_shape = SHARP * ((at < 3).expand(T, T) | ((behind >= 0) & (behind < 3))).float()
    columns = torch.isin(at, torch.tensor([0, 3, 6, 9])).expand(T, T)
    diagonals = torch.isin(behind, torch.tensor([5, 8, 11, 14]))
    return torch.stack([a_shape, SHARP * (columns | diagonals).float()])[None]


def test_planted_heads_have_their_kinds() -> None:
    layer = patterned(planted_kinds())
    found = {name: value(name, layer, keys=8)[0] for name in MARGINS}
    assert -1e-6 <= found["minference_a_shape"][0] <= 0  # columns and diagonals do as well
    assert float(kept_masses(layer, 8)["a_shape"][0, 0]) > 0.999
    assert found["minference_vertical_slash"][1] > 0.1
    assert (found["minference_block_sparse"] <= 0).all()


def test_a_head_on_blocks_that_its_queries_choose_is_block_sparse() -> None:
    """Each block of queries asks for two other blocks of keys, and finds all of them."""
    size, d = 2, T // 2
    rng = np.random.default_rng(0)
    k = torch.zeros(1, 1, T, d)
    k[0, 0, at, at // size] = 1
    q = torch.zeros(1, 1, T, d)
    for block in range(d):
        wanted = rng.choice(block + 1, min(2, block + 1), replace=False)
        q[0, 0, block * size : (block + 1) * size, wanted] = SHARP
    layer = layer_of(q, k)
    found = {name: float(value(name, layer, keys=8)) for name in MARGINS}
    assert found["minference_block_sparse"] > 0.3
    assert float(kept_masses(layer, 8)["block_sparse"]) > 0.97


def test_even_attention_keeps_its_share_of_keys_with_every_kind() -> None:
    masses = kept_masses(uniform(T, heads=1), 8)
    rows = range(8, T - 8)  # the query at t sees t + 1 keys
    even = np.mean([8 / (t + 1) for t in rows])
    assert float(masses["a_shape"]) == pytest.approx(even, abs=1e-6)
    for kind in KINDS:
        assert float(masses[kind]) <= even + 1e-6
        assert float(masses[kind]) > 0.2 * even


def test_kinds_of_a_table() -> None:
    model = interp.load("bundled:induction")
    ids = np.random.default_rng(0).integers(5, 60, (6, 40)).tolist()
    table = interp.score(model, MARGINS, Prompts(tuple(map(tuple, ids))), null="none")
    frame = minference_kinds(table)
    assert len(frame) == sum(site.n_heads for site in model.sites)
    assert set(frame["kind"]) <= set(KINDS)
    wide = table.to_pandas().pivot(index=["layer", "head"], columns="metric", values="score")
    for row in frame.itertuples():
        scores = wide.loc[(row.layer, row.head)]
        simple = scores["minference_a_shape"] >= -0.01
        assert row.kind == "a_shape" if simple else scores.idxmax() == f"minference_{row.kind}"
        assert not row.clear or row.low > (-0.01 if simple else 0)
        assert row.margin == pytest.approx(scores[f"minference_{row.kind}"])
    with pytest.raises(OptionError, match="has no minference_a_shape"):
        minference_kinds(interp.score(model, MARGINS[1:], [ids[0]], null="none"))


def test_too_short_prompts_and_bad_budgets() -> None:
    layer = uniform(4)
    assert all(torch.isnan(value(name, layer)).all() for name in MARGINS)
    with pytest.raises(OptionError, match="at least 4"):
        value("minference_a_shape", layer, keys=3)


# --- selection ---


def test_a_head_on_one_key_selects_it_wholly() -> None:
    v = torch.randn(1, 1, 12, 6, generator=torch.Generator().manual_seed(0))
    layer = patterned(SHARP * torch.eye(12)[None, None], v=v / v.norm(dim=-1, keepdim=True))
    np.testing.assert_allclose(value("selection_distance", layer, number=1), 1.0, atol=1e-6)
    np.testing.assert_allclose(value("selection_share", layer, number=1), 1.0)


def test_even_attention_over_equal_values_tells_nothing_apart() -> None:
    layer = causal_uniform(torch.ones(1, 1, 12, 3))
    assert value("selection_share", layer).tolist() == [[0.0]]
    expected = np.mean([abs(1 - 2 * 4 / n) for n in range(9, 13)])
    np.testing.assert_allclose(value("selection_distance", layer), expected, atol=1e-6)


def test_even_attention_over_orthogonal_values_falls_with_the_root_of_their_number() -> None:
    layer = causal_uniform(torch.eye(12)[None, None])
    expected = np.mean([n**-0.5 for n in range(9, 13)])
    np.testing.assert_allclose(value("selection_distance", layer), expected, atol=1e-6)
    np.testing.assert_allclose(value("selection_share", layer), 1.0)
    with pytest.raises(OptionError, match="at least 1"):
        value("selection_share", layer, number=0)


def test_selection_against_a_loop() -> None:
    rng = torch.Generator().manual_seed(3)
    q, k, v = (torch.randn(1, 1, 14, 5, generator=rng) for _ in range(3))
    layer, number = layer_of(q, k, v), 3
    pattern, x = layer.call.pattern()[0, 0].double().numpy(), v[0, 0].double().numpy()
    distances, shares = [], []
    for row in range(2 * number, 14):
        a = pattern[row, : row + 1]
        best = np.argsort(-a)[:number]
        others = [i for i in range(row + 1) if i not in best]
        s = (a[best, None] * x[best]).sum(0)
        rest = (a[others, None] * x[others]).sum(0)
        distances.append(np.linalg.norm(rest - s) / np.linalg.norm(x[: row + 1], axis=1).max())
        radius = min(np.linalg.norm(a[i] * x[i] - s) for i in others)
        shares.append(np.mean([np.linalg.norm(a[i] * x[i] - s) < radius for i in best]))
    found = value("selection_distance", layer, number=number)
    np.testing.assert_allclose(found, np.mean(distances), rtol=1e-5)
    found = value("selection_share", layer, number=number)
    np.testing.assert_allclose(found, np.mean(shares), rtol=1e-9)


# --- spans ---


def test_spans_of_planted_heads() -> None:
    """A distance d needs the span d - ramp (1 - share / mass), since the slope lies beyond it."""
    itself = SHARP * (behind == 0).float()
    back = SHARP * ((behind == 10) | ((behind == at[:, None]) & (at[:, None] < 10))).float()
    layer = patterned(torch.stack([itself, back])[None])
    for ramp in (1, 4):
        found = value("adaptive_span", layer, ramp=ramp)[0]
        assert float(found[0]) == 0
        short = sum(range(1, 10)) / T  # rows 1 to 9 attend t back, all others 10 back
        assert 10 - ramp - 1e-6 < float(found[1]) < 10
        assert short > 0
    with pytest.raises(OptionError, match="ramp of 1"):
        value("adaptive_span", layer, ramp=0)


def test_the_mask_of_the_span_keeps_the_share() -> None:
    rng = torch.Generator().manual_seed(4)
    q, k = (torch.randn(1, 2, 30, 4, generator=rng) for _ in range(2))
    layer = layer_of(q, k)
    pattern = layer.call.pattern()[0].double()
    far = (torch.arange(30)[:, None] - torch.arange(30)).abs().double()
    for share in (0.5, 0.9):
        for head, span in enumerate(value("adaptive_span", layer, ramp=3, share=share)[0]):
            mask = ((3 + span - far) / 3).clamp(0, 1)
            kept = float((pattern[head] * mask).sum() / pattern[head].sum())
            assert kept == pytest.approx(share, abs=1e-9)
