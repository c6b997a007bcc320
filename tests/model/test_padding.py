"""A batch scores as its prompts alone do, whichever side the padding is on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo

import interp
from interp.errors import PromptError
from interp.prompts import Prompts

KEY = "metric", "layer", "head"
IDS = ((10, 11, 12, 13, 14, 15, 16, 17, 18), (20, 21, 22, 23, 24))
TEXT = [
    f
    for f in zoo.FAMILIES.values()
    if "refused" not in f.features and f.kind in ("text", "seq2seq")
]
# positions of the encoder are counted by column and cannot be given
COUNTS_COLUMNS = {"bart", "mbart", "marian", "pegasus"}
# numbers that depend on the column: Llama 4 scales queries by it, DeepSeek's indexer ranks padding
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
        with pytest.raises(PromptError, match="run prompts of one length together"):
            model.run(batch)
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


@pytest.mark.parametrize(("name", "side"), [(n, s) for n, ss in SEES_COLUMNS.items() for s in ss])
def test_prompts_that_cannot_share_a_batch_are_scored_and_averaged_unpadded(loaded, name, side):
    """One batch size or another, every prompt counts as it does alone."""
    model = loaded(name)
    batch = Prompts((*IDS, (30, 31, 32, 33, 30, 31, 32, 33, 30, 31, 32)), padding=side)
    metrics = ["previous_token", "duplicate_token", "entropy"]
    together = interp.score(model, metrics, batch, null="none", batch_size=16)
    alone = [
        interp.score(model, metrics, Prompts((ids,)), null="none").to_pandas() for ids in batch.ids
    ]
    for _, row in together.to_pandas().iterrows():
        same = [t[(t[list(KEY)] == row[list(KEY)]).all(axis=1)]["score"].item() for t in alone]
        counted = [x for x in same if not np.isnan(x)]
        assert len(counted) == row["n"]
        assert not counted or row["score"] == pytest.approx(np.mean(counted), abs=1e-6)
    means = model.mean_z(batch)
    z = [model.capture([ids], ["z"])["z", 0][0] for ids in batch.ids]
    torch.testing.assert_close(means[model.sites[0].stack, 0], torch.cat(z, 1).mean(1))


@pytest.mark.parametrize("name", SEES_COLUMNS)
def test_short_prompts_share_a_batch(loaded, name):
    """Below the length from which columns matter, padding is allowed and changes nothing."""
    model = loaded(name)
    batch = Prompts(((10, 11, 12), (20, 21)), padding="left")
    assert len(list(model.batches(batch, 16))) == 1
    torch.testing.assert_close(model.run(batch)[1, 1:], model.run([[20, 21]])[0], atol=2e-5, rtol=0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_padding_is_tried_apart_from_visits_and_edits(side):
    """The trial is a forward of its own: no visitor sees it, and no edit changes its outcome."""
    batch, seen = Prompts(IDS, padding=side), []
    model = interp.load(zoo.FAMILIES["gpt2"].build("sdpa"), name="gpt2")
    with (
        model.edited(interp.zero([(0, 0)])),
        model.visited(lambda site, call, real: seen.append(tuple(call.z.shape))),
    ):
        model.run(batch)
    assert len(seen) == len(model.sites)
    assert model.padding.changes(batch) is None
