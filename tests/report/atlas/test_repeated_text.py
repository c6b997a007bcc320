"""The text over which an atlas shows attention is said twice, whatever the length of its line."""

from __future__ import annotations

import pytest

import interp
from interp.report.atlas.attention import repeated_text


@pytest.mark.parametrize("name", ["induction", "stories"])
def test_each_half_of_the_text_is_the_other(name: str) -> None:
    shown = repeated_text(interp.load(f"bundled:{name}"))
    assert shown is not None
    [stack] = shown.stacks
    words = stack.queries[1:]  # after <s>
    assert len(words) == 46
    assert words[:23] == words[23:]
