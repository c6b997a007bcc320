"""Tiles of long prompts: equal to the dense pattern at every level, in bounded memory."""

from __future__ import annotations

import base64

import numpy as np
import pytest
import torch

import interp
from interp.core.errors import OptionError, PromptError
from interp.core.head import Head
from interp.report.explore.queries_keys import TILE, KeptPrompt, coarsest
from interp.report.explore.requests import NewerRequest
from interp.report.explore.session import Session
from interp_kernels import cpu


def ids_of(model, n, seed=0):
    return np.random.default_rng(seed).integers(3, model.d_vocab, n).tolist()


def tile_of(answer):
    content = base64.b64decode(answer["float32"])
    return np.frombuffer(content, "<f4").reshape(answer["shape"])


def patterns_of(model, ids):
    cached = model.capture([ids], ["pattern"]).by_site("pattern")
    return {
        (stack, Head(layer, h)): one.float().detach().numpy()
        for (stack, layer), batch in cached.items()
        for h, one in enumerate(batch[0])
    }


def largest_of(pattern, block):
    """The largest weight of each block."""
    down, across = (-(-n // block) for n in pattern.shape)
    whole = np.zeros((down * block, across * block), pattern.dtype)
    whole[: pattern.shape[0], : pattern.shape[1]] = pattern
    return whole.reshape(down, block, across, block).max((1, 3))


def compare_all(session, found, patterns):
    for (stack, head), pattern in patterns.items():
        for block in found["blocks"]:
            whole = largest_of(pattern, block)
            for row in range(-(-whole.shape[0] // TILE)):
                for column in range(-(-whole.shape[1] // TILE)):
                    got = session.tile(found["prompt"], f"{stack}.{head}", block, row, column)
                    y, x = row * TILE, column * TILE
                    part = whole[y : y + TILE, x : x + TILE]
                    assert [got["query"], got["key"]] == [y * block, x * block]
                    np.testing.assert_allclose(tile_of(got), part, atol=2e-6, rtol=2e-5)


def test_tiles_equal_the_dense_pattern_at_every_level(bundled_induction):
    model = bundled_induction
    ids = ids_of(model, 700)
    session = Session(model)
    found = session.prompt(ids)
    assert found["blocks"] == [4, 2, 1]
    compare_all(session, found, patterns_of(model, ids))


FAMILIES = (
    "gpt2",
    "llama",
    "mistral_sliding",
    "gemma2",
    "gpt_oss",
    "bloom",
    "falcon_alibi",
    "gpt_neo",
    "t5",
    "bart",
    "roberta",
    "deberta_v2",
    "mpt",
)


@pytest.mark.parametrize("attention", [None, "eager"])
@pytest.mark.parametrize("family", FAMILIES)
def test_tiles_of_every_kind_of_mask_and_bias(loaded, family, attention):
    model = loaded(family, attention)
    ids = ids_of(model, min(150, model.limit or 150, model.context or 150))
    session = Session(model, short=8)
    found = session.prompt(ids)
    compare_all(session, found, patterns_of(model, ids))


@pytest.mark.parametrize("fused_from", [0, 10**12])
def test_a_dropped_layer_is_captured_again(bundled_induction, monkeypatch, fused_from):
    monkeypatch.setattr("interp.heads.engine.COMPILED_BYTES", fused_from)
    model, ids = bundled_induction, ids_of(bundled_induction, 700)
    one = 700 * 4 * 16 * (8 + 4)  # queries and keys of one layer
    session = Session(model, memory=one + 200_000)
    found = session.prompt(ids)
    kept = session._asked.shown
    assert len(kept._layers) == 1
    compare_all(session, found, patterns_of(model, ids))
    assert len(kept._layers) == 1


def test_memory_grows_with_the_length_and_not_with_its_square(bundled_induction):
    """8,192 tokens: one stored pattern would take 268 MB, all heads 4.3 GB."""
    model = bundled_induction
    session = Session(model, memory=60_000_000)
    found = session.prompt(ids_of(model, 8_192))
    kept = session._asked.shown
    assert isinstance(kept, KeptPrompt)
    for block in found["blocks"]:
        last = -(-8_192 // (TILE * block)) - 1
        session.tile(found["prompt"], "L1H3", block, last, 0)
    largest = max(
        x.numel()
        for layer in kept._layers.values()
        for x in vars(layer.attention).values()
        if isinstance(x, torch.Tensor)
    )
    assert largest <= 8_192 * 8 * 16
    assert kept.bytes <= 60_000_000


def test_a_fused_pass_gives_the_same_tiles_and_the_next_token(bundled_induction, monkeypatch):
    model, ids = bundled_induction, ids_of(bundled_induction, 700)
    monkeypatch.setattr("interp.heads.engine.COMPILED_BYTES", 0)
    session = Session(model)
    found = session.prompt(ids)
    assert session._asked.shown.fused
    assert session.progress() == {"done": 2, "of": 2}
    compare_all(session, found, patterns_of(model, ids))
    logits = model.run([ids]).detach()[0, -1]
    top = found["predictions"]["tokens"][0]
    assert top["id"] == int(logits.argmax())
    assert top["before"]["logit"] == pytest.approx(float(logits.max()), abs=1e-4)


def test_no_weight_is_lost_in_a_coarser_map(bundled_induction):
    """Every level has the largest weight of the one below it; rows of single weights sum to one."""
    session = Session(bundled_induction)
    found = session.prompt(ids_of(bundled_induction, 600))
    rows = {}
    for block in found["blocks"]:
        sides = range(-(-600 // (TILE * block)))
        tiles = [
            [tile_of(session.tile(found["prompt"], "L0H5", block, r, c)) for c in sides]
            for r in sides
        ]
        rows[block] = np.block(tiles)
    np.testing.assert_allclose(rows[1].sum(1), 1.0, atol=1e-5)
    for block in (2, 4):
        np.testing.assert_allclose(rows[block], largest_of(rows[1], block), atol=1e-6)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"head": "L9H9"}, "no head L9H9"),
        ({"head": "cross.L0H0"}, "no stack 'cross'"),
        ({"block": 3}, "blocks of 4, 2, 1"),
        ({"row": 999}, "row 999 of the tiles; with this block there are 10"),
        ({"column": 999}, "column 999"),
        ({"prompt": 99}, "was replaced"),
    ],
)
def test_tiles_that_do_not_exist_are_refused(bundled_induction, more, says):
    session = Session(bundled_induction)
    found = session.prompt(ids_of(bundled_induction, 600))
    with pytest.raises(OptionError, match=says):
        session.tile(
            **{"prompt": found["prompt"], "head": "L0H0", "block": 1, "row": 0, "column": 0} | more
        )
    with pytest.raises(OptionError, match="ask for tiles"):
        session.pattern(found["prompt"], "L0H0")


def test_a_prompt_beyond_the_memory_limit_is_refused_before_it_runs(bundled_induction):
    session = Session(bundled_induction, memory=1_000_000)
    with pytest.raises(PromptError, match="more than the limit of"):
        session.prompt(ids_of(bundled_induction, 5_000))
    with pytest.raises(OptionError, match="no prompt yet"):
        session.tile(1, "L0H0", 1, 0, 0)


def test_a_prompt_longer_than_the_position_table_is_refused(loaded):
    model = loaded("gpt2")
    with pytest.raises(PromptError, match="positions for"):
        Session(model).prompt([5] * (model.limit + 1))


def test_a_long_pass_ends_when_a_newer_prompt_comes(bundled_induction):
    layers = []

    def going_on():
        layers.append(1)
        raise NewerRequest("a newer request")

    ids = ids_of(bundled_induction, 600)
    inputs = bundled_induction.inputs([ids])
    with pytest.raises(NewerRequest):
        KeptPrompt(bundled_induction, inputs, 600, 10**9, going_on)
    assert layers == [1]


def test_a_pass_ends_within_a_layer_too(bundled_induction, monkeypatch):
    """A layer of 100,000 tokens takes minutes; it is asked about in between."""
    monkeypatch.setattr(cpu, "LONGEST", 1 << 16)
    asked, layers = [], []

    def going_on():
        asked.append(len(layers))
        if asked.count(0) == 5:
            raise NewerRequest("a newer request")

    inputs = bundled_induction.inputs([ids_of(bundled_induction, 2_000)])
    with pytest.raises(NewerRequest):
        KeptPrompt(bundled_induction, inputs, 2_000, 10**9, going_on, lambda *_: layers.append(1))
    assert not layers


def test_the_coarsest_map_has_at_most_256_blocks_and_a_quarter_of_memory():
    for n in (513, 1_024, 1_025, 65_536, 100_000):
        block = coarsest(n, 16, 1 << 30)
        assert n / block <= 256 < 2 * n / block or block == 2
        assert block & (block - 1) == 0
    assert coarsest(65_536, 10_000, 1 << 30) == 1_024


def test_a_model_without_a_language_model_head_has_maps_and_no_next_token(loaded):
    model = interp.load(loaded("bert").module.base_model, name="bare")
    found = Session(model).prompt(ids_of(model, 8))
    assert found["stacks"]
    assert found["predictions"]["tokens"] == []
    assert "not one logit per token" in found["predictions"]["why"]
