"""The API reference: pdoc over every public module, with lazily imported names resolved.

The command line is left out (see commands.html). This module changes loaded modules, so it runs in
a separate process.
"""

from __future__ import annotations

import inspect
import pkgutil
import re
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pdoc
import pdoc.doc
import pdoc.render

HERE = Path(__file__).parent
ROOTS = ("interp", "interp_kernels")
LEFT_OUT = ("interp.cli", "interp.__main__")
_PRIVATE = re.compile(r'<a href="[^"]*#_[A-Z][^"]*">(.*?)</a>')  # a base class that is not shown
BEGIN = (  # modules that the index describes, beside the packages
    "interp.core.prompts", "interp.core.result", "interp.heads.scoring", "interp.core.table",
    "interp.model.capture", "interp.model.edits",
    "interp.heads.declaration", "interp.core.registry", "interp.core.errors",
    "interp.heads.estimate", "interp.draw.plot", "interp.draw.colours",
    "interp.core.store",
)  # fmt: skip
DECLARED = {  # folder of declarations -> call of a function that its files declare
    "interp.heads.detectors": 'interp.score(model, "{}")',
    "interp.heads.weights": 'interp.score(model, "{}")',
    "interp.heads.geometry": 'interp.score(model, "{}")',
    "interp.heads.experiments": 'interp.score(model, "{}")',
    "interp.safety.experiments": 'interp.score(model, "{}")',
    "interp.attribution.methods": 'interp.attribute(model, text, "{}", target)',
    "interp.circuits.methods": 'interp.find_circuit(model, task, "{}")',
}


def write(out: Path) -> list[str]:
    """Write the reference below `out` and return the public names without a docstring."""
    names = modules()
    for name in names:
        furnish(import_module(name))
    pdoc.render.configure(
        docformat="google",
        template_directory=HERE / "templates",
        show_source=False,
    )
    pdoc.render.env.globals["begin"] = BEGIN
    with warnings.catch_warnings():
        # shapes such as Float[Tensor, "batch pos"] cannot be evaluated as types
        warnings.filterwarnings("ignore", message="Error parsing type annotation")
        shown = {name: pdoc.doc.Module.from_name(name) for name in names}
        for name, module in shown.items():
            page = out / f"{name.replace('.', '/')}.html"
            page.parent.mkdir(parents=True, exist_ok=True)
            html = pdoc.render.html_module(module, shown)
            page.write_text(_PRIVATE.sub(r"\1", html), encoding="utf-8")
        (out / "index.html").write_text(pdoc.render.html_index(shown), encoding="utf-8")
        (out / "search.js").write_text(pdoc.render.search_index(shown), encoding="utf-8")
        return [name for module in shown.values() for name in undocumented(module)]


def modules() -> list[str]:
    """Return every public module that can be imported here, packages before their modules."""
    found = []
    for root in ROOTS:
        package = import_module(root)
        found.append(root)
        for info in pkgutil.walk_packages(package.__path__, f"{root}."):
            parts = info.name.split(".")
            left = any(info.name == x or info.name.startswith(f"{x}.") for x in LEFT_OUT)
            if left or any(p.startswith("_") for p in parts) or not _can_import(info.name):
                continue
            found.append(info.name)
    return sorted(found)


def _can_import(name: str) -> bool:
    try:
        import_module(name)
    except ImportError as error:  # needs an optional dependency, such as triton
        print(f"left out {name}: {error}")
        return False
    return True


def furnish(module: ModuleType) -> None:
    """Resolve the lazily imported names of a module and the functions that it declares."""
    for name in getattr(module, "__all__", ()):
        if name not in vars(module):
            vars(module)[name] = getattr(module, name)
    package, _, name = module.__name__.rpartition(".")
    if package in DECLARED:  # the function, in place of its declaration
        declared = getattr(vars(module).get(name), "function", None)
        if inspect.isfunction(declared):
            vars(module)[name] = declared
            module.__doc__ = f"{module.__doc__}\n\nCalled by `{DECLARED[package].format(name)}`."


def undocumented(holder: Any) -> list[str]:
    """Return public functions, classes and methods of a module without a docstring."""
    found = [] if holder.docstring else [holder.fullname]
    for member in holder.own_members:
        if member.name.startswith("_") or isinstance(member, pdoc.doc.Module):
            continue
        if isinstance(member, pdoc.doc.Class):
            found += undocumented(member)
        elif isinstance(member, pdoc.doc.Function) and not member.docstring:
            found.append(member.fullname)
    return found
