"""`interp score`: what it prints, what it writes, and how it goes on where it stopped."""

from __future__ import annotations

import html
import io
import json
import os
import signal
import subprocess
import sys

import pandas as pd
import pytest
from model.test_identity import one_weight

import interp
from interp import bundled, planted
from interp.core.declaration import split_names
from interp.core.merge import in_metric_order
from interp.core.registry import METRICS as KNOWN
from interp.core.store import Store
from interp.core.table import HeadTable
from interp.heads.sweep import scored_models as batch

METRICS = ("-m", "induction,entropy", "-m", "local_window:width=2")
LABELS = ("induction", "entropy", "local_window:width=2")


def test_the_command_gives_the_scores_of_the_python_call(run, llama_folder) -> None:
    result = run("score", llama_folder, *METRICS, "--json")
    assert result.exit_code == 0
    rows = pd.DataFrame(json.loads(result.stdout)["rows"])
    model = interp.load(llama_folder)
    want = interp.score(model, LABELS).to_pandas()
    for column in ("model", "layer", "head", "kv_head", "metric", "n", "unit"):
        assert rows[column].tolist() == want[column].tolist()
    for column in ("score", "sem", "null", "null_sem"):
        assert rows[column].tolist() == want[column].tolist()


def test_csv_on_stdout_is_the_table_and_nothing_else(run, llama_folder, tmp_path) -> None:
    result = run("score", llama_folder, *METRICS, "--csv")
    frame = pd.read_csv(io.StringIO(result.stdout))
    assert frame["metric"].unique().tolist() == list(LABELS)
    want = interp.score(interp.load(llama_folder), LABELS).to_pandas()
    assert frame["score"].tolist() == want["score"].tolist()


def test_several_models_end_in_one_table_of_models_and_roles(run, tmp_path) -> None:
    names = ("planted:induction", "planted:duplicate_token")
    result = run("score", *names, "-m", "induction,duplicate_token", "-o", tmp_path / "out")
    *_, title, header, one, two = result.stdout.rstrip().splitlines()
    assert title == "Heads of each role, by model:"
    frame = pd.read_csv(tmp_path / "out" / "roles.csv").set_index("model")
    assert header.split() == [*frame.columns]
    for line, name in ((one, names[0]), (two, names[1])):  # in the order of the command
        assert line.split() == [name, *map(str, frame.loc[name])]
    assert frame["induction"].to_dict() == {"planted:duplicate_token": 0, "planted:induction": 1}
    alone = run("score", names[0], "-m", "induction", "-o", tmp_path / "alone").stdout
    assert title not in alone
    assert not (tmp_path / "alone" / "roles.csv").exists()


def test_top_heads_are_printed_with_error_and_null(run, llama_folder) -> None:
    result = run("score", llama_folder, "-m", "previous_token", "--top", 2)
    best = interp.score(interp.load(llama_folder), "previous_token").top(2).to_pandas()
    lines = result.stdout.partition("\n\n")[2].splitlines()  # after what was found
    assert lines[0] == "llama"
    for line, row in zip(lines[2:4], best.to_dict("records"), strict=True):
        cells = line.removeprefix("  previous_token").split()
        assert cells[0] == f"L{row['layer']}H{row['head']}"
        assert cells[1:4] == [f"{row['score']:.3f}", "±", f"{row['sem']:.2g}"]
        assert cells[4:7] == [f"{row['null']:.3f}", "±", f"{row['null_sem']:.2g}"]
        assert cells[7] == "16"
    assert lines[2].endswith("attention mass; null: random weights")


def test_the_folder_holds_tables_and_a_page(run, llama_folder, tmp_path) -> None:
    out = tmp_path / "a folder" / "results"
    result = run("score", llama_folder, *METRICS, "--out", out)
    assert str(out) in result.stderr
    tables = [HeadTable.from_parquet(out / "table.parquet"), HeadTable.from_csv(out / "table.csv")]
    assert tables[0] == tables[1]
    assert [m.partition(":")[0] for m in tables[0].metrics] == [
        name for name in KNOWN if name in {m.partition(":")[0] for m in LABELS}
    ], "the order of the list of metrics"
    kept = Store(out).read()  # in the order of file names
    assert all(kept.where(metric=m) == tables[0].where(metric=m) for m in LABELS)
    page = (out / "heads.html").read_text()
    assert f"interp atlas '{out}'" in html.unescape(page), "the command that makes it again"
    assert "://" not in page.replace("http://www.w3.org", ""), "it fetches nothing"


def test_quiet_says_nothing_but_the_table(run, llama_folder, tmp_path) -> None:
    result = run("score", llama_folder, *METRICS, "--quiet", "--out", tmp_path)
    assert result.stderr == ""
    assert "induction" in result.stdout


def test_no_model_scores_the_first_bundled_one_into_results(run, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("score", "-m", "entropy")
    assert result.exit_code == 0
    first = f"bundled:{bundled.names()[0]}"
    assert result.stdout.startswith(f"{first}\n")
    assert HeadTable.load("results/table.parquet").models == (first,)


def test_an_interrupted_run_goes_on_where_it_stopped(
    run, llama_folder, llama_copy, tmp_path, monkeypatch
) -> None:
    other = llama_copy("other")
    one_weight(other)  # with equal weights its results would be those of the first
    command = ("score", llama_folder, other, *METRICS, "--out", tmp_path / "out")
    written = []
    write = Store.write

    def stopped(store, key, table):
        if len(written) == 4:
            raise KeyboardInterrupt
        written.append(key)
        return write(store, key, table)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "write", stopped)
        result = run(*command)
    assert result.exit_code == 130
    assert "4 results are stored in" in result.stderr
    assert "run the same command again" in result.stderr
    assert "other" in result.stdout, "what was scored before is printed"

    scored = []
    each = batch.score_each

    def counted(model, bounds, *args, **options):
        for label, table in each(model, bounds, *args, **options):
            scored.append((model.name, label))
            yield label, table

    monkeypatch.setattr(batch, "score_each", counted)
    result = run(*command)
    assert result.exit_code == 0
    assert scored == [("other", LABELS[1]), ("other", LABELS[2])]
    assert "llama: 3 of 3 metrics were already in" in result.stderr
    assert "other: 1 of 3 metrics were already in" in result.stderr
    whole = HeadTable.load(tmp_path / "out" / "table.parquet")
    plain = run("score", llama_folder, command[2], *METRICS, "--json").stdout
    (tmp_path / "t.json").write_text(plain)
    printed = HeadTable.from_json(tmp_path / "t.json")
    assert in_metric_order(printed, list(KNOWN)) == whole


@pytest.mark.slow
def test_killed_processes_leave_whole_files_that_are_not_scored_again(
    run, llama_folder, tmp_path
) -> None:
    text = """
import os, signal, sys
from interp.core.store import Store
from interp.cli.main import main
write = Store.write
def killed(store, key, table):
    path = write(store, key, table)
    os.kill(os.getpid(), int(sys.argv[1]))
    return path
Store.write = killed
# a shell starts what runs in the background with this signal ignored
signal.signal(signal.SIGINT, signal.default_int_handler)
main(sys.argv[2:])
"""
    more = (*METRICS, "-m", "previous_token")
    command = ["score", str(llama_folder), *more, "--out", str(tmp_path / "out")]
    ends = {signal.SIGKILL: -signal.SIGKILL, signal.SIGINT: 130, signal.SIGTERM: 143}
    for number, (sent, code) in enumerate(ends.items(), 1):
        done = subprocess.run(
            [sys.executable, "-c", text, str(int(sent)), *command],
            env=os.environ,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert ("results are stored in" in done.stderr) == (sent != signal.SIGKILL)
        assert "Traceback" not in done.stderr
        kept = {key.metric for key in Store(tmp_path / "out").keys()}  # noqa: SIM118
        assert kept == set(LABELS[:number]), "one more in each process"
    result = run(*command)
    assert result.exit_code == 0
    assert "3 of 4 metrics were already in" in result.stderr


def test_what_was_asked_otherwise_is_scored_again(run, llama_folder, tmp_path) -> None:
    changes = [
        ("induction", ()),
        ("induction", ("--null", "none")),
        ("induction", ("--dtype", "float64")),
        ("induction", ("--max-length", "20")),
        ("induction", ("--attention", "eager")),
        ("induction", ("--engine", "streamed")),
        ("ov_norm", ()),
        ("ov_norm", ("--seed", "1")),  # of the null's weights; here there are no prompts
        ("ov_norm", ("--null", "none")),
    ]
    for number, (metric, change) in enumerate(changes, 1):
        command = ("score", llama_folder, "-m", metric, "--out", tmp_path)
        result = run(*command, *change)
        assert result.exit_code == 0
        assert "already" not in result.stderr, change
        assert len(Store(tmp_path).keys()) == number
        if not change:
            assert "already" in run(*command, "--batch-size", "3").stderr, "it changes no number"


def test_a_detector_of_ones_own_is_scored_and_scored_again_when_it_changes(
    run, llama_folder, tmp_path
) -> None:
    own = tmp_path / "every.py"
    text = (
        "from interp.heads.declaration import detector\n\n\n@detector\ndef every(query, key):\n"
        '    """Attends to every token up to here."""\n    return key <= query\n'
    )
    own.write_text(text)
    command = ("score", llama_folder, "-m", f"{own},entropy", "--out", tmp_path / "out", "--json")
    rows = pd.DataFrame(json.loads(run(*command).stdout)["rows"])
    assert rows[rows["metric"] == "every"]["score"].to_numpy() == pytest.approx(1.0, abs=1e-6)
    assert "2 of 2 metrics were already" in run(*command).stderr
    own.write_text(text.replace("key <= query", "key == query"))
    result = run(*command)
    assert "1 of 2 metrics were already" in result.stderr
    rows = pd.DataFrame(json.loads(result.stdout)["rows"])
    assert rows[rows["metric"] == "every"]["score"].max() < 0.9


def test_two_models_of_one_name_are_told_apart(run, llama_folder, tmp_path, llama_copy) -> None:
    other = llama_copy("llama")
    result = run("score", llama_folder, other, llama_folder, "-m", "entropy", "--json")
    models = list(dict.fromkeys(row["model"] for row in json.loads(result.stdout)["rows"]))
    assert models == [str(llama_folder), str(other)]


def test_planted_models_are_scored_and_their_head_comes_out_first(run) -> None:
    result = run("score", "planted:induction", "-m", "induction", "--top", 1)

    [(layer, head)] = planted.build("induction").roles["induction"]
    assert result.stdout.startswith("planted:induction: 8 heads")
    assert f"1 induction head: L{layer}H{head} induction 1.000" in result.stdout
    listed = result.stdout.partition("\n\n")[2]
    assert listed.splitlines()[2].split()[1] == f"L{layer}H{head}"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("induction", ["induction"]),
        ("a,b", ["a", "b"]),
        ("a:x=1,y=2,b", ["a:x=1,y=2", "b"]),
        ("a,b:x=1,c:y=2,z=3", ["a", "b:x=1", "c:y=2,z=3"]),
        ("own/file.py:x=1,entropy", ["own/file.py:x=1", "entropy"]),
        ("a,,b,", ["a", "b"]),
    ],
)
def test_metrics_are_split_at_commas_that_do_not_part_options(text, parts) -> None:
    assert split_names(text) == parts


def test_an_experiment_that_a_model_has_no_room_for_is_left_out(run, errors, tmp_path) -> None:
    own = tmp_path / "roomy.py"
    own.write_text(
        "from interp.heads.declaration import experiment\n"
        "from interp.core.errors import PromptError\n\n\n"
        '@experiment(unit=\'none\')\ndef roomy(model, lab):\n    """Asks for room."""\n'
        "    raise PromptError('no room for 9 items')\n"
    )
    shown = run("score", "planted:sink", "-m", f"previous_token,{own},ov_norm", "--csv")
    assert shown.exit_code == 0
    assert "roomy is omitted on planted:sink: no room for 9 items" in shown.stderr
    frame = pd.read_csv(io.StringIO(shown.stdout))
    assert frame["metric"].unique().tolist() == ["previous_token", "ov_norm"]
    code, lines = errors("score", "planted:sink", "-m", own)
    assert (code, lines[0]) == (1, "planted:sink: no room for 9 items")


def test_prompts_that_experiments_do_not_take_are_told(run, errors, tmp_path) -> None:
    text = tmp_path / "t.txt"
    text.write_text("1 2 3\n")
    code, told = errors("score", "planted:zoo", "-m", "echo", "--file", text)
    assert code == 2
    assert told[0].startswith("echo makes special prompts, so --file and --max-length")
    result = run("score", "planted:zoo", "-m", "echo,entropy", "--max-length", 20, "--null", "none")
    assert result.exit_code == 0
    assert "echo makes special prompts" in result.stderr
    assert "echo" in result.stdout


def test_other_weights_of_an_architecture_take_the_kept_nulls(run, tmp_path, monkeypatch) -> None:
    import torch
    import zoo

    from interp.model import random_weights

    for seed in (0, 1):
        torch.manual_seed(seed)
        config = zoo.FAMILIES["llama"].build("sdpa").config
        torch.manual_seed(seed)
        type(zoo.FAMILIES["llama"].build("sdpa"))(config).save_pretrained(tmp_path / f"step{seed}")
    command = (*METRICS, "-m", "ov_rank", "--random", "3")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    fresh = run("score", tmp_path / "step1", *command, "--set", "null_cache=false", "--json")
    assert not random_weights.null_folder().exists()
    out = tmp_path / "out"
    assert run("score", tmp_path / "step0", *command, "-o", out).exit_code == 0
    assert len(list((out / "nulls").iterdir())) == 4
    monkeypatch.setattr(random_weights, "random_init", None)  # none is drawn from here on
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    other = run("score", tmp_path / "step1", *command, "-o", out, "--json")
    assert other.exit_code == 0, other.stderr
    assert json.loads(other.stdout)["rows"] == json.loads(fresh.stdout)["rows"]
