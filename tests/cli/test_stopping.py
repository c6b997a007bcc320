"""SIGTERM and SIGHUP end a command as Ctrl-C does, with exit codes of their own."""

from __future__ import annotations

import signal
import time

import click
import pytest

from interp.cli.progress import Voice
from interp.cli.stopping import stopping_signals

SIGNALS = [n for n in ("SIGTERM", "SIGHUP") if hasattr(signal, n)]


def stopped(number: int) -> None:
    """A command that is stopped by a signal and ends as it does after Ctrl-C."""
    with stopping_signals():
        with pytest.raises(KeyboardInterrupt):
            deliver(number)
        raise click.exceptions.Exit(130)


def deliver(number: int) -> None:
    """What a signal does, without the risk that it ends the tests."""
    handler = signal.getsignal(number)
    assert callable(handler), "nobody handles it"
    handler(number, None)


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_is_an_interrupt_with_its_own_exit_code(name) -> None:
    number = getattr(signal, name)
    with pytest.raises(click.exceptions.Exit) as end:
        stopped(number)
    assert end.value.exit_code == 128 + number
    assert signal.getsignal(number) is signal.SIG_DFL


def test_without_a_signal_the_codes_stay() -> None:
    for code in (0, 1, 130):
        with pytest.raises(click.exceptions.Exit) as end, stopping_signals():
            raise click.exceptions.Exit(code)
        assert end.value.exit_code == code


@pytest.mark.parametrize("name", SIGNALS)
def test_a_signal_that_is_ignored_stays_ignored(name) -> None:
    number = getattr(signal, name)
    signal.signal(number, signal.SIG_IGN)
    try:
        with stopping_signals():
            assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, signal.SIG_DFL)


@pytest.mark.parametrize(
    "command",
    [
        "score bundled:induction",
        "importance ablate bundled:induction",
        "circuit bundled:induction --task induction",
        "study trees bundled:induction",
        "texts influence bundled:induction --file texts.txt --heads L0H1",
    ],
)
def test_a_terminated_command_says_what_is_safe(run, tmp_path, monkeypatch, command) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("a dog\n")
    out = tmp_path / "out" / ("rows.jsonl" if "influence" in command else "")
    monkeypatch.setattr("interp.model.loading.Loading.load", lambda *_: deliver(signal.SIGTERM))
    result = run(*command.split(), "-o", out)
    assert result.exit_code == 143
    assert "interrupted; " in result.stderr
    assert "the same command" in result.stderr or "run the same command again" in result.stderr
    assert "Traceback" not in result.output


def test_the_first_metric_does_not_tell_how_long_all_take(capsys, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Voice(quiet=False, debug=False).bars("bert") as progress:
        for done in (0, 1, 20):  # the shared passes, and then all others at once
            progress("bert", done, 20)
            now[0] += 20.0
    assert "more" not in capsys.readouterr().err


def test_where_no_bar_can_be_drawn_a_line_says_how_far_it_is(capsys, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for quiet in (False, True):
        with Voice(quiet=quiet, debug=False).bars("bert") as progress:
            for done in range(100):
                now[0] += 1.0
                progress("sentences", done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "interp: bert: sentences, 4 of 100",
        "interp: bert: sentences takes about 2 min more",
        *(f"interp: bert: sentences, {done} of 100" for done in (34, 64, 94)),
    ]


def test_a_long_step_says_so_once_and_early(capsys, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    voice = Voice(quiet=False, debug=False)
    voice.stopping = "; Ctrl-C keeps what is finished"

    def notes() -> list[str]:
        return [x for x in capsys.readouterr().err.splitlines() if "takes about" in x]

    with voice.bars("m") as progress:
        for done in range(6):  # 3 s each: 300 in all
            progress("patching", done, 100)
            now[0] += 3
        assert notes() == [
            "interp: m: patching takes about 5 min more; Ctrl-C keeps what is finished"
        ]
        for done in range(11):  # over after 10 s, though the command takes longer than a minute
            progress("short", done, 10)
            now[0] += 1
        assert notes() == []
        for done in range(3):
            progress("twice", done, 2)
            now[0] += 1
        now[0] = 58.0
        for done in range(8):  # a step of 10 s, with which the whole passes a minute
            progress("last", done, 10)
            now[0] += 1
        assert notes() == ["interp: m: last takes about 5 s more; Ctrl-C keeps what is finished"]
        for done in range(8):  # a second count of a name is timed from its own start
            progress("twice", done, 30)
            now[0] += 1
        assert notes()[0].startswith("interp: m: twice takes about 25 s more")
        progress("uneven", 0, 500)
        now[0] += 30  # the first of 500 units may be most of the work
        progress("uneven", 1, 500)
        assert notes() == []
        progress("uneven", 400, 500)
        assert notes() == [], "it is nearly over, by the pace of the others"
        progress("compiling", 0, 100)
        now[0] += 20  # not the pace of what comes after it
        for done in range(1, 9):
            progress("compiling", done, 100)
            now[0] += 0.5
        assert notes()[0].startswith("interp: m: compiling takes about 49 s more")


def test_a_short_step_does_not_say_how_long_it_takes(capsys, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    with Voice(quiet=False, debug=False).bars("bert") as progress:
        for what in ("loading", "sentences"):
            for done in range(26):
                now[0] += 1.0
                progress(what, done, 26)
    assert "takes about" not in capsys.readouterr().err
