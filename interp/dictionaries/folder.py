"""Folders of dictionaries in the layout of SAELens: cfg.json and sae_weights.safetensors."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from interp.core.documents import document_checksum, parse_json, seal, unseal
from interp.core.errors import StoreError
from interp.core.files import read_bytes, write_atomically
from interp.core.json_document import plain
from interp.dictionaries.dictionary import EXTRA, Dictionary, DictionaryMismatch
from interp.model.activation_names import OTHER_NAMES

CONFIG, WEIGHTS = "cfg.json", "sae_weights.safetensors"
LAYOUT = "6.54.12"  # version of SAELens whose layout this is
_PLACES = ("z", "attn_out", "resid_pre", "resid_mid", "resid_post")
_HOOKS = {
    **{name: f"blocks.{{}}.{OTHER_NAMES[name]['transformer-lens']}" for name in _PLACES},
    "attn_in": "blocks.{}.attn.input",  # there is no such hook point; the name is interp's own
}
_TRANSCODERS = {
    "standard": "transcoder",
    "jumprelu": "jumprelu_transcoder",
}


def save_dictionary(dictionary: Dictionary, folder: str | Path) -> None:
    """Write a dictionary in the layout of SAELens.

    Weights come first and are named in cfg.json by their hash, so that a folder of which only one
    file was written is refused on reading.

    Args:
        dictionary: the dictionary.
        folder: the folder, made if it does not exist.

    Raises:
        DictionaryMismatch: SAELens has no such kind of transcoder.
        StoreError: the folder cannot be written.
    """
    from safetensors.torch import save

    d = dictionary
    names = {"W_enc": d.W_enc, "W_dec": d.W_dec, "b_dec": d.b_dec} | dict(d.parts)
    if d.architecture != "gated":
        names["b_enc"] = d.b_enc
    content = save({name: x.detach().float().contiguous() for name, x in names.items()})
    folder = Path(folder)
    cfg = plain(_config(d))
    extension = {"cfg": document_checksum(cfg), **_own(d, hashlib.sha256(content).hexdigest())}
    cfg["interp"] = seal(plain(extension))
    write_atomically(folder / WEIGHTS, content)
    write_atomically(folder / CONFIG, (json.dumps(cfg, indent=2) + "\n").encode())


def _config(d: Dictionary) -> dict[str, Any]:
    architecture = d.architecture
    if d.is_transcoder:
        skip = "W_skip" in d.parts
        if architecture not in _TRANSCODERS or (skip and architecture != "standard"):
            raise DictionaryMismatch(
                f"SAELens has no {architecture} transcoder{' with a skip' if skip else ''}, so it "
                "cannot be written in its layout; use standard, jumprelu or batchtopk"
            )
        architecture = "skip_transcoder" if skip else _TRANSCODERS[architecture]
    prompts = d.about.get("prompts", {})
    metadata: dict[str, Any] = {
        "sae_lens_version": LAYOUT,  # without it, SAELens takes the keys for those before 6.0
        "model_name": d.model.get("name"),
        "hook_name": _HOOKS[d.site].format(d.layer),
        "hook_head_index": None,
        "context_size": prompts.get("max_length"),
        "prepend_bos": prompts.get("bos"),
    }
    cfg = {
        "architecture": architecture,
        "d_in": d.d_in,
        "d_sae": d.d_sae,
        "dtype": "float32",
        "device": "cpu",
        "apply_b_dec_to_input": d.subtract and not d.is_transcoder,
        "normalize_activations": "none",
        "reshape_activations": "hook_z" if d.site == "z" else "none",
        "metadata": metadata,
    }
    if d.is_transcoder:
        cfg["d_out"] = d.d_out
        metadata["hook_name_out"] = _HOOKS[d.site_out].format(d.layer)
    if d.architecture == "topk":
        cfg |= {"k": d.k, "rescale_acts_by_decoder_norm": d.rescale}
    return cfg


def _own(d: Dictionary, digest: str) -> dict[str, Any]:
    """Return what SAELens has no key for; it passes over unknown keys."""
    return {
        "site": d.site,
        "site_out": d.site_out,
        "layer": d.layer,
        "stack": d.stack,
        "n_heads": d.n_heads,
        "model": dict(d.model),
        "about": dict(d.about),
        "weights_sha256": digest,
    }


def load_dictionary(
    folder: str | Path,
    model: Any = None,
    *,
    other_weights: bool = False,
) -> Dictionary:
    """Read a dictionary from a folder in the layout of SAELens, with or without interp's own keys.

    Args:
        folder: folder with cfg.json and sae_weights.safetensors.
        model: a model that the dictionary must belong to; not checked if None.
        other_weights: with a model: accept one whose weights differ.

    Raises:
        StoreError: a file is missing or damaged, is not of this layout, or the two files do not
            belong together.
        DictionaryMismatch: the kind of dictionary is not supported, or it belongs to another model.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load

    folder = Path(folder)
    raw, content = read_bytes(folder / CONFIG), read_bytes(folder / WEIGHTS)
    try:
        cfg = parse_json(raw)
        weights = {name: x.float() for name, x in load(content).items()}
        dictionary = _made(cfg, weights, folder, hashlib.sha256(content).hexdigest())
    except (SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise StoreError(
            f"{folder} does not hold a dictionary in the layout of SAELens "
            f"({type(error).__name__}: {error}); it needs {CONFIG} and {WEIGHTS} of one dictionary"
        ) from error
    if model is not None:
        from interp.model.model_argument import one_model

        site = dictionary.site_in(one_model(model), other_weights=other_weights)
        if dictionary.site == "z":
            dictionary = replace(dictionary, n_heads=site.n_heads)
    return dictionary


def _made(cfg: dict[str, Any], weights: dict[str, Tensor], folder: Path, digest: str) -> Dictionary:
    extension = cfg.get("interp", {})
    if extension:
        extension = unseal(extension)
        if extension["cfg"] != document_checksum(
            {name: x for name, x in cfg.items() if name != "interp"}
        ):
            raise ValueError(f"{CONFIG} was changed after it was written")
    if extension and extension["weights_sha256"] != digest:
        raise StoreError(
            f"{folder}: {WEIGHTS} is not the file that {CONFIG} was written for; write both again"
        )
    architecture, transcoder, skip = _architecture(cfg, folder)
    normal = cfg.get("normalize_activations", "none")
    if normal != "none":
        raise DictionaryMismatch(
            f"{folder}: activations are normalised ({normal}); fold the norm into the weights "
            "(SAELens does on saving for inference) and save it again"
        )
    metadata = cfg.get("metadata") or cfg
    place, layer = _place(str(metadata.get("hook_name")), extension, folder)
    place_out = extension.get("site_out") or place
    if transcoder and not extension:
        place_out, layer_out = _place(str(metadata.get("hook_name_out")), extension, folder)
        if layer_out != layer:
            raise DictionaryMismatch(
                f"{folder}: a transcoder from layer {layer} to layer {layer_out}; only those of "
                "one attention layer are supported"
            )
    size = int(cfg["d_sae"])
    b_enc = weights.get("b_enc", torch.zeros(size))
    if tuple(weights["W_enc"].shape) != (int(cfg["d_in"]), size):
        raise StoreError(
            f"{folder}: {CONFIG} states {cfg['d_in']} x {size}, and the encoder is "
            f"{' x '.join(map(str, weights['W_enc'].shape))}"
        )
    extra = (*EXTRA[architecture], *(("W_skip",) if skip else ()))
    return Dictionary(
        architecture,
        weights["W_enc"],
        weights["W_dec"],
        b_enc,
        weights["b_dec"],
        place,
        layer,
        extension.get("stack", "decoder"),
        extension.get("n_heads"),
        place_out,
        {name: weights[name] for name in extra},
        cfg.get("k"),
        bool(cfg.get("rescale_acts_by_decoder_norm", False)),
        bool(cfg.get("apply_b_dec_to_input", not transcoder)),
        extension.get("model", {"name": metadata.get("model_name")}),
        extension.get("about", {}),
    )


def _architecture(cfg: dict[str, Any], folder: Path) -> tuple[str, bool, bool]:
    """Return the architecture, and whether it is a transcoder and has a skip."""
    named = cfg["architecture"]
    if named in EXTRA:
        return named, False, False
    if named in ("transcoder", "skip_transcoder"):
        return "standard", True, named == "skip_transcoder"
    if named == "jumprelu_transcoder":
        return "jumprelu", True, False
    raise DictionaryMismatch(
        f"{folder}: the architecture {named!r} is not supported; supported: {', '.join(EXTRA)}, "
        "transcoder, skip_transcoder, jumprelu_transcoder"
    )


def _place(hook: str, own: dict[str, Any], folder: Path) -> tuple[str, int]:
    if own:
        return str(own["site"]), int(own["layer"])
    for name, form in _HOOKS.items():
        match = re.fullmatch(form.replace(".", r"\.").replace("{}", r"(\d+)"), hook)
        if match:
            return name, int(match[1])
    known = ", ".join(form.format("L") for form in _HOOKS.values())
    raise DictionaryMismatch(f"{folder}: the hook {hook!r} is not supported; supported: {known}")
