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
    assert interp.check_model(model).passed
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
        interp.check_model(changed)
