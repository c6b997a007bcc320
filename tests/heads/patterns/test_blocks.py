"""A long prompt: blocks are the pattern's own sums, tiles its own pieces, pages stay small."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
import torch
from report import reading
from zoo import FAMILIES

import interp
from interp.core.errors import OptionError, PromptError
from interp.heads.patterns import long_view
from interp.heads.patterns.coding import resolution


def ids(model, n: int, seed: int = 0) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    half = torch.randint(10, model.d_vocab, (-(-n // 2),), generator=generator)
    return torch.cat([half, half])[:n].tolist()


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["gpt2", "gemma2", "gpt_oss", "mistral_sliding", "bert", "t5", "bloom", "deberta"]
)
def test_masses_are_the_block_sums_of_the_pattern(family) -> None:
    model = interp.load(FAMILIES[family].model(), name=family, check=False)
    prompt = [5 + i % 7 for i in range(11)]
    found = long_view(model, prompt, block=4, heaviest=0)
    cache = model.capture([prompt])
    seen = 0
    for (stack, layer), pattern in cache.by_site("pattern").items():
        for head, dense in enumerate(pattern[0].double().numpy()):
            want = np.add.reduceat(np.add.reduceat(dense, [0, 4, 8], 0), [0, 4, 8], 1)
            got = found.masses[stack, interp.Head(layer, head)]
            np.testing.assert_allclose(got, want, atol=2e-6)
            share = found.stack(stack).weights[interp.Head(layer, head)]
            np.testing.assert_allclose(share, want / np.array([[4], [4], [3]]), atol=1e-6)
            seen += 1
    assert seen == len(found.masses)


@pytest.mark.parametrize(
    "family", ["gpt2", "gemma2", "gpt_oss", "mistral_sliding", "bert", "t5", "bloom"]
)
def test_terms_for_zooming_make_the_pattern_again(family) -> None:
    """Soft caps, sinks and windows too; heads with a bias per position are left out."""
    model = interp.load(FAMILIES[family].model(), name=family, check=False)
    prompt = [5 + i % 7 for i in range(11)]
    named = [str(head) for head in model.heads(None)[:2]]
    found = long_view(model, prompt, block=4, heaviest=0, heads=named)
    made = {(s.name, head): (s, x) for s in found.stacks for head, x in s.zooms.items()}
    assert bool(made) == (family not in ("t5", "bloom"))
    cache = model.capture([prompt]).by_site("pattern")
    for (stack, head), (_, terms) in made.items():
        dense = cache[stack, head.layer][0, head.head].double().numpy()
        score = terms.scale * (terms.q.astype(float) @ terms.k.astype(float).T)
        if terms.softcap is not None:
            score = terms.softcap * np.tanh(score / terms.softcap)
        query, key = np.arange(len(terms.q))[:, None] + terms.offset, np.arange(len(terms.k))
        seen = (key <= query) | (not terms.causal)
        if terms.window is not None:
            seen &= key > query - terms.window
        weight = np.where(seen, np.exp(score - terms.lse[:, None]), 0)
        np.testing.assert_allclose(weight, dense, atol=3e-6)
        want = np.maximum.reduceat(np.maximum.reduceat(dense, [0, 4, 8], 0), [0, 4, 8], 1)
        np.testing.assert_allclose(terms.peaks, want, atol=3e-6)


def test_a_page_without_room_for_zooming_says_what_it_takes(bundled_induction) -> None:
    found = long_view(bundled_induction, ids(bundled_induction, 1_200), heads=["L1H3"], heaviest=0)
    assert "To zoom into" not in found.html()
    assert "zoom" in reading.data_of(found.html())["stacks"][0]["heads"][11]
    small = found.html(budget=220_000)
    assert "To zoom into L1H3 token by token, the page must be larger than 0.22 MB" in small
    assert "zoom" not in reading.data_of(small)["stacks"][0]["heads"][11]


def test_tiles_are_pieces_of_the_pattern(bundled_induction) -> None:
    prompt = ids(bundled_induction, 120)
    dense = bundled_induction.capture([prompt])["pattern", 1][0].numpy()
    found = long_view(bundled_induction, prompt, tiles=["L1H3:40-72,5-25", "decoder.L0H2:0-8,0-8"])
    one = found.tile(1, 3, (40, 72), range(5, 25))
    np.testing.assert_allclose(one.weights, dense[3, 40:72, 5:25], atol=1e-6)
    page = found.html()
    tiles = {t["name"]: t for t in reading.data_of(page)["stacks"][0]["tiles"]}
    read = reading.weights(page, tiles["L1H3:40-72,5-25"])
    np.testing.assert_allclose(read, dense[3, 40:72, 5:25], atol=resolution(16) + 1e-6)
    assert tiles["L0H2:0-8,0-8"]["first"] == [0, 0]
    assert len(tiles) == 2 + 4  # and the heavy blocks


def test_the_heaviest_block_is_where_the_planted_copies_are() -> None:
    model = interp.load("planted:induction")
    prompt = ids(model, 64)
    found = long_view(model, prompt, block=8, heaviest=1)
    [tile] = found.stacks[0].tiles
    # the second copy looks at what followed the first: half the prompt back
    assert tile.queries.start - tile.keys.start == 32
    # of eight queries one looks a place beyond the block, and one repeats an earlier token
    assert tile.weights.sum() == pytest.approx(6, abs=0.01)
    other = found.heaviest(3)
    assert len({one.head for one in other}) == len(other)


def test_a_page_says_how_blocks_are_read_and_holds_no_square_of_tokens(bundled_induction) -> None:
    found = long_view(bundled_induction, ids(bundled_induction, 1500), heaviest=1)
    assert found.block == 16
    page = found.html()
    stack = reading.data_of(page)["stacks"][0]
    assert (stack["block"], stack["heads"][0]["w"]["n"]) == (16, [94, 94])
    assert "the exact sum of the pattern over 16 queries and 16 keys" in page
    assert "<li><b>1488</b> " in page  # the last block, by the place of its first token
    best = found.to_pandas().iloc[3]
    place = f"{16 * best['query']}–{16 * best['query'] + 15}: "  # noqa: RUF001
    assert f'<td class="token">{place}' in page
    read = reading.weights(page, stack["heads"][3])
    np.testing.assert_allclose(read, found.pattern("L0H3"), atol=resolution(16))
    np.testing.assert_allclose(read.sum(1), 1, atol=94 * resolution(16))


@pytest.mark.parametrize(
    ("tile", "says"),
    [
        ("L1H3", "cannot read"),
        ("L7H0:0-4,0-4", "no head L7H0"),
        ("L1H3:4-4,0-4", "after the last"),
        ("L1H3:0-4,90-200", "within 0 and 100"),
    ],
)
def test_a_tile_that_does_not_exist_is_refused_before_the_run(
    bundled_induction, tile, says
) -> None:
    def never(done, of):
        raise AssertionError("a layer ran")

    with pytest.raises(OptionError, match=says):
        long_view(bundled_induction, ids(bundled_induction, 100), tiles=[tile], advance=never)


def test_blocks_as_small_as_tokens_are_refused(bundled_induction) -> None:
    with pytest.raises(OptionError, match=r"1,500 blocks; at most 1,024 .* a block of 2"):
        long_view(bundled_induction, ids(bundled_induction, 1500), block=1)


def test_a_tile_has_an_upper_size(bundled_induction) -> None:
    found = long_view(bundled_induction, ids(bundled_induction, 1200), heaviest=0)
    with pytest.raises(OptionError, match="at most 1,024"):
        found.tile(0, 0, (0, 1100), (0, 8))


def test_context_cuts_and_never_stretches(bundled_induction) -> None:
    prompt = ids(bundled_induction, 100)
    found = long_view(bundled_induction, prompt, context=64, heaviest=0)
    assert found.stacks[0].n_queries == 64
    assert found.inputs["input_ids"][0].tolist() == prompt[:64]
    with pytest.raises(PromptError, match="context 101"):
        long_view(bundled_induction, prompt, context=101)
    with pytest.raises(OptionError, match="at least 1"):
        long_view(bundled_induction, prompt, block=0)


def test_a_run_that_is_broken_off_leaves_the_model_as_it_was(bundled_induction) -> None:
    prompt = ids(bundled_induction, 40)
    before = bundled_induction.run([prompt])
    long_view(bundled_induction, prompt, stack="decoder").tile(0, 1, (0, 4), (0, 4))
    assert torch.equal(bundled_induction.run([prompt]), before)


@pytest.mark.slow
def test_eight_thousand_tokens_make_a_page_within_its_budget(bundled_induction, tmp_path) -> None:
    start = time.perf_counter()
    found = long_view(
        bundled_induction, ids(bundled_induction, 8192), tiles=["L1H0:7000-7256,800-1056"]
    )
    assert found.block == 32
    found.save_html(tmp_path / "long.html")
    size = (tmp_path / "long.html").stat().st_size
    assert size < 10_000_000
    page = (tmp_path / "long.html").read_text(encoding="utf-8")
    assert not re.search(r'"n":\[[4-9]\d{3},', page)
    share = found.pattern("L1H0")
    np.testing.assert_allclose(share.sum(1), 1, atol=1e-4)
    print(f"{time.perf_counter() - start:.1f} s, {size / 1e6:.2f} MB")
