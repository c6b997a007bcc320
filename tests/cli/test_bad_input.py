"""One clear line for every bad input, and nothing computed is lost."""

from __future__ import annotations

import errno
import io
import json
import os
import re

import pandas as pd
import pytest
import torch
import zoo
from fixtures.commands import error_lines
from safetensors.torch import load_file, save_file

from interp.core.store import Store
from interp.core.table import HeadTable
from interp.heads.sweep import scored_models as batch
from interp.model import self_check as checking
from interp.model.loading import Loading

QUICK = ("-m", "entropy", "--null", "none")


def change_config(folder, **fields) -> None:
    config = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("args", "line"),
    [
        (("-m", "inducton"), "unknown metric 'inducton'; did you mean induction"),
        (("-m", "local_window:widht=3"), "option of local_window 'widht'; did you mean width"),
        (("-m", "local_window:width=x"), "option width='x' is not a whole number, such as 4"),
        (("-m", "local_window:width"), "write options as local_window:option=value"),
        (("-m", "entropy,entropy"), "a metric is given twice: entropy"),
        (("-m", "nowhere.py"), "nowhere.py does not exist"),
        (("--file", "nowhere.txt"), "nowhere.txt is not a file"),
        (("--device", "quantum"), "device 'quantum' cannot be used"),
    ],
)
def test_a_wrong_command_is_refused_before_any_work(errors, llama_folder, args, line) -> None:
    code, [told] = errors("score", llama_folder, *args)
    assert code == 2
    assert line in told


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has CUDA")
def test_a_device_that_is_not_there(errors, llama_folder) -> None:
    code, [told] = errors("score", llama_folder, "--device", "cuda")
    assert code == 2
    assert "this machine has cpu" in told


def test_two_settings_behind_one_set_are_refused_plainly(run, llama_folder) -> None:
    result = run("profile", llama_folder, "--set", "effects=false,n_documents=8")
    assert result.exit_code == 2
    assert "give true or false, and each setting a --set of its own" in result.stderr
    number = run("profile", llama_folder, "--set", "n_documents=x")
    assert "'x' is not a valid integer" in number.stderr


@pytest.mark.parametrize("args", [("--metrc", "x"), ("--batch-size", "0"), ("--null", "nothing")])
def test_options_that_do_not_exist_are_usage_errors(run, llama_folder, args) -> None:
    result = run("score", llama_folder, *args)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert args[0].lstrip("-") in result.stderr.splitlines()[-1]


def no_weights(folder):
    (folder / "model.safetensors").unlink()
    return "has a config but no weights"


def cut_short(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    return "is damaged or cut short"


def garbled(folder):
    (folder / "model.safetensors").write_bytes(b"\xff" * 400)
    return "is damaged or cut short"


def pickled(folder):
    weights = load_file(folder / "model.safetensors")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    return "--allow-pickle"


def not_json(folder):
    (folder / "config.json").write_text("{")
    return "config.json is not JSON"


def a_list(folder):
    (folder / "config.json").write_text("[1, 2]")
    return "config.json holds a list, but a config must be an object"


def no_heads(folder):
    change_config(folder, num_attention_heads=0)
    return "the config cannot be used: integer modulo by zero"


def a_word_for_a_size(folder):
    change_config(folder, hidden_size="big")
    return "the config cannot be used"


def remote_code(folder):
    change_config(
        folder,
        model_type="custom",
        architectures=["Custom"],
        auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Custom"},
    )
    (folder / "own.py").write_text("raise SystemExit('code of a stranger has run')\n")
    return "--trust-remote-code"


def with_nan(folder):
    weights = load_file(folder / "model.safetensors")
    name = next(n for n in weights if "layers.1.self_attn.q_proj" in n)
    weights[name][0, 0] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return "layers.1.self_attn.q_proj"


def overflowing(folder):
    weights = load_file(folder / "model.safetensors")
    for name in weights:
        if "layers.1.self_attn.v_proj" in name:
            weights[name] *= 1e38
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return "layer 1"


@pytest.mark.parametrize(
    "damage",
    [
        no_weights,
        cut_short,
        garbled,
        pickled,
        not_json,
        a_list,
        no_heads,
        a_word_for_a_size,
        remote_code,
        with_nan,
        overflowing,
    ],
)
def test_a_bad_model_is_one_line_and_the_others_are_scored(
    errors, run, llama_copy, llama_folder, damage
) -> None:
    bad = llama_copy("bad")
    line = damage(bad)
    result = run("score", bad, llama_folder, *QUICK)
    told, summary = error_lines(result)
    assert result.exit_code == 1
    assert "bad" in told
    assert line in told
    assert summary == "1 of 2 models failed: bad"
    assert result.stdout.startswith("llama\n")
    code, [told] = errors("check", bad)
    assert code == 1
    assert line in told


def test_a_pickle_is_read_where_it_is_allowed(run, llama_copy) -> None:
    folder = llama_copy("pickled")
    pickled(folder)
    assert run("score", folder, *QUICK, "--allow-pickle").exit_code == 0


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ("bundled:nothing", "unknown bundled model 'nothing'"),
        ("planted:inducton", "unknown planted model 'inducton'; did you mean induction"),
        ("./nowhere", "nowhere does not exist"),
        ("nobody/no-such-model", "is neither a folder nor a model that the hub"),
    ],
)
def test_an_unknown_model_is_one_line(errors, source, line) -> None:
    code, [told] = errors("score", source, *QUICK)
    assert code == 1
    assert line in told


def test_files_among_the_models_are_passed_over(run, errors, llama_folder, tmp_path) -> None:
    (tmp_path / "README.md").write_text("# models")
    result = run("score", tmp_path / "README.md", llama_folder, *QUICK)
    assert result.exit_code == 0
    assert f"{tmp_path / 'README.md'} is a file, not a model folder" in result.stderr
    code, lines = errors("score", tmp_path / "README.md", *QUICK)
    assert code == 1
    assert "is not a folder" in lines[0]


def test_prompts_that_do_not_fit(errors, llama_copy, llama_folder, tmp_path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("a b c\n")
    code, [told, _] = errors("score", llama_folder, *QUICK, "--file", text)
    assert code == 1
    assert "has no tokenizer, so it takes token ids, not text" in told
    text.write_text("\n \n")
    assert "holds no text" in errors("score", llama_folder, *QUICK, "--file", text)[1][0]
    text.write_bytes(b"\xff\xfe\xfa")
    assert "is not UTF-8 text" in errors("score", llama_folder, *QUICK, "--file", text)[1][0]
    table = tmp_path / "gpt2"
    zoo.FAMILIES["gpt2"].model("sdpa").save_pretrained(table)
    code, [told, _] = errors("score", table, *QUICK, "--max-length", "65")
    assert code == 1
    assert "gpt2 has positions for 64 tokens, fewer than --max-length 65" in told


def test_a_context_beyond_the_config_is_said_and_a_long_run_announced(run, llama_folder) -> None:
    result = run("score", llama_folder, *QUICK, "--max-length", "2300", "--json")
    assert result.exit_code == 0
    # a first run on a machine compiles, which lasts until progress is told
    first, second, *progress = result.stderr.splitlines()
    assert all(re.fullmatch(r"interp: llama: scoring, \d of 3", line) for line in progress)
    assert first.startswith(
        "interp: llama was trained for 64 tokens; its scores on 2,299 tokens are outside"
    )
    assert second.startswith("interp: llama: 1 x 2,299 tokens, fused: about")
    assert "beside the weights" in second


def test_a_metric_that_does_not_apply_is_a_note_and_no_failure(run, tmp_path, zoo_vision) -> None:
    result = run("score", zoo_vision, "-m", "induction,entropy", "--json")
    assert result.exit_code == 0
    assert {row["metric"] for row in json.loads(result.stdout)["rows"]} == {"entropy"}
    [line] = result.stderr.splitlines()
    assert "induction needs tokens" in line


@pytest.fixture
def zoo_vision(tmp_path):
    folder = tmp_path / "vision"
    zoo.FAMILIES["vit"].model("sdpa").save_pretrained(folder)
    return folder


def test_a_detector_that_breaks_fails_its_model_and_says_where_to_look(
    errors, run, llama_folder, tmp_path
) -> None:
    own = tmp_path / "broken.py"
    own.write_text(
        "from interp.heads.declaration import detector\n\n\n@detector\ndef broken(query, key):\n"
        '    """Divides by zero."""\n    return (key <= query) & (1 / 0 > 0)\n'
    )
    code, [told, _] = errors("score", llama_folder, "-m", own)
    assert code == 1
    assert "ZeroDivisionError: division by zero" in told
    assert 'broken.py", line 7' in run("score", llama_folder, "-m", own, "--debug").stderr


def test_a_model_whose_own_code_breaks_is_one_line_and_the_others_are_scored(
    run, errors, llama_copy, llama_folder, monkeypatch
) -> None:
    load = Loading.load

    def breaks(loading, source, name, *rest):
        if name == "bad":
            raise ZeroDivisionError("in the\nmodel")
        return load(loading, source, name, *rest)

    monkeypatch.setattr(Loading, "load", breaks)
    command = ("score", llama_copy("bad"), llama_folder, *QUICK)
    code, [told, _] = errors(*command)
    assert code == 1
    assert told == "bad: ZeroDivisionError: in the model (--debug shows where)"
    assert run(*command).stdout.startswith("llama\n")


def test_a_model_that_fails_the_check_is_not_scored(run, errors, llama_folder, monkeypatch) -> None:
    monkeypatch.setitem(checking.TOLERANCE, torch.float32, 1e-12)
    code, [told, _] = errors("score", llama_folder, *QUICK)
    assert code == 1
    assert "module model.layers.0.self_attn" in told
    assert "it is refused" in told
    assert run("score", llama_folder, *QUICK).stdout == ""


@pytest.mark.parametrize(
    ("text", "line"),
    [("def f(:", "mine.py, line 1: SyntaxError"), ("x = 1\n", "mine.py declares no metric")],
)
def test_a_file_that_declares_no_metric(errors, llama_folder, tmp_path, text, line) -> None:
    (tmp_path / "mine.py").write_text(text)
    code, [told] = errors("score", llama_folder, "-m", tmp_path / "mine.py")
    assert code == 2
    assert line in told


def test_a_metric_file_that_raises_says_in_which_line(errors, llama_folder, tmp_path) -> None:
    (tmp_path / "mine.py").write_text(
        "from interp.heads.declaration import detector\n\nlimits = {}['limits']\n\n\n@detector\n"
        'def mine(query, key, tokens):\n    """Nothing."""\n    return key == query\n'
    )
    code, [told] = errors("score", llama_folder, "-m", tmp_path / "mine.py")
    assert code == 2
    assert f"{tmp_path / 'mine.py'}, line 3: KeyError: 'limits'" in told


def test_output_that_cannot_be_written_is_refused_before_any_work(
    errors, llama_folder, tmp_path
) -> None:
    (tmp_path / "file").write_text("")
    code, [told] = errors("score", llama_folder, *QUICK, "--out", tmp_path / "file" / "results")
    assert code == 1
    assert "is a file, not a folder" in told


def test_a_full_disk_ends_the_run_and_keeps_what_is_there(
    errors, run, llama_folder, tmp_path, monkeypatch
) -> None:
    command = ("score", llama_folder, "-m", "entropy,previous_token", "--out", tmp_path / "out")
    replace, done = os.replace, []

    def full(source, target):
        result = str(target).endswith(".parquet") and ".prompts." not in str(target)
        if done and result:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if result:
            done.append(target)
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        result = run(*command)
    assert result.exit_code == 1
    [line] = [x for x in result.stderr.splitlines() if "error:" in x]
    assert "no space left" in line
    assert "previous_token" in result.stdout, "what could not be kept is printed"
    assert [key.metric for key in Store(tmp_path / "out").keys()] == ["entropy"]  # noqa: SIM118
    assert not list((tmp_path / "out").glob(".*.tmp"))
    result = run(*command)
    assert result.exit_code == 0
    assert "1 of 2 metrics were already" in result.stderr


def test_a_damaged_result_is_set_aside_and_scored_again(run, llama_folder, tmp_path) -> None:
    command = ("score", llama_folder, *QUICK, "--out", tmp_path)
    first = run(*command)
    [path] = tmp_path.glob("llama.entropy.*[0-9a-f].parquet")
    path.write_bytes(path.read_bytes()[:-10])
    result = run(*command)
    assert result.exit_code == 0
    assert result.stdout == first.stdout
    [told] = [line for line in result.stderr.splitlines() if "is damaged (" in line]
    assert told.startswith(f"interp: {path} is damaged (")
    assert told.endswith(f"it is set aside as {path.name}.damaged, and computed again")
    assert path.with_name(f"{path.name}.damaged").exists()
    assert "is damaged (" not in run(*command).stderr


def test_a_damaged_result_of_another_command_stops_nothing(run, llama_folder, tmp_path) -> None:
    run("score", llama_folder, "-m", "first_token", "--out", tmp_path)
    [path] = tmp_path.glob("llama.first-token.*[0-9a-f].parquet")
    path.write_bytes(b"")
    result = run("score", llama_folder, *QUICK, "--out", tmp_path)
    assert result.exit_code == 0
    assert result.stderr.count("is damaged (") == 1
    assert HeadTable.load(tmp_path / "table.parquet").metrics == ("entropy",)


@pytest.mark.parametrize("form", ["--json", "--csv"])
def test_an_interrupt_still_prints_the_finished_models(
    run, llama_folder, llama_copy, tmp_path, monkeypatch, form
) -> None:
    each = batch.score_each

    def interrupted(model, *args, **options):
        if model.name == "second":
            raise KeyboardInterrupt
        return each(model, *args, **options)

    monkeypatch.setattr(batch, "score_each", interrupted)
    result = run("score", llama_folder, llama_copy("second"), form, *QUICK)
    assert result.exit_code == 130
    if form == "--csv":  # plain numbers: how they were made stands in no CSV
        models = set(pd.read_csv(io.StringIO(result.stdout))["model"])
    else:
        (tmp_path / "t.json").write_text(result.stdout)
        models = set(HeadTable.load(tmp_path / "t.json").models)
    assert models == {"llama"}
    assert result.stderr.startswith("interp: error: interrupted;")
