"""Static and dynamic attention: GAT is static; GATv2 and dot products are not."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr

from interp.core.errors import OptionError, PromptError
from interp.text.graphs import graph_of, over_layers, static_heads, static_layers
from interp.text.graphs.static import row_agreement
from training.graphs import GraphAttention, GraphTransformer, lookup


def features(n: int = 12, d: int = 6) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("seed", range(3))
def test_gat_is_static_whatever_its_weights(seed) -> None:
    layer = GraphAttention(6, 4, heads=3, kind="gat", seed=seed)
    found = static_layers([layer.scores(features()).detach()])
    np.testing.assert_allclose(found.per_prompt, 1)
    assert (found.same_top == 1).all()


@pytest.mark.parametrize("seed", range(3))
def test_gatv2_and_dot_products_are_dynamic(seed) -> None:
    x = features()
    layer = GraphAttention(6, 4, heads=3, kind="gatv2", seed=seed)
    second = static_layers([layer.scores(x).detach()])
    # with random weights GATv2 is near static, but no head of it is
    assert second.per_prompt.max() < 0.99
    assert second.per_prompt.mean() < 0.95
    _, patterns = GraphTransformer(6, heads=2, sparse=False, seed=seed)(x, torch.ones(12, 12) > 0)
    third = static_layers([p.detach() for p in patterns])
    assert np.abs(third.per_prompt).max() < 0.15


def test_agreement_is_the_mean_rank_correlation_of_keys_that_both_queries_see() -> None:
    rng = np.random.default_rng(1)
    scores, seen = rng.exponential(size=(2, 5, 9)) ** 2, rng.random((5, 9)) < 0.8
    found, top, null = row_agreement(scores, seen)
    pairs = [(i, j, seen[i] & seen[j]) for i in range(5) for j in range(i)]
    for head, x in enumerate(scores):
        want = np.mean([spearmanr(x[i, both], x[j, both])[0] for i, j, both in pairs])
        assert found[head] == pytest.approx(want)
        same = [x[i, both].argmax() == x[j, both].argmax() for i, j, both in pairs]
        assert top[head] == pytest.approx(np.mean(same))
    assert null == pytest.approx(np.mean([1 / both.sum() for *_, both in pairs]))


def test_heads_are_compared_on_the_keys_before_all_queries(planted_induction) -> None:
    ids = (0, 5, 9, 3, 7, 5, 9, 4, 8, 6)
    found = static_heads(planted_induction, [ids], rows=3)
    scores = planted_induction.capture([ids], ["scores"])
    for layer in (0, 1):
        x = scores["scores", layer][0, :, -3:, :7].double().numpy()
        want = row_agreement(x, np.ones((3, 7), dtype=bool))[0]
        np.testing.assert_allclose(found.per_prompt[4 * layer : 4 * layer + 4, 0], want, atol=1e-6)


@pytest.mark.parametrize("kind", ["gat", "gatv2"])
def test_layers_are_the_published_formulas_by_loops(kind) -> None:
    layer, x = GraphAttention(6, 4, heads=2, kind=kind, seed=3), features(5)
    left, right, a, b = (w.detach() for w in (layer.left, layer.right, layer.a_left, layer.a_right))
    scores = torch.zeros(2, 5, 5)
    for h, i, j in np.ndindex(2, 5, 5):
        one, other = left[h] @ x[i], right[h] @ x[j]
        leaky = lambda t: torch.where(t > 0, t, 0.2 * t)  # noqa: E731
        scores[h, i, j] = (
            leaky(a[h] @ one + b[h] @ other) if kind == "gat" else a[h] @ leaky(one + other)
        )
    torch.testing.assert_close(layer.scores(x).detach(), scores)
    out, attention = layer(x, torch.ones(5, 5, dtype=torch.bool))
    torch.testing.assert_close(attention.detach(), scores.softmax(-1))
    want = torch.cat([scores[h].softmax(-1) @ x @ right[h].T for h in range(2)], 1)
    torch.testing.assert_close(out.detach(), want)


def test_random_rankings_score_the_null() -> None:
    scores = np.random.default_rng(0).random((40, 12, 12))
    found = static_layers([scores])
    assert abs(found.per_prompt.mean()) < 0.02
    assert found.same_top.mean() == pytest.approx(found.top_null[0], abs=0.02)


def test_the_planted_lookup_attends_to_its_own_key() -> None:
    keys = 8
    layer, x = lookup(keys), torch.eye(keys)
    _, attention = layer(x, torch.ones(keys, keys, dtype=torch.bool))
    torch.testing.assert_close(attention[0], torch.eye(keys), atol=1e-6, rtol=0)
    found = static_layers([layer.scores(x).detach()])
    assert found.same_top.max() == 0


def test_the_planted_graph_transformer_shows_similarity_and_not_edges() -> None:
    """Two groups of nodes with similar features, and edges that do not follow the groups."""
    rng = np.random.default_rng(0)
    group = np.arange(16) % 2
    x = torch.tensor(np.eye(2)[group] + 0.05 * rng.normal(size=(16, 2)), dtype=torch.float32)
    edges = np.triu(rng.random((16, 16)) < 0.3, 1)
    adjacency = torch.tensor(edges | edges.T)
    model = GraphTransformer(2, layers=1, heads=1, sparse=False, planted=True)
    _, patterns = model(x, adjacency)
    graph = graph_of(over_layers([p.detach().numpy() for p in patterns]))
    assert graph.against(group[:, None] == group[None, :])["auroc"] > 0.99
    plain = graph.against(adjacency.numpy())
    assert plain["auroc_p"] > 0.01
    sparse, alone = GraphTransformer(2, layers=1, heads=1, seed=1)(x, adjacency)
    assert (
        graph_of(over_layers([p.detach().numpy() for p in alone]), seen=np.ones((16, 16))).against(
            adjacency.numpy()
        )["auroc"]
        == 1
    )
    assert sparse.shape == x.shape


def test_nodes_without_neighbours_attend_to_nothing() -> None:
    adjacency = torch.zeros(12, 12, dtype=torch.bool)
    adjacency[1, 2] = True
    for kind in ("gat", "gatv2"):
        out, attention = GraphAttention(6, 4, kind=kind)(features(), adjacency)
        assert attention[0].sum() == attention[0, 1, 2] == 1
        assert not out[0].any()


def test_heads_of_a_transformer(planted_induction) -> None:
    """The induction head looks for another token from every query, so it ranks keys differently."""
    from interp.core.prompts import repeats

    prompts = repeats(planted_induction, n=3, max_length=24)
    found = static_heads(planted_induction, prompts, rows=6)
    frame = found.to_pandas().set_index(["layer", "head"])
    assert abs(frame.loc[(1, 0), "score"]) < 0.35
    assert found.per_prompt.shape == (8, 3)
    assert frame["score"].max() <= 1
    with pytest.raises(PromptError, match="tokens; 100 queries"):
        static_heads(planted_induction, prompts, rows=100)
    with pytest.raises(OptionError, match="rows=1"):
        static_heads(planted_induction, prompts, rows=1)


def test_bad_sizes_of_graph_networks() -> None:
    with pytest.raises(OptionError, match="kind 'tea'"):
        GraphAttention(2, 2, kind="tea")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="not divisible"):
        GraphTransformer(3, heads=2)
    with pytest.raises(OptionError, match="three keys in common"):
        static_layers([np.ones((1, 2, 2))])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.jit, in torch-geometric
@pytest.mark.parametrize("kind", ["gat", "gatv2"])
@pytest.mark.skipif(
    importlib.util.find_spec("torch_geometric") is None,
    reason="torch-geometric is not installed; pip install --no-deps torch-geometric",
)
def test_layers_equal_those_of_torch_geometric(kind) -> None:
    from torch_geometric.nn import GATConv, GATv2Conv

    heads, d_in, d_out, x = 3, 6, 4, features()
    adjacency = torch.rand(12, 12, generator=torch.Generator().manual_seed(1)) < 0.4
    own = GraphAttention(d_in, d_out, heads, kind=kind, seed=2)
    make = GATConv if kind == "gat" else GATv2Conv
    other = make(d_in, d_out, heads, add_self_loops=False, bias=False)
    with torch.no_grad():
        if kind == "gat":
            other.lin.weight.copy_(own.right.flatten(0, 1))
            other.att_dst.copy_(own.a_left[None])
            other.att_src.copy_(own.a_right[None])
        else:
            other.lin_l.weight.copy_(own.right.flatten(0, 1))
            other.lin_r.weight.copy_(own.left.flatten(0, 1))
            other.att.copy_(own.a_left[None])
        index = adjacency.T.nonzero().T  # neighbour, node
        expected, (index, alpha) = other(x, index, return_attention_weights=True)
        found, attention = own(x, adjacency)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(attention[:, index[1], index[0]].T, alpha, atol=1e-6, rtol=1e-5)
