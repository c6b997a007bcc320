"""Tensors of a checkpoint that the loaded class does not use: refused, stated or harmless."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from safetensors.torch import load_file, save_file

import interp
from interp.core.errors import LoadError

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def saved_family(tmp_path) -> Callable[..., Path]:
    """A family as a folder, with tensors added to its checkpoint and its config changed."""

    def make(
        family: str,
        more: Callable[[Tensors], Tensors] = lambda t: {},
        change: Callable[[dict[str, Any]], None] = lambda c: None,
        bare: bool = False,
    ) -> Path:
        folder = tmp_path / family
        module: Any = zoo.FAMILIES[family].model("sdpa")
        (module.base_model if bare else module).save_pretrained(folder)
        weights = folder / "model.safetensors"
        tensors = load_file(weights)
        save_file(tensors | more(tensors), weights, metadata={"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        config["architectures"] = [type(module).__name__]
        change(config)
        (folder / "config.json").write_text(json.dumps(config))
        return folder

    return make


def fewer_layers(config: dict[str, Any]) -> None:
    config["num_hidden_layers" if "num_hidden_layers" in config else "n_layer"] -= 1


def projection_bias(tensors: Tensors) -> Tensors:
    weight = tensors["model.layers.0.self_attn.q_proj.weight"]
    return {"model.layers.0.self_attn.q_proj.bias": torch.ones(len(weight))}


@pytest.mark.parametrize(("family", "bare"), [("llama", False), ("gpt2", True)])
def test_a_config_with_fewer_layers_than_the_checkpoint_is_refused(saved_family, family, bare):
    folder = saved_family(family, change=fewer_layers, bare=bare)
    with pytest.raises(LoadError, match=r"does not use \(.*(layers|h)\.2\..*correct config.json"):
        interp.load(folder)


def test_a_bias_that_the_class_does_not_add_is_refused(saved_family, run_check):
    folder = saved_family("llama", projection_bias)
    with pytest.raises(LoadError, match=r"1 tensors .* \(model.layers.0.self_attn.q_proj.bias\)"):
        interp.load(folder)
    result = run_check(folder)
    assert result.exit_code == 1
    assert "q_proj.bias" in result.stderr


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("llama", {"score.weight": torch.ones(2, 48)}),
        ("bert", {"bert.pooler.dense.weight": torch.ones(48, 48)}),
        ("bert", {"cls.seq_relationship.weight": torch.ones(2, 48)}),
    ],
)
def test_a_head_of_another_task_is_named_in_provenance_and_on_the_screen(
    saved_family, run_check, family, more
):
    model = interp.load(saved_family(family, lambda t: more))
    assert model.unused == tuple(more)
    (about,) = interp.score(model, "entropy", null="none").provenance.values()
    assert about["unused_tensors"] == list(more)
    result = run_check(Path(saved_family(family, lambda t: more)))
    assert result.exit_code == 0
    assert f"not used: 1 tensors of another head in the checkpoint ({next(iter(more))})" in (
        result.stdout
    )


def test_a_language_model_loaded_without_its_head_is_named_or_complete(saved_family):
    folder = saved_family("llama", change=lambda c: c.update(architectures=["LlamaModel"]))
    model = interp.load(folder)
    assert set(model.unused) <= {"lm_head.weight"}
    original = interp.load(zoo.FAMILIES["llama"].model("sdpa"))
    ids = torch.tensor([[9, 33, 21, 40]])
    patterns = [m.capture(ids, ["pattern"])["pattern", 2] for m in (model, original)]
    assert torch.equal(*patterns)


@pytest.mark.parametrize(
    ("family", "more"),
    [
        ("llama", {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(4)}),
        ("gpt2", {"transformer.h.0.attn.bias": torch.ones(1, 1, 64, 64).tril()}),
        ("bert", {"bert.embeddings.position_ids": torch.arange(64)[None]}),
    ],
)
def test_tables_that_the_class_computes_are_no_loss(saved_family, family, more):
    model = interp.load(saved_family(family, lambda t: more))
    assert model.unused == ()
    (about,) = interp.score(model, "entropy", null="none").provenance.values()
    assert "unused_tensors" not in about


@pytest.fixture
def run_check() -> Callable[[Path], Any]:
    from click.testing import CliRunner

    from interp.cli.main import main

    return lambda folder: CliRunner().invoke(main, ["check", str(folder)])
