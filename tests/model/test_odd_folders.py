"""Pipes in a model's folder, stages of one layer, and error lines in the words of a config."""

from __future__ import annotations

import copy
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo

import interp
from interp.core.errors import CheckError, LoadError
from interp.model.sources.folder import error_line


@pytest.fixture
def fresh_llama_folder(tmp_path) -> Path:
    module: Any = zoo.FAMILIES["llama"].model("sdpa")
    module.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_pipe_in_the_folder_is_refused_at_once(fresh_llama_folder, name):
    (fresh_llama_folder / name).unlink(missing_ok=True)
    os.mkfifo(fresh_llama_folder / name)
    with pytest.raises(LoadError, match=rf"{name} is a pipe, socket or device"):
        interp.load(fresh_llama_folder)


def test_a_folder_in_place_of_weights_is_refused(fresh_llama_folder):
    (fresh_llama_folder / "model.safetensors").unlink()
    (fresh_llama_folder / "model.safetensors").mkdir()
    with pytest.raises(LoadError, match=r"model.safetensors is a folder; expected a file"):
        interp.load(fresh_llama_folder)


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("architectures", -1, r"architectures is -1; expected a list"),
        ("architectures", [None], r"architectures is \[None\]; expected a list"),
        ("dtype", 0, r"dtype is 0; expected a name such as 'float32'"),
        ("num_attention_heads", None, r"'num_attention_heads' expected int, got null"),
        ("vocab_size", None, r"'vocab_size' expected int, got null"),
    ],
)
def test_odd_values_of_a_config_are_named(fresh_llama_folder, key, value, text):
    config = fresh_llama_folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: value}))
    with pytest.raises(LoadError, match=text) as raised:
        interp.load(fresh_llama_folder)
    assert "NoneType" not in str(raised.value)


def test_an_error_without_words_is_called_by_its_name():
    assert error_line(StopIteration()) == "StopIteration"
    assert error_line(TypeError("'NoneType' object is not iterable")) == "null is not iterable"
    assert error_line(TypeError("(<class 'int'>, <class 'NoneType'>)")) == "(int, null)"


def swin(*depths: int) -> Any:
    """A Swin with stages of so many layers; each but the last halves the stream's length."""
    family = zoo.FAMILIES["swin"]
    sizes = {"depths": list(depths), "num_heads": [2, 4, 8][: len(depths)]}
    import transformers

    cls = getattr(transformers, family.model_class)
    config = cls.config_class(**copy.deepcopy(dict(family.config)) | sizes)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return cls._from_config(config, attn_implementation="eager").eval()


@pytest.mark.parametrize("depths", [(1,), (1, 1), (1, 2), (2, 1)])
def test_a_stage_of_one_layer_is_no_layer(depths):
    model = interp.load(swin(*depths), name="swin")
    assert len(model.sites) == sum(depths)
    assert interp.model.check_model(model).passed
    cache = model.capture(
        zoo.FAMILIES["swin"].inputs(), ["resid_pre", "attn_out", "resid_mid", "mlp_out"]
    )
    for site in model.sites:
        pre, attention, mid, _ = (
            cache[name, site.layer, site.stack]
            for name in ("resid_pre", "attn_out", "resid_mid", "mlp_out")
        )
        torch.testing.assert_close(mid.reshape(pre.shape), pre + attention.reshape(pre.shape))


def test_a_site_that_does_not_run_again_is_named():
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="llama")
    gone = replace(model.sites[0], run=7)
    changed = interp.Model(model.module, "llama", (gone, *model.sites[1:]))
    with pytest.raises(CheckError, match=r"model.layers.0.self_attn .* does not run now"):
        interp.model.check_model(changed)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("num_hidden_layers", 10**6),
        ("num_key_value_heads", 10**6),
        ("hidden_size", 10**7),
        ("vocab_size", 10**9),
        ("head_dim", 10**7),
        ("intermediate_size", 10**9),
    ],
)
def test_sizes_that_the_weights_cannot_have_are_named_at_once(fresh_llama_folder, key, value):
    """Building a model of these sizes would take hours, or all memory."""
    config = fresh_llama_folder / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {key: value}))
    with pytest.raises(LoadError, match=rf"{key} is {value:,}, and the weights beside it hold"):
        interp.load(fresh_llama_folder)


def test_sizes_of_a_part_of_a_config_are_named(fresh_llama_folder):
    config = fresh_llama_folder / "config.json"
    odd = {"vision_config": {"num_hidden_layers": 10**6}}
    config.write_text(json.dumps(json.loads(config.read_text()) | odd))
    with pytest.raises(LoadError, match="num_hidden_layers is 1,000,000"):
        interp.load(fresh_llama_folder)


@pytest.mark.parametrize("base", ["someone/llama", None])
def test_a_folder_with_an_adapter_names_its_model(tmp_path, base):
    told = {"peft_type": "LORA"} | ({} if base is None else {"base_model_name_or_path": base})
    (tmp_path / "adapter_config.json").write_text(json.dumps(told))
    with pytest.raises(LoadError, match=f"holds a PEFT adapter.*load it on {base or 'its base'}"):
        interp.load(tmp_path)


class PanicException(BaseException):
    """A panic as pyo3 reports it."""


def test_a_tokenizer_that_panics_is_one_line(fresh_llama_folder, monkeypatch):
    import transformers

    def panics(*args: Any, **options: Any) -> None:
        raise PanicException("called `Option::unwrap()` on a `None` value")

    (fresh_llama_folder / "tokenizer.json").write_text("{}")
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", panics)
    with pytest.raises(LoadError, match=r"its tokenizer cannot be read: called .Option::unwrap"):
        interp.load(fresh_llama_folder)

    def stopped(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", stopped)
    with pytest.raises(KeyboardInterrupt):
        interp.load(fresh_llama_folder)


def staged(name: str) -> Any:
    """A small vision model in stages, whose config states no single width, or no size of images."""
    import transformers as t

    stages: dict[str, Any] = {
        "hidden_sizes": [8, 16, 16, 32],
        "depths": [1] * 4,
        "num_attention_heads": [1, 2, 2, 4],
    }
    levit: dict[str, Any] = {
        "hidden_sizes": [16, 24, 32],
        "depths": [1] * 3,
        "num_attention_heads": [2, 3, 4],
        "key_dim": [8] * 3,
        "image_size": 64,
    }
    makes = {
        "LeViT": lambda: t.LevitModel(t.LevitConfig(**levit)),
        "PVT": lambda: t.PvtModel(t.PvtConfig(**stages, image_size=64)),
        "PVT 2": lambda: t.PvtV2Model(t.PvtV2Config(**stages, image_size=64)),
        "SegFormer": lambda: t.SegformerModel(t.SegformerConfig(**stages)),
    }
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return makes[name]().eval()


@pytest.mark.parametrize("name", ["LeViT", "PVT", "PVT 2", "SegFormer"])
def test_a_vision_model_in_stages_is_checked(name):
    model = interp.load(staged(name), name=name)
    assert interp.model.check_model(model).passed
    assert model.d_model == 32
    assert name in repr(model)


def test_a_layer_on_disk_is_refused_by_name(tmp_path):
    accelerate = pytest.importorskip("accelerate", reason="needs the package accelerate")
    module: Any = zoo.FAMILIES["llama"].build("sdpa")
    here = torch.device("cpu")
    accelerate.disk_offload(module.model.layers[1], str(tmp_path), execution_device=here)
    with pytest.raises(LoadError, match=r"tensors stay on the disk .*layers\.1.*without offload"):
        interp.load(module)


def test_weights_without_numbers_are_refused_by_name():
    module: Any = zoo.FAMILIES["llama"].build("sdpa")
    module.model.layers[1].to("meta")
    with pytest.raises(LoadError, match=r"tensors stay on the disk .*model\.layers\.1"):
        interp.load(module)
