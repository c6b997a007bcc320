"""The engine that "auto" takes for scores, its numbers, and what a score leaves out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.core.errors import NonFiniteError, StatisticsError
from interp.core.prompts import Prompts, repeats
from interp.core.registry import METRICS
from interp.heads.engine import ROUNDING, all_pattern_bytes
from interp.heads.scoring import choose_engine

ELEVEN = [name for name, entry in METRICS.items() if entry.group == "detectors"]
LONG = 200  # tokens
SMALL = 2**18  # bytes: less than the patterns of a tiny model on so many tokens


def loaded(family: str, kernel: str = "sdpa") -> interp.Model:
    return interp.load(zoo.FAMILIES[family].model(kernel), name=family)


def long_prompts(model: interp.Model) -> Prompts:
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, 60, (2, LONG), generator=generator).tolist()
    assert all_pattern_bytes(model, [LONG]) > SMALL
    return Prompts((tuple(ids[0]), tuple(ids[1][: LONG - 17])))


@pytest.fixture
def pays_early(monkeypatch) -> None:
    """The compiled pass pays from the patterns of a tiny model on."""
    monkeypatch.setattr("interp.heads.engine.COMPILED_BYTES", SMALL)


def chosen(model: interp.Model, prompts: Prompts) -> str:
    return choose_engine(model, prompts, 16, "auto", may_fuse=True)


def test_there_are_eleven_metrics_of_attention() -> None:
    assert len(ELEVEN) == 11


@pytest.mark.parametrize("engine", ["streamed", "fused", "auto"])
@pytest.mark.parametrize("family", ["llama", "gpt2", "bert"])
def test_every_engine_gives_the_stored_numbers(family, engine) -> None:
    model = loaded(family)
    generator = torch.Generator().manual_seed(1)
    half = torch.randint(3, 60, (3, 12), generator=generator)
    ids = torch.cat([half, half], 1).tolist()
    prompts = Prompts(tuple(tuple(x[:n]) for x, n in zip(ids, (24, 17, 24), strict=True)))
    both = [
        interp.score(model, ELEVEN, prompts, null="none", engine=e).to_pandas()
        for e in ("stored", engine)
    ]
    stored, other = (frame["score"].to_numpy() for frame in both)
    assert np.isfinite(stored).all()
    assert len(stored) == 11 * len(model.heads())
    np.testing.assert_allclose(other, stored, rtol=1e-6, atol=1e-9)


@pytest.mark.usefixtures("pays_early")
def test_auto_takes_the_fused_pass_for_scores_of_large_patterns() -> None:
    model = loaded("llama")
    prompts = long_prompts(model)
    assert chosen(model, prompts) == "fused"
    assert chosen(model, Prompts(((5,) * 20,))) == "stored"
    assert choose_engine(model, prompts, 16, "auto") == "stored"  # callers that read z as well
    auto = interp.score(model, ["entropy", "induction"], prompts, null="none")
    stored = interp.score(model, ["entropy", "induction"], prompts, null="none", engine="stored")
    for told in auto.provenance.values():
        assert (told["engine"], told["rounding"]) == ("fused", ROUNDING)
    for told in stored.provenance.values():
        assert told["engine"] == "stored"
        assert "rounding" not in told
    scores = [t.to_pandas()["score"] for t in (auto, stored)]
    np.testing.assert_allclose(*scores, rtol=1e-5, atol=1e-7)


def test_a_first_run_on_the_default_prompts_compiles_nothing(monkeypatch) -> None:
    monkeypatch.setattr("interp_kernels.cpu.in_one_pass", lambda *_: pytest.fail("it compiles"))
    for name in ("refusal", "induction"):
        model = interp.load(f"bundled:{name}")
        prompts = repeats(model)
        assert chosen(model, prompts) == "stored"
        interp.score(model, ELEVEN, prompts, null="none")
    assert chosen(model, repeats(model, n=16, max_length=600, beyond=True)) == "fused"


@pytest.mark.usefixtures("pays_early")
def test_auto_leaves_the_output_to_the_model_where_others_read_it() -> None:
    model = loaded("llama")
    prompts = long_prompts(model)
    with model.edited(interp.zero("L0H1")):
        assert chosen(model, prompts) == "streamed"
    with model.visited(lambda site, call, real: None):
        assert chosen(model, prompts) == "streamed"
    assert chosen(model, prompts) == "fused"
    assert chosen(loaded("bloom", "eager"), prompts) == "streamed"  # its own code cannot be fused
    wide = interp.load(zoo.FAMILIES["llama"].build("sdpa").double(), name="wide")
    assert chosen(wide, prompts) == "stored"


@pytest.mark.parametrize("engine", ["stored", "streamed", "fused"])
def test_a_score_runs_nothing_above_the_last_attention(engine) -> None:
    model = loaded("llama")
    ran = []
    last = model.module.model.layers[-1]
    names = {"output projection": last.self_attn.o_proj, "mlp": last.mlp}
    names |= {"logits": model.module.lm_head, "first mlp": model.module.model.layers[0].mlp}
    handles = [
        module.register_forward_hook(lambda *_, name=name: ran.append(name))
        for name, module in names.items()
    ]
    prompts = repeats(model, n=2, max_length=9)
    interp.score(model, "entropy", prompts, null="none")  # whether padding matters is tested once
    ran.clear()
    try:
        interp.score(model, ["entropy", "induction"], prompts, null="none", engine=engine)
        assert set(ran) == {"first mlp"}
        ran.clear()
        with model.visited(lambda site, call, real: None):  # whoever watches sees a whole forward
            if engine != "fused":
                interp.score(model, "entropy", prompts, null="none", engine=engine)
                assert set(ran) == set(names)
    finally:
        for handle in handles:
            handle.remove()


def test_damaged_values_of_the_last_layer_are_still_refused() -> None:
    for engine in ("stored", "streamed", "fused"):
        model = interp.load(zoo.FAMILIES["llama"].build("sdpa"), name="llama")
        prompts = repeats(model, n=2, max_length=9)
        model.module.model.layers[-1].self_attn.v_proj.weight.data[0, 0] = torch.nan
        with pytest.raises((NonFiniteError, StatisticsError)):
            interp.score(model, "entropy", prompts, null="none", engine=engine)
