"""Sharing out tasks: each done once, errors heard, threads that live on but not across a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest
from together import over

from interp_kernels import cpu_threads
from interp_kernels.cpu_threads import others, share_out

LIMIT = 20  # seconds, where a mistake would wait for ever


@pytest.fixture(autouse=True, params=["torch's", "own"])
def team(request, monkeypatch):
    """Both kinds of threads do the same."""
    if request.param == "own":
        monkeypatch.setattr(cpu_threads, "torchs_threads", lambda: None)
    elif cpu_threads.torchs_threads() is None:
        pytest.skip("this build of torch does not show its threads")
    else:
        monkeypatch.setattr(cpu_threads, "own_threads", None)  # not even asked


@over("threads", [1, 2, 5])
@over("n", [0, 1, 2, 40])
def test_every_task_is_performed_once(threads, n):
    done: list[int] = []
    share_out(done.append, range(n), threads)
    assert sorted(done) == list(range(n))


def test_two_threads_are_at_work_at_once():
    meet = threading.Barrier(2)
    share_out(lambda task: (meet.wait(LIMIT), None)[1], range(2), 2)
    assert not meet.broken


@pytest.mark.parametrize("mine", [True, False])
@pytest.mark.parametrize("error", [IndexError, MemoryError])
def test_an_error_in_any_thread_is_raised_and_ends_the_rest(mine, error):
    done: list[int] = []
    failed = threading.Event()

    def perform(task: int) -> None:
        if task > 1:
            done.append(task)
        elif (threading.current_thread() is threading.main_thread()) == mine:
            failed.set()
            raise error("here")
        else:
            assert failed.wait(LIMIT)

    with pytest.raises(error, match="here"):
        share_out(perform, range(1000), 2)
    assert len(done) < 998


def test_a_call_inside_another_ends():
    """All threads may be at work for somebody else: whoever calls does its own tasks."""
    done: list[int] = []
    share_out(lambda task: share_out(done.append, range(5), 2), range(4), 2)
    assert sorted(done) == sorted(list(range(5)) * 4)


def test_threads_are_kept():
    assert others(3) is others(3)


def test_an_interruption_is_raised_and_what_nobody_did_is_done(monkeypatch):
    def interrupted(task: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        share_out(interrupted, range(3), 2)
    # As when a team's threads could not begin.
    monkeypatch.setattr(cpu_threads, "torchs_threads", lambda: lambda work, threads: None)
    done: list[int] = []
    share_out(done.append, range(5), 2)
    assert done == list(range(5))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_starts_its_own():
    code = (
        "import os; from interp_kernels.cpu_threads import share_out; import threading\n"
        "def meet():\n"
        "    both = threading.Barrier(2); share_out(lambda _: both.wait(20), range(2), 2)\n"
        "meet()\n"
        "child = os.fork()\n"
        "meet()\n"
        "if child == 0: os._exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)
