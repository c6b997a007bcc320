"""Every page that the package makes, in one place: what fills it, and an example of it.

`test_every_page.py` opens all of them; a function that fills a page and is missing here fails it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from core.result_examples import EXAMPLES
from report import large
from report.atlas_sample import three

import interp
from interp.core.prompts import repeats
from interp.core.table import HeadTable
from interp.heads.roles.decide import roles
from interp.report.atlas.page import atlas_page
from interp.report.atlas.single import changes_page
from interp.report.models_page import models_page
from interp.report.several_page import several, several_page

Maker = Callable[[Path], None]


def example(kind: str) -> Maker:
    """Return the page that the example of a kind of result writes."""

    def write(path: Path) -> None:
        EXAMPLES[kind]().save_html(path)

    return write


def atlas(path: Path) -> None:
    path.write_text(atlas_page(three()), encoding="utf-8")


def changes(path: Path) -> None:
    profiles = [EXAMPLES["interp.profiles.result.Profile"]() for _ in range(2)]
    path.write_bytes(changes_page(*profiles))


def models(path: Path) -> None:
    """Three models of one training run and two others; one could not be scored."""
    path.write_text(models_page(series(), roles(series()), failed={"broken": "no config.json"}))


@cache
def series() -> HeadTable:
    """Scores of three steps of one training run, and of two other models."""
    names = ["planted:bystander", "bundled:one-layer"]
    found = [interp.score(name, ["induction", "previous_token"], null_draws=2) for name in names]
    for step in (1, 1000, 2000):
        draw = np.random.default_rng(step)
        model = interp.load("planted:bystander", name=f"run-step{step}")
        for parameter in model.module.parameters():
            noise = draw.normal(0, 0.4 / step, parameter.shape)
            parameter.data += parameter.data.new_tensor(noise)
        found.append(interp.score(model, ["induction", "previous_token"], null_draws=2))
    return HeadTable.concat(found)


def differences(path: Path) -> None:
    """The planted model against itself without its induction head's query."""
    model = interp.load("planted:bystander")
    other = interp.load("planted:bystander", name="damaged")
    attention = other.module.model.layers[1].self_attn
    attention.q_proj.weight.data[: attention.head_dim] = 0.0
    prompts = repeats(model, n=12, max_length=16, seed=0)
    interp.compare(model, other, ["induction", "first_token"], prompts).save_html(path)


def several_differences(path: Path) -> None:
    """Three models beside the planted one, of which one is damaged and one is missing."""
    model = interp.load("planted:bystander")
    prompts = repeats(model, n=12, max_length=16, seed=0)
    found = []
    for i, name in enumerate(("same", "damaged", "half")):
        other = interp.load("planted:bystander", name=name)
        attention = other.module.model.layers[1].self_attn
        attention.q_proj.weight.data[: attention.head_dim] *= 1 - i / 2 if i != 1 else 0.0
        found.append(interp.compare(model, other, ["induction", "entropy"], prompts, top=0))
    path.write_bytes(several_page(several(found, {"missing": "no config.json in missing"})))


def maps(path: Path) -> None:
    from interp.report.vision_folder import write_maps
    from interp.vision.own_images import Pictures

    model = interp.load("bundled:shapes-spurious")
    from interp.bundled.shape_images import shape_images

    drawn = shape_images(3, 4, aligned=0.5)
    pictures = Pictures(drawn.pixels, "made", drawn.labels, None, None, None, None)
    write_maps(model, pictures, ["class_attention"], path.parent, "m", {}).replace(path)


def aligned(path: Path) -> None:
    from interp import alignment
    from interp.alignment.commands.study.align import _draw

    model = interp.load("bundled:reorder")
    pairs = alignment.made_sentence_pairs(8)
    _draw(model, alignment.word_alignment(model, pairs, n_random=9), pairs[0], path)


PAGES: dict[str, tuple[str, Maker]] = {
    "atlas": ("interp.report.atlas.page:atlas_page", atlas),
    "heads": ("interp.report.atlas.page:atlas_page", large.heads),
    "profile": ("interp.report.atlas.page:atlas_page", example("interp.profiles.result.Profile")),
    "changes": ("interp.report.atlas.page:atlas_page", changes),
    "pruning": ("interp.report.atlas.page:atlas_page", large.pruning),
    "comparison": ("interp.report.atlas.page:atlas_page", large.comparison),
    "circuit": ("interp.report.circuit_graph:circuit_page", large.circuit),
    "circuit_alone": (
        "interp.report.circuit_graph:circuit_page",
        example("interp.circuits.result.Circuit"),
    ),
    "verdict": ("interp.report.printed.hypothesis:hypothesis_page", example("Verdict")),
    "differences": ("interp.report.differences_page:differences_page", differences),
    "several_differences": ("interp.report.several_page:several_page", several_differences),
    "models": ("interp.report.models_page:models_page", models),
    "attribution": ("interp.report.tokens:attribution_page", large.attribution),
    "faithfulness": ("interp.report.faithfulness:faithfulness_page", large.faithfulness),
    "trees": ("interp.report.trees:trees_page", large.dependency_trees),
    "verify": ("interp.report.checks:check_page", large.verification),
    "safety": ("interp.report.safety_folder:write_safety", large.safety),
    "anchors": (
        "interp.report.anchors:anchors_page",
        example("interp.text.chains.anchors_result.Anchors"),
    ),
    "features": (
        "interp.report.feature_cards:cards_page",
        example("interp.dictionaries.card_result.FeatureCards"),
    ),
    "emergence": (
        "interp.heads.checkpoints.result:save_html",
        example("interp.heads.checkpoints.result.Emergence"),
    ),
    "maps": ("interp.report.vision_folder:write_maps", maps),
    "alignment": ("interp.alignment.commands.study.align:_draw", aligned),
    "rows": ("interp.draw.rows:rows_page", lambda path: large.importance_made().save_html(path)),
    "interactions": ("interp.draw.rows:rows_page", large.interactions),
    "evaluation": (
        "interp.draw.rows:rows_page",
        lambda path: large.evaluation_made().save_html(path),
    ),
    "view": ("interp.report.view_page:filled", large.view),
}
"""Name of the page: the function that fills it, and what writes an example."""

SERVED = {"interp.report.explore.page:model_page"}
"""Pages that ask their own server, which `test_explore_browser.py` opens."""


def filling() -> set[str]:
    """Functions of the package that call `page` or `render` of `interp.draw.page`."""
    found = set()
    root = Path(interp.__path__[0])
    for path in root.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = {
            each.asname or each.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module == "interp.draw.page"
            for each in node.names
            if each.name in ("page", "render")
        }
        module = ".".join(("interp", *path.relative_to(root).with_suffix("").parts))
        for node in ast.walk(tree) if names else ():
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(x, ast.Call) and getattr(x.func, "id", "") in names
                for x in ast.walk(node)
            ):
                found.add(f"{module}:{node.name}")
    return found
