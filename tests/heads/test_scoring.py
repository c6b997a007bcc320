"""Scoring on every kind of model: what applies, what is left out and why, and analytic values."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.core.errors import (
    NonFiniteError,
    OptionError,
    PromptError,
    StatisticsError,
    UnknownName,
)
from interp.core.prompts import Prompts, repeats
from interp.heads import engine
from interp.heads import scoring as scoring_module
from interp.heads.estimate import estimate_score
from interp.heads.score_rows import engine_used
from interp.heads.scoring import choose_engine


def uniform_model(layers: int = 2) -> interp.Model:
    """A decoder whose queries are zero: every row is uniform over what it sees."""
    module = zoo.FAMILIES["llama"].build("sdpa")
    for layer in module.model.layers[:layers]:
        layer.self_attn.q_proj.weight.data.zero_()
    return interp.load(module, name="uniform")


def one_score(model, metric, length, **options) -> float:
    prompts = Prompts((tuple(5 + i % 50 for i in range(length)),))
    rows = interp.score(
        model, [interp.heads.scoring.bound(metric)], prompts, null="none"
    ).to_pandas()
    values = rows[rows["layer"] == 0]["score"]
    assert values.max() - values.min() < 1e-6
    return float(values.iloc[0])


@pytest.mark.parametrize("length", [1, 2, 17, 64])
def test_uniform_causal_attention_has_the_analytic_values(length) -> None:
    model = uniform_model()
    logs = sum(map(math.log, range(1, length + 1)))
    assert one_score(model, "entropy", length) == pytest.approx(logs / length, abs=1e-5)
    assert one_score(model, "attention_distance", length) == pytest.approx(
        (length - 1) / 4, abs=1e-4
    )
    harmonic = sum(1 / t for t in range(1, length + 1)) / length
    assert one_score(model, "largest_weight", length) == pytest.approx(harmonic, abs=1e-6)
    assert one_score(model, "current_token", length) == pytest.approx(harmonic, abs=1e-6)


def test_the_table_of_known_values() -> None:
    """64 tokens: 3.205753 nats and 15.75 tokens; 101 tokens: previous token 0.041973."""
    model = uniform_model()
    assert one_score(model, "entropy", 64) == pytest.approx(3.205753, abs=2e-6)
    assert one_score(model, "attention_distance", 64) == pytest.approx(15.75, abs=1e-4)
    assert one_score(model, "previous_token", 101) == pytest.approx(0.041973, abs=1e-6)


def test_a_metric_without_a_row_to_average_is_nan_with_no_prompts_counted() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    rows = interp.score(model, "induction", Prompts(((5, 6, 7, 8),)), null="none").to_pandas()
    assert rows["score"].isna().all()
    assert (rows["n"] == 0).all()


@pytest.mark.parametrize("family", ["t5", "bart"])
def test_cross_attention_is_scored_by_statistics_and_left_out_of_positions(family) -> None:
    model = interp.load(zoo.FAMILIES[family].model("eager"), name=family)
    table = interp.score(model, ["entropy", "previous_token", "attention_distance"], null="none")
    stacks = {m: set(table.where(metric=m).to_pandas()["stack"]) for m in table.metrics}
    assert stacks["entropy"] == {"encoder", "decoder", "cross"}
    assert stacks["previous_token"] == stacks["attention_distance"] == {"encoder", "decoder"}


@pytest.mark.parametrize("family", ["vit", "swin", "clip", "wav2vec2", "whisper"])
def test_models_that_read_no_tokens_alone(family) -> None:
    model = interp.load(zoo.FAMILIES[family].model("eager"), name=family)
    table = interp.score(model, ["entropy", "largest_weight"], null="random-init")
    rows = table.to_pandas()
    assert len(rows) == 2 * sum(s.n_heads for s in model.sites)
    assert np.isfinite(rows[["score", "null"]].to_numpy()).all()


def test_a_detector_of_tokens_says_why_it_leaves_images_out() -> None:
    model = interp.load(zoo.FAMILIES["vit"].model("eager"), name="vit")
    with pytest.raises(OptionError, match="induction needs tokens, but vit reads vision input"):
        interp.score(model, "induction")
    assert "induction" not in interp.score(model).metrics


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "gpt_oss", "t5", "bert"])
def test_stored_and_streamed_agree_on_masks_of_every_kind(family) -> None:
    model = interp.load(zoo.FAMILIES[family].model("eager"), name=family)
    prompts = repeats(model, n=3, max_length=9)
    tables = [
        interp.score(
            model, ["induction", "entropy", "largest_weight"], prompts, null="none", engine=e
        )
        for e in ("stored", "streamed")
    ]
    frames = [t.to_pandas() for t in tables]
    np.testing.assert_allclose(frames[0]["score"], frames[1]["score"], rtol=3e-5, atol=3e-6)


@pytest.mark.parametrize("family", ["gpt2", "llama", "gemma2", "gpt_oss", "t5", "bert", "albert"])
def test_fused_gives_the_model_its_output_and_the_same_scores(family) -> None:
    model = interp.load(zoo.FAMILIES[family].model("eager"), name=family)
    prompts = repeats(model, n=3, max_length=9)
    seen = []

    def last(module, args, kwargs) -> None:
        seen.append((args[0] if args else kwargs["hidden_states"]).double())

    # a score runs nothing above the last attention
    top = model.module.get_submodule(model.sites[-1].module)
    handle = top.register_forward_pre_hook(last, with_kwargs=True)
    tables, reached = [], []
    try:
        with torch.no_grad():
            model.run(model.inputs(prompts))
        reached.append(seen[-1])
        for engine in ("stored", "fused"):
            metrics = ["induction", "entropy", "previous_token"]
            tables.append(interp.score(model, metrics, prompts, null="none", engine=engine))
            reached.append(seen[-1])
    finally:
        handle.remove()
    np.testing.assert_allclose(*(t.to_pandas()["score"] for t in tables), rtol=1e-4, atol=1e-5)
    plain, stored, fused = reached
    real = prompts.padded()[1][:, -stored.shape[1] :]
    assert torch.equal(stored, plain)
    assert not torch.equal(stored, fused)  # another kernel did run
    torch.testing.assert_close(stored[real], fused[real], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("family", "stored", "streamed"),
    [
        ("deberta", ("stored", set()), ("streamed", {"auto"})),  # a sum of products, in tiles
        ("bloom", ("stored", set()), ("streamed", {"auto"})),  # stored: what its own code computed
        ("llama", ("stored", {"reference"}), ("streamed", {"auto"})),
    ],
)
def test_provenance_names_the_engine_that_ran(family, stored, streamed, monkeypatch) -> None:
    model = interp.load(zoo.FAMILIES[family].model("eager"), name=family)
    calls = []
    run = engine.attention_statistics

    def seen(*args, **options):
        calls.append(options["backend"])
        return run(*args, **options)

    monkeypatch.setattr(engine, "attention_statistics", seen)
    monkeypatch.setattr(scoring_module, "fused_is_faster", lambda *_: False)
    for room, (expected, used) in ((scoring_module.STORED_BYTES, stored), (0, streamed)):
        monkeypatch.setattr(scoring_module, "STORED_BYTES", room)
        monkeypatch.setattr(engine, "COMPILED_BYTES", room)
        calls.clear()
        table = interp.score(model, "entropy", null="none")
        (about,) = table.provenance.values()
        assert about["engine"] == expected
        assert set(calls) == used
        prompts = repeats(model)
        assert (
            estimate_score(model, prompts, [interp.heads.scoring.bound("entropy")], 16).engine
            == expected
        )


def test_a_model_of_which_some_layers_are_recorded_names_both_engines(monkeypatch) -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("eager"), name="llama")
    first, *rest = model.sites
    mixed = interp.Model(model.module, "mixed", (replace(first, recorded=True), *rest))
    assert engine_used(mixed, "streamed") == "streamed; stored (recorded) in decoder.0"
    with pytest.raises(OptionError, match="engine='streamed': mixed computes"):
        interp.score(mixed, "entropy", null="none", engine="streamed")
    monkeypatch.setattr(scoring_module, "STORED_BYTES", 0)
    (about,) = interp.score(mixed, "entropy", null="none").provenance.values()
    assert about["engine"] == "streamed; stored (recorded) in decoder.0"


def test_fused_refuses_what_it_cannot_replace() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    own = interp.Model(model.module, "own", tuple(replace(s, recorded=True) for s in model.sites))
    for name in ("streamed", "fused"):
        match = rf"^engine='{name}': own computes .* use engine="
        with pytest.raises(OptionError, match=match):
            interp.score(own, "entropy", null="none", engine=name)
    with model.edited(interp.zero("L0H1")), pytest.raises(OptionError, match="under edits"):
        interp.score(model, "entropy", null="none", engine="fused")


def test_the_engine_is_chosen_by_size_and_never_against_a_wish() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    short, long = Prompts(((5,) * 20,)), Prompts(((5,) * 6000,))
    assert choose_engine(model, short, 16, "auto") == "stored"
    assert choose_engine(model, long, 16, "auto") == "streamed"
    assert choose_engine(model, long, 16, "stored") == "stored"
    with pytest.raises(OptionError, match="engine 'magic' is not known"):
        interp.score(model, "entropy", short, engine="magic")


def test_repeats_are_repeats() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    prompts = repeats(model, n=40, max_length=10, copies=3, seed=4)
    bos = prompts.ids[0][0]
    periods = set()
    for ids in prompts.ids:
        assert ids[0] == bos
        body = ids[1:]
        period = len(body) // 3
        periods.add(period)
        assert body == body[:period] * 3
        assert len(set(body[:period])) == period  # without replacement
        assert bos not in body
    assert periods == set(range(5, 11))


def test_shuffling_keeps_tokens_targets_and_the_first() -> None:
    prompts = Prompts(((1, 5, 6, 7, 5, 6, 7),))
    null = prompts.shuffled(0, keep_first=True)
    assert sorted(null.ids[0]) == sorted(prompts.ids[0])
    assert null.ids[0][0] == 1
    assert null.ids != prompts.ids
    assert null.looked_at() == prompts.ids


def test_bad_requests_have_one_clear_line() -> None:
    model = interp.load(zoo.FAMILIES["gpt2"].model("sdpa"), name="gpt2")
    with pytest.raises(UnknownName, match="unknown metric 'inductoin'; did you mean induction"):
        interp.score(model, "inductoin")
    with pytest.raises(UnknownName, match="option of local_window"):
        interp.score(model, "local_window:widht=3")
    with pytest.raises(OptionError, match="width='wide' is not a whole number"):
        interp.score(model, "local_window:width=wide")
    with pytest.raises(PromptError, match="no tokenizer"):
        interp.score(model, "entropy", ["some text"])
    with pytest.raises(PromptError, match="no prompts"):
        interp.score(model, "entropy", [])
    with pytest.raises(PromptError, match="prompt 0 is empty"):
        interp.score(model, "entropy", [[]])
    with pytest.raises(PromptError, match="positions for 64"):
        interp.score(model, "entropy", [[5] * 65])
    with pytest.raises(OptionError, match="given twice"):
        interp.score(model, ["entropy", "entropy"])
    with pytest.raises(OptionError, match="unknown value of null 'coin'"):
        interp.score(model, "entropy", null="coin")


def test_nan_in_activations_names_the_layer() -> None:
    module = zoo.FAMILIES["gpt2"].build("sdpa")
    model = interp.load(module, name="gpt2")
    module.transformer.h[1].ln_1.weight.data.fill_(torch.inf)
    with pytest.raises(NonFiniteError, match="layer 1"):
        interp.score(model, "entropy", null="none")


def test_a_predicate_that_breaks_is_named_with_its_layer(tmp_path) -> None:
    file = tmp_path / "broken.py"
    file.write_text(
        "from interp.heads.declaration import detector\n\n\n"
        "@detector\ndef broken(query, key, tokens):\n"
        '    """Breaks."""\n    return {}["key"] == tokens[query]\n'
    )
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    with pytest.raises(StatisticsError, match=r"llama, decoder\.0: predicate 'broken.* KeyError"):
        interp.score(model, str(file), [[5, 6, 5, 6]], null="none")


def test_estimates_grow_as_they_should_and_name_the_engine() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    bounds = [interp.heads.scoring.bound("entropy")]

    def bytes_of(length: int, engine: str) -> int:
        return estimate_score(model, Prompts(((5,) * length,)), bounds, 1, engine).statistics_bytes

    assert 15 < bytes_of(8000, "stored") / bytes_of(2000, "stored") < 17
    assert bytes_of(32000, "streamed") / bytes_of(8000, "streamed") < 5
    text = str(estimate_score(model, Prompts(((5,) * 16384,)), bounds, 1))
    assert text.startswith("1 x 16,384 tokens, fused: about ")


def test_provenance_says_how_the_number_was_made() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    table = interp.score(model, "local_window:width=3", seed=7)
    (made,) = table.provenance.values()
    assert made["options"] == {"width": 3}
    assert made["seed"] == 7
    assert made["null"] == "random-init"
    assert made["dtype"] == "float32"
    assert made["attention"] == "sdpa"
    assert len(made["content_hash"]) == len(made["prompts_hash"]) == 64
    assert made["versions"]["torch"] == torch.__version__
    with model.edited(interp.zero("L0H1")):
        (made,) = interp.score(model, "entropy", null="none").provenance.values()
    assert made["edits"] == ["zero(L0H1)"]


def test_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(11)
    before = torch.random.get_rng_state()
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    interp.score(model, ["induction", "entropy"])
    assert torch.equal(before, torch.random.get_rng_state())


def test_importing_and_listing_cost_no_torch() -> None:
    code = (
        "import sys, interp, interp.core.registry as c; list(c.METRICS.values())[0].summary;"
        "heavy = {'torch', 'transformers', 'pandas', 'numpy'};"
        "print(sorted(heavy & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
