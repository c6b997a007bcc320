"""Tokens of the stories: annotations on any tokenizer, the trained one, and the stated figures."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from transformers import PreTrainedTokenizerFast

import training.stories
from interp.core.errors import LoadError, OptionError
from training.stories import generator_hash, measure, stories, story, texts, tokens
from training.stories.__main__ import PAGE
from training.stories.world import NAMES


@pytest.fixture(scope="module")
def story_tokenizer() -> PreTrainedTokenizerFast:
    return tokens.train_tokenizer(1000)


def test_any_text_is_read_and_names_are_single_tokens(
    story_tokenizer: PreTrainedTokenizerFast,
) -> None:
    for text in ("Zürich 東京\n\tx = 3;", story(3).text, ""):
        ids = story_tokenizer(text)["input_ids"]
        assert story_tokenizer.decode(ids, skip_special_tokens=True) == text
        assert ids[0] == story_tokenizer.bos_token_id
        assert story_tokenizer.unk_token_id not in ids
    for name, _ in NAMES:
        assert len(story_tokenizer(f" {name}")["input_ids"]) == 2


def test_annotations_lie_at_the_tokens_of_their_words(
    story_tokenizer: PreTrainedTokenizerFast,
) -> None:
    for made in stories(50):
        offsets = story_tokenizer(made.text, return_offsets_mapping=True)["offset_mapping"]
        for each, annotation in zip(tokens.on_tokens(made, offsets), made.annotations, strict=True):
            assert (each.relation, each.label) == (annotation.relation, annotation.label)
            assert len(each.targets) == len(annotation.targets)
            for span, at in zip(
                (annotation.span, *annotation.targets), (each.tokens, *each.targets), strict=True
            ):
                said = made.text[offsets[at[0]][0] : offsets[at[-1]][1]]
                assert said.strip() == made.text[slice(*span)]
                assert 0 not in at  # `<s>`
            if each.relation == "mark":
                assert len(each.tokens) == 1
                assert len(each.targets[0]) == 1


def test_other_tokenizers_and_tokens_of_several_words() -> None:
    made = story(3)
    characters = tokens.on_tokens(made, [(i, i + 1) for i in range(len(made.text))])
    for each, annotation in zip(characters, made.annotations, strict=True):
        assert each.tokens == tuple(range(*annotation.span))
    whole = tokens.on_tokens(made, [(0, 0), (0, len(made.text))])
    assert {each.tokens for each in whole} == {(1,)}


def test_a_changed_generator_is_refused_with_an_old_tokenizer(
    story_tokenizer: PreTrainedTokenizerFast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens.save_tokenizer(story_tokenizer, tmp_path)
    text = story(3).text
    assert tokens.load_tokenizer(tmp_path)(text)["input_ids"] == story_tokenizer(text)["input_ids"]
    monkeypatch.setattr(tokens, "generator_hash", lambda: "another")
    with pytest.raises(LoadError, match=r"another generator .*stories tokenizer"):
        tokens.load_tokenizer(tmp_path)
    monkeypatch.undo()
    origin = tmp_path / tokens.ORIGIN
    document = json.loads(origin.read_text())
    origin.write_text(json.dumps(document | {"generator": "forged"}))
    with pytest.raises(LoadError, match=r"changed after it was written.*stories tokenizer"):
        tokens.load_tokenizer(tmp_path)
    origin.unlink()
    with pytest.raises(LoadError, match="does not say which generator"):
        tokens.load_tokenizer(tmp_path)


def test_the_hash_is_of_every_file_that_makes_texts() -> None:
    folder = Path(training.stories.__file__).parent
    made, left = set(), {"texts"}
    while left:
        made |= left
        said = [(folder / f"{name}.py").read_text(encoding="utf-8") for name in left]
        found = {name for each in said for name in re.findall(r"training\.stories\.(\w+) ", each)}
        found |= {
            name
            for each in said
            for names in re.findall(r"from training\.stories import (.+)", each)
            for name in names.split(", ")
        }
        left = found - made
    assert set(texts._SOURCES.split()) == made


def test_too_small_a_vocabulary_for_the_names_is_refused() -> None:
    with pytest.raises(OptionError, match=r"too few for \d+ of 6\d names.*larger vocabulary"):
        tokens.train_tokenizer(200, vocabulary=400)


def test_the_page_is_of_this_generator_and_shows_its_samples() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert f"generator `{generator_hash()[:12]}`" in page
    for seed in measure.SAMPLES:
        assert "\n\n".join(["```text\n" + story(seed).text + "\n```"]) in page


@pytest.mark.slow
def test_the_page_states_what_is_measured() -> None:
    assert PAGE.read_text(encoding="utf-8") == measure.page(measure.measured())


def test_the_determined_share_counts_each_kind() -> None:
    kinds = {measure.determined(each) for made in stories(200) for each in made.annotations}
    assert kinds == {None, *measure.DETERMINED}
