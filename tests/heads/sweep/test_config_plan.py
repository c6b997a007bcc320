"""`interp score --dry-run` of a config without weights: its sizes, its cost, and what fits."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import torch
import transformers

import interp
from interp.core.errors import LoadError
from interp.core.prompts import Prompts
from interp.heads.declaration import bound
from interp.heads.estimate import estimate_score, readable
from interp.heads.machine_limits import Machine, roofline
from interp.heads.sweep import plan
from interp.heads.sweep.config_plan import (
    card,
    config_alone,
    offloaded_bytes,
    peak_bytes,
    planned,
    planned_of,
    work,
)

METRICS = [bound("induction"), bound("entropy")]


@pytest.fixture
def config_folder(llama_folder, tmp_path):
    """A folder with the config of a model and nothing else."""
    folder = tmp_path / "config"
    folder.mkdir()
    shutil.copy(llama_folder / "config.json", folder)
    return folder


def test_it_has_the_sizes_of_the_model(llama_folder, config_folder) -> None:
    model, plan = interp.load(llama_folder), planned(str(config_folder), "planned")
    assert all(p.is_meta for p in plan.module.parameters())
    assert plan.weights == sum(p.numel() for p in model.module.parameters())
    shapes = [(s.n_heads, s.n_kv_heads, s.d_head, s.d_v, s.causal) for s in plan.sites]
    assert shapes == [(s.n_heads, s.n_kv_heads, s.d_head, s.d_v, s.causal) for s in model.sites]
    layer = model.module.model.layers[0]
    parts = (model.module.model.embed_tokens, layer.self_attn, layer.mlp)
    assert plan.part == max(sum(p.numel() for p in part.parameters()) for part in parts)
    ends = {model.module.model.embed_tokens.weight, model.module.lm_head.weight}
    assert plan.embeddings == sum(p.numel() for p in ends)


def test_cost_and_memory_are_those_of_the_loaded_model(llama_folder, config_folder) -> None:
    model, plan = interp.load(llama_folder), planned(str(config_folder), "planned")
    prompts = interp.repeats(model, n=4)
    lengths = [len(ids) for ids in prompts.ids]
    loaded = estimate_score(model, prompts, METRICS, 16)
    parts = peak_bytes(plan, 4, max(lengths), METRICS)
    assert parts["forward"] == loaded.forward_bytes
    assert parts["statistics"] == loaded.statistics_bytes
    of_model = roofline(model, prompts, METRICS, machine="100,10")
    costs = work(plan, lengths, METRICS, stored=True)
    assert sum(x for x, _ in costs.values()) == of_model.totals["pass"][0]
    assert sum(x for _, x in costs.values()) == of_model.totals["pass"][1]


def test_experts_that_are_not_chosen_do_not_count_as_work() -> None:
    sizes = {
        "vocab_size": 64,
        "hidden_size": 32,
        "intermediate_size": 48,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "dtype": "bfloat16",
    }
    config = transformers.Qwen3MoeConfig(**sizes)
    with torch.device("meta"):
        module = transformers.AutoModelForCausalLM.from_config(config)
    plan = planned_of(module, "experts")
    assert plan.active == 0.25
    assert plan.experts == 2 * 8 * 3 * 32 * 16
    done, moved = work(plan, [10], [], stored=False)["parameters"]
    norms = sum(p.numel() for n, p in module.named_parameters() if "norm" in n)
    dense = plan.weights - plan.experts - norms - 64 * 32  # the embedding is looked up
    assert done == 2 * 10 * (dense + plan.experts / 4)
    assert moved == 2 * (dense + plan.experts)


def test_offloading_needs_the_largest_part(config_folder) -> None:
    plan = planned(str(config_folder), "planned", "bfloat16")
    parts = peak_bytes(plan, 1, 100, METRICS)
    assert parts["weights"] == 2 * plan.weights
    less = offloaded_bytes(plan, parts)
    assert less == sum(parts.values()) - 2 * (plan.weights - plan.part)


@pytest.mark.parametrize(
    ("gib", "fits"),
    [
        (10, "a card of 16 GiB"),
        (15, "a card of 24 GiB"),
        (71, "a card of 80 GiB"),
        (300, "5 cards of 80 GiB (--device-map auto)"),
    ],
)
def test_a_tenth_of_a_card_is_left_free(gib: int, fits: str) -> None:
    assert card(gib * 2**30) == fits


def test_the_command_plans_from_the_config(run, config_folder) -> None:
    assert config_alone(str(config_folder))
    result = run(
        "score",
        config_folder,
        "-m",
        "induction",
        "--dry-run",
        "--max-length",
        "4000",
        "--set",
        "machine=100,10",
    )
    assert result.exit_code == 0
    plan = planned(str(config_folder), "planned")
    done = sum(x for x, _ in work(plan, [4000], METRICS[:1], stored=False).values())
    assert "planned from its config; " in result.stdout
    assert f"work      {done:.3g} operations" in result.stdout
    assert "8 runs (scores and nulls)" in result.stdout
    assert "(given: 100 GFLOP/s, 10 GB/s)" in result.stdout
    assert "DOES NOT FIT" not in result.stdout, "the named machine is another one"


def test_what_does_not_fit_is_said_with_what_helps(run, config_folder, monkeypatch) -> None:
    from interp.heads.sweep import plan as module

    plan = planned(str(config_folder), "planned")
    parts = peak_bytes(plan, 16, module.DEFAULT_TOKENS, METRICS[:1])
    monkeypatch.setattr(module, "free_memory", lambda device: sum(parts.values()) - 1)
    monkeypatch.setattr(Machine, "measured", lambda device, dtype: Machine.parse("100,10"))
    told = run("score", config_folder, "-m", "induction", "--dry-run").stdout
    assert "DOES NOT FIT: " in told
    assert "--offload" in told


def test_the_plan_is_of_the_engine_that_is_asked_for(run, config_folder) -> None:
    plan = planned(str(config_folder), "planned")
    for engine in ("stored", "streamed"):
        parts = peak_bytes(plan, 1, 4000, METRICS[:1], engine)
        told = run(
            "score",
            config_folder,
            "-m",
            "induction",
            "--dry-run",
            "--max-length",
            "4000",
            "--engine",
            engine,
            "--set",
            "machine=100,10",
        ).stdout
        assert f"1 x 4,000 tokens, {engine}: about {readable(sum(parts.values()))}" in told
    assert parts != peak_bytes(plan, 1, 4000, METRICS[:1], "stored")


def test_tokens_of_a_file_are_said_to_be_guessed(run, config_folder, tmp_path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("sixteen letters.")
    told = run("score", config_folder, "-m", "induction", "--dry-run", "--file", file).stdout
    assert "1 x 4 tokens" in told
    assert "tokens    guessed: four bytes of the file each" in told


def test_weights_are_still_needed_to_score(errors, config_folder) -> None:
    code, told = errors("score", config_folder)
    assert code == 1
    assert "has a config but no weights" in told[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"num_hidden_layers": 10**9}, "a model of 1000000000 layers"),
        ({"hidden_size": "wide"}, "the config cannot be used"),
        ({"architectures": ["NoSuchModel"]}, "no class NoSuchModel is known"),
    ],
)
def test_an_odd_config_is_one_error(config_folder, change, said) -> None:
    file = config_folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(LoadError, match=said):
        planned(str(config_folder), "planned")


def test_a_long_prompt_is_timed_in_part_and_grows_by_its_square(monkeypatch) -> None:
    timed: list[int] = []

    def seconds(_: object, ids: tuple[int, ...]) -> float:
        timed.append(len(ids))
        return 3e-4 * len(ids) + 2e-8 * len(ids) ** 2

    monkeypatch.setattr(plan, "_seconds", seconds)
    long = Prompts((tuple([1] * 100_000), (1, 2)))
    model: Any = None
    expected = 3e-4 * 100_002 + 2e-8 * (100_000**2 + 4)
    assert plan._forward(model, long) == pytest.approx(expected)
    assert max(timed) == plan.TIMED
    short = Prompts(((1,) * 100, (1,) * 50))
    assert plan._forward(model, short) == pytest.approx(1.5 * seconds(None, (1,) * 100))
