"""The causal commands: the numbers of the Python calls, kept, continued, and one line per error."""

from __future__ import annotations

import io
import json
import sys

import pandas as pd
import pytest
from together import over

import interp
from interp.causal import leave_one_out, loss, pruning_curve, repeats_task
from interp.causal.game.game import Game
from interp.core.table import HeadTable

MODEL = "planted:bystander"
SHORT = ("-n", "3", "--max-length", "8")


def test_ablate_gives_the_numbers_of_the_python_call(
    run, planted_bystander, bystander_repeats, tmp_path
):
    result = run("importance", "ablate", MODEL, *SHORT, "--json", "--quiet", "--out", tmp_path)
    assert result.exit_code == 0
    rows = pd.DataFrame(json.loads(result.stdout)["rows"])
    want = leave_one_out(planted_bystander, bystander_repeats).table.to_pandas()
    for column in ("score", "sem", "null"):
        assert rows[column].to_numpy() == pytest.approx(want[column].to_numpy(), abs=1e-6)
    kept = HeadTable.from_parquet(tmp_path / "ablate.parquet").to_pandas()
    assert kept["score"].tolist() == rows["score"].tolist()
    assert "bystander" in (tmp_path / "ablate.html").read_text()


def test_ablate_prints_the_heads_the_task_needs_most(run, planted_bystander, bystander_repeats):
    result = run("importance", "ablate", MODEL, *SHORT, "--top", 2, "--null", "none")
    lines = result.stdout.splitlines()
    best = leave_one_out(planted_bystander, bystander_repeats, null="none").top(2)
    assert lines[0] == MODEL
    for line, row in zip(lines[2:4], best, strict=True):
        assert row["player"] in line.split()
        assert f"{row['score']:.3f}" in line
    assert "interp: planted:bystander: 8 coalitions: about" in result.stderr


def test_a_second_run_takes_finished_coalitions_from_the_ledger(run, monkeypatch, tmp_path):
    first = run("importance", "ablate", MODEL, *SHORT, "--csv", "--out", tmp_path)

    def never(self, number, pack, table):
        raise AssertionError("ran a coalition that was finished")

    evaluate = Game.evaluate
    check = [0]

    def counted(self, number, pack, table):
        if self.ledger is not None:  # the game's own check at the start keeps nothing
            never(self, number, pack, table)
        check[0] += 1
        return evaluate(self, number, pack, table)

    monkeypatch.setattr(Game, "evaluate", counted)
    second = run("importance", "ablate", MODEL, *SHORT, "--csv", "--out", tmp_path)
    assert second.exit_code == 0
    assert second.stdout == first.stdout
    assert check[0]


def test_one_model_that_fails_does_not_stop_the_others(run, tmp_path):
    (tmp_path / "empty").mkdir()
    plain = tmp_path / "notes.txt"
    plain.write_text("no model")
    result = run("importance", "ablate", tmp_path / "empty", plain, MODEL, *SHORT, "--quiet")
    assert result.exit_code == 1
    assert MODEL in result.stdout
    assert "1 of 2 models failed: empty; 1 plain file was ignored" in result.stderr


def test_importances_side_by_side(run, tmp_path):
    result = run(
        "importance",
        MODEL,
        *SHORT,
        "-m",
        "ablation,gate_gradient",
        "-m",
        "aumann_shapley:steps=4",
        "--out",
        tmp_path,
    )
    assert result.exit_code == 0
    pairs = [x for x in result.stdout.splitlines() if "(" in x and " to " in x]
    assert len(pairs) == 3
    page = (tmp_path / "planted-bystander" / "comparison.html").read_text()
    assert "How much worse is the task if only this head is removed?" in page
    table = HeadTable.from_csv(tmp_path / "importance.csv")
    assert len(table.metrics) == 3


def test_pruning_curves(run, planted_bystander, bystander_repeats, tmp_path):
    result = run(
        "prune",
        MODEL,
        *SHORT,
        "--method",
        "ablation,greedy",
        "--random",
        3,
        "--csv",
        "--out",
        tmp_path,
        "--quiet",
    )
    assert result.exit_code == 0
    frame = pd.read_csv(io.StringIO(result.stdout))
    ranking = leave_one_out(planted_bystander, bystander_repeats, null="none")
    want = pruning_curve(planted_bystander, bystander_repeats, ranking, n_random=3).to_pandas()
    mine = frame[frame["ranking"] == "ablation"]
    for column in ("value", "random_mean", "low", "high"):
        assert mine[column].to_numpy() == pytest.approx(want[column].to_numpy(), abs=1e-5)
    greedy = frame[frame["ranking"] == "greedy"]
    assert (greedy["value"].to_numpy() <= mine["value"].to_numpy() + 1e-6).mean() > 0.5
    assert (tmp_path / "planted-bystander" / "pruning.html").is_file()


def test_shapley_values_add_up_and_find_the_backup(run, tmp_path):
    backup = "planted:backup"
    shown = run(
        "importance",
        "shapley",
        backup,
        "-n",
        2,
        "--max-length",
        6,
        "--heads",
        "L0H3,L1H0,L1H1,L2H0",
        "--out",
        tmp_path,
    )
    assert shown.exit_code == 0
    frame = HeadTable.from_csv(tmp_path / "shapley.csv").to_pandas()
    value = {f"L{r['layer']}H{r['head']}": r["score"] for r in frame.to_dict("records")}
    game = Game(
        interp.load(backup),
        repeats_task(interp.load(backup), n=2, max_length=6),
        heads=[(0, 3), (1, 0), (1, 1), (2, 0)],
    )
    whole = game.values([[1] * 4, [0] * 4]).mean(1)
    assert sum(value.values()) == pytest.approx(float(whole[1] - whole[0]), abs=1e-6)
    assert value["L1H0"] == pytest.approx(value["L2H0"], rel=0.05)
    assert abs(value["L1H1"]) < abs(value["L2H0"]) / 100
    assert f"joint effect of all heads: {float(whole[1] - whole[0]):.4g} nats/token" in shown.stdout
    assert "the values of all heads add up to this; this holds on every prompt" in shown.stdout
    assert "every set of heads was run, 14 besides the full and the empty one" in shown.stdout


def test_texts_by_how_much_they_need_the_heads(run, tmp_path):
    texts = tmp_path / "texts.jsonl"
    rows = [
        {"id": "twice", "text": "one blue cat and one blue dog. one blue cat and one blue dog."},
        {"id": "once", "text": "the quick brown fox jumps over a lazy dog near my old house."},
    ]
    texts.write_text("".join(json.dumps(row) + "\n" for row in rows))
    args = (
        "texts",
        "influence",
        "bundled:induction",
        "--file",
        texts,
        "--heads",
        "L0H3",
        "--quiet",
    )
    shown = run(*args, "--json", "--random", 2)
    scored = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [s["id"] for s in scored] == ["twice", "once"]
    assert scored[0]["relative"] > scored[1]["relative"]
    by_metric = run(
        "texts",
        "influence",
        "bundled:induction",
        "--file",
        texts,
        "-m",
        "previous_token",
        "--top",
        1,
        "--random",
        0,
        "--json",
    )
    assert "masked: L0H3" in by_metric.stderr
    assert json.loads(by_metric.stdout.splitlines()[0])["loss"] == scored[0]["loss"]


def test_texts_are_listed_with_what_their_numbers_are(run, tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("one blue cat and one blue dog. one blue cat.\nx\n")
    args = (
        "texts",
        "influence",
        "bundled:induction",
        "--file",
        texts,
        "--heads",
        "L0H3",
        "--quiet",
    )
    lines = run(*args, "--random", 3).stdout.splitlines()
    frame = pd.DataFrame(map(json.loads, run(*args, "--random", 3, "--json").stdout.splitlines()))
    assert lines[0] == (
        "bundled:induction without L0H3 (uniform-attention): the first 2 of 2 texts"
    )
    assert "rise: increase of the loss per predicted token" in lines[1]
    assert "z: the rise minus its mean over 3 random sets" in lines[2]
    assert lines[3].split() == ["rise", "z", "loss,", "nats/token", "tokens", "text"]
    first = frame.sort_values("relative", ascending=False).iloc[0]
    want = [f"{first['relative']:+.3f}", f"{first['z']:+.1f}", f"{first['loss']:.3f}"]
    assert lines[4].split() == [*want, str(first["n_scored"]), str(first["id"])]
    lines = run(*args, "--random", 0, "--kind", "zero").stdout.splitlines()
    assert "(zero)" in lines[0]
    assert not [line for line in lines if "z:" in line]
    assert lines[2].split() == ["rise", "loss,", "nats/token", "tokens", "text"]


def test_a_mean_over_prompts_of_ones_own(run, errors, tmp_path):
    """Each reference has a ledger of its own: the values of one are never served for another."""
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("the cat sat on the mat\na dog\n")
    two.write_text("zzz zzz zzz\n")
    model = interp.load("bundled:induction")
    task = repeats_task(model, n=2, max_length=8)
    args = (
        "importance",
        "ablate",
        "bundled:induction",
        "-n",
        2,
        "--max-length",
        8,
        "--heads",
        "L0H3,L1H0",
        "--null",
        "none",
        "--json",
        "--quiet",
        "--out",
        tmp_path / "r",
    )
    scores = []
    for path in (one, two, one):
        shown = run(*args, "--kind", "mean-dataset", "--reference", path)
        assert shown.exit_code == 0
        frame = pd.DataFrame(json.loads(shown.stdout)["rows"])
        want = leave_one_out(
            model,
            task,
            kind="mean-dataset",
            reference=path.read_text().splitlines(),
            heads=["L0H3", "L1H0"],
            null="none",
        )
        assert frame["score"].to_numpy() == pytest.approx(want.score, abs=1e-6)
        assert frame["metric"].str.contains("kind=mean-dataset").all()
        assert f"lines of {path.name}" in shown.stdout  # the provenance says which prompts
        scores.append(frame["score"].tolist())
    assert scores[0] == scores[2]
    assert scores[0] != scores[1]
    for given, told in (
        (("--kind", "mean-dataset"), "name their file with --reference"),
        (("--reference", one), "--reference applies to --kind mean-dataset"),
        (("--kind", "mean-dataset", "--reference", tmp_path / "no.txt"), "is not a file"),
    ):
        code, lines = errors(*args, *given)
        assert code == 2
        assert told in lines[0]


def test_the_null_of_shapley_values(run, errors, planted_bystander, bystander_repeats):
    from interp.causal import shapley

    args = ("importance", "shapley", MODEL, *SHORT, "--heads", "L0H1,L1H0,L1H1", "--csv", "--quiet")
    shown = run(*args, "--null", "random-init")
    frame = pd.read_csv(io.StringIO(shown.stdout))
    heads = ["L0H1", "L1H0", "L1H1"]
    want = shapley(
        planted_bystander, bystander_repeats, heads=heads, null="random-init"
    ).table.to_pandas()
    for column in ("score", "null", "null_sem"):
        assert frame[column].to_numpy() == pytest.approx(want[column].to_numpy(), abs=1e-6)
    assert frame["null"].notna().all()
    assert pd.read_csv(io.StringIO(run(*args).stdout))["null"].isna().all()


def test_patching_gradient_has_its_own_name(run, tmp_path):
    row = {"prompt": [0, 40, 41, 42, 40], "corrupted": [0, 43, 41, 42, 40], "answer": 41}
    path = tmp_path / "task.jsonl"
    path.write_text(json.dumps(row | {"wrong": 42}) + "\n" + json.dumps(row | {"wrong": 45}))
    methods = "patching_gradient,gate_gradient"
    shown = run("importance", MODEL, "--task", path, "-m", methods, "--kind", "resample", "--json")
    assert shown.exit_code == 0
    frame = pd.DataFrame(json.loads(shown.stdout)["rows"])
    scores = {name.partition(":")[0]: rows for name, rows in frame.groupby("metric")}
    assert set(scores) == {"patching_gradient", "gate_gradient"}
    # the same derivative where prompts have corrupted ones, by the name that was asked for
    assert (
        scores["patching_gradient"]["score"].tolist() == scores["gate_gradient"]["score"].tolist()
    )
    assert '"made_by": "interp.causal.patching_gradient"' in shown.stdout


def test_a_task_from_a_file(run, tmp_path, monkeypatch):
    rows = [{"prompt": [0, 40, 41, 42, 40], "answer": 41, "wrong": 42}] * 2
    path = tmp_path / "task.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run("importance", "ablate", MODEL, "--task", path, "--null", "none", "--json")
    [row, *_] = json.loads(result.stdout)["rows"]
    assert row["unit"] == "logits (+ helps)"
    assert "task=logit_difference" in row["metric"]
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    own = tmp_path / "own.py"
    own.write_text(
        "from interp.causal import loss\n\n\ndef task(model):\n"
        "    return loss(model, [[0, 40, 41, 42, 40, 41]], name='mine')\n"
    )
    result = run("importance", "ablate", MODEL, "--task", own, "--null", "none", "--json")
    assert "task=mine" in json.loads(result.stdout)["rows"][0]["metric"]
    assert not (tmp_path / "__pycache__").exists()
    assert not sys.dont_write_bytecode
    want = leave_one_out(
        interp.load(MODEL),
        loss(interp.load(MODEL), [[0, 40, 41, 42, 40, 41]], name="mine"),
        null="none",
    )
    assert json.loads(result.stdout)["rows"][0]["score"] == want.table.to_pandas()["score"][0]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (["{"], "line 1 is not valid JSON"),
        (['{"answer": 3}'], "line 1 has no field 'prompt'"),
        (['{"prompt": [1, 2]}', '{"prompt": [1], "odd": 1}'], "line 2 has the field 'odd'"),
        (['{"prompt": [1, 2], "answer": 3}', '{"prompt": [1, 2]}'], "line 2 has no 'answer'"),
        ([], "contains no prompts"),
        (['{"prompt": [1, 2], "answer": 999999}'], "999999"),
    ],
)
def test_a_damaged_task_file_is_one_line(errors, tmp_path, lines, told):
    path = tmp_path / "task.jsonl"
    path.write_text("".join(line + "\n" for line in lines))
    code, found = errors("importance", "ablate", MODEL, "--task", path)
    assert code == 1
    assert len(found) == 1
    assert told in found[0]


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ("def task(model):\n    prompts = []\n    return prompts[0]\n", "line 3: IndexError: list"),
        ("def f():\n    return {}['k']\n\n\ndef task(model):\n    f()\n", "line 2: KeyError: 'k'"),
        ("def task(model):\n    return torch.ones(2) @ torch.ones(3)\n", "line 2: NameError"),
        ("import json\n\njson.loads('{')\n\n\ndef task(model): ...\n", "line 3: JSONDecodeError"),
        ("def task(model):\n    return (\n", "line 2: SyntaxError: '(' was never closed"),
        ("import no_such_thing\n", "line 1: ModuleNotFoundError: No module named"),
        ("def task(model):\n    return 3\n", "task(model) returned a int; it must return a Task"),
        ("tasks = 3\n", "has no function task(model)"),
        # What interp itself says to the caller stays as it is.
        ("import interp\n\ninterp.load('nowhere')\n", "bystander: 'nowhere' is neither"),
    ],
)
def test_a_task_of_ones_own_that_raises_is_one_line(errors, tmp_path, monkeypatch, body, told):
    path = tmp_path / "own.py"
    path.write_text(body)
    monkeypatch.chdir(tmp_path)
    for given in (path, "own.py"):
        code, [found] = errors("importance", "ablate", MODEL, "--task", given)
        assert code == 1
        assert told in found
        assert str(given) in found or "nowhere" in told


@over(
    ("args", "told"),
    [
        (("importance", "ablate", MODEL, "--task", "nothing.txt"), "does not exist"),
        (("importance", "ablate", MODEL, "--task", "iou"), "'repeats' or a .jsonl"),
        (("importance", "ablate", MODEL, "--heads", "L9H9"), "L9H9"),
        (("importance", "ablate", MODEL, "--without", "one"), "cannot read 'one' as a head"),
        (("importance", "ablate", MODEL, "--measure", "accuracy"), "repeats measures the loss"),
        (("importance", MODEL, "-m", "ablatoin"), "ablation"),
        (("importance", MODEL, "-m", "aumann_shapley:step=3"), "steps"),
        (("importance", MODEL, "-m", "ablation,ablation"), "given twice"),
        (("importance", "shapley", "bundled:induction", "--max-evaluations", "3"), "3"),
        (("prune", MODEL, "--method", "magic"), "magic"),
        (("texts", "influence", MODEL, "--file", __file__), "--heads"),
        (
            ("texts", "influence", MODEL, "--file", "nothing.txt", "--heads", "L0H1"),
            "nothing.txt is not a file",
        ),
    ],
)
def test_a_wrong_command_is_one_line(errors, args, told):
    code, found = errors(*args)
    assert code in (1, 2)
    assert len(found) == 1
    assert told in found[0]
