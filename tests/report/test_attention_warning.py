"""Pages that show attention say, with measured figures, that attention can mislead."""

from __future__ import annotations

import json

import interp
from interp import bundled
from interp.attribution import attribute
from interp.heads.patterns import view
from interp.report.atlas.build import build_atlas
from interp.report.atlas.page import atlas_page
from interp.report.tokens import attribution_page

TEXT = "the old dog sings and with Anna a red bird falls so"


def test_the_figures_are_those_of_the_record() -> None:
    made = json.loads((bundled.path("deceive") / "training.json").read_text())["scores"]["after"]
    line = bundled.attention_warning()
    assert f"{made['attention_largest_head'][0]:.1%} of the attention" in line
    assert f"({made['uniform_attention'][0]:.1%})" in line


def test_every_page_of_attention_has_it_and_other_pages_do_not() -> None:
    model, line = interp.load("bundled:deceive"), bundled.attention_warning()
    start = line[:60]
    assert start in view(model, TEXT).html()
    reads, does_not = (attribute(model, TEXT, name) for name in ("rollout", "attn_lrp"))
    assert start in attribution_page([does_not, reads])
    assert start not in attribution_page([does_not])
    table = interp.score(model, "entropy", null="none")
    assert start in atlas_page(build_atlas(table))
