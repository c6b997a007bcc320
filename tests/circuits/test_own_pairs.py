"""Pairs of one's own in a file: found on some lines, measured on others, and refused by name."""

from __future__ import annotations

import json

import pytest
from circuits.contrasts import induction_pairs
from circuits.speller import speller

from interp.circuits.tasks import make_contrast
from interp.circuits.tasks.named import split_templates
from interp.core.errors import OptionError, PromptError, UnknownName


@pytest.fixture(scope="module")
def lines(planted_induction):
    """Induction, as the tests' own pairs have it; the wrong answer is the same for all."""
    task = induction_pairs(planted_induction, 12)
    return [
        {"prompt": list(a), "corrupted": list(b), "answer": a[r["next"]], "wrong": 0}
        for a, b, r in zip(task.clean.ids, task.corrupted.ids, task.roles, strict=True)
    ]


def write(path, lines) -> str:
    path.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    return str(path)


def test_lines_are_pairs(planted_induction, lines, tmp_path) -> None:
    file = write(tmp_path / "mine.jsonl", lines)
    task = make_contrast(planted_induction, file)
    assert task.name == "mine"
    assert [list(ids) for ids in task.clean.ids] == [x["prompt"] for x in lines]
    assert [list(ids) for ids in task.corrupted.ids] == [x["corrupted"] for x in lines]
    want = induction_pairs(planted_induction, 12)
    logits = planted_induction.run(want.clean.ids[0:1])[0, -1]
    assert task.values(planted_induction)[0][0] == pytest.approx(
        float((logits[lines[0]["answer"]] - logits[0]).detach()), abs=1e-4
    )
    some = make_contrast(planted_induction, file, templates=[7, 2])
    assert [list(ids) for ids in some.clean.ids] == [lines[7]["prompt"], lines[2]["prompt"]]
    assert some.about()["template_names"] == ["pair 3", "pair 8"]
    assert len(make_contrast(planted_induction, file, n=5)) == 5


def test_a_third_of_the_lines_is_held_out(lines, tmp_path) -> None:
    file = write(tmp_path / "mine.jsonl", lines)
    mine, held = split_templates(file, 0)
    assert len(held) == 4
    assert sorted((*mine, *held)) == list(range(12))
    assert split_templates(file, 1) != (mine, held)


def test_a_circuit_of_ones_own_pairs(run, planted_induction, lines, tmp_path) -> None:
    file = write(tmp_path / "mine.jsonl", lines)
    args = (
        "circuit",
        "planted:induction",
        "--task",
        file,
        "--method",
        "exact-patching",
        "--random",
        2,
        "--top",
        3,
    )
    result = run(*args, "-o", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "  mine, exact_patching, heads: score (logits)" in result.stdout
    assert "on 4 other pairs" in result.stdout
    assert {x.split()[0] for x in result.stdout.splitlines()[2:5]} == {"embed", "L0H3", "L1H0"}
    told = json.loads((tmp_path / "planted-induction" / "evaluation.json").read_text())["made"]
    used, fresh = told["template_names"], told["evaluated_on"]["template_names"]
    assert len(used) == 8
    assert not set(used) & set(fresh)
    # measured again with another seed: still on lines that it was not found on
    saved = tmp_path / "planted-induction" / "circuit.toml"
    again = run(*args, "--load", saved, "--seed", 5, "-o", tmp_path / "again")
    assert again.exit_code == 0, again.stderr
    told = tmp_path / "again" / "planted-induction" / "evaluation.json"
    assert json.loads(told.read_text())["made"]["evaluated_on"]["template_names"] == fresh


def test_what_a_file_may_not_hold(errors, lines, tmp_path) -> None:
    """Before a model is loaded where that is possible, and in a line that says what to do."""
    first, *rest = lines
    longer = first | {"corrupted": [*first["corrupted"], 3]}
    same = first | {"corrupted": first["prompt"]}
    clean_only = [{k: v for k, v in line.items() if k != "corrupted"} for line in lines]
    flat = [line | {"answer": 1, "wrong": 1} for line in lines]
    cases = (
        (
            [longer, *rest],
            "mine.jsonl line 1 has 12 clean and 13 corrupted tokens; both sides must have",
        ),
        (
            [same, *rest],
            "mine.jsonl line 1 has the same tokens on both sides, so there is no contrast",
        ),
        (clean_only, "its lines have no field 'corrupted', the prompt without the behaviour"),
        ([clean_only[0], *rest], "line 1 has no 'corrupted', others have"),
        (flat, "the metric is 0 logits on every prompt of all 8 pairs"),
        (lines[:3], "has 3 pairs; 4 are enough to look for a circuit, and 6 to measure it"),
        ([{"prompt": "a", "corrupted": "b"}] * 6, "no tokenizer"),
        ([first | {"side": 1}, *rest], "has the field 'side'; known:"),
    )
    for given, told in cases:
        file = write(tmp_path / "mine.jsonl", given)
        code, said = errors("circuit", "planted:induction", "--task", file, "--random", 2)
        assert code == 1, told
        assert told in said[0]
        assert len(said) == 1
    code, said = errors("circuit", "planted:induction", "--task", tmp_path / "none.jsonl")
    assert (code, "cannot be read" in said[0]) == (1, True)


def test_lines_are_counted_as_an_editor_counts_them(lines, planted_induction, tmp_path) -> None:
    """With the empty ones."""
    file = tmp_path / "mine.jsonl"
    spread = [json.dumps(line) for line in lines]
    file.write_text("\n\n".join([*spread[:3], json.dumps(lines[3] | {"corrupted": [1, 2]})]))
    with pytest.raises(
        PromptError, match=r"mine\.jsonl line 7 has 13 clean and 2 corrupted tokens"
    ):
        make_contrast(planted_induction, str(file))
    lacks = {k: v for k, v in lines[2].items() if k != "answer"}
    file.write_text("\n\n".join([*spread[:2], json.dumps(lacks), spread[3]]))
    with pytest.raises(PromptError, match=r"mine\.jsonl line 5 has no 'answer', others have"):
        make_contrast(planted_induction, str(file))


def test_four_pairs_are_a_look(run, lines, tmp_path) -> None:
    """A circuit and its page, without figures on other pairs, which there are none of."""
    file = write(tmp_path / "mine.jsonl", lines[:4])
    result = run(
        "circuit", "planted:induction", "--task", file, "-o", tmp_path, "--set", "maps=mlp"
    )
    assert result.exit_code == 0, result.stderr
    look = "a look at 4 pairs: no pair was held out to measure the circuit on; 6 or more are needed"
    assert f"  note: {look} for that; no map was made\n" in result.stdout
    assert "other pairs" not in result.stdout
    folder = tmp_path / "planted-induction"
    assert (folder / "circuit.json").is_file()
    assert "on 2 pairs not used to find them</h1>" in (folder / "circuit.html").read_text()
    assert not (folder / "evaluation.json").exists()


def test_words_that_are_split_are_refused(tmp_path) -> None:
    """By the line that they are in."""
    import torch
    import zoo
    from transformers import GPT2LMHeadModel

    from interp.model.locate.probe import probe

    tokenizer = speller()
    config = zoo.FAMILIES["gpt2"].build("sdpa").config
    config.vocab_size = len(tokenizer)
    torch.manual_seed(0)
    model = probe(GPT2LMHeadModel(config).eval(), "words", tokenizer)
    one = {"prompt": "The cat", "corrupted": "The dog", "answer": "unsplittable zz", "wrong": " a"}
    file = write(tmp_path / "mine.jsonl", [one] * 6)
    with pytest.raises(PromptError, match=r"mine\.jsonl line 1: 'unsplittable zz'"):
        make_contrast(model, file)


def test_names_of_tasks_may_have_hyphens(planted_induction) -> None:
    assert split_templates("greater-than") == split_templates("greater_than")
    with pytest.raises(UnknownName, match="did you mean greater_than"):
        make_contrast(planted_induction, "greater-then")
    with pytest.raises(OptionError, match="counted from 0"):
        make_contrast(planted_induction, "subject-verb", templates=[9])
