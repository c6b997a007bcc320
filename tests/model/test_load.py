"""From folders and names to models: what loads, and what is refused in one line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from safetensors.torch import load_file, save_file

import interp
from interp.core.errors import InterpError, LoadError, UnknownName

IDS = torch.tensor([[9, 33, 21, 40, 11, 52]])
WORDS = ["[UNK]", "a", "b", "c", "the", "dog", "saw", "cat"]


@pytest.fixture(scope="module")
def saved_llama(tmp_path_factory) -> Path:
    """A llama of the zoo as a folder."""
    folder = tmp_path_factory.mktemp("models") / "tiny-llama"
    module: Any = zoo.FAMILIES["llama"].model("sdpa")
    module.save_pretrained(folder)
    return folder


@pytest.fixture
def llama_to_damage(saved_llama, tmp_path) -> Path:
    """A copy of that folder, to damage."""
    return Path(shutil.copytree(saved_llama, tmp_path / "tiny-llama"))


def refused(source: Any, pattern: str, error: type[InterpError] = LoadError, **options: Any) -> str:
    with pytest.raises(error, match=pattern) as raised:
        interp.load(source, **options)
    text = str(raised.value)
    assert "\n" not in text
    assert len(text) < 500
    return text


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    core = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="[UNK]")


def test_a_folder_is_the_model_that_was_saved(saved_llama):
    model = interp.load(saved_llama)
    original = interp.load(zoo.FAMILIES["llama"].model("sdpa"))
    assert model.name == "tiny-llama"
    assert model.tokenizer is None
    assert model.content_hash == original.content_hash
    assert torch.equal(model.run(IDS), original.run(IDS))
    assert not model.module.training
    assert interp.load(str(saved_llama), name="mine").name == "mine"


def test_options_of_loading(saved_llama):
    model = interp.load(saved_llama, dtype="bfloat16", attention="eager", device="cpu")
    assert model.dtype == torch.bfloat16
    assert model.config._attn_implementation == "eager"
    assert interp.load(saved_llama, attention="sdpa").config._attn_implementation == "sdpa"
    refused(
        saved_llama, "unknown dtype 'float31'; did you mean float32", UnknownName, dtype="float31"
    )
    refused(saved_llama, "attn_implementation|nonsense", attention="nonsense")
    refused(
        zoo.FAMILIES["llama"].model(),
        "device, dtype cannot be chosen for a model object",
        device="cpu",
        dtype="float32",
    )


@pytest.mark.parametrize(
    "name", ["gpt2", "bert", "t5", "vit", "bloom", "gpt_oss", "whisper", "clip"]
)
def test_every_kind_loads_from_its_folder(name, tmp_path):
    module: Any = zoo.FAMILIES[name].model(zoo.FAMILIES[name].attentions[-1])
    module.save_pretrained(tmp_path / name)
    model = interp.load(tmp_path / name)
    assert type(model.module) is type(module)
    inputs = zoo.FAMILIES[name].inputs()
    assert torch.equal(model.run(inputs), interp.load(module).run(inputs))


def test_loading_leaves_torch_and_transformers_as_they_were(saved_llama):
    from transformers.utils import logging

    before = (
        torch.random.get_rng_state().tolist(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
    )
    interp.load(saved_llama, dtype="bfloat16")
    with pytest.raises(LoadError):
        interp.load(saved_llama / "nothing")
    after = (
        torch.random.get_rng_state().tolist(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
    )
    assert before == after


def test_shards_load_and_a_missing_one_is_named(tmp_path):
    module: Any = zoo.FAMILIES["llama"].model("sdpa")
    module.save_pretrained(tmp_path, max_shard_size="60KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 2
    assert torch.equal(interp.load(tmp_path).run(IDS), interp.load(module).run(IDS))
    shards[1].unlink()
    refused(tmp_path, rf"lacks 1 of {len(shards)} weight files: {shards[1].name}")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"weight_map": ')
    refused(tmp_path, "index.json is damaged")
    index.write_text("[]")
    refused(tmp_path, "index.json is damaged")


def test_damaged_weights(llama_to_damage):
    weights = llama_to_damage / "model.safetensors"
    whole = weights.read_bytes()
    for broken in (whole[:-100], whole[:5], b"", b"\xff" * 64, b"<html>not found</html>" * 9):
        weights.write_bytes(broken)
        refused(llama_to_damage, "model.safetensors is damaged or cut short")


def test_weights_that_do_not_fit_the_config(llama_to_damage):
    weights = load_file(llama_to_damage / "model.safetensors")
    name = "model.layers.1.self_attn.k_proj.weight"
    fewer = {k: x for k, x in weights.items() if k != name}
    save_file(fewer, llama_to_damage / "model.safetensors", {"format": "pt"})
    text = refused(llama_to_damage, "lacks 1 tensors of LlamaForCausalLM")
    assert name in text
    assert "random" in text
    save_file(
        weights | {name: torch.zeros(4, 4)}, llama_to_damage / "model.safetensors", {"format": "pt"}
    )
    refused(llama_to_damage, "tensors do not have the config's shapes.*k_proj")


def test_not_a_model(llama_to_damage, tmp_path):
    refused(tmp_path / "absent", "does not exist")
    refused(llama_to_damage / "config.json", "is not a folder; give the folder")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(empty, "has no config.json")
    (llama_to_damage / "model.safetensors").unlink()
    refused(llama_to_damage, "has a config but no weights")
    (llama_to_damage / "config.json").write_text("{")
    refused(llama_to_damage, "config.json is not JSON")
    for other in ("[]", "3", "{}"):
        shutil.copy(__file__, llama_to_damage / "x.safetensors")
        (llama_to_damage / "config.json").write_text(other)
        refused(llama_to_damage, "config|damaged")


def test_a_pickle_is_read_only_when_it_is_allowed(llama_to_damage):
    weights = load_file(llama_to_damage / "model.safetensors")
    (llama_to_damage / "model.safetensors").unlink()
    torch.save(weights, llama_to_damage / "pytorch_model.bin")
    refused(
        llama_to_damage,
        r"pickle \(pytorch_model.bin\), and a pickle can run any code.*allow_pickle",
    )
    model = interp.load(llama_to_damage, allow_pickle=True)
    assert torch.equal(model.run(IDS), interp.load(zoo.FAMILIES["llama"].model("sdpa")).run(IDS))


def test_code_beside_the_weights_runs_only_when_it_is_trusted(llama_to_damage):
    config = json.loads((llama_to_damage / "config.json").read_text())
    ran = llama_to_damage / "ran"
    (llama_to_damage / "modeling_mine.py").write_text(
        f"open({str(ran)!r}, 'w').close()\n"
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class MineConfig(LlamaConfig):\n    model_type = 'mine'\n"
        "class MineForCausalLM(LlamaForCausalLM):\n    config_class = MineConfig\n"
    )
    mine = {
        "model_type": "mine",
        "architectures": ["MineForCausalLM"],
        "auto_map": {
            "AutoConfig": "modeling_mine.MineConfig",
            "AutoModelForCausalLM": "modeling_mine.MineForCausalLM",
        },
    }
    (llama_to_damage / "config.json").write_text(json.dumps(config | mine))
    refused(llama_to_damage, "needs code that comes with the checkpoint.*trust_remote_code=True")
    assert not ran.exists()
    # a family that transformers knows, with code beside it all the same: its own class is used
    (llama_to_damage / "config.json").write_text(
        json.dumps(config | {"auto_map": mine["auto_map"]})
    )
    assert interp.load(llama_to_damage).n_layers == 3
    assert not ran.exists()


def test_trusted_code_is_run(llama_to_damage, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "m"))
    test_code_beside_the_weights_runs_only_when_it_is_trusted(llama_to_damage)
    config = json.loads((llama_to_damage / "config.json").read_text())
    config |= {"model_type": "mine", "architectures": ["MineForCausalLM"]}
    (llama_to_damage / "config.json").write_text(json.dumps(config))
    model = interp.load(llama_to_damage, trust_remote_code=True)
    assert type(model.module).__name__ == "MineForCausalLM"
    assert (llama_to_damage / "ran").exists()


def hub_cache(root: Path, folder: Path, repo: str, commit: str) -> None:
    """The layout of the hub's cache: blobs aside, a snapshot and a ref that names it."""
    base = root / f"models--{repo.replace('/', '--')}"
    (base / "refs").mkdir(parents=True)
    (base / "refs" / "main").write_text(commit)
    shutil.copytree(folder, base / "snapshots" / commit)


def test_a_hub_id_is_found_in_the_cache_with_its_revision(saved_llama, tmp_path, monkeypatch):
    commit = "0123456789abcdef0123456789abcdef01234567"
    hub_cache(tmp_path, saved_llama, "someone/tiny-llama", commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    model = interp.load("someone/tiny-llama")
    assert (model.name, model.revision) == ("someone/tiny-llama", commit)
    assert torch.equal(model.run(IDS), interp.load(saved_llama).run(IDS))
    assert interp.load("someone/tiny-llama", revision=commit).revision == commit
    refused("someone/another", "'someone/another' is neither a folder nor a model")
    refused("someone/tiny-llama", "neither a folder nor a model", revision="nightly")


def test_names_that_are_no_names():
    refused("gpt 2!", "neither a folder nor")
    refused("bundled:inductoin", "unknown bundled model", UnknownName)
    refused(
        "planted:inductoin",
        "unknown planted model 'inductoin'; did you mean induction",
        UnknownName,
    )
    refused(torch.nn.Linear(2, 2), "not a Hugging Face model")


def test_a_planted_model_loads_by_name():
    model = interp.load("planted:noise")
    assert model.name == "planted:noise"
    assert model.kind == "causal"


def test_a_tokenizer_is_found_beside_the_weights_or_given(llama_to_damage):
    tokenizer().save_pretrained(llama_to_damage)
    model = interp.load(llama_to_damage)
    assert model.tokenizer is not None
    by_text = model.run("the dog saw the cat")
    assert torch.equal(by_text, model.run([[4, 5, 6, 4, 7]]))
    (llama_to_damage / "tokenizer.json").write_text('{"version": ')
    refused(llama_to_damage, "its tokenizer cannot be read")
    assert interp.load(llama_to_damage, tokenizer=tokenizer()).run("a b").shape == (1, 2, 64)


def test_the_name_of_a_folder_given_as_a_dot(saved_llama, monkeypatch):
    monkeypatch.chdir(saved_llama)
    assert interp.load(".").name == "tiny-llama"
    monkeypatch.chdir(saved_llama.parent)
    assert interp.load("tiny-llama").name == "tiny-llama"


def test_messages_speak_of_what_to_do(llama_to_damage):
    """Nothing of transformers' advice to upgrade itself where a class is what is missing."""
    config = json.loads((llama_to_damage / "config.json").read_text())
    config |= {"model_type": "never_heard_of", "architectures": ["NeverHeardOf"]}
    (llama_to_damage / "config.json").write_text(json.dumps(config))
    text = refused(
        llama_to_damage, r"model type `never_heard_of`.*; import its class first \(--import FILE\)"
    )
    assert not re.search("pip|upgrade", text)
