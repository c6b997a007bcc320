"""The generated text: reproducible, readable; data/ holds what the generator makes."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path

from training import text, words

DATA = Path(__file__).parents[2] / "data"


def test_prompts_in_data_are_what_the_generator_makes(tmp_path):
    command = [sys.executable, "-m", "training.text", "--seed", "1", "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    made = (tmp_path / "prompts.txt").read_bytes()
    assert made == (DATA / "prompts.txt").read_bytes()
    assert hashlib.sha256(made).hexdigest() in (DATA / "README.md").read_text()


def test_the_seed_decides_the_text():
    assert text.paragraphs(20, 3) == text.paragraphs(20, 3)
    assert text.paragraphs(20, 3) != text.paragraphs(20, 4)
    assert text.paragraphs(20, 3) == text.paragraphs(30, 3)[:20]


def test_subject_and_verb_agree_across_a_noun_of_the_other_number():
    found = re.findall(
        r"The (\w+) near the (\w+) always (\w+) by", "\n".join(text.paragraphs(500, 0))
    )
    assert len(found) > 50
    for subject, attractor, verb in found:
        assert (subject in words.BEINGS) == (attractor in words.BEINGS.values())
        assert (subject in words.BEINGS) == (verb in words.ACTIONS)
        assert (subject in words.BEINGS.values()) == (verb in words.ACTIONS.values())


def test_what_is_recalled_was_said():
    recalled = 0
    for paragraph in text.paragraphs(300, 0):
        for code in re.findall(r"wrote down (\d \d \d \d)", paragraph):
            assert f"is {code}." in paragraph
            recalled += 1
        for number, things in re.findall(r"there were still (\w+) (\w+)\.", paragraph):
            assert f"counted {number} {things}" in paragraph
            recalled += 1
        for giver, taker in re.findall(r", (\w+) (?:gave|handed) an? \w+ to (\w+)\.", paragraph):
            assert giver != taker
            assert giver in words.NAMES
    assert recalled > 50


def test_articles_and_words_are_ours():
    everything = " ".join(text.paragraphs(500, 0))
    assert not re.findall(r"\ba [aeiou]\w+", everything)
    assert not re.findall(r"\ban [^aeiou]\w+", everything)
    assert everything.isascii()
    assert len(set(words.WOMEN) & set(words.MEN)) == 0
    for plurals in (words.THINGS, words.BEINGS, words.ACTIONS):
        assert all(other and other != one for one, other in plurals.items())


def test_listing_imports_no_torch():
    code = (
        "import sys, interp.bundled as b, training.text; assert b.names() is not None;"
        "assert not {'torch', 'transformers', 'numpy'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
