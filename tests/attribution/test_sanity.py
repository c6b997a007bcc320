"""Randomised weights, refitted read-outs, cost, and errors over clusters of texts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

import interp
from interp.attribution import faithfulness, method_cost, randomisation_check, refit_check
from interp.attribution.evaluation.paired import limit, method_differences
from interp.attribution.evaluation.randomisation import _sizes, cascade
from interp.bundled.deceive_text import sentences
from interp.core.clusters import cluster_summary
from interp.core.errors import OptionError
from interp.core.prompt_means import paired_p

SAID = sentences(80_000, 24)
TEXTS = [s.text for s in SAID]


@pytest.fixture(scope="module")
def sane_model():
    return interp.load("bundled:deceive")


def test_scores_of_the_model_change_and_those_of_the_input_do_not(sane_model) -> None:
    before = {k: v.clone() for k, v in sane_model.module.state_dict().items()}
    found = randomisation_check(
        sane_model, TEXTS[:8], ["attn_lrp", "input_norm", "random_scores"], "token:she|he"
    )
    frame = found.to_pandas().set_index(["method", "step"])
    assert abs(frame.loc[("attn_lrp", 2), "score"]) < 0.35
    assert frame.loc[("random_scores", 3), "score"] == pytest.approx(1)
    assert frame.loc[("input_norm", 2), "score"] == pytest.approx(1)  # embeddings not yet permuted
    assert abs(frame.loc[("input_norm", 3), "score"]) < 0.5
    assert frame["null"].abs().max() < 0.15
    assert all(torch.equal(v, before[k]) for k, v in sane_model.module.state_dict().items())


def test_scores_are_compared_by_their_size(sane_model) -> None:
    given = SimpleNamespace(of=lambda example: SimpleNamespace(scores=np.array([-3.0, 1, -2])))
    assert _sizes(given, None).tolist() == [3, 1, 2]


def test_the_cascade_covers_every_weight_once(sane_model, loaded) -> None:
    for model in (sane_model, loaded("llama"), loaded("bert"), loaded("t5")):
        steps = [path for _, paths in cascade(model) for path in paths]
        tops = [{id(w) for w in model.module.get_submodule(p).parameters()} for p in steps]
        covered = set().union(*tops)
        every = {id(w) for w in model.module.parameters()}
        assert covered == every


def test_the_read_out_loses_the_class_when_the_deciding_word_is_removed(sane_model) -> None:
    said = sentences(80_001, 48)
    found = refit_check(
        sane_model,
        [s.text for s in said],
        [s.right for s in said],
        ["attn_lrp", "random_scores"],
        "token:she|he",
        shares=(0.1,),
    )
    frame = found.to_pandas().set_index("method")
    assert found.notes["accuracy with all tokens"] > 0.9
    assert frame.loc["attn_lrp", "score"] < frame.loc["random_scores", "score"] - 0.15
    assert frame["null"].iloc[0] > 0.7
    for wrong, line in (
        ({"labels": ["a"] * 23}, "23 labels for 24 texts"),
        ({"labels": ["a"] * 24}, "at least two"),
        ({"shares": (1.5,)}, "between 0 and 1"),
    ):
        options = {"labels": [s.right for s in SAID]} | wrong
        with pytest.raises(OptionError, match=line):
            refit_check(sane_model, TEXTS, methods=["attn_lrp"], **options)


def test_passes_are_counted(sane_model) -> None:
    methods = [
        "random_scores",
        "integrated_gradients:steps=5",
        "occlusion",
        "attn_lrp",
        "occlusion:how=mask",
    ]
    found = method_cost(sane_model, TEXTS[:2], methods, "token:she|he")
    cost = {
        (m, way): x for m, way, x in zip(found.metric, found.method, found.per_prompt, strict=True)
    }
    tokens = np.array([len(sane_model.tokenizer(t)["input_ids"]) for t in TEXTS[:2]])
    forward = "forward passes"
    assert (cost[forward, "random_scores"] == 1).all()
    np.testing.assert_array_equal(cost[forward, "occlusion"], 1 + tokens)
    assert (cost["backward passes", "integrated_gradients:steps=5"] == 5 + 2).all()
    assert (cost["backward passes", "attn_lrp"] == 1).all()
    assert (cost["backward passes", "occlusion"] == 0).all()
    assert np.nanmin(found.per_prompt[-len(methods) : -1]) > 0
    assert "no mask token" in found.notes["occlusion:how=mask"]
    assert np.isnan(cost["seconds", "occlusion:how=mask"]).all()


def test_errors_and_tests_are_over_clusters(sane_model) -> None:
    labels = ["a", "a", "b", "b", "c", "c"]
    found = faithfulness(
        sane_model, TEXTS[:6], ["attn_lrp"], "token:she|he", draws=0, warn=False, clusters=labels
    )
    x = found.values("aopc")["attn_lrp"]
    want = cluster_summary(x[:, None], labels)
    row = next(r for r in found.summary("aopc") if r[0] == "attn_lrp")
    assert row[2] == pytest.approx(float(want.sem[0]))
    frame = found["aopc"].to_pandas()
    assert set(frame["clusters"]) == {3}
    assert limit({"a": x, "b": x}, 0.05, clusters=labels).texts == 3
    assert min(found.differences("aopc").p_least) == 0.25
    with pytest.raises(OptionError, match="2 cluster labels for 6 texts"):
        faithfulness(sane_model, TEXTS[:6], ["attn_lrp"], "she", clusters=["a", "b"])


def test_clusters_keep_the_rate_of_false_alarms() -> None:
    rng, alarms = np.random.default_rng(0), np.zeros(2)
    labels = [str(i // 6) for i in range(60)]
    for _ in range(150):
        shared = np.repeat(rng.normal(size=10), 6) + 0.3 * rng.normal(size=60)
        values = {"a": shared, "b": np.zeros(60)}
        found = method_differences(values, flips=400, clusters=labels)[0].p
        alarms += np.array([found < 0.05, paired_p(shared, flips=400) < 0.05])
    assert alarms[0] / 150 < 0.1
    assert alarms[1] / 150 > 0.2


@pytest.mark.slow
def test_the_commands_print_all_tables(run, tmp_path) -> None:
    file, labels = tmp_path / "texts.txt", tmp_path / "labels.txt"
    file.write_text("\n".join(TEXTS))
    labels.write_text("\n".join(s.right for s in SAID))
    done = run(
        "evaluate",
        "sanity",
        "bundled:deceive",
        "--file",
        file,
        "-t",
        "she|he",
        "-m",
        "raw_attention,input_norm",
        "--set",
        f"classes={labels}",
        "-o",
        tmp_path / "out",
        "-q",
    )
    assert done.exit_code == 0, done.output
    for line in ("rank correlation: ", "from decoder layer 1", "forward passes: ", "accuracy: "):
        assert line in done.output
    names = {p.name for p in (tmp_path / "out" / "bundled-deceive").iterdir()}
    assert names == {"randomisation.json", "cost.json", "refit.json"}
    file.write_text("\n".join(TEXTS[:4]))
    labels.write_text("a\na\nb\nb\n")
    done = run(
        "evaluate",
        "faithfulness",
        "bundled:deceive",
        "--file",
        file,
        "-t",
        "she|he",
        "-m",
        "attn_lrp",
        "--set",
        f"clusters={labels}",
        "-q",
    )
    assert done.exit_code == 0, done.output
