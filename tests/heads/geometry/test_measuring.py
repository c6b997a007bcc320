"""Measures on whole models: blocks of rows, rotations of the stream, short prompts, the group."""

from __future__ import annotations

import copy
import json
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from click.testing import CliRunner
from heads.geometry.layers import MEASURES, layer_of, value, writing

import interp
from interp.cli.main import main
from interp.core.errors import OptionError, PromptError
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.heads.declaration import bound, measurement
from interp.heads.measuring import measure_layers
from interp.heads.scoring import why_not

GEOMETRY = [n for n, e in METRICS.items() if e.group == "geometry"]
KINDS = {
    "causal": {},
    "bidirectional": {"causal": False},
    "window": {"window": 5},
    "sinks": {"sinks": torch.zeros(4)},
}


def ragged(vocabulary: int, lengths=(17, 9, 17, 12)) -> Prompts:
    rng = np.random.default_rng(3)
    return Prompts(tuple(tuple(rng.integers(5, vocabulary, n).tolist()) for n in lengths))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_of_rows_change_nothing(kind) -> None:
    """Grouped queries; the kernels' streamed reductions against the reference."""
    rng = torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, h, 18, 6, generator=rng) for h in (4, 2))
    found = {}
    for engine in ("stored", "streamed"):
        layer, before = (layer_of(q, k, **KINDS[kind]) for _ in range(2))
        layer.previous = before
        layer.writing = writing(torch.randn(4, 6, 10, generator=rng.manual_seed(1)).double())
        layer.turns = {p: torch.eye(6).double().expand(1, 18, 6, 6) for p in "qk"}
        layer.segments = torch.tensor([[0] * 4 + [1] * 9 + [3] * 5]).expand(2, -1)
        layer.engine, layer.block = engine, 4 if engine == "streamed" else None
        found[engine] = {name: value(name, layer) for name in MEASURES}
    for name in MEASURES:
        torch.testing.assert_close(
            found["stored"][name], found["streamed"][name], rtol=1e-5, atol=2e-6, equal_nan=True
        )


def test_prompts_score_in_a_group_as_they_do_alone(llama_model) -> None:
    prompts, bounds = ragged(20, (17, 9, 12)), [bound(name) for name in MEASURES]
    together = measure_layers(llama_model, prompts, bounds, 3, "stored")
    for i, ids in enumerate(prompts.ids):
        alone = measure_layers(llama_model, Prompts((ids,)), bounds, 1, "streamed")
        for name, sites in alone.items():
            for site, x in sites.items():
                np.testing.assert_allclose(together[name][site][i], x[0], rtol=2e-4, atol=2e-4)


def rotated(module: Any) -> torch.nn.Module:
    """The same function with another basis of the residual stream; norms have no gain."""
    module = copy.deepcopy(module)
    width = module.config.hidden_size
    turn = torch.linalg.qr(torch.randn(width, width, generator=torch.Generator().manual_seed(2))).Q
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight")):
                weight.copy_(turn.T @ weight)
            elif weight.dim() == 2:
                weight.copy_(weight @ turn)
    return module


def test_a_rotation_of_the_stream_changes_no_score() -> None:
    module = copy.deepcopy(zoo.FAMILIES["llama"].model("sdpa"))
    with torch.no_grad():
        for name, weight in module.named_parameters():
            if "norm" in name:
                weight.fill_(1)
    one, other = interp.load(module, name="one"), interp.load(rotated(module), name="other")
    scores = [interp.score(m, GEOMETRY, ragged(20), null="none").to_pandas() for m in (one, other)]
    near: Any = scores[0]["score"] - scores[1]["score"]
    worst: Any = near.abs().groupby(scores[0]["metric"]).max()
    assert (worst < 2e-3).all(), worst[worst >= 2e-3]
    assert near.notna().all()


@pytest.mark.parametrize("length", [1, 2, 3])
def test_prompts_shorter_than_any_window_have_a_score_or_none(llama_model, length) -> None:
    table = interp.score(llama_model, GEOMETRY, ragged(20, (length, length)), null="none")
    frame: Any = table.to_pandas()
    assert set(frame["metric"]) == set(GEOMETRY)
    unknown = frame["score"].isna()
    assert (frame.loc[unknown, "n"] == 0).all()
    assert (frame.loc[~unknown, "n"] > 0).all()


def test_the_group_is_scored_on_request_only() -> None:
    assert len(GEOMETRY) > 30
    assert not set(METRICS.usual()) & set(GEOMETRY)
    assert METRICS.expand(["geometry"]) == GEOMETRY


def test_command(tmp_path) -> None:
    given = ["score", "bundled:one-layer", "-m", "geometry", "--null", "none", "--json"]
    told = CliRunner().invoke(main, given)
    assert told.exit_code == 0, told.output
    rows = json.loads(told.stdout)
    rows = rows["rows"] if isinstance(rows, dict) else rows
    without = {"cka_to_previous", "keys_of_layer_before", "reused_pattern"}
    assert {row["metric"] for row in rows} == set(GEOMETRY) - without
    for name in without:  # one layer
        assert f"{name} is omitted" in told.stderr
        assert "an attention before it" in told.stderr


def test_one_head_has_no_other_head() -> None:
    q = torch.randn(1, 1, 12, 4)
    layer = layer_of(q, q)
    for name in ("cka", "similar_head", "pwcca"):
        assert torch.isnan(value(name, layer)).all()


def test_a_null_is_the_mean_of_random_weights(llama_model) -> None:
    table = interp.score(
        llama_model, ["top_keys", "key_rank"], ragged(20), null_draws=3, null_cache=False
    )
    frame: Any = table.to_pandas()
    assert frame[["null", "null_sd", "p"]].notna().all().all()
    # random weights of small size attend almost evenly: 4 of n keys
    even = np.mean([np.mean([4 / n for n in range(5, t + 1)]) for t in (17, 9, 17, 12)])
    np.testing.assert_allclose(frame[frame["metric"] == "top_keys"]["null"], even, rtol=0.2)


def test_given_tensors_with_padding_are_refused(llama_model) -> None:
    ids = torch.randint(5, 15, (2, 8))
    mask = torch.ones_like(ids)
    whole = interp.score(llama_model, "budget", {"input_ids": ids}, null="none")
    assert set(whole.to_pandas()["n"]) == {2}
    mask[0, -2:] = 0
    with pytest.raises(PromptError, match="hold padding"):
        interp.score(llama_model, "budget", {"input_ids": ids, "attention_mask": mask}, null="none")


def test_a_measure_of_ones_own(llama_model) -> None:
    @measurement(unit="tokens", low=0.0)
    def number_of_tokens(layer):
        return torch.full((len(layer.z), layer.heads), float(layer.tokens))

    frame: Any = interp.score(llama_model, number_of_tokens, ragged(20), null="none").to_pandas()
    assert frame["score"].eq((17 + 9 + 17 + 12) / 4).all()


def test_a_model_that_lacks_what_a_measure_needs(bundled_one_layer) -> None:
    reason = why_not(bundled_one_layer, bound("reused_pattern"))
    assert reason is not None
    assert "an attention before it in the same stack, which" in reason
    with pytest.raises(OptionError, match="needs an attention before it"):
        interp.score(bundled_one_layer, "reused_pattern")


@pytest.mark.parametrize("family", ["qwen3", "bert", "t5", "vit", "swin", "deepseek_v3"])
def test_families(family, loaded) -> None:
    model = loaded(family)
    asked = [n for n in MEASURES if why_not(model, bound(n)) is None]
    assert len(asked) > 20
    prompts = ragged(15, (12, 9)) if model.takes_text else None
    frame: Any = interp.score(model, asked, prompts, null="none").to_pandas()
    for name in asked:
        scores = frame[frame["metric"] == name]["score"].dropna()
        low, high = METRICS[name].low, METRICS[name].high
        assert low is None or (scores >= low - 1e-6).all(), name
        assert high is None or (scores <= high + 1e-6).all(), name
