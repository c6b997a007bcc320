"""Adapter for TransformerLens bridges; the only module that imports that package.

A bridge rewires the Hugging Face model that it wraps: its own components replace the model's
modules, and many of them recompute attention without any fused kernel. The original modules are
still inside, with the same parameters. The first choice is therefore a model assembled from those:
no parameter is copied, and the attention is that of Hugging Face. It is used only if its output on
a few tokens equals the bridge's.

It differs if the bridge's weights were processed (folded norms, centred writing), since those are
stored in the bridge's own components. Then the rewired model itself is read. If its attention
cannot be watched, the bridge's hooks are read.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from interp.core.errors import LoadError, UnreadableAttention
from interp.model.inputs import forward, probe_inputs
from interp.model.locate.probe import probe
from interp.model.sources.packages import Held

_ORIGINAL = "_original_component"
_CLOSE = {
    torch.float64: 1e-9,
    torch.float32: 1e-4,
}  # otherwise 5e-2; relative to the largest output


def unwrap(bridge: Any, attention: str | None = None) -> Held:
    """Return the module to run for a bridge."""
    held = _model_in(bridge)
    _require_no_hooks(bridge)
    name = getattr(bridge.cfg, "model_name", None)
    name = None if name in (None, "external") else str(name)
    tokenizer = getattr(bridge, "tokenizer", None)
    if not hasattr(held, "config"):
        held = _Native(_NativeConfig(bridge.cfg), held)
        return Held(held, tokenizer, name, "transformer-lens, its native model")
    # fused kernels of some families round or bias scores differently: then use eager, as the bridge
    for kernel in (None, "eager") if attention is None else (attention,):
        plain = _unwired(held, kernel)
        if plain is not None and _same_output(plain, held):
            return Held(plain, tokenizer, name, "transformer-lens, the Hugging Face model it holds")
    if attention is not None:
        raise LoadError(
            f"attention={attention!r} cannot be had: this bridge's weights were processed, so only "
            "its own attention code has them; leave it out"
        )
    try:
        probe(held, "bridge")
    except UnreadableAttention:
        from interp.model.hooks.hook_points import HookedBridge

        by_hooks = HookedBridge(held, bridge)
        return Held(by_hooks, tokenizer, name, "transformer-lens, by its hooks")
    return Held(held, tokenizer, name, "transformer-lens, its rewired model")


def wrap(module: nn.Module, tokenizer: Any) -> Any:
    """Make a bridge around a Hugging Face model, which it changes."""
    from transformer_lens.model_bridge.sources import build_bridge_from_module

    config: Any = module.config
    kind = type(module).__name__
    config.architectures = [kind]
    try:
        return build_bridge_from_module(module, kind, hf_config=config, tokenizer=tokenizer)
    except (ValueError, KeyError, AttributeError, RuntimeError) as error:
        why = str(error).strip().partition("\n")[0][:200]
        raise LoadError(
            f"TransformerLens cannot make a bridge of {kind} ({why}); "
            "read it with the source 'transformers'"
        ) from error


def _model_in(bridge: Any) -> nn.Module:
    try:
        held = bridge.original_model
    except AttributeError as error:
        raise LoadError(
            f"this {type(bridge).__name__} holds no model on this machine ({error}); pass a bridge "
            "made by boot_transformers or boot_native"
        ) from error
    if not isinstance(held, nn.Module):
        raise LoadError(
            f"this {type(bridge).__name__} holds a {type(held).__name__}, which is not a module"
        )
    return held


def _require_no_hooks(bridge: Any) -> None:
    """Raise if the bridge has user hooks, whose effects results would not name."""
    points = {id(point): n for n, point in bridge.hook_dict.items() if _theirs(point)}
    hooked = sorted(points.values())
    if hooked:
        raise LoadError(
            f"the bridge has hooks on {', '.join(hooked[:3])}"
            f"{f' and {len(hooked) - 3} more' if len(hooked) > 3 else ''}, which would change what "
            "is read without being named in the results; bridge.reset_hooks() first, and use edits"
        )


def _theirs(point: Any) -> bool:
    # permanent hooks are the bridge's own wiring, and stay when hooks are reset
    return any(not handle.is_permanent for handle in point.fwd_hooks)


def _unwired(held: nn.Module, attention: str | None) -> nn.Module | None:
    """Return the original model on the same parameters; None if some are missing.

    No memory of its size is allocated: it is built without storage and given the tensors by name.
    """
    from transformers import PreTrainedModel

    if not isinstance(held, PreTrainedModel):
        return None
    config = copy.deepcopy(held.config)
    options = {} if attention is None else {"attn_implementation": attention}
    config._attn_implementation_internal = None  # the bridge chose eager; use the family's default
    try:
        with torch.device("meta"):
            plain = type(held)._from_config(config, dtype=held.dtype, **options)
    except (ValueError, ImportError) as error:
        if attention is not None:
            raise LoadError(f"{type(held).__name__}: {str(error).strip()[:200]}") from error
        raise
    for path, module in plain.named_modules():
        given = _original(held, path)
        if given is None:
            return None
        for tensors in ("_parameters", "_buffers"):
            mine, theirs = getattr(module, tensors), getattr(given, tensors)
            for name, x in mine.items():
                if x is None:
                    continue
                y = theirs.get(name)
                if not isinstance(y, Tensor) or y.shape != x.shape or y.device.type == "meta":
                    return None
                mine[name] = y
    return plain.eval()


def _original(held: nn.Module, path: str) -> nn.Module | None:
    """Return the original module at a path, inside the components that replace it."""
    at = _innermost(held)
    for part in path.split(".") if path else ():
        child = at._modules.get(part)
        if child is None:
            return None
        at = _innermost(child)
    return at


def _innermost(module: nn.Module) -> nn.Module:
    while (inner := module._modules.get(_ORIGINAL)) is not None:
        module = inner
    return module


def _same_output(plain: nn.Module, held: nn.Module) -> bool:
    inputs = probe_inputs(held)
    with torch.no_grad():
        got, want = forward(plain, inputs, "the model"), forward(held, inputs, "the bridge")
    error = (got.double() - want.double()).abs().max() / want.double().abs().max().clamp_min(1e-30)
    return bool(error <= _CLOSE.get(want.dtype, 5e-2))


class _NativeConfig:
    """Attributes of a Hugging Face config, from a bridge's config."""

    is_encoder_decoder = False
    _attn_implementation = "native"
    pad_token_id = bos_token_id = eos_token_id = None

    def __init__(self, cfg: Any):
        self.cfg = cfg
        self.vocab_size, self.hidden_size = int(cfg.d_vocab), int(cfg.d_model)
        self.max_position_embeddings = int(cfg.n_ctx)
        self.num_hidden_layers, self.num_attention_heads = int(cfg.n_layers), int(cfg.n_heads)
        self.name_or_path = str(cfg.model_name or "")


class _Native(nn.Module):
    """TransformerLens's native model, which has no Hugging Face config."""

    def __init__(self, config: _NativeConfig, inner: nn.Module | None = None):
        super().__init__()
        self.config = config
        self.inner = _fresh(config.cfg) if inner is None else inner

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        return self.inner(input_ids=input_ids, attention_mask=attention_mask)


def _fresh(cfg: Any) -> nn.Module:
    """Make random weights of the same shape."""
    from transformer_lens.model_bridge import TransformerBridge

    bridge: Any = TransformerBridge
    return bridge.boot_native(copy.deepcopy(cfg)).original_model
