"""Zoo of attention variants of the literature, as small random models: one file per variant.

Each file of `rules/` defines one `Rule`; its docstring states the formula and the paper. Names and
one-line summaries are read without importing torch.
"""

from __future__ import annotations

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import UnknownName

if TYPE_CHECKING:
    from interp.planted.variants.language_model import VariantForCausalLM
    from interp.planted.variants.rule import Rule

FOLDER = Path(__file__).parent / "rules"

__all__ = ["build", "rule_class", "summary", "variant_names"]


@cache
def variant_names() -> tuple[str, ...]:
    """Return the names of all variants, sorted."""
    return tuple(sorted(p.stem for p in FOLDER.glob("*.py") if not p.stem.startswith("_")))


def summary(name: str) -> str:
    """Return the first line of a variant's docstring: its name, paper and formula.

    Raises:
        UnknownName: no variant has this name.
    """
    _require(name)
    tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
    return (ast.get_docstring(tree) or "").partition("\n")[0]


def rule_class(name: str) -> type[Rule]:
    """Return the rule of a variant.

    Raises:
        UnknownName: no variant has this name.
    """
    from interp.planted.variants.rule import Rule

    _require(name)
    file = import_module(f"interp.planted.variants.rules.{name}")
    (found,) = (
        x
        for x in vars(file).values()
        if isinstance(x, type) and issubclass(x, Rule) and x.__module__ == file.__name__
    )
    return found


def build(name: str, *, seed: int = 0, gain: float = 4.0, **sizes: Any) -> VariantForCausalLM:
    """Build a random model with this attention in all layers, in evaluation mode.

    Args:
        name: a name of `variant_names()`.
        seed: seed of the weights.
        gain: factor of the projections to queries and keys, so that maps are not uniform.
        sizes: fields of `VariantConfig`, such as `num_hidden_layers`.

    Raises:
        UnknownName: no variant has this name.
    """
    import torch

    from interp.core.random_state import drawn_with
    from interp.planted.variants.language_model import VariantConfig, VariantForCausalLM

    _require(name)
    with drawn_with(seed), torch.no_grad():
        model = VariantForCausalLM(VariantConfig(variant=name, **sizes)).eval()
        for key, weight in model.named_parameters():
            if key.endswith((".query.weight", ".key.weight")):
                weight.mul_(gain)
    return model


def _require(name: str) -> None:
    if name not in variant_names():
        raise UnknownName("attention variant", name, variant_names())
