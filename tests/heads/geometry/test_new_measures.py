"""Shares of entropy, clusters of keys, sinks that are biases, spans and keys that move on."""

from __future__ import annotations

import math

import pytest
import torch
from heads.geometry.layers import layer_of, patterned, uniform, value

from interp.core.errors import OptionError
from interp.heads.geometry.selection import selectable
from interp.heads.geometry.token_similarity import opened

FAR = 40.0


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def attending(keep, tokens: int = 24) -> torch.Tensor:
    """Scores of a head that attends evenly to the keys that `keep(query, key)` names."""
    at = torch.arange(tokens)
    kept = keep(at[:, None], at[None, :]) & (at[None, :] <= at[:, None])
    return torch.where(kept, FAR, 0.0)[None, None]


@pytest.mark.parametrize("tokens", [6, 30])
def test_even_attention_has_the_whole_entropy_at_any_length(tokens) -> None:
    assert float(value("entropy_share", uniform(tokens)).min()) == pytest.approx(1)
    own = patterned(attending(lambda query, key: key == query, tokens))
    assert float(value("entropy_share", own)) == pytest.approx(0, abs=1e-9)
    two = value("entropy_share", patterned(attending(lambda q, k: k >= q - 1, tokens)))
    wanted = sum(math.log(2) / math.log(n) for n in range(2, tokens + 1)) / (tokens - 1)
    assert float(two) == pytest.approx(wanted)


def test_keys_of_planted_clusters_are_counted() -> None:
    centres = 10 * torch.eye(4, dtype=torch.double)
    k = (centres.repeat(6, 1) + 0.01 * noise(24, 4))[None, None]
    layer = layer_of(k, k)
    assert float(value("key_clusters", layer)) == 4 / 24
    assert float(value("key_clusters", layer, radius=1e-6)) == 1
    assert float(value("key_clusters", layer, radius=9.0)) == 1 / 24
    with pytest.raises(OptionError, match="give a positive share"):
        value("key_clusters", layer, radius=0.0)


def test_a_key_opens_a_cluster_when_no_opened_key_is_near() -> None:
    """The third key is near the second alone, which belongs to the cluster of the first."""
    k = torch.tensor([0.0, 0.6, 1.2, 0.5], dtype=torch.double)[None, None, :, None]
    radius = 0.7 / float(k.std(correction=0))
    assert opened(k, radius)[0, 0].tolist() == [True, False, True, False]
    assert opened(k + 100, radius)[0, 0].tolist() == [True, False, True, False]


def test_the_margin_of_a_sink_by_loops() -> None:
    """Over queries that see the sink and other keys, and are not the sink itself."""
    q, k = noise(1, 1, 9, 4), noise(1, 1, 9, 4, seed=1)
    q[..., 0], k[:, :, 3, 0] = 3, 4
    scores, margins = (q @ k.mT)[0, 0], []
    for t in range(4, 9):
        margins.append(
            scores[t, 3] - torch.stack([scores[t, j] for j in range(t + 1) if j != 3]).mean()
        )
    margin = torch.stack(margins)
    wanted = float(margin.mean() / margin.square().mean().sqrt())
    assert float(value("sink_key_bias", layer_of(q, k))) == pytest.approx(wanted)


def test_a_key_that_is_a_bias_has_one_score_for_all_queries() -> None:
    tokens = 20
    q, k = 0.1 * noise(1, 1, tokens, 6), 0.1 * noise(1, 1, tokens, 6, seed=1)
    k[..., 0], q[..., 0] = 0, 3
    k[:, :, 0] = torch.tensor([3.0, 0, 0, 0, 0, 0])
    assert float(value("sink_key_bias", layer_of(q, k))) > 0.999
    q[:, :, ::2, 0] = -3.0  # every second query avoids the key
    assert abs(float(value("sink_key_bias", layer_of(q, k)))) < 0.2
    assert torch.isnan(value("sink_key_bias", uniform(8))).all()  # margins of zero have no sign
    assert torch.isnan(value("sink_key_bias", uniform(2))).all()


def spans_by_loops(pattern: torch.Tensor, width: int) -> float:
    shares = []
    for at in range(width, len(pattern) - width + 1):
        cut = [pattern[at + i, at - width : at].sum() for i in range(width)]
        own = [pattern[at + i, at : at + i + 1].sum() for i in range(width)]
        shares.append(float(sum(c / (c + o) for c, o in zip(cut, own, strict=True))) / width)
    mean = sum(shares) / len(shares)
    return math.sqrt(sum((x - mean) ** 2 for x in shares) / len(shares))


def test_attention_within_spans_crosses_no_end_and_a_window_crosses_all() -> None:
    spans = patterned(attending(lambda query, key: query // 8 == key // 8))
    found = float(value("triangle_spans", spans))
    assert found == pytest.approx(spans_by_loops(spans.call.pattern()[0, 0].double(), 4))
    assert found > 0.15
    assert float(value("triangle_spans", uniform(24)).max()) == pytest.approx(0, abs=1e-9)
    window = patterned(attending(lambda query, key: key > query - 4))
    assert float(value("triangle_spans", window)) == pytest.approx(0, abs=1e-9)
    drawn = layer_of(noise(1, 2, 24, 4), noise(1, 2, 24, 4, seed=1))
    for h in range(2):
        wanted = spans_by_loops(drawn.call.pattern()[0, h].double(), 3)
        assert float(value("triangle_spans", drawn, width=3)[0, h]) == pytest.approx(wanted)
    assert torch.isnan(value("triangle_spans", uniform(11))).all()
    with pytest.raises(OptionError, match="1 token or more"):
        value("triangle_spans", spans, width=0)


def test_keys_that_move_on_are_told_from_keys_that_last() -> None:
    steps = torch.tensor([0, 3, 6, 9])
    moving = patterned(attending(lambda q, k: ((q - k)[..., None] == steps).any(-1)))
    staying = patterned(attending(lambda q, k: (k[..., None] == steps).any(-1)))
    # from the query on which all four distances lie inside the prompt
    assert float(value("moving_keys", moving)) > 0.8
    assert float(value("lasting_keys", moving)) < 0.2
    assert float(value("moving_keys", staying)) < 0.2
    assert float(value("lasting_keys", staying)) > 0.8
    assert float(value("moving_keys", moving, step=3)) < 0.2


def moved_by_loops(pattern: torch.Tensor, k: int, step: int) -> float:
    shares = []
    for t in range(k + 1, len(pattern)):
        now, before = (set(pattern[i, : i + 1].topk(k).indices.tolist()) for i in (t, t - 1))
        shares.append(len(now & {key + step for key in before}) / k)
    return sum(shares) / len(shares)


@pytest.mark.parametrize("step", [1, 2])
def test_keys_that_move_on_are_those_of_the_row_before(step) -> None:
    drawn = layer_of(noise(1, 2, 12, 4), noise(1, 2, 12, 4, seed=1))
    for h in range(2):
        wanted = moved_by_loops(drawn.call.pattern()[0, h].double(), 3, step)
        found = value("moving_keys", drawn, k=3, step=step)[0, h]
        assert float(found) == pytest.approx(wanted)


def test_a_first_token_that_looks_at_itself_rests() -> None:
    assert float(value("cls_rest", uniform(10, causal=False))[0, 0]) == pytest.approx(0.2)
    assert float(value("cls_rest", uniform(10))[0, 0]) == 1
    scores = torch.zeros(1, 1, 10, 10)
    scores[..., 0, 4] = FAR
    assert float(value("cls_rest", patterned(scores, causal=False))) < 1e-6
    for key in range(10):
        scores = torch.zeros(1, 1, 10, 10)
        scores[..., 0, key] = FAR
        rests = float(value("cls_rest", patterned(scores, causal=False)))
        assert rests == pytest.approx(float(key in (0, 9)), abs=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_norm_makes_every_key_selectable(seed) -> None:
    """Keys of one length are corners of their hull: the scale that LayerNorm gives."""
    x = noise(30, 3, seed=seed)
    assert not selectable(x.numpy()).all()
    assert selectable((x / x.norm(dim=-1, keepdim=True)).numpy()).all()


def test_a_mean_that_is_taken_off_can_be_attended_evenly() -> None:
    """Keys without a part along ones: a query of ones gives all of them one score."""
    x = noise(30, 6)
    keys = x - x.mean(-1, keepdim=True)
    assert float((keys @ torch.ones(6, dtype=torch.double)).abs().max()) < 1e-12
    assert float((x @ torch.ones(6, dtype=torch.double)).std()) > 1
