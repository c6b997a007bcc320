"""Rows that a profile reads are those of eager attention, over the families of the zoo."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import zoo
from together import over

import interp
from interp.core.errors import OptionError
from interp.profiles.corpus import TextWindow
from interp.profiles.rows_read import FLOOR, AttentionRows, described_sites, read_rows
from training import forms

TEXT = [
    pytest.param(family, id=family.name)
    for family in zoo.FAMILIES.values()
    if family.kind in ("text", "seq2seq") and not {"refused", "windows"} & {*family.features}
]


@pytest.mark.slow
@torch.no_grad()
@over("family", TEXT)
def test_rows_are_those_of_the_eager_pattern(family: zoo.Family) -> None:
    module = family.model(family.attentions[-1])
    model = interp.load(module, name=family.name)
    if not model.takes_text or model.elsewhere:
        return
    ids = tuple(int(x) for x in np.random.default_rng(0).integers(8, 30, 15))
    window = TextWindow("", ids, 0, np.array([3, 7, 13]), 0, 0)
    sites = described_sites(model)
    found: dict[tuple[str, int], AttentionRows] = {}
    read_rows(
        model, window, [], lambda site, rows: found.update({(site.stack, site.layer): rows}), sites
    )
    inputs = {"input_ids": torch.tensor([ids])}
    if family.kind == "seq2seq":
        inputs["decoder_input_ids"] = inputs["input_ids"]
    compared = 0
    for stack, layer, pattern in family.expected(module, inputs):
        if (stack, layer) not in found:
            continue
        rows = found[stack, layer]
        expected = pattern[0][:, window.queries].clone()
        expected[..., 0] = 0  # the first token is the sink
        weight = expected.sum(-1)
        expected *= (weight >= FLOOR)[..., None] & (rows.visible.sum(-1) > 1)[:, None]
        torch.testing.assert_close(rows.mass, expected, atol=2e-6, rtol=1e-4)
        compared += 1
    assert compared == len(found) > 0


@torch.no_grad()
def test_maps_of_variants_are_described_where_rows_are_distributions() -> None:
    model = forms.load("entmax")
    window = TextWindow("", tuple(range(4, 19)), 0, np.array([3, 7, 13]), 0, 0)
    found: dict[int, AttentionRows] = {}
    read_rows(
        model, window, [], lambda s, rows: found.update({s.layer: rows}), described_sites(model)
    )
    maps = model.capture([list(window.ids)], ["map"])
    assert len(found) == 2
    for layer, rows in found.items():
        expected = maps["map", layer][0][:, window.queries].clone()
        expected[..., 0] = 0  # the first token is the sink
        expected *= (expected.sum(-1) >= FLOOR)[..., None]
        torch.testing.assert_close(rows.mass, expected, atol=2e-6, rtol=1e-4)
    for signed_or_unnormalised in ("signed", "sigmoid", "sink_logit"):
        with pytest.raises(OptionError, match="whose rows are distributions"):
            described_sites(forms.load(signed_or_unnormalised))
