"""A batch scores as its prompts alone do, whichever side the padding is on."""

from __future__ import annotations

import pytest
import torch
import zoo

from interp.errors import PromptError
from interp.prompts import Prompts

IDS = ((10, 11, 12, 13, 14, 15, 16, 17, 18), (20, 21, 22, 23, 24))
TEXT = [
    f
    for f in zoo.FAMILIES.values()
    if "refused" not in f.features and f.kind in ("text", "seq2seq")
]
# positions of the encoder are counted by column and cannot be given
COUNTS_COLUMNS = {"bart", "mbart", "marian", "pegasus"}
# what a query sees depends on columns: chunks begin at multiples of 4 of the batch's columns, and
# the indexer ranks padding too
SEES_COLUMNS = {"llama4_text": ("left",), "deepseek_v32": ("left", "right")}


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("family", TEXT, ids=lambda f: f.name)
def test_padding_changes_no_prompt(loaded, family, side):
    model = loaded(family.name)
    batch = Prompts(IDS, padding=side)
    if side == "left" and family.name in COUNTS_COLUMNS:
        with pytest.raises(PromptError, match="numbers its positions from the first column"):
            model.run(batch)
        return
    if side in SEES_COLUMNS.get(family.name, ()):
        return
    together = model.capture(batch, ["z", "pattern"])
    for row, ids in enumerate(IDS):
        alone = model.capture([ids], ["z", "pattern"])
        place = slice(len(ids)) if side == "right" else slice(len(IDS[0]) - len(ids), None)
        for site in model.sites:
            where = site.layer, site.stack
            z, pattern = together["z", *where][row], together["pattern", *where][row]
            torch.testing.assert_close(z[:, place], alone["z", *where][0], atol=2e-5, rtol=1e-4)
            torch.testing.assert_close(
                pattern[:, place, place], alone["pattern", *where][0], atol=2e-5, rtol=0
            )
            hidden = pattern[:, place].clone()
            hidden[:, :, place] = 0
            assert not hidden.any(), "a token looks at padding"
