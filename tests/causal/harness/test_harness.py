"""Harness: the same numbers as runs by hand, with and without heads, and heads by its tasks."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import numpy as np
import pytest
import torch

import interp
from interp.causal import harness_scores, harness_task
from interp.core.errors import OptionError, PromptError
from interp.model.pattern_edits import uniform

pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: the extra harness")


@pytest.fixture(scope="module")
def harness_model() -> interp.Model:
    return interp.load("bundled:induction")


@pytest.fixture(scope="module")
def documents(harness_model, tmp_path_factory) -> tuple[Path, list[tuple[list[int], list[str]]]]:
    """Repeated random tokens: the right choice is what followed the last token before."""
    draw = np.random.default_rng(4)
    known = [t for t in range(4, 256) if harness_model.tokenizer.decode([t]).strip()]
    known = [
        t
        for t in known
        if harness_model.tokenizer(harness_model.tokenizer.decode([t]), add_special_tokens=False)[
            "input_ids"
        ]
        == [t]
    ]
    path = tmp_path_factory.mktemp("tasks") / "copies.jsonl"
    rows, lines = [], []
    for _ in range(24):
        ids = draw.choice(known, 12, replace=False).tolist()
        prompt, choices = [*ids, *ids[:4]], [ids[4], *draw.choice(known, 3).tolist()]
        text = harness_model.tokenizer.decode(prompt)
        tokens = harness_model.tokenizer(text, add_special_tokens=False)["input_ids"]
        answers = [" " + harness_model.tokenizer.decode([t]).strip() for t in choices]
        lines.append({"prompt": text, "answer": answers[0], "wrong": answers[1:]})
        rows.append((tokens, answers))
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path, rows


@torch.no_grad()
def by_hand(model: interp.Model, rows, edits=()) -> np.ndarray:
    """Log-probability of each choice, from single runs without the harness."""
    found = []
    for tokens, answers in rows:
        each = []
        text = model.tokenizer.decode(tokens)
        for answer in answers:
            start = model.tokenizer(text)["input_ids"]
            whole = model.tokenizer(text + answer)["input_ids"]
            log_p = model.run([whole], edits=edits)[0].log_softmax(-1)
            each.append(sum(float(log_p[i - 1, whole[i]]) for i in range(len(start), len(whole))))
        found.append(each)
    return np.array(found)


def test_numbers_are_those_of_runs_by_hand_with_and_without_heads(harness_model, documents) -> None:
    path, rows = documents
    copying = ["L0H2", "L0H3"]  # the previous-token heads that induction needs
    found = harness_scores(
        harness_model, [str(path)], copying, edits={"uniform": [uniform("L0H0")]}, n_random=2
    )
    frame = found.to_pandas().set_index("run")
    runs = {"model": [], "without": [interp.zero(copying)], "uniform": [uniform("L0H0")]}
    right = {}
    for run, edits in runs.items():
        log_p = by_hand(harness_model, rows, edits)
        right[run] = (log_p.argmax(1) == 0).astype(float)
        assert frame.loc[run, "score"] == pytest.approx(right[run].mean())
        assert frame.loc[run, "reported"] == pytest.approx(right[run].mean())
        assert frame.loc[run, "n"] == 24
    apart = right["without"] - right["model"]
    row = frame.loc["without - model"]
    assert row["score"] == pytest.approx(apart.mean())
    assert row["sem"] == pytest.approx(apart.std(ddof=1) / 24**0.5)
    assert row["low"] < row["score"] < row["high"]
    assert right["model"].mean() > 0.6  # chance is 0.25
    assert row["score"] < -0.1
    assert row["unit"] == "share of documents"
    assert row["score"] < row["null"] - 0.1
    at = found.run.tolist().index("without - model")
    np.testing.assert_allclose(found.per_prompt[at], apart)


@torch.no_grad()
def test_perplexity_is_that_of_the_text(harness_model, tmp_path) -> None:
    path = tmp_path / "texts.txt"
    texts = [
        harness_model.tokenizer.decode(range(20, 30)),
        harness_model.tokenizer.decode(range(60, 90, 3)),
    ]
    path.write_text("\n".join(texts) + "\n", encoding="utf-8")
    found = harness_scores(harness_model, [str(path)], ["L0H0"], n_random=0)
    rows = found.to_pandas()
    words = rows[(rows["metric"] == "word_perplexity") & (rows["run"] == "without")].iloc[0]
    total, nats, count = 0.0, [], 0
    for text in texts:
        # the harness puts its first token also before that of the tokenizer
        ids = [0, *harness_model.tokenizer(text)["input_ids"]]
        log_p = harness_model.run([ids], edits=[interp.zero("L0H0")])[0].log_softmax(-1)
        own = -sum(float(log_p[i - 1, ids[i]]) for i in range(1, len(ids)))
        total, count = total + own, count + len(text.split())
        nats.append(own / len(text.split()))
    assert words["score"] == pytest.approx(np.mean(nats), rel=1e-4)
    assert words["unit"] == "nats per word"
    assert words["reported"] == pytest.approx(np.exp(total / count), rel=1e-4)


def test_heads_are_scored_on_a_task_of_the_harness(harness_model, documents) -> None:
    path, rows = documents
    task = harness_task(harness_model, str(path))
    assert len(task) == 96
    log_p = by_hand(harness_model, rows)
    margin = (log_p[:, 0] - log_p[:, 1:].mean(1)).mean()
    logits = [harness_model.run([list(p)])[0] for p in task.prompts.ids]
    values = [
        float(task.values(x[list(at)].detach(), [i])[0])
        for i, (x, at) in enumerate(zip(logits, task.positions, strict=True))
    ]
    assert np.mean(values) == pytest.approx(margin, rel=1e-4)
    frame = interp.ablate(harness_model, task, null="none").to_pandas()
    first = frame.loc[frame["score"].idxmax()]
    head = int(first["layer"]), int(first["head"])
    without = by_hand(harness_model, rows, [interp.zero([head])])
    fall = (log_p - without)[:, 0] - (log_p - without)[:, 1:].mean(1)
    assert first["score"] == pytest.approx(fall.mean(), rel=1e-3)
    assert first["sem"] == pytest.approx(fall.std(ddof=1) / len(rows) ** 0.5, rel=1e-3)
    assert first["score"] > 2 * first["sem"]
    assert head in ((0, 2), (0, 3))


def test_pairs_of_sentences_have_the_form_of_blimp(harness_model, tmp_path) -> None:
    path = tmp_path / "pairs.jsonl"
    pairs = [
        {
            "sentence_good": harness_model.tokenizer.decode([a, b, a, b]),
            "sentence_bad": harness_model.tokenizer.decode([a, b, a, c]),
        }
        for a, b, c in ((20, 30, 40), (50, 60, 70))
    ]
    path.write_text("".join(json.dumps(p) + "\n" for p in pairs), encoding="utf-8")
    found = harness_scores(harness_model, [str(path)])
    task = harness_task(harness_model, str(path))
    assert found.n.tolist() == [2]
    assert len(task) == 4
    assert task.prompts.clusters == ("pairs 0", "pairs 0", "pairs 1", "pairs 1")


def test_the_model_and_logging_are_left_as_they_were(harness_model, documents, capfd) -> None:
    path, _ = documents
    before = {k: x.clone() for k, x in harness_model.module.state_dict().items()}
    state, level = torch.get_rng_state(), logging.getLogger("lm_eval").level
    side = harness_model.tokenizer.padding_side, harness_model.tokenizer.pad_token
    harness_model.module.train()
    try:
        harness_scores(harness_model, [str(path)], ["L0H0"], n=2, n_random=1)
        assert harness_model.module.training
    finally:
        harness_model.module.eval()
    assert all(torch.equal(x, before[k]) for k, x in harness_model.module.state_dict().items())
    assert torch.equal(torch.get_rng_state(), state)
    assert logging.getLogger("lm_eval").level == level
    assert (harness_model.tokenizer.padding_side, harness_model.tokenizer.pad_token) == side
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow  # the harness lists thousands of task files
def test_unknown_tasks_and_those_of_the_network_end_in_one_line(harness_model) -> None:
    cases = {
        "blimp_adjunct": "no task 'blimp_adjunct'; similar: blimp_adjunct_island",
        "blimp_adjunct_island": "needs data that is not on this machine",
    }
    for task, match in cases.items():
        with pytest.raises(OptionError, match=match) as caught:
            harness_scores(harness_model, [task])
        assert "\n" not in str(caught.value)


def test_wrong_files_end_in_one_line(harness_model, tmp_path) -> None:
    with pytest.raises(PromptError, match="does not exist"):
        harness_scores(harness_model, [str(tmp_path / "no.jsonl")])
    bad = tmp_path / "bad.jsonl"
    for line, match in (
        ('{"prompt": "a"}', "line 1: expected the texts"),
        ("{", "line 1 is not valid JSON"),
        ("\n", "contains no documents"),
    ):
        bad.write_text(line + "\n", encoding="utf-8")
        with pytest.raises(PromptError, match=match):
            harness_scores(harness_model, [str(bad)])
    texts = tmp_path / "texts.txt"
    texts.write_text("a b c\n", encoding="utf-8")
    with pytest.raises(OptionError, match="has no choices"):
        harness_task(harness_model, str(texts))
    with pytest.raises(OptionError, match="at least one task"):
        harness_scores(harness_model, [])
    with pytest.raises(OptionError, match="L9H0"):
        harness_scores(harness_model, [str(texts)], ["L9H0"])
    with pytest.raises(OptionError, match="name is taken"):
        harness_scores(harness_model, [str(texts)], edits={"model": []})
    with pytest.raises(PromptError, match="no tokenizer"):
        harness_scores("planted:zoo", [str(texts)])
