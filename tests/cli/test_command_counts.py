"""Command lines make exactly the passes of the committed table: none is added by accident."""

from __future__ import annotations

import tomllib

import pytest
import torch
from device.command_lines import files_of

from benchmarks.command_counts import HEADER, TABLE, counting, counts_of
from interp.bundled import path
from interp.model.load import load

LINES = tomllib.loads(TABLE.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def files_of_lines(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return files_of(tmp_path_factory.mktemp("files"))


@pytest.mark.parametrize("line", LINES)
def test_a_command_makes_the_passes_of_the_table(line: str, files_of_lines: dict[str, str]) -> None:
    assert counts_of(line, files_of_lines) == LINES[line], "\n".join(HEADER.splitlines())


def test_passes_and_gradients_are_counted_at_the_blocks() -> None:
    model = load(path("induction"))
    ids = torch.arange(10).reshape(2, 5)
    with counting() as counts:
        model.module(input_ids=ids)
        x = torch.ones(2, 5, model.d_model, requires_grad=True)
        model.module(inputs_embeds=x[:1]).logits.sum().backward()
    assert counts.forward == pytest.approx({(2, 5): 1, (1, 5): 1})
    assert counts.backward == pytest.approx({(1, 5): 1})
    assert counts.figures() == {"forward": 2, "backward": 1, "tokens": 15}
    model.module(input_ids=ids)
    assert counts.figures()["forward"] == 2
