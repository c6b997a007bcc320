"""Notes that say how long a step will take."""

from __future__ import annotations

from interp.cli import beforehand as module
from interp.cli.beforehand import beforehand


def test_a_long_step_says_so_once_and_early(monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    passed, notes = [], []
    tell = beforehand(lambda *said: passed.append(said), notes.append, "m")
    for done in range(6):  # 3 s each: 300 in all
        tell("patching", done, 100)
        now[0] += 3
    assert notes == ["m: patching takes about 294 s more; Ctrl-C keeps what is finished"]
    assert passed[-1] == ("patching", 5, 100)
    for done in range(11):  # over after 10 s, though the command takes longer than a minute
        tell("short", done, 10)
        now[0] += 1
    assert len(notes) == 1
    now[0] = 58.0
    for done in range(6):  # a step of 10 s, with which the whole passes a minute
        tell("last", done, 10)
        now[0] += 1
    assert notes[1] == "m: last takes about 8 s more; Ctrl-C keeps what is finished"
    tell("uneven", 0, 500)
    now[0] += 30  # the first of 500 units may be most of the work
    tell("uneven", 1, 500)
    assert len(notes) == 2
    tell("uneven", 400, 500)
    assert notes[2].startswith("m: uneven takes about 8 s more")
