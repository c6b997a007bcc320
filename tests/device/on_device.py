"""What a person runs, on the stand-in device: the numbers of the CPU, and few copies to it.

Not collected by name: `test_stand_in.py` runs this file in a process of its own, since a device
stays registered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from device import stand_in
from model import placed
from sampled import thinned

import interp
from interp.core.prompts import Prompts
from interp.core.registry import METRICS
from interp.model import precision
from interp.testing.metric import repeated_halves

DEVICE = stand_in.install()
ELSEWHERE = ("roles", "cross", "segments")  # metrics that need another model or other prompts
ALL = [
    name
    for name in sorted(METRICS)
    if METRICS[name].group not in ELSEWHERE and "tokenizer" not in METRICS.load(name).requires
]
OF_IDS = {"retrieval": "retrieval:task=ids"}
Pair = tuple[interp.Model, interp.Model]


def both(module: Any, **options: Any) -> Pair:
    """The model on the CPU and on the device."""
    there = deepcopy(module).to(DEVICE)
    return interp.load(module, **options), interp.load(there, **options)


@pytest.fixture(scope="module")
def llamas() -> Pair:
    return both(zoo.FAMILIES["llama"].model("sdpa"), name="llama")


@pytest.fixture(scope="module")
def inductions() -> Pair:
    here = interp.load("bundled:induction")
    return both(here.module, tokenizer=here.tokenizer, name="bundled:induction")


@pytest.fixture(scope="module")
def device_prompts(llamas: Pair) -> Prompts:
    return repeated_halves(llamas[0])


def scores(model: interp.Model, name: str, texts: Any) -> np.ndarray:
    table = interp.score(model, [OF_IDS.get(name, name)], texts, null="none")
    return table.to_pandas()["score"].to_numpy()


def test_the_device_refuses_what_a_gpu_refuses() -> None:
    there, here = torch.ones(3, device=DEVICE), torch.ones(3)
    with pytest.raises(RuntimeError, match="all tensors on the same device"):
        torch.add(there, here)
    with pytest.raises(TypeError, match="can't convert"):
        np.asarray(there)
    with pytest.raises(RuntimeError, match="device type for generator"):
        there.normal_(generator=torch.Generator())
    with stand_in.without_float64(), pytest.raises(TypeError, match="float64"):
        there.double()
    with stand_in.counted_copies() as copies:
        there.cpu()
        float(there[0])
    assert copies == {"aten::_to_copy": 1, "aten::_local_scalar_dense": 1}
    assert (there + 1).device == DEVICE
    assert torch.equal((there + 1).cpu(), here + 1)


def test_the_model_is_there(llamas: Pair) -> None:
    assert llamas[1].device == DEVICE
    assert all(p.device == DEVICE for p in llamas[1].module.parameters())


@pytest.fixture(scope="module")
def on_cpu(llamas: Pair, device_prompts: Prompts) -> Callable[[str], np.ndarray]:
    """The scores of a metric on the CPU, computed once."""
    return cache(lambda name: scores(llamas[0], name, device_prompts))


@pytest.mark.parametrize("name", ALL)
def test_a_metric_gives_the_scores_of_the_cpu(
    name: str, llamas: Pair, device_prompts: Prompts, on_cpu: Callable[[str], np.ndarray]
) -> None:
    there = scores(llamas[1], name, device_prompts)
    np.testing.assert_allclose(there, on_cpu(name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("engine", ["stored", "streamed", "fused"])
def test_engines_agree_there(engine: str, llamas: Pair, device_prompts: Prompts) -> None:
    found = [
        interp.score(
            m,
            ["entropy", "induction", "previous_token"],
            device_prompts,
            engine=engine,
            null="none",
        )
        for m in llamas
    ]
    here, there = (table.to_pandas()["score"].to_numpy() for table in found)
    np.testing.assert_allclose(there, here, rtol=1e-4, atol=1e-5)


COPIES = ("entropy", "induction", "previous_token", "key_norm", "similar_head")


@pytest.mark.parametrize("name", COPIES)
def test_copies_do_not_grow_with_tokens(name: str, llamas: Pair) -> None:
    """So many per layer and batch, not one per token or head."""
    counts = []
    for tokens in (12, 12, 48):  # the first run also finds what is then known of the model
        ids = Prompts.of([[(7 * i) % 50 + 8 for i in range(tokens)]], llamas[1])
        with stand_in.counted_copies() as copies:
            scores(llamas[1], name, ids)
        counts.append(sum(copies.values()))
    assert counts[1] == counts[2] <= 60 * len(llamas[1].sites)


def test_half_precision_runs_there(llamas: Pair, device_prompts: Prompts) -> None:
    half = interp.load(deepcopy(llamas[0].module).to(torch.bfloat16).to(DEVICE), name="half")
    found = interp.score(
        half, ["entropy", "induction", "previous_token", "key_norm"], device_prompts
    )
    assert np.isfinite(found.to_pandas()["score"]).all()


def close(results: list[Any], atol: float = 1e-4) -> None:
    here, there = (r.to_pandas() for r in results)
    numbers = here.select_dtypes("number").columns
    assert len(here) > 0
    np.testing.assert_allclose(there[numbers], here[numbers], rtol=1e-3, atol=atol)


ANALYSES: dict[str, Callable[[interp.Model], Any]] = {
    "roles": lambda m: interp.roles(interp.score(m)),
    "ablate": lambda m: interp.ablate(m, interp.repeats_task(m, n=4)),
    "shapley": lambda m: interp.shapley(m, interp.repeats_task(m, n=4), heads=["L1H0", "L0H1"]),
    "score with nulls": lambda m: interp.score(m, ["induction"], interp.repeats(m, n=4)),
    "lens": lambda m: interp.lens.logit_lens(m, [[5, 9, 7, 5, 9]]),
    "direct logits": lambda m: interp.lens.direct_logits(m, [[5, 9, 7, 5, 9]], [7]),
    "compare": lambda m: interp.compare("bundled:induction", m, ["induction"]),
}


@pytest.mark.parametrize("name", ANALYSES)
def test_an_analysis_gives_the_numbers_of_the_cpu(name: str, inductions: Pair) -> None:
    close([ANALYSES[name](model) for model in inductions])


def test_a_trained_layer_of_heads_is_profiled_there(inductions: Pair) -> None:
    from interp.dictionaries import profile_lorsa, score_lorsa, train_lorsa

    here, there = inductions
    lorsa = train_lorsa(here, interp.repeats(here, n=4), layer=1, n_heads=8, k=2, steps=3).lorsa
    texts = interp.repeats(here, n=2, seed=5)
    close([score_lorsa(m, lorsa, texts) for m in (here, there)])
    close([profile_lorsa(m, lorsa, texts) for m in (here, there)])


def test_a_capture_stays_on_the_device(inductions: Pair) -> None:
    here, there = (m.capture(interp.repeats(m, n=2), ["pattern", "z"]) for m in inductions)
    for part in ("pattern", "z"):
        assert there[part, 1].device == DEVICE
        torch.testing.assert_close(there[part, 1].cpu(), here[part, 1], rtol=1e-4, atol=1e-5)


def test_an_edit_while_generating_is_that_of_the_cpu(inductions: Pair) -> None:
    found = []
    for model in inductions:
        with model.edited(interp.zero("L1H0")):
            found.append(model.generate([[5, 9, 5]], 6).ids.cpu())
    assert torch.equal(*found)


def test_the_check_compares_the_kernels_there(llamas: Pair) -> None:
    found = interp.model.check_model(llamas[1])
    assert found.passed
    [test] = found.kernels
    assert test.passed("chunked")
    assert {row.backend for row in test.compared} == {"chunked"}


APART = {"lens", "direct logits", "paths", "circuit"}
"""Calls that add up what layers write, and are refused where these lie on several devices."""
NOT_THERE = {"profile with effects", "gate gradient", "gradient"}
"""Gradients: torch's autograd knows one device of the stand-in's kind."""


def test_layers_on_two_devices_give_the_numbers_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("accelerate")
    source = interp.load("bundled:induction")
    source.module.save_pretrained(tmp_path)  # type: ignore[operator]
    source.tokenizer.save_pretrained(tmp_path)
    first = ("model.embed_tokens", "model.rotary_emb", "model.layers.0")
    last = ("model.layers.1", "model.norm", "lm_head")
    where = dict.fromkeys(first, DEVICE) | dict.fromkeys(last, torch.device(stand_in.NAME, 1))
    monkeypatch.setattr(placed, "CALLS", {k: placed.CALLS[k] for k in {*placed.CALLS} - NOT_THERE})
    here = placed.found(interp.load(tmp_path, name="m"))
    there = placed.found(interp.load(tmp_path, name="m", device_map=where))
    assert {name for name, x in there.items() if isinstance(x, str)} == APART
    for name, got in there.items():
        if name in APART:
            assert "lie on stand_in:0 and stand_in:1" in str(got)
        else:
            torch.testing.assert_close(got, here[name], atol=3e-5, rtol=1e-4, equal_nan=True)


@pytest.fixture
def no_float64(monkeypatch) -> Iterator[None]:
    """The device as one that has no float64."""
    monkeypatch.setattr(precision, "WITHOUT", {stand_in.NAME})
    with stand_in.without_float64():
        yield


@pytest.mark.parametrize("name", thinned(ALL))
def test_a_metric_needs_no_float64(
    name: str,
    llamas: Pair,
    device_prompts: Prompts,
    on_cpu: Callable[[str], np.ndarray],
    no_float64: None,
) -> None:
    model = interp.load(deepcopy(llamas[0].module).to(DEVICE), name="llama")
    there = scores(model, name, device_prompts)
    # a condition number grows with rounding: its share of error is stated in README.md
    np.testing.assert_allclose(
        there, on_cpu(name), rtol=2e-2 if name == "block_condition" else 1e-3, atol=1e-4
    )


@pytest.mark.parametrize("name", ["ablate", "score with nulls", "lens", "compare"])
def test_an_analysis_needs_no_float64(name: str, inductions: Pair, no_float64: None) -> None:
    close([ANALYSES[name](model) for model in inductions], atol=1e-3)


def test_what_asks_for_float64_there_gets_float32(no_float64: None) -> None:
    there, here = torch.ones(3, device=DEVICE), torch.ones(3, dtype=torch.double)
    with pytest.raises(TypeError, match="float64"):
        there.double()
    with precision.float64_or_less(DEVICE):
        for made in (
            there.double(),
            there.to(torch.float64),
            here.to(DEVICE),
            there.new_zeros(2).double(),
            torch.zeros(2, dtype=torch.double, device=DEVICE),
            there.sum(dtype=torch.double),
        ):
            assert (made.dtype, made.device) == (torch.float32, DEVICE)
        assert float(torch.zeros(1, device=DEVICE).clamp_min(1e-300)) > 0
        assert there.cpu().double().dtype == torch.float64
        assert torch.ones(2, dtype=torch.double).dtype == torch.float64
        here[0] = there.cpu()[0]
        assert (torch.eye(3, dtype=torch.double) @ there.cpu()).dtype == torch.float64
    assert torch.ones(2).double().dtype == torch.float64
