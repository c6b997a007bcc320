"""Chats as prompts: what a template makes of texts, and segments by role in every reading."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from fixtures.chats import TEMPLATES
from fixtures.commands import invoked

import interp
from interp.circuits.why.positions import Places
from interp.core.errors import LoadError, OptionError, PromptError
from interp.core.prompts import Prompts, from_file
from interp.heads.patterns import view
from interp.model.loading import Loading
from interp.model.spans import segment_spans
from interp.profiles.corpus import DocumentCorpus, sample_corpus

TALK = [
    {"role": "user", "content": "hello there how are you"},
    {"role": "assistant", "content": "<think>kind</think>I am well"},
    {"role": "user", "content": "be kind"},
]


def random_words(seed: int) -> str:
    letters = np.random.default_rng(seed).choice([*"abcdefghijklmnop "], 120)
    return "".join(letters).strip()


@pytest.fixture(scope="module")
def talker(chat_folder: Path) -> interp.Model:
    return interp.load(chat_folder, chat=True)


def test_a_text_is_the_users_turn_and_a_chat_is_one_prompt(
    talker: interp.Model, chat_folder: Path
) -> None:
    turn = [{"role": "user", "content": "hello there"}]
    said = talker.tokenizer.apply_chat_template(turn, add_generation_prompt=True, tokenize=False)
    own = tuple(talker.tokenizer(said, add_special_tokens=False)["input_ids"])
    assert Prompts.of("hello there", talker).ids == (own,)
    assert Prompts.of("hello there", talker).design == "texts as user turns"
    plain = interp.load(chat_folder)
    assert Prompts.of(turn, plain).ids == Prompts.of([turn], plain).ids == (own,)
    assert Prompts.of("hello there", plain).ids != (own,)


def test_roles_are_segments_and_text_holds_them_all(talker: interp.Model) -> None:
    masks = segment_spans(talker, [TALK])["decoder"]
    assert set(masks) == {"text", "special", "user", "assistant", "thinking"}
    parts = masks["user"].int() + masks["assistant"].int()
    assert torch.equal(parts.bool(), masks["text"])
    assert int(parts.max()) == 1
    assert bool((masks["thinking"] & masks["assistant"]).eq(masks["thinking"]).all())
    ids = Prompts.of([TALK], talker).ids[0]
    said = [t for t, inside in zip(ids, masks["user"][0].tolist(), strict=True) if inside]
    assert talker.tokenizer.decode(said).split() == [
        "hello",
        "there",
        "how",
        "are",
        "yoube",
        "kind",
    ]


def test_padding_and_other_prompts_change_no_role(talker: interp.Model) -> None:
    alone = segment_spans(talker, [TALK])["decoder"]["user"]
    both = segment_spans(talker, [TALK, TALK * 2])["decoder"]["user"]
    assert torch.equal(both[0, : alone.shape[1]], alone[0])
    assert not bool(both[0, alone.shape[1] :].any())


def test_mass_on_a_role_is_that_of_its_keys(talker: interp.Model) -> None:
    pattern = talker.capture([TALK], ["pattern"])["pattern", 0]
    masks = segment_spans(talker, [TALK])["decoder"]
    table = interp.score(
        talker,
        ["segment_mass:segment=user,queries=assistant", "segment_mass:segment=text"],
        [TALK],
        null="none",
    ).to_pandas()
    keys = pattern[..., masks["user"][0]].sum(-1)[0][:, masks["assistant"][0]].mean(-1)
    every = pattern[..., masks["text"][0]].sum(-1)[0].mean(-1)
    first = table[(table.layer == 0) & table.metric.str.contains("user")].score
    assert first.to_list() == pytest.approx(keys.tolist(), abs=1e-6)
    first = table[(table.layer == 0) & table.metric.str.contains("segment=text")].score
    assert first.to_list() == pytest.approx(every.tolist(), abs=1e-6)


def test_a_detector_names_roles(talker: interp.Model) -> None:
    @interp.detector(task="none: where a head looks is not yet what it does")
    def reply_to_user(query, key, segments):
        """Attend from the reply to the user's words.

        >>> picture(reply_to_user, "user assistant")
          user assistant
        user . .
        assistant # .
        """
        return (segments[query] == "assistant") & (segments[key] == "user")

    pattern = talker.capture([TALK], ["pattern"])["pattern", 1]
    masks = segment_spans(talker, [TALK])["decoder"]
    keys = pattern[..., masks["user"][0]].sum(-1)[0][:, masks["assistant"][0]].mean(-1)
    table = interp.score(talker, reply_to_user, [TALK], null="none").to_pandas()
    assert table[table.layer == 1].score.to_list() == pytest.approx(keys.tolist(), abs=1e-6)
    with pytest.raises(PromptError, match="names the segment 'user' or 'assistant', which the"):
        interp.score(talker, reply_to_user, [[5, 6, 7, 8]], null="none")


def test_a_template_that_names_a_role_by_else_swaps_none() -> None:
    """The words of both messages get what they get where the template names both roles."""
    model = interp.load("bundled:induction")
    said = [("user", "where is the red dog"), ("assistant", "the red dog is in the barn")]
    chat = [{"role": role, "content": words} for role, words in said]
    each = (
        "{% for m in messages %}{{ '<' + m['role'] + '> ' + m['content'] + ' </> ' }}{% endfor %}"
    )
    for template in (each, TEMPLATES["user by else"], TEMPLATES["assistant by else"]):
        model.tokenizer.chat_template = template
        metrics = [f"segment_mass:segment={name}" for name in ("system", "user", "assistant")]
        frame = interp.score(model, metrics, [chat], null="none").to_pandas()
        scores = frame[(frame.layer == 1) & (frame["head"] == 0)].score
        assert scores.to_list() == pytest.approx([0, 0.5052, 0.0297], abs=1e-4), template
    frame = interp.score(model, "segment_mass:queries=assistant", [chat], null="none").to_pandas()
    assert frame.score.notna().all()


def test_rows_or_roles_that_no_prompt_has_are_refused(talker: interp.Model) -> None:
    asked = {"segment_mass:queries=assistant": [TALK[:1]], "segment_mass:queries=image": [TALK]}
    for metric, prompts in asked.items():
        with pytest.raises(PromptError, match=r"names the segment .* which the prompts of talker"):
            interp.score(talker, metric, prompts, null="none")
    ids = [Prompts.of([TALK], talker).ids[0]]
    for metric in ("segment_mass:segment=user", "segment_mass:segment=text,queries=user"):
        with pytest.raises(PromptError, match="roles are known of chats that are given as messag"):
            interp.score(talker, metric, ids, null="none")
    absent = interp.score(talker, "segment_mass:segment=system", [TALK], null="none")
    assert (absent.to_pandas().score == 0).all()  # known to be absent, so a mass of 0 is right


def test_roles_that_cannot_be_told_are_refused_where_they_are_named(chat_folder: Path) -> None:
    model = interp.load(chat_folder)
    each = "{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}"
    model.tokenizer.chat_template = "{{ messages[0]['content'] | length }} " + each
    assert interp.score(model, "entropy", [TALK], null="none").to_pandas().score.notna().all()
    for asked in (
        "segment_mass:segment=user",
        lambda query, key, segments: segments[key] == "user",
    ):
        with pytest.raises(PromptError, match=r"around message 1 \(user\) when its words change"):
            interp.score(model, asked, [TALK], null="none")
    with pytest.raises(PromptError, match="around message 1"):
        segment_spans(model, [TALK])


def test_roles_stay_with_parts_beginnings_and_shuffled_tokens(talker: interp.Model) -> None:
    prompts = Prompts.of([TALK, TALK[:2]], talker)
    assert prompts.roles is not None
    whole = segment_spans(talker, prompts)["decoder"]["user"]
    for part in (prompts.part([1]), prompts.shuffled(0, keep_first=False).part([1])):
        own = segment_spans(talker, part)["decoder"]["user"]
        assert torch.equal(own[0], whole[1, : own.shape[1]])
    cut = segment_spans(talker, prompts.beginning(9))["decoder"]["user"]
    assert torch.equal(cut, whole[:, :9])
    left = segment_spans(talker, replace(prompts, padding="left"))["decoder"]["user"]
    assert torch.equal(left[1, -int(own.shape[1]) :], own[0])
    assert prompts.hash != Prompts(prompts.ids).hash
    places = Places(lambda query, key, segments: segments[key] == "user")
    seen = torch.ones(len(prompts.ids[1]), len(prompts.ids[1]), dtype=torch.bool)
    pairs = places.of(talker, prompts.part([1]), seen, seen.float())
    assert {key for _, key in pairs} == set(own[0].nonzero().flatten().tolist())


def test_files_hold_chats(talker: interp.Model, tmp_path: Path) -> None:
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"messages": TALK[: n % 3 + 1]}) + "\n" for n in range(3)))
    assert from_file(file, talker).ids == Prompts.of([TALK[:1], TALK[:2], TALK], talker).ids
    file.write_text('{"messages": [1]}\n')
    with pytest.raises(PromptError, match="line 1: 'messages' is not a list of messages"):
        from_file(file, talker)


def test_documents_are_chats_or_users_turns(talker: interp.Model, tmp_path: Path) -> None:
    talks = [[{"role": "user", "content": random_words(seed)}] for seed in range(9)]
    texts = [talk[0]["content"] for talk in talks]
    file = tmp_path / "chats.jsonl"
    file.write_text("".join(json.dumps({"messages": talk}) + "\n" for talk in talks))
    read = {
        name: {window.ids for window in sample_corpus(DocumentCorpus(source), talker).windows}
        for name, source in (("chats", talks), ("texts", texts), ("file", file))
    }
    assert read["chats"] == read["texts"] == read["file"]
    assert read["chats"] == set(Prompts.of(texts, talker).ids)


def test_the_command_says_which_reading_it_took(chat_folder: Path, tmp_path: Path) -> None:
    args = ["attribute", "flow", str(chat_folder), "--text", "hello there"]
    plain, chat = invoked(args), invoked([*args, "--chat"])
    assert plain.exit_code == chat.exit_code == 0
    assert "texts are read without it (chat=False)" in plain.stderr
    assert "texts are read as the user's turn in it (chat=True)" in chat.stderr
    assert "im_start" in chat.stdout
    assert "im_start" not in plain.stdout
    assert "chat template" not in invoked([*args, "-q"]).stderr
    file = tmp_path / "chats.jsonl"
    file.write_text(json.dumps({"messages": TALK}) + "\n")
    score = ["score", str(chat_folder), "-m", "entropy", "--null", "none"]
    for given in ([], ["--file", str(file)]):  # random tokens, and messages: no text is read
        result = invoked([*score, *given])
        assert result.exit_code == 0
        assert "chat template" not in result.stderr
    file = tmp_path / "texts.txt"
    file.write_text("hello there\nhow are you\n")
    assert invoked([*score, "--file", str(file)]).stderr.count("texts are read without it") == 1


def test_another_source_reads_texts_as_chats_too(chat_folder: Path) -> None:
    pytest.importorskip("nnsight")
    model = Loading(chat=True, through="nnsight").load(str(chat_folder), "talker")
    assert Prompts.of("hello there", model).design == "texts as user turns"


def test_chats_of_a_model_without_a_template_are_refused(talker: interp.Model) -> None:
    with pytest.raises(LoadError, match=r"no chat template; leave out chat=True \(--chat\)"):
        interp.load("bundled:induction", chat=True)
    with pytest.raises(OptionError, match="a pair of texts is not a chat"):
        view(talker, "hello", text_b="there")
