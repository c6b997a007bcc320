"""Outliers of heads and layers, massive values, and calibrated attention."""

from __future__ import annotations

import copy
import math

import numpy as np
import pytest
import torch
import zoo
from scipy import stats

import interp
from interp import planted
from interp.causal import repeats_task
from interp.core.errors import OptionError, UnknownName
from interp.core.prompts import random_tokens
from interp.heads.outliers import (
    disruption,
    layer_outliers,
    massive,
    replace_channel,
    result_inf_norm,
    result_kurtosis,
)
from interp.heads.outliers.activations import kurtosis
from interp.heads.per_head import by_site
from interp.model.calls.call import ComputedCall
from interp.model.pattern_edits import calibrate


@pytest.fixture
def llama_to_change() -> interp.Model:
    return interp.load(copy.deepcopy(zoo.FAMILIES["llama"].model("sdpa")), name="llama")


PROMPTS = [[3, 9, 4, 17, 5, 11, 6, 13], [7, 3, 12, 8, 19, 4, 16, 10]]


def test_kurtosis_is_that_of_the_formula_and_3_for_a_gaussian() -> None:
    x = torch.randn(2, 4000, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    mine = kurtosis(x)
    np.testing.assert_allclose(mine, 3, atol=0.3)
    # scipy divides by the biased variance, the published code by the unbiased one
    want = stats.kurtosis(x.numpy(), axis=1, fisher=False) * (3999 / 4000) ** 2
    np.testing.assert_allclose(mine, want, rtol=1e-12)
    spike = torch.zeros(1, 1000, dtype=torch.double)
    spike[0, 3] = 1e-3
    assert float(kurtosis(spike)) == pytest.approx(997, rel=1e-2)
    assert float(kurtosis(spike, beside=1e-6)) < 1e-6  # the published floor hides a small spike
    assert float(kurtosis(torch.ones(1, 9))) == 0.0


def test_heads_results_are_measured_entry_by_entry(llama_to_change) -> None:
    cache = llama_to_change.capture(PROMPTS, ["result"])
    largest, shape = (
        result_inf_norm(llama_to_change, PROMPTS),
        result_kurtosis(llama_to_change, PROMPTS),
    )
    for site in llama_to_change.sites:
        result = cache["result", site.layer].double()
        want = result.abs().amax((1, 3))
        np.testing.assert_allclose(largest[site], want, rtol=1e-5)
        flat = result.transpose(1, 2).flatten(2).numpy()
        n = flat.shape[-1]
        want = stats.kurtosis(flat, axis=-1, fisher=False) * ((n - 1) / n) ** 2
        np.testing.assert_allclose(shape[site], want, rtol=1e-5)


def plant(llama: interp.Model, layer: int, dimension: int, value: float, token: int) -> None:
    """Make one layer's MLP write one large number, on every token: a massive activation."""
    down = llama.module.model.layers[layer].mlp.down_proj
    bias = torch.zeros(down.out_features)
    bias[dimension] = value
    down.bias = torch.nn.Parameter(bias)


def test_a_planted_massive_activation_is_found_where_it_is(llama_to_change) -> None:
    before = layer_outliers(llama_to_change, PROMPTS)
    assert {x.massive for x in before.layers} == {0}
    plant(llama_to_change, 0, 7, 5000.0, 3)
    model = interp.load(llama_to_change.module, name="llama")
    found = {(x.layer, x.name): x for x in layer_outliers(model, PROMPTS).layers}
    at = found[0, "mlp_out"]
    assert at.dimensions == (7,)
    assert at.massive == 16  # eight tokens of two prompts
    assert at.positions == tuple(range(8))
    assert at.largest == pytest.approx(5000, rel=1e-2)
    assert at.examples[0].times_median > 1000
    assert found[1, "resid_post"].dimensions == (7,)  # the stream carries it on
    assert found[0, "attn_out"].massive == 0
    assert found[0, "mlp_out"].kurtosis > 10 * before.layers[2].kurtosis
    wide = layer_outliers(model, PROMPTS, names=["mlp_out"]).model_wide("mlp_out")
    assert wide["inf_norm"] == max(
        found[i, "mlp_out"].inf_norm for i in range(llama_to_change.n_layers)
    )


def test_layers_are_measured_prompt_by_prompt(llama_to_change) -> None:
    found = layer_outliers(llama_to_change, PROMPTS, names=["resid_post"]).layers[1]
    x = llama_to_change.capture(PROMPTS, ["resid_post"], layers=1)["resid_post", 1].double()
    assert found.inf_norm == pytest.approx(float(x.abs().amax((1, 2)).mean()), rel=1e-5)
    assert found.largest == pytest.approx(float(x.abs().max()), rel=1e-5)
    assert found.median == pytest.approx(float(x.abs().flatten().median()), rel=1e-4)
    frame = layer_outliers(llama_to_change, PROMPTS).wide()
    assert len(frame) == 3 * llama_to_change.n_layers


def test_massive_values_are_those_of_the_definition(llama_to_change) -> None:
    cache = llama_to_change.capture(PROMPTS, ["q", "k"])
    for part in ("q", "k"):
        found = massive(llama_to_change, PROMPTS, part)
        for site in llama_to_change.sites:
            norm = cache[part, site.layer].double().norm(dim=2)
            ratio = (norm.amax(-1) / norm.mean(-1)).numpy()
            ratio = np.repeat(ratio, site.n_heads // ratio.shape[1], axis=1)
            np.testing.assert_allclose(by_site(llama_to_change, found)[site], ratio, rtol=1e-5)
    frame = massive(llama_to_change, PROMPTS, "k").to_pandas()
    assert len(frame) == len(llama_to_change.heads())


def test_a_planted_channel_is_massive_and_what_depends_on_it_breaks() -> None:
    """Heads that match by content hold their position code in few channels of the query."""
    built = planted.build("induction", vocab=24, context=64)
    model = interp.load(built.model, name="induction")
    frame = massive(model, random_tokens(model, n=2, max_length=20), "q").to_pandas()
    role = [built.role(r.layer, r.head) for r in frame.itertuples()]
    noise = frame["ratio"][[r == "noise" for r in role]]
    assert frame["ratio"][[r == "previous_token" for r in role]].min() > 5
    assert noise.max() < 2
    task = repeats_task(model, n=3, max_length=8)
    found = disruption(model, task)
    row = found.to_pandas().iloc[0]
    assert row["clean"] < 0.1
    assert row["without_largest"] > 10 * row["clean"]
    assert abs(row["without_smallest"] - row["clean"]) < 0.05
    assert found.bounds()[0, 0] > 0.2


def test_one_channel_is_replaced_by_its_mean_or_maximum() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 2, 5, 4, generator=generator) for _ in range(3))
    q[..., 2] *= 9
    call = ComputedCall(q, k, v, torch.zeros(2, 2, 5, 4), 0.5, causal=True)
    real = torch.ones(2, 5, dtype=torch.bool)
    real[1, 3:] = False  # padding is no part of a mean
    site = None
    for fill in ("mean", "max"):
        edit = replace_channel(["L0H0", "L0H1"], parts=["q"], fill=fill)
        z = edit.replace(call, site, real)
        other = q.clone()
        for b, n in ((0, 5), (1, 3)):
            column = q[b, :, :n, 2]
            other[b, :, :, 2] = (column.mean(-1) if fill == "mean" else column.amax(-1))[:, None]
        scores = other @ k.transpose(-1, -2) * 0.5
        hidden = torch.ones(5, 5).triu(1).bool()
        want = scores.masked_fill(hidden, -1e30).softmax(-1) @ v
        torch.testing.assert_close(z, want, rtol=1e-5, atol=1e-6)
        assert edit.name == f"replace-largest-channel-of-q(L0H0, L0H1; fill={fill})"


def calibrated(pattern: np.ndarray, keep: float, threshold: float) -> np.ndarray:
    """Attention calibration of one head by loops, written from its description."""
    new = pattern.copy()
    n = len(pattern)
    alpha = [pattern[s:, s].mean() for s in range(n)]
    sinks = [s for s in range(1, n) if alpha[s] > threshold]
    for t in range(n):
        freed = sum(pattern[t, s] for s in sinks) * (1 - keep)
        rest = sum(pattern[t, s] for s in range(n) if s not in sinks)
        if rest == 0:
            continue
        for s in range(n):
            new[t, s] = keep * pattern[t, s] if s in sinks else pattern[t, s] * (1 + freed / rest)
    return new


def test_attention_calibration_moves_mass_off_sinks(llama_to_change) -> None:
    bias = torch.zeros(1, 1, 8, 8)
    bias[..., 3] = 4.0  # every head of this call looks at the fourth token
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 8, 4, generator=generator) for _ in range(3))
    call = ComputedCall(q, k, v, torch.zeros(1, 2, 8, 4), 0.5, causal=True, bias=bias)
    real = torch.ones(1, 8, dtype=torch.bool)
    edit = calibrate(["L0H0", "L0H1"], keep=0.4, threshold=0.6)
    z = edit.replace(call, None, real)
    own = call.pattern()[0].double().numpy()
    want = np.stack([calibrated(p, 0.4, 0.6) for p in own])
    np.testing.assert_allclose(want.sum(-1), 1, atol=1e-6)
    assert (want[:, 4:, 3] < 0.5 * own[:, 4:, 3]).all()
    np.testing.assert_allclose(z[0], want @ v[0].double().numpy(), rtol=1e-5, atol=1e-6)
    assert edit.name == "calibrate-attention(L0H0, L0H1; keep=0.4, threshold=0.6, first=1)"


def test_calibration_spares_the_first_token_and_padding_changes_nothing(llama_to_change) -> None:
    heads = llama_to_change.heads()
    long = [3, 9, 4, 17, 5, 11, 6, 13]
    with torch.no_grad():
        plain = llama_to_change.run([long])
        same = llama_to_change.run([long], [calibrate(heads, threshold=0.999)])
        moved = llama_to_change.run([long], [calibrate(heads, threshold=0.15)])
        padded = llama_to_change.run(
            interp.Prompts((tuple(long), (3, 4, 5))), [calibrate(heads, over=1.2)]
        )
        alone = llama_to_change.run([[3, 4, 5]], [calibrate(heads, over=1.2)])
        every = llama_to_change.run([long], [calibrate(heads, threshold=0.15, first=0)])
        none = llama_to_change.run([long], [calibrate(heads, threshold=0.0, first=len(long))])
    assert float((every - moved).abs().max()) > 1e-3  # the first token is a sink here, if asked
    torch.testing.assert_close(none, plain, rtol=1e-4, atol=1e-5)
    # the last token sees itself alone, so its mean attention can be anything; none is above 0.999
    torch.testing.assert_close(same, plain, rtol=1e-4, atol=1e-5)
    assert float((moved - plain).abs().max()) > 1e-3
    torch.testing.assert_close(padded[1, :3], alone[0], rtol=1e-4, atol=1e-5)


def test_calibration_of_a_real_sink_is_named_in_the_scores() -> None:
    built = planted.build("sink", vocab=24, context=64)
    model = interp.load(built.model, name="sink")
    with model.edited(calibrate([f"L{layer}H{h}" for layer, h in built.roles["sink"]], first=0)):
        table = interp.score(model, "entropy", null="none")
    assert "calibrate-attention" in table.provenance["sink", "entropy"]["edits"][0]


def test_bad_input(llama_to_change) -> None:
    with pytest.raises(OptionError, match="keep=2"):
        calibrate(["L0H0"], keep=2)
    with pytest.raises(UnknownName, match="unknown activation of a layer 'resid'"):
        layer_outliers(llama_to_change, PROMPTS, names=["resid"])
    with pytest.raises(OptionError, match="size=-1"):
        layer_outliers(llama_to_change, PROMPTS, size=-1)
    with pytest.raises(UnknownName, match="measured activation"):
        layer_outliers(llama_to_change, PROMPTS, names=["mlp_out"]).model_wide("attn_out")
    with pytest.raises(OptionError, match="part 'v'"):
        massive(llama_to_change, PROMPTS, "v")
    with pytest.raises(OptionError, match="parts"):
        replace_channel(["L0H0"], parts=["v"])
    with pytest.raises(OptionError, match="known: largest, smallest"):
        replace_channel(["L0H0"], which="middle")
    assert math.isfinite(layer_outliers(llama_to_change, PROMPTS).layers[0].kurtosis)
