"""Encode, decode and folders of each architecture, against numpy and, where present, SAELens."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from dictionaries.reference import decoded, encoded
from safetensors.torch import load_file, save_file

import interp
from interp.core.errors import OptionError, StoreError, UnknownName
from interp.dictionaries import load_dictionary, save_dictionary
from interp.dictionaries.dictionary import ARCHITECTURES, EXTRA, Dictionary, DictionaryMismatch

D_IN, D_SAE, K = 6, 10, 3
CASES = [*((a, False) for a in ARCHITECTURES), ("topk", True)]


def drawn(kind: str, rescale: bool = False, **about) -> Dictionary:
    rng = torch.Generator().manual_seed(3)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=rng)

    parts = {name: draw(D_SAE) * 0.3 for name in EXTRA[kind]}
    if "threshold" in parts:
        parts["threshold"] = parts["threshold"].abs()
    b_enc = torch.zeros(D_SAE) if kind == "gated" else draw(D_SAE) * 0.3
    given = {"site": "resid_pre", "layer": 1} | about
    return Dictionary(
        kind,
        draw(D_IN, D_SAE),
        draw(D_SAE, D_IN),
        b_enc,
        draw(D_IN),
        parts=parts,
        k=K if kind == "topk" else None,
        rescale=rescale,
        **given,
    )


def weights(d: Dictionary) -> dict[str, np.ndarray]:
    four = {name: getattr(d, name) for name in ("W_enc", "W_dec", "b_enc", "b_dec")}
    return {name: x.double().numpy() for name, x in (four | dict(d.parts)).items()}


@pytest.mark.parametrize(("kind", "rescale"), CASES)
def test_codes_and_reconstructions_are_those_of_the_definition(kind: str, rescale: bool) -> None:
    d = drawn(kind, rescale).to(torch.float64)
    x = torch.randn(40, D_IN, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    codes = encoded(kind, weights(d), x.numpy(), d.k, rescale)
    assert 0 < (codes != 0).mean() < 1
    np.testing.assert_allclose(d.encode(x).numpy(), codes, atol=1e-12)
    np.testing.assert_allclose(d(x).numpy(), decoded(weights(d), codes, rescale), atol=1e-12)


@pytest.mark.parametrize(("kind", "rescale"), CASES)
def test_a_folder_gives_the_same_dictionary(tmp_path, kind: str, rescale: bool) -> None:
    d = drawn(kind, rescale, model={"name": "m", "hash": "x"}, about={"seed": 1})
    save_dictionary(d, tmp_path / "new" / "folder")
    again = load_dictionary(tmp_path / "new" / "folder")
    x = torch.randn(9, D_IN)
    assert torch.equal(again(x), d(x))
    for name in ("site", "layer", "stack", "k", "rescale", "model", "about", "architecture"):
        assert getattr(again, name) == getattr(d, name)
    files = sorted(p.name for p in (tmp_path / "new" / "folder").iterdir())
    assert files == ["cfg.json", "sae_weights.safetensors"]


@pytest.mark.parametrize(("kind", "rescale"), CASES)
def test_saelens_reads_our_folders_and_we_read_its(tmp_path, kind: str, rescale: bool) -> None:
    sae_lens = pytest.importorskip("sae_lens", reason="SAELens is not installed")
    d = drawn(kind, rescale)
    save_dictionary(d, tmp_path / "ours")
    theirs = sae_lens.SAE.load_from_disk(str(tmp_path / "ours"), device="cpu")
    x = torch.randn(50, D_IN, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        torch.testing.assert_close(theirs.encode(x), d.encode(x), atol=1e-6, rtol=1e-6)
        torch.testing.assert_close(theirs(x), d(x), atol=1e-6, rtol=1e-6)
        theirs.save_model(tmp_path / "theirs")
        cfg = json.loads((tmp_path / "theirs" / "cfg.json").read_text())
        assert "interp" not in cfg
        again = load_dictionary(tmp_path / "theirs")
        assert (again.site, again.layer) == ("resid_pre", 1)
        torch.testing.assert_close(theirs(x), again(x), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("kind", ["standard", "jumprelu"])
def test_saelens_reads_our_transcoders(tmp_path, kind: str) -> None:
    sae_lens = pytest.importorskip("sae_lens", reason="SAELens is not installed")
    d = drawn(kind, site="attn_in", site_out="attn_out")
    save_dictionary(d, tmp_path)
    theirs = sae_lens.SAE.load_from_disk(str(tmp_path), device="cpu")
    x = torch.randn(50, D_IN)
    with torch.no_grad():
        torch.testing.assert_close(theirs(x), d(x), atol=1e-6, rtol=1e-6)


def test_a_transcoder_reads_without_the_bias_of_its_output() -> None:
    d = drawn("standard", site="attn_in", site_out="attn_out").to(torch.float64)
    x = torch.randn(5, D_IN, dtype=torch.float64)
    assert torch.allclose(d.encode(x), (x @ d.W_enc + d.b_enc).relu())
    skip = torch.randn(D_IN, D_IN, dtype=torch.float64)
    more = Dictionary(
        "standard",
        d.W_enc,
        d.W_dec,
        d.b_enc,
        d.b_dec,
        "attn_in",
        1,
        site_out="attn_out",
        parts={"W_skip": skip},
    )
    assert torch.allclose(more(x), d(x) + x @ skip.T)
    with pytest.raises(OptionError, match="give x too"):
        more.decode(more.encode(x))


def test_folders_of_others_are_refused_with_the_reason(tmp_path) -> None:
    model = interp.load("bundled:induction")
    d = drawn("topk", site="z", layer=1)
    save_dictionary(d, tmp_path)
    with pytest.raises(DictionaryMismatch, match=r"6 entries at z, and .* has 128"):
        load_dictionary(tmp_path, model)
    with pytest.raises(DictionaryMismatch, match=r"no such layer; it has decoder\.0, decoder\.1"):
        drawn("topk", layer=7).site_in(model)
    other = {"name": "other", "hash": "abc"}
    fitting = Dictionary(
        "standard",
        torch.ones(128, 4),
        torch.ones(4, 128),
        torch.zeros(4),
        torch.zeros(128),
        "z",
        1,
        model=other,
    )
    save_dictionary(fitting, tmp_path / "fitting")
    with pytest.raises(DictionaryMismatch, match="other_weights=True"):
        load_dictionary(tmp_path / "fitting", model)
    assert load_dictionary(tmp_path / "fitting", model, other_weights=True).n_heads == 8
    cfg = tmp_path / "cfg.json"
    good = cfg.read_text()
    cfg.write_text(json.dumps(json.loads(good) | {"dtype": "float64"}))
    with pytest.raises(StoreError, match="was changed after it was written"):
        load_dictionary(tmp_path)
    for change, told in (
        ({"normalize_activations": "layer_norm"}, "normalised"),
        ({"architecture": "temporal"}, "'temporal' is not supported"),
    ):
        cfg.write_text(json.dumps(json.loads(good) | change | {"interp": {}}))
        with pytest.raises(DictionaryMismatch, match=told):
            load_dictionary(tmp_path)
    plain = {k: v for k, v in json.loads(good).items() if k != "interp"}
    plain["metadata"]["hook_name"] = "blocks.0.hook_pos"
    cfg.write_text(json.dumps(plain))
    with pytest.raises(DictionaryMismatch, match=r"'blocks\.0\.hook_pos' is not supported"):
        load_dictionary(tmp_path)
    cfg.write_text("[]")
    with pytest.raises(StoreError, match="layout of SAELens"):
        load_dictionary(tmp_path)
    with pytest.raises(StoreError):
        load_dictionary(tmp_path / "nothing")


def test_two_files_that_do_not_belong_together_are_refused(tmp_path) -> None:
    save_dictionary(drawn("standard"), tmp_path)
    file = tmp_path / "sae_weights.safetensors"
    held = load_file(file)
    save_file({k: v + 1 for k, v in held.items()}, file)
    with pytest.raises(StoreError, match=r"is not the file that cfg\.json was written for"):
        load_dictionary(tmp_path)


def test_head_shares_are_norms_of_slices() -> None:
    d = drawn("topk", site="z", n_heads=2)
    rows = d.W_dec.numpy()
    first = np.linalg.norm(rows[:, :3], axis=1)
    second = np.linalg.norm(rows[:, 3:], axis=1)
    np.testing.assert_allclose(d.head_share()[:, 0], first / (first + second), rtol=1e-5)
    with pytest.raises(OptionError, match="need a dictionary of z"):
        drawn("topk").head_share()


def test_wrong_parts_are_refused() -> None:
    d = drawn("standard")
    with pytest.raises(UnknownName, match="architecture"):
        Dictionary("relu", d.W_enc, d.W_dec, d.b_enc, d.b_dec, "z", 0)
    with pytest.raises(OptionError, match="needs parameters of shapes"):
        Dictionary("jumprelu", d.W_enc, d.W_dec, d.b_enc, d.b_dec, "z", 0)
    with pytest.raises(OptionError, match="k=11"):
        Dictionary("topk", d.W_enc, d.W_dec, d.b_enc, d.b_dec, "z", 0, k=11)
