"""One table translates names of activations to other tools and back; it needs none of them."""

from __future__ import annotations

import pytest

from interp.core.errors import OptionError, UnknownName
from interp.model.activation_names import NAMES, OTHER_NAMES, name_elsewhere, name_here

PAIRS = [(name, source) for name, others in OTHER_NAMES.items() for source in others]


def test_every_name_in_the_table_is_one_that_can_be_captured() -> None:
    assert set(OTHER_NAMES) <= set(NAMES)
    assert len(PAIRS) == 23


@pytest.mark.parametrize("output_norm", [False, True])
@pytest.mark.parametrize(("name", "source"), PAIRS)
def test_names_translate_there_and_back(name: str, source: str, output_norm: bool) -> None:
    nameless = {"nnsight": ("attn_out", "mlp_out"), "transformer-lens": ("result",)}
    if output_norm and name in nameless.get(source, ()):
        with pytest.raises(OptionError, match=rf"{source} has no name for {name}"):
            name_elsewhere(name, source, 3, output_norm=True)
        return
    there = name_elsewhere(name, source, 13, output_norm=output_norm)
    assert name_here(there, source, output_norm=output_norm) == (name, 13)


def test_names_are_written_as_each_tool_writes_them() -> None:
    assert name_elsewhere("pattern", "interp-engine", 3) == "attn_probs.3"
    assert name_elsewhere("pattern", "transformer-lens", 3) == "blocks.3.attn.hook_pattern"
    assert name_elsewhere("resid_post", "nnsight", 3) == "layers_output[3]"


def test_a_norm_before_the_stream_moves_a_name() -> None:
    assert name_elsewhere("attn_out", "interp-engine", 0) == "attn_out.0"
    assert name_elsewhere("attn_out", "interp-engine", 0, output_norm=True) == "attn_out_post.0"
    with pytest.raises(OptionError, match=r"'attn_out\.0' is not an activation that interp names"):
        name_here("attn_out.0", "interp-engine", output_norm=True)


def test_what_has_no_name_there_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(OptionError, match=r"interp-engine has no name for q; .* v, scores,"):
        name_elsewhere("q", "interp-engine", 0)
    with pytest.raises(UnknownName, match="unknown activation 'patern'; did you mean pattern"):
        name_elsewhere("patern", "interp-engine", 0)
    with pytest.raises(UnknownName, match="unknown source 'nnterp'"):
        name_elsewhere("z", "nnterp", 0)
    for wrong in ("z.", "az.1", "z.1.2", "blocks.1.attn.hook_z"):
        with pytest.raises(OptionError, match="is not an activation"):
            name_here(wrong, "interp-engine")
