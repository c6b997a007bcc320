"""Retrieval heads: options, needles and haystacks that cannot be used, each told in one line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import zoo

import interp
from interp.core.errors import OptionError, PromptError
from interp.heads import needle
from interp.heads.needle.text import Needle

IDS = Path(__file__).parent / "needles_of_ids.jsonl"


def test_no_instance_succeeds() -> None:
    model = interp.load(zoo.FAMILIES["llama"].model("sdpa"), name="random")
    with pytest.raises(PromptError, match=r"no instance reaches success: .* success=0") as caught:
        interp.score(model, "retrieval:success=1.0,needles=1")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("metric", "error", "says"),
    [
        ("retrieval:min_length=8,lengths=1,max_length=8", PromptError, "fewer than the needle's 5"),
        ("retrieval:max_length=10", OptionError, "max_length=10 is shorter than min_length=24"),
        ("retrieval:depths=0", OptionError, "depths=0: there must be at least 1"),
        ("retrieval:needles=0", OptionError, "needles=0"),
        ("retrieval:answer=0", OptionError, "answer=0"),
        ("retrieval:answer=36", PromptError, "40 tokens to draw from|39 tokens to draw from"),
        ("retrieval:success=1.5", OptionError, "success=1.5: it must be a share"),
        ("retrieval:task=words", OptionError, "auto, ids, completion, question, single_key"),
        ("retrieval:task=no.jsonl", PromptError, "no.jsonl cannot be read: No such file"),
        ("echo:copies=1", OptionError, "copies=1"),
        ("retrieval_gates:length=1", OptionError, "length=1"),
    ],
)
def test_options_out_of_range(metric, error, says, zoo_model) -> None:
    with pytest.raises(error, match=says) as caught:
        interp.score(zoo_model, metric)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["{"], "line 1 is not valid JSON"),
        (["[1]"], "line 1 is not an object"),
        (['{"needle": "a", "question": "b"}'], "line 1 has no 'answer'"),
        (['{"needle": "a", "question": "b", "answer": "a", "x": 1}'], "has the field 'x'"),
        (['{"needle": [1], "question": "b", "answer": [1]}'], "line 1: needle, question, answer"),
        (['{"haystack": "a"}'], "contains no needles"),
        (['{"needle": "a", "question": "b", "answer": "a"}'], "names 0 haystacks"),
        (['{"haystack_file": "none.txt"}'], "haystack file 'none.txt' does not exist"),
        (['{"haystack": 3}'], "a haystack must be a text or a list"),
    ],
)
def test_needle_files_that_are_refused(lines, says, tmp_path) -> None:
    path = tmp_path / "needles.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(PromptError, match=says) as caught:
        needle.read_task(path)
    assert "\n" not in str(caught.value)


def test_needles_that_do_not_fit_the_haystack_or_the_model(zoo_model) -> None:
    bundled = interp.load("bundled:induction")
    ids = Needle([5, 6, 7], [5], [6, 7])
    with pytest.raises(PromptError, match=r"this one has 20"):
        needle.text_instances(bundled, [ids], list(range(20)), lengths=(40,))
    with pytest.raises(PromptError, match="the ids of its answer are not part of it"):
        needle.text_instances(bundled, [replace(ids, answer=[9])], list(range(90)), lengths=(40,))
    text = Needle("The code is 4 7.", "What is the code?", "the code")
    with pytest.raises(PromptError, match="'the code' is not an exact part of it"):
        needle.text_instances(bundled, [text], "A day. " * 90, lengths=(60,))
    with pytest.raises(PromptError, match="zoo has no tokenizer"):
        needle.text_instances(zoo_model, [text], "A day. " * 90, lengths=(60,))
    with pytest.raises(PromptError, match="no needles to search for"):
        needle.copy_paste(zoo_model, [])
    with pytest.raises(OptionError, match=r"depths \(2.0,\)"):
        needle.ids_instances(zoo_model, depths=(2.0,))


def test_listing_needles_imports_no_torch() -> None:
    code = "import sys, interp.heads.needle as n; dir(n); assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
