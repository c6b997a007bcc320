"""Wrapper modules around a model: removed if the wrapped model computes the same, else refused.

`torch.compile`, data parallelism and PEFT wrap the model in a module whose forward takes arbitrary
arguments (`*args, **kwargs`), so inputs and heads cannot be found from outside. The wrapped model
is the one that runs, with PEFT's adapters in it.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from interp.core.errors import LoadError


def unwrapped(module: nn.Module) -> tuple[nn.Module, tuple[str, ...]]:
    """Return the model inside all wrappers, and the names of their classes, outermost first."""
    taken: list[str] = []
    while True:
        inner = _inside(module)
        if inner is None or inner is module:
            return module, tuple(taken)
        taken.append(type(module).__name__)
        module = inner


def _inside(module: nn.Module) -> nn.Module | None:
    wrapper: Any = module
    compiled = module._modules.get("_orig_mod")  # attribute of torch.compile
    if compiled is not None:
        return compiled
    if isinstance(module, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        return module.module
    base = getattr(module, "get_base_model", None)
    if callable(base) and hasattr(module, "peft_config"):
        config = getattr(wrapper, "active_peft_config", None)
        if getattr(config, "is_prompt_learning", False):
            raise LoadError(
                f"{type(module).__name__} puts learned vectors before the prompt "
                f"({type(config).__name__}), and positions would no longer be the prompt's; pass "
                "the model without them: get_base_model()"
            )
        inner = base()
        return inner if isinstance(inner, nn.Module) else None
    return None


def require_tensors(module: nn.Module, name: str) -> None:
    """Raise if weights are not tensors, as after `torch.ao.quantization.quantize_dynamic`."""
    for path, m in module.named_modules():
        if type(m).__module__.startswith(("torch.ao.nn.quantized", "torch.nn.quantized")):
            raise LoadError(
                f"{name}: {path} is a quantised {type(m).__name__} of torch "
                f"({type(m).__module__}), whose weights are packed and cannot be read; pass the "
                "model as it was before quantising"
            )
