"""Times of tokens: a planted Whisper, the timestamps of transformers, and latency by hand."""

from __future__ import annotations

from itertools import permutations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import WhisperConfig, WhisperForConditionalGeneration
from transformers.models.whisper import generation_whisper

import interp
from interp.alignment import average_lagging, spectrogram_attention, time_alignment, wait_k_delays
from interp.alignment.latency import (
    average_proportion,
    differentiable_average_lagging,
    length_adaptive_average_lagging,
)
from interp.alignment.timed_rows import TimedRows
from interp.alignment.warping import (
    first_frames,
    median_smoothed,
    smoothed_weights,
    standardised,
)
from interp.core.errors import InterpError, OptionError, PromptError

FRAMES, TOKENS, HEADS = 60, 6, 4
LENGTHS = (8, 12, 7, 14, 9, 10)  # encoder positions of each token
PLANTED = (1, 2)  # layer and head


def codes(n: int) -> torch.Tensor:
    """Distinct vectors of one length, mean zero in four entries: points on a circle."""
    angle = torch.arange(n) * 2 * torch.pi / n
    return torch.stack([angle.cos(), angle.sin(), -angle.cos(), -angle.sin()], 1)


@pytest.fixture(scope="module")
def planted_whisper() -> interp.Model:
    """Token t attends evenly to its frames in L1H2, and to those of other tokens elsewhere."""
    config = WhisperConfig(
        vocab_size=64,
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        num_mel_bins=8,
        max_source_positions=FRAMES,
        max_target_positions=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
        init_std=0.3,
    )
    torch.manual_seed(0)
    module = WhisperForConditionalGeneration(config).eval()
    inner: Any = module.model
    with torch.no_grad():
        for part in (*inner.encoder.layers, *inner.decoder.layers):
            for name in ("self_attn.out_proj", "encoder_attn.out_proj", "fc2"):
                if name.startswith("encoder_attn") and part in inner.encoder.layers:
                    continue
                part.get_submodule(name).weight.zero_()
                part.get_submodule(name).bias.zero_()
        inner.encoder.conv2.weight.zero_()
        inner.encoder.conv2.bias.zero_()
        inner.decoder.embed_tokens.weight.mul_(0.01)
        own = codes(TOKENS)
        places = inner.encoder.embed_positions.weight
        places.zero_()
        places[:, :4] = own.repeat_interleave(torch.tensor(LENGTHS), 0)
        rows = inner.decoder.embed_positions.weight
        rows.zero_()
        rows[:TOKENS, :4] = own
        size = 32 // HEADS
        for at in range(2 * HEADS):
            # the query of token t has the code of token t + shift; 0 for the planted head alone
            shift = 0 if (at // HEADS, at % HEADS) == PLANTED else 2 + at % 3
            angle = torch.tensor(2 * torch.pi * shift / TOKENS)
            turn = torch.tensor([[angle.cos(), -angle.sin()], [angle.sin(), angle.cos()]])
            look = inner.decoder.layers[at // HEADS].encoder_attn
            look.q_proj.bias.zero_()
            mine = slice(at % HEADS * size, at % HEADS * size + size)
            for proj, made in ((look.q_proj, torch.block_diag(turn, turn)), (look.k_proj, None)):
                proj.weight[mine] = 0
                proj.weight[mine][:4, :4] = 3 * (torch.eye(4) if made is None else made)
    return interp.load(module, name="planted whisper")


@pytest.fixture(scope="module")
def recordings() -> tuple[dict[str, torch.Tensor], list[list[float]]]:
    draw = torch.Generator().manual_seed(1)
    inputs = {
        "input_features": torch.randn(6, 8, 2 * FRAMES, generator=draw),
        "decoder_input_ids": torch.randint(3, 64, (6, TOKENS), generator=draw),
    }
    starts = np.cumsum([0, *LENGTHS[:-1]]) * 0.02
    return inputs, [starts.tolist()] * 6


def test_the_planted_head_tells_the_times(planted_whisper, recordings) -> None:
    found = time_alignment(planted_whisper, *recordings, n_heads=1)
    rows = found.to_pandas().set_index("heads_read")
    assert rows.loc["L1H2", "score"] == pytest.approx(0.0, abs=1e-9)
    assert rows.loc["chosen heads together", "score"] == pytest.approx(0.0, abs=1e-9)
    others = rows.drop(index=["L1H2", "chosen heads together"])["score"]
    assert others.min() > 0.05
    assert rows["even"].iloc[0] == pytest.approx(
        np.mean(np.abs(np.arange(TOKENS) * 0.2 - recordings[1][0]))
    )
    assert [str(h) for h in found.top(1).of[0]] == ["L1H2"]
    assert rows.loc["L1H2", "p"] == pytest.approx(1 / 200)  # as low as 199 draws allow
    assert rows.loc["L1H2", "null"] > 0.2
    assert found.starts.shape == (9, 3, TOKENS)


def test_heads_are_chosen_on_recordings_that_do_not_judge(planted_whisper, recordings) -> None:
    """On the recordings that judge, the given times are those of another head."""
    inputs, times = recordings
    starts = time_alignment(planted_whisper, inputs, times, n_heads=1).starts
    judged = sorted(np.random.default_rng(0).permutation(6)[3:].tolist())
    other = [starts[1, judged.index(i)] if i in judged else t for i, t in enumerate(times)]
    found = time_alignment(planted_whisper, inputs, other, n_heads=1)
    rows = dict(zip(found.columns["heads_read"], found.of, strict=True))
    assert rows["chosen heads together"] == rows["L1H2"]
    scores = found.to_pandas().set_index("heads_read")["score"]
    assert scores["L0H1"] == 0 < scores["chosen heads together"]


def test_declared_heads_and_shorter_sound(planted_whisper, recordings) -> None:
    module = planted_whisper.module
    module.generation_config.alignment_heads = [[1, 2]]
    try:
        found = time_alignment(planted_whisper, *recordings, frames=2 * FRAMES, skip=0)
        rows = found.to_pandas().set_index("heads_read")
        assert rows.loc["declared heads together", "score"] == pytest.approx(0.0, abs=1e-9)
        module.generation_config.alignment_heads = [[5, 0]]
        with pytest.raises(OptionError, match="names L5H0"):
            time_alignment(planted_whisper, *recordings)
    finally:
        module.generation_config.alignment_heads = None


def test_the_null_puts_the_rows_in_random_order() -> None:
    """Rows that all attend alike have the same error in any order, and p is 1."""
    alike = TimedRows(np.ones((1, 4, 9)), np.zeros(4), 4)
    rng = np.random.default_rng(0)
    own = alike.errors([[0]], 1.0)
    np.testing.assert_allclose(alike.shuffled_errors([[0]], 1.0, 5, rng), np.full((1, 5), own[0]))
    ideal = smoothed_weights(np.repeat(np.eye(4), 5, axis=1)[None], 1)
    known = np.arange(4) * 5.0
    planted = TimedRows(ideal, known, 4)
    assert planted.errors([[0]], 1.0)[0] == 0
    drawn = planted.shuffled_errors([[0]], 1.0, 400, rng)[0]
    orders = [
        TimedRows(ideal[:, list(order)], known, 4).errors([[0]], 1.0)[0]
        for order in permutations(range(4))
    ]
    assert set(drawn) == set(orders)
    assert drawn.mean() == pytest.approx(np.mean(orders), abs=4 * np.std(orders) / 20)
    assert planted.even_error(1.0) == 0


@pytest.mark.parametrize("seed", range(3))
def test_many_paths_at_once_are_the_single_ones(seed) -> None:
    rng = np.random.default_rng(seed)
    cost = rng.integers(-2, 3, (7, 5, 11)).astype(float)  # with many ties
    for found, one in zip(first_frames(cost), cost, strict=True):
        theirs = np.stack(generation_whisper._dynamic_time_warping(one))
        assert found.tolist() == [theirs[1][theirs[0] == i].min() for i in range(5)]


@pytest.mark.parametrize("cut", [None, 40])
def test_times_are_those_of_transformers(cut) -> None:
    """`_extract_token_timestamps` of Whisper, on random cross attention of two heads."""
    rng = np.random.default_rng(2)
    maps = rng.dirichlet(np.full(30, 0.3), size=(2, 3, 7))  # layer, head, row
    # a fake of what generation returns: one step that holds all rows
    out: Any = SimpleNamespace(
        cross_attentions=[[torch.tensor(x)[None].float() for x in maps]],
        sequences=torch.zeros(1, 8, dtype=torch.long),
    )

    class Generated(SimpleNamespace):
        def __contains__(self, name: str) -> bool:
            return hasattr(self, name)

    host = SimpleNamespace(config=SimpleNamespace(decoder_layers=2, median_filter_width=7))
    theirs = generation_whisper.WhisperGenerationMixin._extract_token_timestamps(
        host, Generated(**vars(out)), [[0, 1], [1, 2]], num_frames=cut, num_input_ids=2
    )
    part = np.stack([maps[0, 1], maps[1, 2]])[:, 2:, : None if cut is None else cut // 2]
    mine = first_frames(-smoothed_weights(part.astype(np.float32), 7).mean(0)[None])[0] * 0.02
    own = theirs[0][2:7]  # after the two prompt tokens; the last time is repeated
    np.testing.assert_allclose(mine, own.numpy(), atol=1e-6)


def test_parts_of_the_warping() -> None:
    rng = np.random.default_rng(0)
    weights = rng.random((2, 5, 11))
    z = standardised(weights)
    np.testing.assert_allclose(z.mean(1), 0, atol=1e-12)
    np.testing.assert_allclose(z.std(1), 1)
    weights[:, :, 3] = 0.25
    assert (standardised(weights)[:, :, 3] == 0).all()  # not 0/0
    smooth = median_smoothed(np.array([[0.0, 9, 0, 0, 5, 5, 5]]), 3)
    assert smooth.tolist() == [[9, 0, 0, 0, 5, 5, 5]]  # reflected: 9 0 9
    assert first_frames((0.1 - np.eye(4))[None]).tolist() == [[*range(4)]]
    tokens, frames = generation_whisper._dynamic_time_warping(-z[0])
    reached = frames[np.unique(tokens, return_index=True)[1]]
    np.testing.assert_array_equal(first_frames(-z[:1])[0], reached)
    with pytest.raises(OptionError, match="odd number"):
        median_smoothed(z, 4)


def test_wrong_recordings(planted_whisper, recordings, loaded) -> None:
    inputs, times = recordings
    cases: list[tuple[tuple, dict, type[InterpError], str]] = [
        ((inputs, times[:5]), {}, PromptError, "times of 5 recordings for 6"),
        ((inputs, [[]] * 6), {}, PromptError, "recording 0 has 0 times"),
        ((inputs, [[0.1] * 7] * 6), {}, PromptError, "7 times for 6 rows"),
        ((inputs, times), {"skip": 6}, OptionError, "skip leaves some of 6 rows"),
        ((inputs, times), {"frames": 500}, PromptError, "give 2 to 120 frames"),
        (({"input_features": inputs["input_features"]}, times), {}, PromptError, "decoder_input"),
    ]
    for given, options, error, message in cases:
        with pytest.raises(error, match=message):
            time_alignment(planted_whisper, *given, **options)
    with pytest.raises(OptionError, match="no cross attention"):
        time_alignment(loaded("llama"), inputs, times)


def test_latency_of_wait_k_and_of_waiting_until_the_end() -> None:
    for k, n in ((1, 6), (3, 6), (6, 6)):
        delays = wait_k_delays(k, n, n)
        assert average_lagging(delays, n) == pytest.approx(k)
        assert length_adaptive_average_lagging(delays, n, n) == pytest.approx(k)
        assert differentiable_average_lagging(delays, n) == pytest.approx(k)
    whole = [5] * 4
    assert average_lagging(whole, 5) == 5
    assert average_proportion(whole, 5) == 1.0
    assert average_proportion([1, 2, 3, 4], 4) == pytest.approx(10 / 16)


def test_latency_of_an_output_longer_than_its_reference() -> None:
    # g = 2 3 4 4 4 4, |X| = 4: the third word is the first that waited for everything
    delays = [2, 3, 4, 4, 4, 4]
    assert average_lagging(delays, 4, 3) == pytest.approx(np.mean([2, 3 - 4 / 3, 4 - 8 / 3]))
    longer = length_adaptive_average_lagging(delays, 4, 3)
    assert longer == pytest.approx(np.mean([2, 3 - 4 / 6, 4 - 8 / 6]))
    assert length_adaptive_average_lagging(delays, 4, 9) == pytest.approx(
        np.mean([2, 3 - 4 / 9, 4 - 8 / 9])
    )
    # each word at least 4/6 after the one before
    spaced = [2, 3, 4, 4 + 2 / 3, 4 + 4 / 3, 6]
    want = np.mean([g - t * 4 / 6 for t, g in enumerate(spaced)])
    assert differentiable_average_lagging(delays, 4) == pytest.approx(want)
    assert average_lagging([7, 7], 5) == 7  # read beyond the source
    for wrong in ([], [2, 1], [-1, 2]):
        with pytest.raises(OptionError, match="never decrease"):
            average_lagging(wrong, 4)
    for call in (lambda: average_proportion([1], 0), lambda: average_lagging([1], 2, 0)):
        with pytest.raises(OptionError, match="must be positive"):
            call()
    with pytest.raises(OptionError, match="at least 1"):
        wait_k_delays(0, 3, 3)


def test_the_spectrogram_stands_above_the_attention_on_one_axis(
    planted_whisper, recordings
) -> None:
    inputs = recordings[0]
    labels = ["<b>", *(f"t{i}" for i in range(1, TOKENS))]
    figure = spectrogram_attention(planted_whisper, inputs, "L1H2", recording=1, labels=labels)
    sound, attention = figure.data
    np.testing.assert_allclose(sound.z, inputs["input_features"][1].numpy())
    want = planted_whisper.capture(inputs, ["pattern"])["pattern", 1, "cross"][1, 2]
    np.testing.assert_allclose(attention.z, want.numpy(), atol=1e-6)
    begin = np.cumsum([0, *LENGTHS[:-1]]) * 0.02
    end = begin + np.array(LENGTHS) * 0.02
    for token, row in enumerate(attention.z):  # the planted head attends to the token's own time
        assert begin[token] < attention.x[int(np.argmax(row))] < end[token]
    assert sound.x[0] < attention.x[0]
    assert sound.x[-1] == pytest.approx(FRAMES * 0.02, abs=0.02)
    assert figure.layout.yaxis2.ticktext[0] == "&lt;b>"
    for wrong, message in (
        ({"head": "L5H0"}, "no cross-attention head L5H0"),
        ({"recording": 6}, "recording 6 is not one of 6"),
        ({"labels": ["a"]}, "1 labels for 6 decoder tokens"),
    ):
        with pytest.raises(OptionError, match=message):
            spectrogram_attention(planted_whisper, inputs, **({"head": "L1H2"} | wrong))
    with pytest.raises(PromptError, match="give input_features"):
        spectrogram_attention(planted_whisper, {"input_ids": inputs["decoder_input_ids"]}, "L1H2")
