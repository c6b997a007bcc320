"""Heads by position, and scores on repeated tokens: planted heads, and chance by formula."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from sklearn.metrics import roc_auc_score

import interp
from interp import planted
from interp.core.errors import OptionError, PromptError
from interp.core.registry import METRICS
from interp.heads.experiments.item_position import at_ends, by_slot
from interp.heads.experiments.repeats import per_group
from interp.heads.experiments.retrieval_gates import _area
from interp.heads.trials import Lab

POSITIONAL = ("previous_token", "offset", "local_window")


@pytest.fixture(scope="module")
def scores(zoo_model) -> dict[str, dict[tuple[int, int], float]]:
    names = ["echo", "razor_induction", "retrieval_gates", "recency", "streaming"]
    names += [f"item_position{end}" for end in ("", ":end=first", ":end=last")]
    rows = interp.score(zoo_model, names, null="none").to_pandas()
    return {
        name: {(int(r.layer), int(r.head)): float(r.score) for r in part.itertuples()}
        for name, part in rows.groupby("metric", observed=True)
    }


def heads(built: planted.Planted, *roles: str) -> set[tuple[int, int]]:
    return {head for role in roles for head in built.roles[role]}


@pytest.mark.parametrize(
    ("metric", "roles", "sign"),
    [
        ("echo", ("duplicate_token",), 1),
        # copy suppression looks where the predicted token stands: on repeats, the same place
        ("razor_induction", ("induction", "bystander", "copy_suppression"), 1),
        ("retrieval_gates", POSITIONAL, -1),
        # the offset of three tokens falls outside the last quarter of short prompts
        ("recency", ("previous_token", "local_window", "offset"), 1),
        ("streaming", (*POSITIONAL, "sink", "backup"), 1),
    ],
)
def test_planted_heads_come_first_and_no_others(metric, roles, sign, planted_zoo, scores) -> None:
    found, wanted = scores[metric], heads(planted_zoo, *roles)
    if metric == "retrieval_gates":
        # without a copy to go to, where this head looks does depend on the distance
        found = {h: s for h, s in found.items() if h not in heads(planted_zoo, "duplicate_token")}
    labels = [h in wanted for h in found]
    assert roc_auc_score(labels, [sign * s for s in found.values()]) == 1
    best = [s for h, s in found.items() if h in wanted]
    if metric == "retrieval_gates":
        assert max(best) < 0.1
        # heads that choose by content have no preference by distance
        assert found[planted_zoo.roles["induction"][0]] == pytest.approx(0.5 + 1 / 96, abs=0.01)
    else:
        assert min(best) > (0.6 if metric == "recency" else 0.9)


def even(n: int) -> torch.Tensor:
    return torch.ones(n, n).tril() / torch.arange(1, n + 1)[:, None]


def test_random_weights_echo_at_the_rate_of_even_attention(zoo_model) -> None:
    """Mean over rows from the second copy on of (copies before) / (row + 1)."""
    rows = interp.score(zoo_model, ["echo", "razor_induction"], null="random-init").to_pandas()
    given = interp.core.prompts.repeats(zoo_model, n=12, max_length=12, copies=4)
    chance = []
    for ids in given.ids:
        period = (len(ids) - 1) // 4
        t = np.arange(1 + period, len(ids))
        chance.append(np.mean(((t - 1) // period) / (t + 1)))
    assert rows["null"].to_numpy() == pytest.approx(np.mean(chance), rel=1e-3)


def test_even_attention_on_two_copies_of_fifty() -> None:
    """[BOS] r r with r of 50: the mean of 1 / (row + 1) over the second copy is 0.013569."""
    model = interp.load(planted.noise(layers=1, heads=2, kv_heads=1, context=128).model, name="n")
    metrics = [f"{name}:copies=2,period=50,trials=1" for name in ("echo", "razor_induction")]
    rows = interp.score(model, metrics, null="random-init").to_pandas()
    assert rows["null"].to_numpy() == pytest.approx(0.013569, abs=1e-6)


def test_echo_is_duplicate_token_on_distinct_tokens(zoo_model) -> None:
    given = interp.core.prompts.repeats(zoo_model, n=12, max_length=12, copies=4, seed=0)
    detectors = interp.score(zoo_model, ["duplicate_token", "induction"], given, null="none")
    frame = interp.score(zoo_model, ["echo", "razor_induction"], null="none").to_pandas()
    want = detectors.to_pandas()["score"].to_numpy()
    assert frame["score"].to_numpy() == pytest.approx(want, abs=1e-6)


def test_groups_share_their_largest_or_their_mean(zoo_model) -> None:
    site = zoo_model.sites[0]
    assert (site.n_heads, site.n_kv_heads) == (8, 4)
    x = torch.arange(8.0)[None]
    assert per_group(x, site, "max").tolist() == [[1, 1, 3, 3, 5, 5, 7, 7]]
    assert per_group(x, site, "mean").tolist() == [[0.5, 0.5, 2.5, 2.5, 4.5, 4.5, 6.5, 6.5]]


class Scored:
    """An attention call with given scores."""

    def __init__(self, scores: torch.Tensor):
        self.given, self.z = scores[None], torch.zeros(1, len(scores), scores.shape[-1], 1)
        self.n_heads = len(scores)

    def scores(self, rows):
        return self.given[:, :, rows]

    def visible(self, rows):
        return (torch.arange(self.z.shape[2]) <= rows[:, None])[None, None]


def test_area_of_scores_that_depend_on_distance_alone() -> None:
    """softmax over n distances, cumulated from the oldest: by hand, and 1/2 + 1/(2n) if flat."""
    n, length = 8, 20
    at = torch.arange(length)
    distance = (at[:, None] - at).clamp_min(0).double()
    decay = -0.3 * distance
    given = torch.stack([torch.zeros_like(decay), decay, -decay, -1e4 * (distance != 0)])
    found = _area(Scored(given), n, 1)  # type: ignore[arg-type]
    weights = torch.softmax(-0.3 * torch.arange(n).double(), 0)
    old = weights.flip(0).cumsum(0).mean()
    young = weights.cumsum(0).mean()
    assert found.tolist() == pytest.approx([0.5 + 1 / (2 * n), float(old), float(young), 1 / n])


def test_area_leaves_skipped_keys_out() -> None:
    given = torch.zeros(1, 12, 12)
    given[..., 0] = 50.0  # a sink
    assert float(_area(Scored(given), 6, 1)[0]) == pytest.approx(0.5 + 1 / 12)  # type: ignore[arg-type]
    assert float(_area(Scored(given), 6, 0)[0]) > 0.6  # type: ignore[arg-type]


def test_recency_of_an_even_spread_is_the_share_at_any_length() -> None:
    recency = METRICS.load("recency")
    for n in (64, 256):
        at = np.arange(n)
        target = recency.predicate(at[:, None], at[None, :], share=0.25)
        rows = target.any(1)
        score = (even(n).numpy() * target).sum(1)[rows].mean()
        want = np.mean([-(-(t + 1) // 4) / (t + 1) for t in range(4, n)])
        assert score == pytest.approx(want, abs=1e-6)
        assert rows[:4].sum() == 0
        assert rows[4:].all()


def test_streaming_counts_what_a_cache_would_keep() -> None:
    streaming = METRICS.load("streaming")
    at = np.arange(30)
    target = streaming.predicate(at[:, None], at[None, :], first=2, last=5)
    assert (target[7:].sum(1) == 7).all()
    assert not target[:7].any()


def test_every_item_stands_at_every_place(zoo_model) -> None:
    seen = []
    shares = by_slot(
        zoo_model, Lab(0, lambda *x: seen.append(x[1])), items=4, size=3, orders=8, question=1
    )
    assert seen == list(range(1, 9))
    for x in shares.values():
        assert x.shape == (8, zoo_model.n_heads, 4)
        torch.testing.assert_close(x.sum(-1), torch.ones(8, zoo_model.n_heads).double())


def test_heads_that_look_at_one_end_are_no_basins(planted_zoo, scores) -> None:
    """All their attention to items is on the last one; the sum of both ends would be 1."""
    for head in heads(planted_zoo, *POSITIONAL):
        assert scores["item_position:end=last"][head] > 0.9
        assert scores["item_position:end=first"][head] < 0.05
        assert scores["item_position"][head] < 0.05
    both, first, last = (
        np.array(list(scores[f"item_position{end}"].values()))
        for end in ("", ":end=first", ":end=last")
    )
    np.testing.assert_array_equal(both, np.minimum(first, last))


def test_a_planted_basin_comes_first() -> None:
    """Keys read a position vector that marks the first and the last item; queries are constant."""
    items, size, question = 4, 3, 2
    n = items * size
    config = transformers.GPT2Config(
        vocab_size=60,
        n_positions=n + question,
        n_embd=16,
        n_layer=1,
        n_head=4,
        bos_token_id=None,
        eos_token_id=None,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = transformers.GPT2LMHeadModel(config).eval()
    at = torch.arange(n + question)
    marked = [(at < size) | ((at >= n - size) & (at < n)), at < size, (at >= n - size) & (at < n)]
    with torch.no_grad():
        attention, width = module.transformer.h[0].attn, config.n_embd
        module.transformer.wte.weight.mul_(0.01)
        module.transformer.wpe.weight.zero_()
        for head, where in enumerate(marked):  # both ends, the first, the last; and a random head
            module.transformer.wpe.weight[:, head] = 2.0 * where - 1
            attention.c_attn.weight[:, 4 * head] = 0
            attention.c_attn.bias[4 * head] = 4  # the query
            attention.c_attn.weight[:, width + 4 * head] = 0
            attention.c_attn.weight[head, width + 4 * head] = 4  # the key
    model = interp.load(module, name="basin")
    options = f"items={items},orders={items},question={question},size={size}"
    found = {}
    for end in ("both", "first", "last"):
        table = interp.score(model, f"item_position:end={end},{options}", null="none")
        found[end] = table.matrix(table.metrics[0])[0]
    assert found["both"][0] == pytest.approx(0.5, abs=0.02)
    assert found["both"][1:3].max() < 0.02
    assert found["first"][:3] == pytest.approx([0.5, 1, 0], abs=0.02)
    assert found["last"][:3] == pytest.approx([0.5, 0, 1], abs=0.02)
    assert found["both"][3] == pytest.approx(1 / items, abs=0.1)


def test_the_smaller_end_is_chosen_from_the_means() -> None:
    """Content decides order by order, place does not: 1/2 at each end, not the 0 of each order."""
    shares = torch.zeros(4, 1, 3)
    shares[::2, 0, 0] = shares[1::2, 0, -1] = 1
    assert at_ends(shares).mean(0).tolist() == [0.5]
    assert at_ends(shares, "first")[:, 0].tolist() == [1, 0, 1, 0]


def test_an_even_spread_over_items_scores_one_place(zoo_model) -> None:
    rows = interp.score(zoo_model, "item_position:items=5", null="random-init").to_pandas()
    assert rows["null"].to_numpy() == pytest.approx(1 / 5, abs=1e-3)


@pytest.mark.parametrize(
    ("metric", "error", "says"),
    [
        ("item_position:items=2", OptionError, "items must be at least 3"),
        ("item_position:size=0", OptionError, "size=0"),
        ("item_position:end=middle", OptionError, "known: both, first, last"),
        ("item_position:size=100", PromptError, "take 603 positions; zoo has 160"),
        ("retrieval_gates:skip=-1", OptionError, "skip=-1"),
        ("retrieval_gates:skip=159", PromptError, "leaves fewer than 2"),
        ("razor_induction:trials=0", OptionError, "trials=0"),
        ("echo:period=1", PromptError, "period=1"),
    ],
)
def test_options_out_of_range(metric, error, says, zoo_model) -> None:
    with pytest.raises(error, match=says) as caught:
        interp.score(zoo_model, metric)
    assert "\n" not in str(caught.value)
