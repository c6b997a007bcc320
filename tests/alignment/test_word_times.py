"""Times of spoken words on a planted Whisper, from sound files to the command."""

from __future__ import annotations

import json
import re
import wave
from pathlib import Path

import numpy as np
import pytest
from tokenizers.pre_tokenizers import ByteLevel
from transformers import WhisperTokenizerFast

import interp
from interp.alignment import (
    Utterance,
    heads_of_row,
    read_recordings,
    word_time_errors,
    word_times,
)
from interp.alignment.heard import heard_recordings, spoken_targets
from interp.alignment.recordings import recording_of
from interp.core.errors import InterpError, OptionError, PromptError
from interp.core.result_rows import ResultRows
from interp.lens import decoder_lens
from interp.planted import spoken_words

PLANTED = spoken_words()
POSITION = 0.02  # seconds


@pytest.fixture(scope="module")
def spoken(tmp_path_factory) -> Path:
    """The folder of a planted model with its processor, and six recordings."""
    folder = tmp_path_factory.mktemp("spoken") / "spoken"
    PLANTED.save(folder, 6)
    return folder


@pytest.fixture(scope="module")
def hearing(spoken) -> interp.Model:
    return interp.load(spoken)


@pytest.fixture(scope="module")
def counted(spoken) -> list[Utterance]:
    return read_recordings(spoken / "recordings.jsonl")


def wav(path: Path, samples: int, rate: int = 16_000) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, rate, 0, "NONE", ""))
        file.writeframes(bytes(2 * samples))
    return path


@pytest.mark.parametrize(("rows", "head"), [("emits", PLANTED.emits), ("fed", PLANTED.fed)])
def test_the_planted_head_of_each_row_is_chosen(hearing, counted, rows, head) -> None:
    found = word_time_errors(hearing, counted, rows=rows, n_heads=1)
    name = f"L{head[0]}H{head[1]}"
    table = found.to_pandas().set_index("heads_read")
    assert [str(h) for h in heads_of_row(found, "chosen heads together")] == [name]
    assert len(found.judged) == 3
    assert table.loc[name, "n"] == 3
    assert table.loc[name, "score"] < POSITION  # within one encoder position
    assert table.loc[name, "p"] == pytest.approx(1 / 200)
    others = table.drop(index=[name, "chosen heads together"])
    assert others["score"].min() > 0.1
    assert others["p"].min() > 0.02
    assert table["even"].iloc[0] > 2 * table.loc[name, "score"]
    # a head that attends evenly to all sound has the error of its null
    assert table.loc["L0H0", "score"] == pytest.approx(table.loc["L0H0", "null"])


def test_words_begin_where_their_tone_begins(hearing, counted) -> None:
    found = word_times(hearing, counted, heads=["L1H2"])
    frame = found.to_pandas()
    assert frame["error"].max() <= POSITION + 1e-9
    assert np.isnan(frame["sem"]).all()  # one head has nothing to agree with
    first = frame[found.of_recording == 0]
    assert (first["end"].to_numpy()[:-1] == first["score"].to_numpy()[1:]).all()
    assert first["word"].tolist() == counted[0].text.split()
    assert found.sound == pytest.approx(first["end"].iloc[-1], abs=2 * POSITION)
    assert found.attention.shape[0] == len(first)
    starts = [step for _, step in sorted(zip(found.token, found.score, strict=False))]
    assert starts[0] == 0
    several = word_times(hearing, counted[:1], heads=["L1H2", "L1H0"])
    assert np.isfinite(several.sem).all()
    assert several.sem.max() > POSITION  # the second head attends to later words


def test_silence_goes_to_words_beside_it(hearing) -> None:
    sounds = PLANTED.sounds(4, seed=3, pauses=True)
    given = [
        Utterance(sound, " ".join(w for w, _ in words), tuple(words)) for sound, words in sounds
    ]
    found = word_times(hearing, given, heads=["L1H2"])
    for at, (_, words) in enumerate(sounds):
        mine = np.flatnonzero(found.of_recording == at)
        ends = [0.0, *(start for _, start in words[:-1])]
        for word, before, (_, start) in zip(mine, ends, words, strict=True):
            assert before - 1e-9 <= found.score[word] <= start + POSITION + 1e-9
        assert found.score[mine[0]] == 0  # silence before the first word is given to it


def test_declared_heads_are_the_default(hearing, counted) -> None:
    with pytest.raises(OptionError, match="declares no heads for times"):
        word_times(hearing, counted)
    hearing.module.generation_config.alignment_heads = [[1, 2]]
    try:
        assert [str(h) for h in word_times(hearing, counted[:1]).of] == ["L1H2"]
        found = word_time_errors(hearing, counted[:2], n_heads=0, n_random=9)
        assert found.to_pandas()["heads_read"].iloc[-1] == "declared heads together"
        assert found.judged == (0, 1)
    finally:
        hearing.module.generation_config.alignment_heads = None


def test_decoder_lens_of_speech(hearing, counted) -> None:
    """The tones are readable after the last encoder layer only."""
    batch, labels = spoken_targets(hearing, heard_recordings(hearing, counted))
    found = decoder_lens(hearing, batch, labels=labels)
    loss = found.per_prompt.mean(1)
    assert loss[0] == pytest.approx(loss[1])
    assert loss[1] > 5
    assert loss[2] < 0.05
    assert found.residual == 0
    assert found.norm == "layer_norm"
    assert list(found.labels) == counted[0].text.split()
    assert found.top_tokens[2] == found.labels


def whisper_tokenizer() -> WhisperTokenizerFast:
    """Whisper's own tokenizer with single bytes, one merged word and two languages."""
    tokens = [*sorted(ByteLevel.alphabet()), "Ġo", "Ġon", "Ġone", "<|endoftext|>"]
    made = WhisperTokenizerFast(
        vocab={token: at for at, token in enumerate(tokens)},
        merges=[("Ġ", "o"), ("Ġo", "n"), ("Ġon", "e")],
    )
    prompt = ("startoftranscript", "en", "de", "transcribe", "translate", "notimestamps")
    made.add_special_tokens({"additional_special_tokens": [f"<|{x}|>" for x in prompt]})
    return made


def test_rows_of_words_behind_the_prompt_of_whisper(hearing, counted) -> None:
    speech = interp.load(hearing.module, name="multilingual")
    speech.processor, speech.tokenizer = hearing.processor, whisper_tokenizer()
    config, start = hearing.module.config, hearing.module.config.decoder_start_token_id
    config.decoder_start_token_id = speech.tokenizer.convert_tokens_to_ids("<|startoftranscript|>")
    try:
        given = Utterance(counted[0].audio, "one one two", (("two", 0.3),))
        [heard] = heard_recordings(speech, [given], language="en")
        read = speech.tokenizer.convert_ids_to_tokens(heard.inputs["decoder_input_ids"][0])
        assert read[:4] == ["<|startoftranscript|>", "<|en|>", "<|transcribe|>", "<|notimestamps|>"]
        assert read[4:] == ["o", "n", "e", "Ġone", "Ġ", "t", "w", "o"]  # without the end
        assert heard.first == 4
        assert heard.words == (0, 0, 0, 1, 2, 2, 2, 2)
        assert heard.starting == (0, 3, 4)
        np.testing.assert_array_equal(heard.times(9), [np.nan] * 4 + [0.3] + [np.nan] * 4)
        rows = np.arange(12.0)[None, :, None] * np.ones((1, 1, 200))
        assert heard.part(rows, "emits")[0, :, 0].tolist() == list(range(3, 12))
        assert heard.part(rows, "fed")[0, :, 0].tolist() == list(range(4, 12))
        with pytest.raises(OptionError, match="Unsupported language: xx; give a code"):
            heard_recordings(speech, [given], language="xx")
    finally:
        config.decoder_start_token_id = start


def test_what_a_recording_must_be(spoken, hearing, counted, loaded, tmp_path) -> None:
    one, text = counted[0], counted[0].text
    long = wav(tmp_path / "long.wav", 16_000 * 5)
    cases: list[tuple[Utterance, str]] = [
        (
            Utterance(wav(tmp_path / "empty.wav", 0), text),
            r"\(empty.wav\): .* has no samples",
        ),
        (
            Utterance(wav(tmp_path / "slow.wav", 800, 8000), text),
            "8000 samples per second; spoken",
        ),
        (Utterance(long, text), "5.0 s of sound, and spoken reads 4 s"),
        (
            Utterance(one.audio, " ".join(["one"] * 16)),
            "17 tokens, and the decoder of spoken",
        ),
        (Utterance(tmp_path / "no.wav", text), "cannot be read"),
    ]
    for given, message in cases:
        with pytest.raises(PromptError, match=message):
            word_times(hearing, [given], heads=["L1H2"])
    wrong: list[tuple[dict, dict, type[InterpError], str]] = [
        ({}, {"heads": ["L7H0"]}, OptionError, "heads names L7H0, which spoken lacks"),
        ({}, {"rows": "both"}, OptionError, "known: emits, fed"),
        ({}, {"width": 4}, OptionError, "odd number"),
        ({}, {"language": "en"}, OptionError, "has no tokens of languages"),
        ({"words": ()}, {}, PromptError, r"recording 0 \(0.wav\) has no gold times"),
    ]
    for changed, options, error, message in wrong:
        given = Utterance(one.audio, text, changed.get("words", one.words))
        with pytest.raises(error, match=message):
            word_time_errors(hearing, [given], **({"n_heads": 0} | options))
    with pytest.raises(PromptError, match="needs four or more"):
        word_time_errors(hearing, counted[:3])
    with pytest.raises(OptionError, match="has no cross attention"):
        word_times(loaded("llama"), [one])
    with pytest.raises(PromptError, match=r"\(encoder-decoder\) reads no sound"):
        word_times(interp.load("bundled:reorder"), [one])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"words": [["two", 0.5], ["dog", 0.6]]}, "gold word 'dog' is not in the text after 'two'"),
        ({"words": [["three", 0.1], ["one", 0.6]]}, "'one' is not in the text after 'three'"),
        ({"words": [["one", 0.5], ["two", 0.4]]}, "'two' starts at 0.4 s; .* at least 0.5"),
        ({"words": [["one", -1]]}, "at least 0 like"),
        ({"words": [["one"]]}, "'words' is not a list of words with their start"),
        ({"text": " "}, "the text is empty"),
        ({"audio": 3}, "'audio' is missing or not a text"),
        ({"sound": "a.wav"}, "unknown field 'sound'"),
    ],
)
def test_a_wrong_line_is_named(changed, message, tmp_path) -> None:
    row = {"audio": "a.wav", "text": "one two three"} | changed
    with pytest.raises(PromptError, match=message):
        recording_of(row)
    path = tmp_path / "recordings.jsonl"
    path.write_text(json.dumps({"audio": "a.wav", "text": "one"}) + "\n" + json.dumps(row))
    with pytest.raises(PromptError, match=f"line 2: .*{message}"):
        read_recordings(path)


def test_gold_words_may_be_left_out() -> None:
    found = Utterance("a.wav", "the cat the dog", (("the", 0.1), ("the", 0.4))).starts()
    np.testing.assert_array_equal(found, [0.1, np.nan, 0.4, np.nan])


def test_the_command(spoken, run, errors, tmp_path) -> None:
    listed, out = spoken / "recordings.jsonl", tmp_path / "out"
    done = run("study", "speech", spoken, "--file", listed, "-o", out, "-q")
    assert done.exit_code == 0, done.output
    assert "in seconds, 3 judged recordings" in done.stdout
    assert done.stdout.splitlines()[2].split()[0] == "L1H2"  # the lowest error
    assert "chosen heads together" in done.stdout
    assert "evenly spaced words: 0." in done.stdout
    assert "rows in random order" in done.stdout
    [folder] = out.iterdir()
    times = ResultRows.load(folder / "time_alignment.json")
    words = ResultRows.load(folder / "word_times.json")
    assert len(words.recordings) == len(times.judged) == 3
    page = (folder / "word_times.html").read_text(encoding="utf-8")
    assert page.count("spectrogram") >= 1
    [drawn] = set(re.findall("attention of (cross[^<]*)", page))
    assert "cross.L1H2" in drawn.split(", ")  # the three chosen heads
    done = run(
        "study",
        "speech",
        spoken,
        "--audio",
        spoken / "0.wav",
        "--text",
        "one <b> three",
        "--heads",
        "L1H2,L1H0",
        "-q",
    )
    assert done.exit_code == 0, done.output
    assert "by L1H2, L1H0; error: jackknife over the heads" in done.stdout
    done = run("study", "speech", spoken, "--file", listed, "-m", "decoder-lens", "-o", out, "-q")
    assert done.exit_code == 0, done.output
    assert len(ResultRows.load(folder / "decoder_lens.json")) == 3
    for args, message in (
        ((spoken,), "give --file RECORDINGS.jsonl, or --audio with --text"),
        ((spoken, "--audio", listed), "0 --text for 1 --audio"),
        ((spoken, "--file", listed, "--text", "one"), "--text belongs to --audio"),
        ((spoken, "--file", listed, "--heads", "x"), "'x'"),
        (("bundled:reorder", "--file", listed), "reads no sound"),
    ):
        code, told = errors("study", "speech", *args)
        assert code in (1, 2)
        assert message in told[0], told
