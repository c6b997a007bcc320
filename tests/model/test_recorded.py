"""Activations recorded on disk equal captured ones, survive interruption, and report damage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import interp
from interp.core.errors import NonFiniteError, OptionError, PromptError, StoreError
from interp.model.capture import NotCaptured
from interp.model.recorded.reading import RecordedActivations
from interp.model.recorded.recording import RECORDED, record_activations

SMALL: dict[str, Any] = {"batch_size": 4, "shard_bytes": 100_000}


@pytest.fixture(scope="module")
def corpus_prompts(bundled_induction) -> list[list[int]]:
    return [list(ids) for ids in interp.repeats(bundled_induction, n=18).ids]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


def test_every_name_equals_the_capture_of_the_prompt_alone(
    bundled_induction, corpus_prompts, tmp_path
) -> None:
    recorded = record_activations(bundled_induction, corpus_prompts, tmp_path, RECORDED, **SMALL)
    assert recorded.complete
    assert recorded.n_prompts == 18
    assert len(recorded.index.shards) > 2
    for prompt in (0, 5, 17):
        alone = bundled_induction.capture([corpus_prompts[prompt]], RECORDED)
        assert recorded.tokens(prompt).tolist() == corpus_prompts[prompt]
        for (name, layer, _), value in zip(alone, alone.values.values(), strict=True):
            x = value.transpose(1, 2) if name in "qkvz" else value
            torch.testing.assert_close(
                recorded.read(name, layer, prompt), x[0], rtol=1e-5, atol=1e-5
            )


def test_positions_tokens_and_batches_agree(bundled_induction, corpus_prompts, tmp_path) -> None:
    recorded = record_activations(
        bundled_induction, corpus_prompts, tmp_path, ["resid_post"], layers=1, **SMALL
    )
    every = torch.cat([recorded.read("resid_post", 1, p) for p in range(recorded.n_prompts)])
    assert len(every) == recorded.n_tokens == sum(map(len, corpus_prompts))
    asked = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))[:50]
    assert torch.equal(recorded.at("resid_post", 1, asked), every[asked])
    for token in (0, 37, len(every) - 1):
        prompt, position = recorded.prompt_of(token)
        assert torch.equal(recorded.read("resid_post", 1, prompt, position), every[token])
    last = recorded.read("resid_post", 1, 3, [-1, 0])
    assert torch.equal(last, recorded.read("resid_post", 1, 3)[[-1, 0]])
    assert torch.equal(
        recorded.read("resid_post", 1, 3, slice(1, 9, 2)), recorded.read("resid_post", 1, 3)[1:9:2]
    )
    seen = [
        number
        for numbers, _ in recorded.batches("resid_post", 1, 64, seed=3)
        for number in numbers.tolist()
    ]
    assert sorted(seen) == list(range(len(every)))
    assert seen != sorted(seen)
    for numbers, values in recorded.batches("resid_post", 1, 100):
        assert torch.equal(values, every[numbers])


def test_an_interrupted_recording_continues_to_the_same_bytes(
    bundled_induction, corpus_prompts, tmp_path
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    record_activations(bundled_induction, corpus_prompts, whole, **SMALL)

    class Stop(Exception):
        pass

    def until(n: int):
        yield from corpus_prompts[:n]
        raise Stop

    for n in (3, 9, 16):
        with pytest.raises(Stop):
            record_activations(bundled_induction, until(n), cut, **SMALL)
    runs = 0
    run = bundled_induction.run

    def counted(*args, **options):
        nonlocal runs
        runs += 1
        return run(*args, **options)

    if (cut / "index.json").exists():
        assert not RecordedActivations(cut).complete
    done = RecordedActivations(cut).n_prompts
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bundled_induction, "run", counted, raising=False)
        record_activations(bundled_induction, corpus_prompts, cut, **SMALL)
    assert runs == -(-(len(corpus_prompts) - done) // 4)  # finished shards are not computed again
    assert contents(whole) == contents(cut)


def test_a_damaged_shard_is_reported_and_computed_again(
    bundled_induction, corpus_prompts, tmp_path
) -> None:
    record_activations(bundled_induction, corpus_prompts, tmp_path, **SMALL)
    before = contents(tmp_path)
    shard = tmp_path / "activations-00001.safetensors"
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    with pytest.raises(StoreError, match=r"activations-00001.safetensors has another checksum"):
        RecordedActivations(tmp_path).verify()
    (tmp_path / "activations-00000.safetensors").write_bytes(b"cut")
    with pytest.raises(StoreError, match=r"has 3 bytes; the index states"):
        RecordedActivations(tmp_path)
    record_activations(bundled_induction, corpus_prompts, tmp_path, **SMALL).verify()
    assert contents(tmp_path) == before


def test_a_corpus_in_a_file_is_read_line_by_line(bundled_induction, tmp_path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the dog saw a cat .\n\nthe man saw a dog . the man ran .\n")
    recorded = record_activations(
        bundled_induction,
        corpus,
        tmp_path / "out",
        ["z"],
        heads=[2, 0],
        max_length=7,
        dtype="float16",
    )
    assert recorded.n_prompts == 2  # the empty line is no prompt
    assert len(recorded.tokens(1)) <= 7
    found = recorded.read("z", 0, 0)
    ids = [recorded.tokens(0).tolist()]
    alone = bundled_induction.capture(ids, ["z"], layers=0, heads=[2, 0])["z", 0]
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.float(), alone[0].transpose(0, 1), rtol=2e-3, atol=2e-3)


def test_grouped_heads_keep_their_own_axes(loaded, tmp_path) -> None:
    model = loaded("llama")
    ids = [[5, 6, 7], [8, 9, 10, 11, 12]]
    recorded = record_activations(model, ids, tmp_path, ["k", "z"])
    assert recorded.read("k", 0, 1).shape == (5, model.n_kv_heads, model.d_head)
    assert recorded.read("z", 0, 1).shape[:2] == (5, model.n_heads)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "pattern": ({"names": ["pattern"]}, "has a value per pair of positions"),
    "dtype": ({"dtype": "int8"}, "unknown data type 'int8'"),
    "layer": ({"layers": 9}, "has no attention in layers"),
    "batch": ({"batch_size": 0}, "batch_size 0 is too small"),
    "nothing": ({"names": []}, "no activations were named"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_wrong_options_are_refused(bundled_induction, corpus_prompts, tmp_path, case) -> None:
    options, said = REFUSED[case]
    with pytest.raises(OptionError, match=said):
        record_activations(bundled_induction, corpus_prompts, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_another_request_or_corpus_does_not_mix_with_a_recording(
    bundled_induction, corpus_prompts, tmp_path
) -> None:
    record_activations(bundled_induction, corpus_prompts, tmp_path, **SMALL)
    before = contents(tmp_path)
    with pytest.raises(OptionError, match=r"holds another recording \(names: \['z'\] there"):
        record_activations(bundled_induction, corpus_prompts, tmp_path, ["v"], **SMALL)
    with pytest.raises(PromptError, match="the corpus differs from the one recorded"):
        record_activations(bundled_induction, corpus_prompts[1:], tmp_path, **SMALL)
    with pytest.raises(OptionError, match="already holds a recording"):
        record_activations(bundled_induction, corpus_prompts, tmp_path, resume=False, **SMALL)
    assert contents(tmp_path) == before


def test_unusable_corpora_and_folders(bundled_induction, corpus_prompts, tmp_path) -> None:
    with pytest.raises(PromptError, match="no prompts given"):
        record_activations(bundled_induction, [], tmp_path / "a")
    with pytest.raises(PromptError, match="prompt 1 holds the token id"):
        record_activations(bundled_induction, [corpus_prompts[0], [10**6]], tmp_path / "b")
    with pytest.raises(PromptError, match="the corpus is a list of token ids"):
        record_activations(bundled_induction, corpus_prompts[0], tmp_path / "c")
    with pytest.raises(PromptError, match="the corpus is a single text"):
        record_activations(bundled_induction, "a text", tmp_path / "c")
    with pytest.raises(PromptError, match=r"cannot be read"):
        record_activations(bundled_induction, tmp_path / "none.txt", tmp_path / "d")
    with pytest.raises(StoreError, match="holds no recorded activations"):
        RecordedActivations(tmp_path / "e")
    (tmp_path / "f").mkdir()
    (tmp_path / "f" / "index.json").write_text("{")
    with pytest.raises(StoreError, match="is damaged or of another version"):
        RecordedActivations(tmp_path / "f")


def test_reading_what_was_not_recorded(bundled_induction, corpus_prompts, tmp_path) -> None:
    recorded = record_activations(bundled_induction, corpus_prompts, tmp_path, layers=1)
    with pytest.raises(NotCaptured, match="z of layer 0 was not recorded"):
        recorded.read("z", 0, 0)
    with pytest.raises(OptionError, match="there is no prompt 18"):
        recorded.tokens(18)
    with pytest.raises(OptionError, match="there is no position 999"):
        recorded.read("z", 1, 0, 999)
    with pytest.raises(OptionError, match="there is no token -1"):
        recorded.at("z", 1, [-1])


def test_values_beyond_the_data_type_are_refused(
    bundled_induction, corpus_prompts, tmp_path
) -> None:
    with (
        bundled_induction.edited(interp.model.gate([interp.Head(0, 0)], 1e9)),
        pytest.raises(NonFiniteError, match="not finite in float16"),
    ):
        record_activations(bundled_induction, corpus_prompts, tmp_path, dtype="float16")


def test_two_recordings_at_once_are_refused(bundled_induction, corpus_prompts, tmp_path) -> None:
    def during():
        yield corpus_prompts[0]
        with pytest.raises(StoreError, match="another process is recording"):
            record_activations(bundled_induction, corpus_prompts, tmp_path)
        yield corpus_prompts[1]

    assert record_activations(bundled_induction, during(), tmp_path).n_prompts == 2


def test_the_command_records_and_continues(run, errors, tmp_path) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("the dog saw a cat .\n" * 20)
    args = ("record", "bundled:induction", "--file", corpus, "-o", tmp_path / "out")
    result = run(*args, "--site", "z,resid_post", "--layer", "0-1")
    assert result.exit_code == 0, result.output
    assert "20 prompts" in result.stderr
    recorded = RecordedActivations(tmp_path / "out")
    assert recorded.names == ["z", "resid_post"]
    assert recorded.layers == [0, 1]
    code, said = errors(*args, "--site", "q")
    assert code != 0
    assert "holds another recording" in said[0]
    code, said = errors(*args, "--layer", "2-0")
    assert code != 0
    assert "the range '2-0' is empty" in said[0]
    code, said = errors("record", "bundled:induction", "--file", tmp_path / "no", "-o", "x")
    assert code != 0
    assert "there is no such file" in said[0]
