"""The identity of a model changes with each part of it alone, and with nothing else."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import zoo

import interp
from interp import bundled
from interp.core.errors import OptionError
from interp.core.registry import run_file
from interp.model import identity
from interp.model.identity import identity_of, imported
from interp.model.source_code import code_of


@pytest.fixture
def one_layer_folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(bundled.path("one-layer"), tmp_path / "model"))


def differing(before: dict[str, str], after: dict[str, str]) -> set[str]:
    assert set(before) == set(after)
    return {name for name in before if before[name] != after[name]}


def edit(path: Path, change: Callable[[dict], object]) -> None:
    told = json.loads(path.read_text())
    change(told)
    path.write_text(json.dumps(told))


def one_weight(folder: Path) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    name = sorted(weights)[-1]
    weights[name].view(-1)[1] += 1e-3
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def rotary_base(folder: Path) -> None:
    edit(folder / "config.json", lambda c: c["rope_parameters"].update(rope_theta=20000.0))


def a_token(folder: Path) -> None:
    def exchange(told: dict) -> None:
        vocabulary = told["model"]["vocab"]
        a, b = list(vocabulary)[-2:]
        vocabulary[a], vocabulary[b] = vocabulary[b], vocabulary[a]

    edit(folder / "tokenizer.json", exchange)


CHANGES = {
    "one weight": (one_weight, {"content_hash"}),
    "rope_theta": (rotary_base, {"config", "buffers"}),
    "the norms' epsilon": (
        lambda f: edit(f / "config.json", lambda c: c.update(rms_norm_eps=1e-5)),
        {"config"},
    ),
    "generation": (
        lambda f: edit(f / "generation_config.json", lambda c: c.update(repetition_penalty=1.5)),
        {"config"},
    ),
    "two tokens": (a_token, {"tokenizer"}),
    "who wrote it": (
        lambda f: edit(f / "config.json", lambda c: c.update(transformers_version="4.0.0")),
        set(),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_of_the_folder_is_seen_in_its_own_part(one_layer_folder, what) -> None:
    change, parts = CHANGES[what]
    before = identity_of(interp.load(one_layer_folder))
    change(one_layer_folder)
    assert differing(before, identity_of(interp.load(one_layer_folder))) == parts


def test_the_same_folder_anywhere_has_one_identity(one_layer_folder, tmp_path) -> None:
    model = interp.load(one_layer_folder)
    before = identity_of(model)
    json.dumps(before)
    model.run([[1, 2, 3]])
    interp.score(model, "induction")
    model.tokenizer(["dog", "a dog"], padding=True, truncation=True, max_length=5)
    assert identity_of(model) == before
    other = Path(shutil.copytree(one_layer_folder, tmp_path / "other"))
    assert identity_of(interp.load(other, name="another name")) == before


@pytest.mark.slow
def test_another_process_finds_the_same(one_layer_folder) -> None:
    code = (
        "import interp, json, sys; from interp.model.identity import identity_of;"
        "print(json.dumps(identity_of(interp.load(sys.argv[1]))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, one_layer_folder], capture_output=True, check=True
    )
    assert json.loads(done.stdout) == identity_of(interp.load(one_layer_folder))


def test_how_it_is_run_counts(one_layer_folder, monkeypatch) -> None:
    model = interp.load(one_layer_folder)
    before = identity_of(model)
    eager = identity_of(interp.load(one_layer_folder, attention="eager"))
    assert differing(before, eager) == {"attention"}
    double = identity_of(interp.load(one_layer_folder, dtype="float64"))
    assert {"dtype", "content_hash"} <= differing(before, double)
    for package in ("torch", "transformers"):
        with monkeypatch.context() as patch:
            patch.setattr(identity, package, SimpleNamespace(__version__="9"))
            assert differing(before, identity_of(model)) == {package}
    monkeypatch.setattr(identity, "__version__", "9")
    assert differing(before, identity_of(model)) == {"interp"}


def test_buffers_that_are_not_saved_count(one_layer_folder) -> None:
    model = interp.load(one_layer_folder)
    before = identity_of(model)
    next(x for n, x in model.module.named_buffers() if "inv_freq" in n).data[1] *= 1.001
    assert differing(before, identity_of(model)) == {"buffers"}


def test_weights_are_hashed_once(one_layer_folder, monkeypatch) -> None:
    from interp.model import content
    from interp.model import transformer as model_file

    taken = []
    own = content.content_hash
    monkeypatch.setattr(model_file, "content_hash", lambda module: taken.append(1) or own(module))
    model = interp.load(one_layer_folder)
    for _ in range(3):
        identity_of(model)
        interp.score(model, "entropy", [[1, 2, 3, 4]], null="none")
    assert len(taken) == 1


def test_what_cannot_be_told_apart_is_refused(one_layer_folder) -> None:
    model = interp.load(one_layer_folder)
    with model.edited(interp.zero([(0, 0)])), pytest.raises(OptionError, match="heads are edited"):
        identity_of(model)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(name for name, f in zoo.FAMILIES.items() if "refused" not in f.features)
)
def test_a_run_changes_no_familys_identity(name) -> None:
    family = zoo.FAMILIES[name]
    model = interp.load(family.build(family.attentions[0]), check=False)
    before = identity_of(model)
    with torch.no_grad():
        model.module(**family.inputs())
    assert identity_of(model) == before


# --- source code ----------------------------------------------------------------------------------

OWN = """
from torch import nn
import {helper}


class Own(nn.Linear):
    scale = {helper}.SCALE
"""


@pytest.fixture
def class_in_files(tmp_path: Path, monkeypatch) -> Callable[[str, str], type]:
    """A class in a file of one's own that takes a number from another file, freshly imported."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    helper = f"helper_{tmp_path.name}"
    (tmp_path / f"{helper}.py").write_text("SCALE = 1\n")

    def made(more: str = "", scale: str = "SCALE = 1\n") -> type:
        (tmp_path / f"{helper}.py").write_text(scale)
        path = tmp_path / "own.py"
        path.write_text(OWN.format(helper=helper) + more)
        sys.modules.pop(helper, None)
        return run_file(path, "kept").Own

    return made


def test_the_file_of_a_class_counts_and_what_it_imports(class_in_files) -> None:
    first = code_of([class_in_files()])
    assert code_of([class_in_files()]) == first
    assert code_of([class_in_files(more="# edited\n")]) != first
    assert code_of([class_in_files(scale="SCALE = 2\n")]) != first
    assert code_of([class_in_files()]) == first


def test_a_loaded_module_counts_as_it_was_loaded(class_in_files, tmp_path) -> None:
    own = class_in_files()
    first = code_of([own])
    (tmp_path / "own.py").write_text("# edited after it was loaded\n")
    assert code_of([own]) == first


def test_the_order_of_objects_and_the_other_parts_of_a_package_do_not_count() -> None:
    parts = [torch.nn.Linear, zoo.Family, interp.Head]
    first = code_of(parts)
    assert code_of([*reversed(parts), zoo.Family]) == first


def test_a_model_of_ones_own_class_and_an_imported_file(
    one_layer_folder, class_in_files, tmp_path
) -> None:
    model = interp.load(one_layer_folder)
    plain = identity_of(model)
    with imported([sys.modules[class_in_files().__module__]]):
        first = identity_of(model)
    assert differing(plain, first) == {"code"}
    with imported([sys.modules[class_in_files(more="x = 1\n").__module__]]):
        assert differing(first, identity_of(model)) == {"code"}
    assert identity_of(model) == plain
    model.module.add_module("more", class_in_files()(1, 1, bias=False))
    assert "code" in differing(plain, identity_of(model))


def test_what_is_typed_in_has_a_code_of_its_own() -> None:
    def made(text: str) -> type:
        place: dict = {"__name__": "typed_in"}
        exec(text, place)
        return place["Own"]

    one, two = (made(f"class Own:\n    def run(self):\n        return {n}\n") for n in (1, 2))
    assert code_of([one]) != code_of([two])
    assert code_of([one]) == code_of([made("class Own:\n    def run(self):\n        return 1\n")])


def test_the_file_of_an_imported_function_counts(class_in_files, tmp_path) -> None:
    helper = f"helper_{tmp_path.name}"
    more = f"\nfrom {helper} import turned\ndel {helper}\n"
    text = "SCALE = 1\n\n\ndef turned(x):\n    return {}\n"
    first = code_of([class_in_files(more, text.format("x"))])
    assert code_of([class_in_files(more, text.format("x"))]) == first
    assert code_of([class_in_files(more, text.format("-x"))]) != first
