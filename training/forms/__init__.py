"""Forms of attention of the literature as small random models: one class per variant.

They are what the claims of papers are tested on (`benchmarks/papers`), and are not part of the
package: `load` returns one as a model whose heads are read.

Each public class in a file of `rules/` is a variant: `TopKAttention` is `top_k`, and the first line
of its docstring states the name, the paper and the formula. Names and these lines are read without
importing torch.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import UnknownName

if TYPE_CHECKING:
    from training.forms.rule import Rule

FOLDER = Path(__file__).parent / "rules"
HOSTS = {  # module and class of the model that rules live in; files not named here read text
    "text": ("language_model", "VariantForCausalLM"),
    "on_images": ("image_model", "VariantForImageClassification"),
    "on_sources": ("pair_model", "VariantForTranslation"),
}

__all__ = ["build", "import_hosts", "load", "rule_class", "summary", "variant_names"]


@cache
def _classes() -> dict[str, tuple[str, ast.ClassDef]]:
    """Return the file and the class of each variant, by its name."""
    found = {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                name = node.name.removesuffix("Attention")
                name = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
                assert name not in found, f"two attention variants are called {name}"
                found[name] = (path.stem, node)
    return found


def variant_names(of: str | None = None) -> tuple[str, ...]:
    """Return the names of variants, sorted."""
    if of not in (None, *HOSTS):
        raise UnknownName("kind of attention variant", of, HOSTS)
    return tuple(sorted(name for name in _classes() if of in (None, _host(name))))


def summary(name: str) -> str:
    """Return the first line of a variant's docstring: its name, paper and formula."""
    return (ast.get_docstring(_found(name)[1]) or "").partition("\n")[0]


def rule_class(name: str) -> type[Rule]:
    """Return the rule of a variant."""
    file, node = _found(name)
    return getattr(import_module(f"training.forms.rules.{file}"), node.name)


def build(name: str, *, seed: int = 0, gain: float = 4.0, **sizes: Any) -> Any:
    """Build a random model with this attention in all layers, in evaluation mode.

    It is a language model, an image classifier (`rules/on_images.py`) or a translator
    (`rules/on_sources.py`).
    """
    import torch

    from interp.core.random_state import drawn_with

    file, kind = HOSTS[_host(name)]
    cls = getattr(import_module(f"training.forms.{file}"), kind)
    with drawn_with(seed), torch.no_grad():
        model = cls(cls.config_class(variant=name, **sizes)).eval()
        for key, weight in model.named_parameters():
            if key.endswith((".query.weight", ".key.weight")):
                weight.mul_(gain)
    return model


def load(name: str) -> Any:
    """Load a random model with this attention as a model whose heads are read."""
    import interp

    return interp.load(build(name), name=f"variant:{name}")


def import_hosts() -> None:
    """Import the classes of all models that variants live in, so that folders of them load."""
    for file, _ in HOSTS.values():
        import_module(f"training.forms.{file}")


def _found(name: str) -> tuple[str, ast.ClassDef]:
    if name not in _classes():
        raise UnknownName("attention variant", name, variant_names())
    return _classes()[name]


def _host(name: str) -> str:
    file = _found(name)[0]
    return file if file in HOSTS else "text"
