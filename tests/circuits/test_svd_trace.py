"""Scores taken apart by singular vectors and writers, and circuits traced through them."""

from __future__ import annotations

from collections import defaultdict
from functools import partial

import numpy as np
import pytest
import torch
from zoo import FAMILIES

import interp
from interp import planted
from interp.circuits.find import find_circuit
from interp.circuits.head_evaluation import marked
from interp.circuits.linear_scores import CONSTANT, LinearScores
from interp.circuits.methods import exact_patching, svd_trace
from interp.circuits.methods._traced import trace
from interp.circuits.query_key_signals import Tracer, signals, writer_shares
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError, UnknownName, UnreadableAttention
from interp.core.rank_statistics import auroc
from interp.model.locate.probe import probe
from interp.model.locate.turning import turns

TRACED = (
    *("gpt2", "llama", "qwen3", "gemma2", "gemma3", "cohere", "stablelm", "gpt_oss", "phi3"),
    *("granite", "gptj", "gpt_neox", "falcon_alibi", "bloom", "opt", "olmo2", "modernbert"),
)


def ids(n: int = 12, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return {"input_ids": torch.randint(4, 60, (2, n), generator=generator)}


def loaded(name: str):
    return interp.load(FAMILIES[name].model("eager"))


@pytest.mark.parametrize("name", TRACED)
def test_what_writers_wrote_adds_up_to_the_product_of_query_and_key(name: str) -> None:
    model = loaded(name)
    scores = LinearScores(model, ids())
    for site in model.sites:
        q, k = scores.cache["q", site.layer], scores.cache["k", site.layer]
        for head, query, key in ((0, 5, 2), (site.n_heads - 1, 11, 7), (1, 9, 9)):
            read_q = scores.read(site, "q", head, 1, query)
            read_k = scores.read(site, "k", head, 1, key)
            core_q, core_k = scores.cores(site, head, 1, query, key)
            found = read_q.sum(0) @ core_q @ core_k.T @ read_k.sum(0)
            true = q[1, head, query] @ k[1, site.kv_head(head), key]
            assert float(found) == pytest.approx(float(true), rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama", "gemma2", "gpt_oss", "falcon_alibi"])
def test_attributions_of_the_weight_add_up_to_it(name: str) -> None:
    """To the weight less what it would be without any product: masks, biases and sinks alone."""
    model = loaded(name)
    found = signals(model, ids(), fires=0.3).found
    assert len(found) > 20
    cache = model.capture(ids(), ("q", "k", "scores", "pattern"))
    for s in list(found)[::7]:
        site = model.site(s.layer)
        q = cache["q", s.layer][s.row, s.head, s.query].double()
        k = cache["k", s.layer][s.row, site.kv_head(s.head)].double()
        raw = scale_of(model, site) * (k @ q)
        cap = getattr(model.config, "attn_logit_softcapping", None)
        capped = raw if cap is None else cap * torch.tanh(raw / cap)
        scores = cache["scores", s.layer][s.row, s.head, s.query].double()
        pattern = cache["pattern", s.layer][s.row, s.head, s.query].double()
        seen = pattern > 0
        # What the softmax divides by beside the keys: nothing, or a sink.
        whole = scores[seen].exp() / pattern[seen]
        rest = whole.mean() - scores[seen].exp().sum()
        without = (scores - capped)[seen].exp()
        zero = (scores - capped)[s.key].exp() / (without.sum() + rest)
        assert s.total == pytest.approx(s.weight - float(zero), abs=2e-3)
        assert s.weight == pytest.approx(float(pattern[s.key]), abs=1e-6)


def scale_of(model, site) -> float:
    from interp.model.locate.find_layout import layouts

    scale = layouts(model).sites[site].scale
    assert scale is not None
    return scale


def test_slices_are_those_of_the_head_written_out() -> None:
    """GPT-2: singular vectors of [W_Q; b_Q] [W_K; b_K]^T on normalised streams with a one added."""
    model = loaded("gpt2")
    found = [s for s in signals(model, ids(), fires=0.3, measure="score").found if s.layer == 1]
    assert len(found) > 10
    block = model.module.transformer.h[1]
    d = block.attn.head_dim
    gain, shift = (p.detach().double() for p in (block.ln_1.weight, block.ln_1.bias))
    weight, bias = (p.detach().double() for p in (block.attn.c_attn.weight, block.attn.c_attn.bias))
    stream = model.capture(ids(), ("resid_pre",))["resid_pre", 1].double()
    x = stream - stream.mean(-1, keepdim=True)
    x = x / (x.square().mean(-1, keepdim=True) + block.ln_1.eps).sqrt()
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1)
    width = gain.numel()
    for s in found:
        omega = []
        for part in (0, 1):
            at = slice(part * width + s.head * d, part * width + (s.head + 1) * d)
            w = gain[:, None] * weight[:, at]
            w = w - w.mean(0)  # what reads a centred stream
            omega.append(torch.cat([w, (shift @ weight[:, at] + bias[at])[None]]))
        left, values, right = torch.linalg.svd(omega[0] @ omega[1].T / d**0.5)
        parts = values[:d] * (x[s.row, s.query] @ left[:, :d]) * (right[:d] @ x[s.row, s.key])
        assert np.allclose(s.parts, parts.sort(descending=True).values.numpy(), atol=1e-4)


def test_a_turn_is_the_rotation_of_its_position() -> None:
    model = loaded("llama")
    given = {"input_ids": ids()["input_ids"]}
    d = model.sites[0].d_head
    angle = 10_000.0 ** (-torch.arange(0, d, 2) / d)
    for part in ("q", "k"):
        turn = turns(model, given)[model.sites[1], part]
        assert turn.shape == (1, 12, d, d)
        for pos in (0, 1, 7, 11):
            expected = torch.zeros(d, d)
            for i, a in enumerate((pos * angle).tolist()):
                j = i + d // 2
                expected[i, i] = expected[j, j] = np.cos(a)
                expected[i, j], expected[j, i] = np.sin(a), -np.sin(a)
            assert torch.allclose(turn[0, pos], expected, atol=1e-5)


@pytest.mark.parametrize("measure", ["score", "relative", "softmax"])
def test_both_sides_give_what_the_signal_is_made_of(measure: str) -> None:
    """Exactly, as the same slices are counted; for the score, what the chosen slices sum to."""
    for s in signals(loaded("qwen3"), ids(), fires=0.3, measure=measure).found:
        if measure != "softmax":
            running = s.parts.cumsum()
            assert running[s.chosen - 1] >= s.total * (1 - 1e-5)
            assert (running[: s.chosen - 1] < s.total).all()
        size = np.abs(s.parts).sum()
        assert s.by_query.sum() == pytest.approx(s.parts[: s.chosen].sum(), abs=1e-4 * size)
        if measure == "score":  # the key's side of the other measures counts this key alone
            assert s.by_key.sum() == pytest.approx(s.parts[: s.chosen].sum(), abs=1e-4 * size)
        assert sum(s.shares("k").values()) == pytest.approx(1.0)
        assert len(s.by_key) == len(s.writers) + 1


def capped(x: torch.Tensor, cap: float | None) -> torch.Tensor:
    return x if cap is None else cap * torch.tanh(x / cap)


def weight_of(products, rest, cap, sink, key: int, amount, more=0.0) -> torch.Tensor:
    """The weight on a key, of so much of each slice, and of more product with each key."""
    scores = capped(amount @ products + more, cap) + rest
    return (scores if sink is None else torch.cat([scores, sink])).softmax(-1)[key]


@pytest.mark.parametrize("name", ["gpt2", "gemma2", "gpt_oss"])
def test_slices_are_ranked_and_chosen_as_derivatives_and_forwards_say(name: str) -> None:
    """The weight as a function of how much of each slice is there, differentiated by autograd."""
    model = loaded(name)
    tracer = Tracer(LinearScores(model, ids()), fires=0.4)
    cap = getattr(model.config, "attn_logit_softcapping", None)
    n = 0
    for site in model.sites:
        sinks = getattr(model.module.get_submodule(site.module), "sinks", None)
        for row, head, query, key in tracer.firings(site)[::9].tolist():
            read = tracer.scores.read(site, "q", head, row, query).sum(0).double()
            core_q, core_k = (x.double() for x in tracer.scores.cores(site, head, row, query, key))
            scale = tracer.scores.scale(site)
            left = torch.linalg.svd(core_q @ core_k.T * scale)[0][:, : core_q.shape[1]]
            keys = tracer.scores.cache["k", site.layer][row, site.kv_head(head)].double()
            # [slice, key]: the query along each slice, times the slice with every key
            products = (read @ left)[:, None] * ((left.T @ core_q) @ keys.T) * scale
            scores = tracer.scores.cache["scores", site.layer][row, head, query].double()

            rest = scores - capped(products.sum(0), cap)
            sink = None if sinks is None else sinks.detach().double()[head, None]
            weight = partial(weight_of, products, rest, cap, sink, key)
            total, slope = torch.zeros(len(products)).double(), 0.0
            for step in range(100):
                amount = torch.full((len(products),), (step + 0.5) / 100).double()
                more = torch.zeros(products.shape[1]).double().requires_grad_(True)
                amount.requires_grad_(True)
                by = torch.autograd.grad(weight(amount, more), (amount, more))
                total, slope = total + by[0] / 100, slope + float(by[1][key]) / 100
            order = total.argsort(descending=True)
            left_over, chosen = torch.ones(len(products), dtype=torch.double), 0
            for i in order.tolist():
                left_over[i] = 0
                chosen += 1
                if float(weight(left_over)) < 0.4:
                    break
            else:
                chosen = 0
            found = tracer.signal(site, row, head, query, key)
            assert (0 if found is None else found.chosen) == chosen
            if found is not None:
                assert np.allclose(found.parts, total[order].numpy(), atol=3e-3)
                through = slope * products[order[:chosen], key].sum()
                assert found.by_key.sum() == pytest.approx(float(through), rel=0.02, abs=3e-3)
                n += 1
    assert n > 10


@pytest.mark.slow
def test_every_induction_head_is_fed_by_the_previous_token_head() -> None:
    """The trace names it for every head, and patching each path in real forwards agrees."""
    model = interp.load("bundled:induction")
    task = make_contrast(model, "induction", n=16)
    exact = exact_patching(model, task, "edge")
    effect = dict(zip(exact.edges, exact.edges_per_prompt.mean(1), strict=True))
    for measure in ("score", "relative", "softmax"):
        found = svd_trace(model, task, "edge", measure=measure)
        first = {}
        for row in found.tables["upstream"]:
            if row["side"] == "key" and row["head"].startswith("L1"):
                first.setdefault(row["head"], row)
        assert len(first) >= 7
        for head, row in first.items():
            to_keys = {w: x for (w, r), x in effect.items() if r == f"{head}.k"}
            assert row["from"] == max(to_keys, key=to_keys.get) == "L0H3"
            assert row["share"] > 0.4


@pytest.fixture(scope="module")
def bystander():
    built = planted.bystander(layers=3, heads=8, kv_heads=4, vocab=48, context=64)
    return built, probe(built.model, "bystander, 24 heads")


@pytest.mark.slow
@pytest.mark.parametrize("measure", ["score", "relative", "softmax"])
def test_the_planted_circuit_and_nothing_else_is_traced(bystander, measure: str) -> None:
    """Also with rotary positions, grouped queries, and heads whose output only varies along."""
    built, model = bystander
    task = make_contrast(model, "induction", n=8)
    circuit = find_circuit(model, task, "svd_trace", "edge", measure=measure)
    (previous,), (induction,) = (
        [f"L{a}H{b}" for a, b in built.roles[role]] for role in ("previous_token", "induction")
    )
    score = dict(zip(circuit.nodes, circuit.score, strict=True))
    assert (
        auroc(
            np.array([score[h] for h in circuit.head_names]),
            marked(circuit.head_names, {previous, induction}),
        )
        == 1.0
    )
    assert score[induction] == pytest.approx(1.0)
    assert score[previous] == pytest.approx(0.5, abs=1e-6)
    others = [score[h] for h in circuit.head_names if h not in (previous, induction)]
    assert max(others) == 0.0
    assert (previous, f"{induction}.k") in circuit.edges


def test_nothing_is_traced_where_no_head_attends_to_one_token() -> None:
    model = interp.load("planted:noise")
    with pytest.raises(
        OptionError, match=r"traced nothing: on none of the 8 pairs .* 0.5 \(as req"
    ):
        svd_trace(model, make_contrast(model, "induction", n=8), "head", fires=0.5)


def test_relative_scores_lie_above_the_mean_over_the_keys_that_are_seen() -> None:
    model = loaded("llama")
    cache = model.capture(ids(), ("q", "k"))
    for s in signals(model, ids(), fires=0.3, measure="relative").found:
        site = model.site(s.layer)
        keys = cache["k", s.layer][s.row, site.kv_head(s.head), : s.query + 1]
        raw = keys @ cache["q", s.layer][s.row, s.head, s.query] * scale_of(model, site)
        assert s.total == pytest.approx(float(raw[s.key] - raw.mean()), rel=1e-4, abs=1e-4)


def test_upstream_heads_are_followed_where_they_wrote(bystander) -> None:
    """The previous-token head at the key that the induction head looks at, not at the query."""
    built, model = bystander
    task = make_contrast(model, "induction", n=4)
    (batch,) = task.batches()
    tracer = Tracer(LinearScores(model, batch.clean))
    (previous,), (induction,) = built.roles["previous_token"], built.roles["induction"]
    for row in range(4):
        end = len(batch.clean.ids[row]) - 1
        found = trace(tracer, row, {(f"L1H{induction[1]}", end): 1.0}, reach=0.7, known={})
        by_layer = {s.layer: s for s in found.signals}
        assert len(found.signals) == 2
        assert by_layer[1].query == end
        assert by_layer[0].head == previous[1]
        assert by_layer[0].query == by_layer[1].key == by_layer[0].key + 1


@pytest.mark.parametrize("fires", [0.5, 0.15])
def test_credit_is_passed_on_and_none_is_made(fires: float) -> None:
    """Also where a head fires on several keys, which share its credit."""
    model = interp.load("bundled:induction")
    task = make_contrast(model, "induction", n=6)
    found = svd_trace(model, task, "edge", reach=1.0, fires=fires)
    score = dict(zip(found.nodes, found.per_prompt, strict=True))
    into = defaultdict(lambda: np.zeros(6))
    for (_, reader), x in zip(found.edges, found.edges_per_prompt, strict=True):
        into[reader] += x
    assert np.allclose(into["logits"], 1.0)
    for head in (n for n in found.nodes if n.startswith("L")):
        for part in ("q", "k"):
            assert (into[f"{head}.{part}"] <= 0.5 * score[head] + 1e-9).all()
    # From layer 0 all goes to the embeddings and the constants.
    assert (score["embed"] > 0.2).all()
    for row in found.tables["upstream"]:
        assert row["from"] in (*found.nodes, CONSTANT)


def test_seeds_may_be_named_and_singular_slices_are_fewer_than_random_ones() -> None:
    model = interp.load("bundled:induction")
    task = make_contrast(model, "induction", n=8)
    found = svd_trace(model, task, "head", seeds="L1H6", measure="relative")
    score = dict(zip(found.nodes, found.per_prompt.mean(1), strict=True))
    assert score["L1H6"] == 1.0
    assert all(score[f"L1H{h}"] == 0 for h in (0, 1, 2, 3, 4, 5, 7))
    (control,) = svd_trace(model, task, "head", measure="relative").tables["controls"]
    assert control["singular"] < control["random"]


def test_what_cannot_be_traced_is_said() -> None:
    model = interp.load("bundled:induction")
    task = make_contrast(model, "induction", n=4)
    with pytest.raises(OptionError, match="measure='cosine'; known: score, relative, softmax"):
        svd_trace(model, task, "head", measure="cosine")
    with pytest.raises(OptionError, match="between 0 and 1"):
        svd_trace(model, task, "head", fires=1.5)
    with pytest.raises(OptionError, match="reach=0"):
        svd_trace(model, task, "head", reach=0.0)
    with pytest.raises(UnknownName, match="L7H0"):
        svd_trace(model, task, "head", seeds="L7H0")
    for name, why in (
        ("bert", "not the sum of embeddings"),
        ("t5", "one stream"),
        ("deepseek_v3", "not one matrix"),
        ("llama4_text", "one norm"),
        ("deberta", "sum of products"),
        ("albert", "several times"),
    ):
        with pytest.raises(UnreadableAttention, match=why):
            signals(loaded(name), ids())


def test_firings_become_a_table() -> None:
    found = signals(loaded("gpt2"), ids(), fires=0.3)
    table = found.to_pandas()
    assert len(table) == len(found)
    assert set(map(str, found.heads())) <= {f"L{a}H{b}" for a in range(3) for b in range(6)}
    assert (table["weight"] >= 0.3).all()
    assert (table["key"] > 0).all()
    assert len(signals(loaded("gpt2"), ids(), fires=0.3, first=True)) > len(found)
    assert "slices by softmax" in repr(found)


def test_signals_show_themselves(tmp_path) -> None:
    model = interp.load("bundled:induction")
    found = signals(model, make_contrast(model, "induction", n=4).clean)
    shares = writer_shares(found, "k")
    assert set(shares.columns) >= {"embed", "L0H3"}
    late = [h for h in shares.index if h.startswith("L1")]
    assert len(late) >= 6
    assert (shares.loc[late, "L0H3"] > 0.3).all()
    assert found.plot().data[0].z.shape == shares.shape
    with pytest.raises(OptionError, match="part 'v'"):
        writer_shares(found, "v")
    found.save_html(tmp_path / "signals.html")
    page = (tmp_path / "signals.html").read_text(encoding="utf-8")
    assert "L0H3" in page
    assert "content_hash" in page
    assert "firings" in found._repr_html_()
