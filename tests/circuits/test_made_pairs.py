"""Pairs from templates and from a model's own completions: words, filters, files, refusals."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from syntax.made import word_tokenizer
from transformers import GPT2LMHeadModel

from interp.circuits import make_contrast, make_pairs
from interp.circuits.made_pairs import MadePairs
from interp.circuits.plan import Plan
from interp.circuits.tasks.template_file import read_templates
from interp.core.errors import OptionError, PromptError, UnknownName
from interp.core.intervals import share_interval
from interp.model.locate.probe import probe

WORDS = [f"v{i}" for i in range(1, 20)]
INDUCTION = f"""
[slots]
A = {json.dumps(WORDS)}
B = "A"
C = "A"
D = "A"
E = "A"

[[templates]]
clean = "{{A}} {{B}} {{C}} {{D}} {{A}}"
corrupted = "{{E}} {{B}} {{C}} {{D}} {{A}}"
answer = "{{B}}"
wrong = "{{C}}"
roles = {{first = "A", next = "B", second = "A:2"}}

[[templates]]
clean = "{{C}} {{D}} {{A}} {{B}} {{A}}"
corrupted = "{{C}} {{D}} {{E}} {{B}} {{A}}"
answer = "{{B}}"
wrong = "{{C}}"
roles = {{first = "A", next = "B", second = "A:2"}}
"""


@pytest.fixture
def speaks(numbered_bystander):
    """The planted model that expects b after `a b ... a`, with a word for every token."""
    return numbered_bystander


@pytest.fixture(scope="module")
def guesses():
    """A model with random weights that has the same words."""
    config: Any = zoo.FAMILIES["gpt2"].build("sdpa").config
    config.vocab_size = 40
    torch.manual_seed(0)
    tokenizer = word_tokenizer([f"v{i}" for i in range(40)])
    return probe(GPT2LMHeadModel(config).eval(), "guesses", tokenizer)


@pytest.fixture
def copy_file(tmp_path):
    path = tmp_path / "copy.toml"
    path.write_text(INDUCTION)
    return path


def test_words_of_one_list_differ_and_roles_are_found(speaks, copy_file) -> None:
    made = make_pairs(speaks, copy_file, n=20)
    assert len(made) == 20
    for (clean, corrupted), roles, answer in zip(made.ids, made.roles, made.answers, strict=True):
        assert clean[roles["first"]] == clean[roles["second"]] == clean[-1]
        assert roles["next"] == roles["first"] + 1
        assert answer == speaks.tokenizer.decode([clean[roles["next"]]])
        assert roles["end"] == len(clean) - 1 == len(corrupted) - 1
        assert sum(a != b for a, b in zip(clean, corrupted, strict=True)) == 1
    assert set(made.templates) == {"0", "1"}
    again = make_pairs(speaks, copy_file, n=20)
    assert again.prompts == made.prompts
    assert make_pairs(speaks, copy_file, n=20, seed=1).prompts != made.prompts


def test_a_planted_model_prefers_every_answer(speaks, copy_file) -> None:
    made = make_pairs(speaks, copy_file, n=20, only="preferred")
    assert made.preferred == made.measured == len(made) == 20
    share, low, high = made.preferred_share
    assert share == high == 1
    assert low == pytest.approx(0.8389, abs=1e-4)  # Wilson: 20 of 20
    logits = speaks.run([made.ids[0][0]])[0, -1].detach()
    right, wrong = (int(x[1:]) + 1 for x in (made.answers[0], made.wrong[0]))
    assert made.clean[0] == pytest.approx(float(logits[right] - logits[wrong]), abs=1e-4)
    assert made.probability[0] == pytest.approx(float(logits.softmax(-1)[right]), abs=1e-5)
    middle = float(np.median(made.probability))
    likely = make_pairs(speaks, copy_file, n=20, least_probability=middle)
    assert (likely.probability >= middle).all()
    assert likely.dropped[f"the answer's probability is below {middle:g}"] > 0


def test_a_random_model_prefers_half(guesses, copy_file) -> None:
    made = make_pairs(guesses, copy_file, n=200)
    _, low, high = made.preferred_share
    assert low < 0.5 < high
    picked = make_pairs(guesses, copy_file, n=60, only="preferred")
    assert (picked.clean > 0).all()
    assert picked.measured == len(picked) + picked.dropped["the model does not prefer the answer"]


def test_own_completions_are_the_planted_answers(speaks, copy_file, tmp_path) -> None:
    given = make_pairs(speaks, copy_file, n=12, only="first")
    lines = [
        {"prompt": a, "corrupted": b} for a, b in zip(given.prompts, given.corrupted, strict=True)
    ]
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    made = make_pairs(speaks, path, n=12)
    kept = [i for i, prompt in enumerate(given.prompts) if prompt in made.prompts]
    assert made.answers == tuple(given.answers[i] for i in kept)
    assert len(made) + sum(made.dropped.values()) == 12
    assert all(a != w for a, w in zip(made.answers, made.wrong, strict=True))
    assert (made.clean >= 0).all()
    assert (made.contrast <= 0).all()


def test_the_file_of_pairs_is_read_back(speaks, copy_file, tmp_path) -> None:
    made = make_pairs(speaks, copy_file, n=24)
    made.save(tmp_path / "copy2.jsonl")
    task, read = made.task(speaks), make_contrast(speaks, str(tmp_path / "copy2.jsonl"), n=24)
    assert read.clean.ids == task.clean.ids
    assert read.corrupted.ids == task.corrupted.ids
    assert read.roles == task.roles
    assert read.templates == task.templates
    assert np.allclose(read.values(speaks), task.values(speaks))
    assert np.allclose(task.values(speaks)[0], made.clean, atol=1e-4)
    made.save(tmp_path / "copy.json")
    assert MadePairs.load(tmp_path / "copy.json").task(speaks).clean.ids == task.clean.ids


def test_a_template_file_is_a_task(speaks, copy_file) -> None:
    plan = Plan(str(copy_file), 16, 0)
    mine, held = plan.pairs(speaks), plan.fresh(speaks)
    assert set(mine.templates).isdisjoint(held.templates)  # a template is held out
    assert mine.gap(speaks)[0] > 1


def test_another_tokenizer_is_refused(speaks, copy_file) -> None:
    made = make_pairs(speaks, copy_file, n=6)
    other = word_tokenizer([f"v{(i + 1) % 40}" for i in range(40)])
    with pytest.raises(PromptError, match="other tokens"):
        made.task(probe(speaks.module, "other", other))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            '{{C}} {{D}} {{A}}"\ncorr',
            '{{C}} {{X}} {{A}}"\ncorr',
            "has the slot {X}; known slots: A",
        ),
        ('B = "A"', 'B = "Q"', "slot B is 'Q'"),
        ('B = "A"', "B = 3", "slot B is 3"),
        (json.dumps(WORDS), '["v1", "v2"]', "need different words, but the list of A has only 2"),
        (json.dumps(WORDS), '["v1", "v1"]', "a word twice"),
        (json.dumps(WORDS), "[]", "must be a list of words"),
        ("A:2", "A:3", "occurrence 3 of A, but the clean prompt has 2"),
        ("A:2", "A:0", "give a slot and the number"),
        ('answer = "{{B}}"\n', "", "only one of answer and wrong"),
        ("clean", "cleen", "the key 'cleen'"),
        ("{{E}} {{B}}", "{{E!r}} {{B}}", "without : or !"),
        ("[[templates]]", "[[template]]", "the key 'template'"),
        ("[slots]", "[slots", "is not valid TOML"),
        ("{{A}} {{B}} {{C}}", "{{A.x}} {{B}} {{C}}", "write {A}"),
    ],
)
def test_wrong_files_name_the_place(tmp_path, old, new, says) -> None:
    old, new = old.replace("{{", "{").replace("}}", "}"), new.replace("{{", "{").replace("}}", "}")
    assert old in INDUCTION
    path = tmp_path / "wrong.toml"
    path.write_text(INDUCTION.replace(old, new))
    with pytest.raises(PromptError) as error:
        read_templates(path)
    assert says in str(error.value)
    assert str(path) in str(error.value)


def test_words_in_tables_stay_together(tmp_path) -> None:
    path = tmp_path / "linked.toml"
    path.write_text(
        '[slots]\nK = [{land = "w1", city = "w2"}, {land = "w3", city = "w4"}]\nQ = "K"\n'
        '[[templates]]\nclean = "{K.land} {Q.land}"\ncorrupted = "{Q.land} {K.land}"\n'
        'answer = "{Q.city}"\nwrong = "{K.city}"\n'
    )
    drawn = [read_templates(path).draw(np.random.default_rng(i)) for i in range(20)]
    assert {(d.clean, d.answer, d.wrong) for d in drawn} == {
        ("w1 w3", "w4", "w2"),
        ("w3 w1", "w2", "w4"),
    }


def test_refusals(speaks, planted_induction, copy_file, tmp_path) -> None:
    with pytest.raises(UnknownName, match="value of only"):
        make_pairs(speaks, copy_file, only="some")
    with pytest.raises(OptionError, match="give 6 pairs"):
        make_pairs(speaks, copy_file, n=2)
    with pytest.raises(PromptError, match="no tokenizer"):
        make_pairs(planted_induction, copy_file)
    with pytest.raises(OptionError, match="neither a template file"):
        make_pairs(speaks, tmp_path / "x.csv")
    path = tmp_path / "one.jsonl"
    path.write_text('{"prompt": "v1 v2", "corrupted": "v1"}\n' * 8)
    with pytest.raises(PromptError, match="8: the two prompts have different numbers of tokens"):
        make_pairs(speaks, path)
    path.write_text('{"prompt": "v1 v2", "answer": "v1", "corrupted": "v2 v2"}\n')
    with pytest.raises(PromptError, match="line 1 has only one of answer and wrong"):
        make_pairs(speaks, path)
    made = make_pairs(speaks, copy_file, n=6)
    lines = [json.loads(line) for line in made._jsonl().splitlines()]
    lines[3]["roles"] = {"first": 99}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(PromptError, match="line 4: roles must be"):
        make_contrast(speaks, str(path))


def test_pages_escape_the_prompts(speaks, copy_file) -> None:
    made = make_pairs(speaks, copy_file, n=6)
    marked = replace(made, prompts=("<script>", *made.prompts[1:]))
    points: Any = marked.plot().data[0]
    assert "<script>" not in str(points.text)
    assert "&lt;script&gt;" in str(points.text)


def test_the_command_prints_and_writes(run, errors, speaks, copy_file, tmp_path) -> None:
    folder = tmp_path / "spoken"
    speaks.module.save_pretrained(folder)
    speaks.tokenizer.save_pretrained(folder)
    out = tmp_path / "copy.jsonl"
    result = run(
        "circuit",
        "pairs",
        folder,
        "--file",
        copy_file,
        "-n",
        12,
        "--set",
        "only=preferred",
        "-o",
        out,
    )
    assert result.exit_code == 0, result.stderr
    assert "12 of 12 candidates: 100.0% [75.8%, 100.0%]" in result.stdout
    assert "selected by the model's success" in result.stdout
    assert len(out.read_text().splitlines()) == 12
    assert run("circuit", folder, "--task", out, "--method", "attribution-patching").exit_code == 0
    code, lines = errors("circuit", "pairs", folder, "--file", copy_file, "-o", tmp_path / "x.doc")
    assert code != 0
    assert "file format of pairs" in lines[0]


def test_share_interval_is_wilson() -> None:
    z, n, k = 1.959963984540054, 50, 13
    centre = (k / n + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * np.sqrt(k / n * (1 - k / n) / n + z * z / (4 * n * n))
    assert share_interval(k, n) == pytest.approx((centre - half, centre + half), abs=1e-9)
    assert share_interval(0, 0) == (0, 1)
