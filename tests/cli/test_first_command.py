"""The first command: what it says before seconds pass, once, and in whole words."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

import pytest

from interp import bundled
from interp.cli.wrapping import between_words
from interp.heads.sweep import compiling
from interp.heads.sweep import scored_models as batch_module
from interp_kernels import cpu_ahead

LONG = (
    "  No previous-token head: best previous_token L1H2 0.087 [0.069, 0.105], null 0.091 ± 0.0025; "
    "also L0H3, https://example.org/a-very-long-address-that-has-no-space-in-it-and-is-kept-whole-x."
)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_word_is_broken_at_the_end_of_a_line(width) -> None:
    lines = between_words(f"{LONG}\nshort\n", width).split("\n")
    assert " ".join(" ".join(lines).split()) == " ".join(f"{LONG} short".split())
    assert all(len(line) <= width or "https" in line for line in lines)
    assert lines[1].startswith("      ")
    assert lines[-2:] == ["short", ""]
    assert between_words(LONG, 30) == LONG, "nothing can be read at 30 columns"


def test_on_a_terminal_lines_are_wrapped_and_in_a_pipe_they_are_not() -> None:
    code = f"from interp.cli.wrapping import say; say({LONG!r})"
    environment = os.environ | {"COLUMNS": "80"}
    command = [sys.executable, "-c", code]
    piped = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert piped.stdout == LONG + "\n"
    reader, writer = pty.openpty()
    subprocess.run(command, env=environment, stdout=writer, check=True)
    os.close(writer)
    told = os.read(reader, 10_000).decode()
    os.close(reader)
    assert told.count("\r\n") == 3


def test_it_says_at_once_what_is_scored_and_where_others_are_listed(run, monkeypatch) -> None:
    monkeypatch.setattr(batch_module.ScoreSweep, "run", lambda *_, **__: 0)
    monkeypatch.setattr(batch_module.ScoreSweep, "prepare", classmethod(lambda cls, **_: cls.empty))
    nothing = {"run": lambda *_: None, "done": [], "failed": [], "store": None}
    empty = type("Sweep", (), nothing)()
    monkeypatch.setattr(batch_module.ScoreSweep, "empty", empty, raising=False)
    said = run("score").stderr.splitlines()[0]
    assert (
        said == f"interp: no MODEL given: bundled:{bundled.names()[0]}; others: interp list models"
    )
    assert run("score", "-q").stderr == ""


def test_an_omission_is_said_once_and_signs_are_named_before_the_first_answer(run) -> None:
    metrics = "induction,k_composition,q_composition,v_composition"
    shown = run("score", "bundled:one-layer", "-m", metrics)
    omitted = [line for line in shown.stderr.splitlines() if "omitted" in line]
    assert omitted == [
        "interp: k_composition, q_composition, v_composition are omitted on bundled:one-layer: "
        "bundled:one-layer has no two attentions in sequence, so nothing composes"
    ]
    signs = "[low, high] is a 95 % confidence interval; ± precedes a standard error"
    assert shown.stderr.count(signs) == 1
    assert "[" in shown.stdout


@pytest.mark.parametrize(("context", "ahead"), [(64, False), (2048, True)])
def test_the_kernel_is_compiled_while_models_load_if_prompts_are_long(
    run, monkeypatch, context, ahead
) -> None:
    order: list[str] = []
    monkeypatch.setattr(compiling, "compile_ahead", lambda: order.append("compile"))
    monkeypatch.setattr(batch_module.ScoreSweep, "score_model", lambda *_: order.append("load"))
    run("score", "planted:induction", "-m", "entropy", "--max-length", str(context))
    assert order == ["compile", "load"][not ahead :]


def test_a_process_of_its_own_compiles_once_and_is_waited_for(monkeypatch) -> None:
    monkeypatch.setattr(cpu_ahead, "_CODE", "import time; time.sleep(0.2)")
    monkeypatch.setattr(cpu_ahead, "_running", [])
    cpu_ahead.compile_ahead()
    cpu_ahead.compile_ahead()
    [process] = cpu_ahead._running
    assert process.poll() is None
    cpu_ahead.wait_for_it()
    assert process.poll() == 0


def test_without_numba_the_note_names_the_extra(run, monkeypatch) -> None:
    why = "numba is not installed; pip install 'interp[kernels]'"
    monkeypatch.setattr(compiling, "why_not", lambda _: why)
    monkeypatch.setattr(compiling, "COMPILED_BYTES", 0)
    shown = run("score", "planted:induction", "-m", "entropy", "--null", "none")
    assert f"PyTorch operations read long prompts, which is slower: {why}" in shown.stderr


@pytest.mark.parametrize("words", [["score"], ["profile"], ["circuit", "-n", "8"]], ids=" ".join)
def test_the_first_line_comes_before_torch_is_imported(words: list[str]) -> None:
    code = (
        "import sys, interp.cli.progress as progress\n"
        "from interp.cli.main import main\n"
        "def say(text, err):\n"
        "    sys.exit('torch was imported' if 'torch' in sys.modules else 0)\n"
        "progress.say = say\n"
        f"main({words})\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_without_a_model_the_language_model_is_asked_a_task_of_its_own(run) -> None:
    words = ["importance", "ablate", "-n", "6", "--null", "none", "-q"]
    shown = run(*words).stdout
    assert shown.startswith("bundled:stories\n")
    assert "the task stories:owner is" in shown
    tokens = run(*words, "--max-length", "16").stdout
    assert "the task second_copy_loss is" in tokens, "a length is that of random tokens"
