"""The benchmark refuses wrong numbers, and writes what it measured."""

from __future__ import annotations

import json
import subprocess

import pytest
import torch

from benchmarks import attention as bench
from benchmarks import attention_check as bench_check
from benchmarks import attention_methods as bench_methods
from benchmarks import attention_report as bench_report


def test_right_numbers_pass_and_wrong_ones_are_named(monkeypatch):
    assert bench_check.failures() == []
    title, run = bench_methods.STREAMED["row"]

    def wrong(call):
        found = run(call)
        found["entropy"][..., -1] += 1e-3
        return found

    monkeypatch.setitem(bench_methods.STREAMED, "row", (title, wrong))
    lines = bench_check.failures()
    assert lines
    assert all("row statistics" in line and "entropy is off by 1.0e-03" in line for line in lines)


def test_it_refuses_to_time_wrong_numbers(monkeypatch, tmp_path):
    monkeypatch.setattr(bench_check, "failures", lambda: ["cpu: entropy is off"])
    with pytest.raises(SystemExit, match="no times are taken:\n  cpu: entropy is off"):
        bench.main(["--out", str(tmp_path)])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("part", ["operation", "model"])
def test_a_short_run_writes_table_figures_and_plot(monkeypatch, tmp_path, part, capsys):
    monkeypatch.setattr(bench, "memory", lambda part, name, n: 2.0 if name == "plain" else 3.0)
    monkeypatch.setattr(bench_check, "failures", lambda: [])
    monkeypatch.setattr(bench, "first_call", lambda: [6.04, 0.3, 9.06])
    monkeypatch.setitem(bench_methods.LAYERS, 32, 1)
    monkeypatch.setitem(bench_methods.LAYERS, 64, 1)
    asked = ["--lengths", "32", "64", "--methods", "row", "--repeats", "2", "--parts", part]
    asked += ["--note", "It was a busy day."]
    bench.main([*asked, "--out", str(tmp_path)])
    torch.set_grad_enabled(True)
    rows = json.loads((tmp_path / "attention.json").read_text())
    assert [(r["method"], r["tokens"]) for r in rows] == [
        *(("plain", 32), ("row", 32), ("plain", 64), ("row", 64))
    ]
    for row in rows:
        low, high = row["clock"][1:]
        assert low <= row["clock"][0] <= high
    assert rows[0]["clock"] == [1, 1, 1]
    text = (tmp_path / "attention.md").read_text()
    assert "| cpu: row statistics | 3 (1.50x) | 3 (1.50x) |" in text
    assert "attention`. It was a busy day.\n" in text
    assert "first time takes 6.0 s, reading it from numba's cache in another process 0.3 s" in text
    assert (tmp_path / "attention.svg").read_text().count("<circle") == 4
    assert text in capsys.readouterr().out


def test_a_peer_that_cannot_run_is_a_line_of_the_table(monkeypatch):
    monkeypatch.setattr(bench, "memory", lambda part, name, n: None)

    def prepare(part, name, n):
        if name == "flex":
            raise RuntimeError("no compiler\nat all")
        return bench_methods.prepare(part, name, n)

    monkeypatch.setattr(bench, "prepare", prepare)
    rows = bench.measure("operation", 32, 1, ["plain", "flex"])
    torch.set_grad_enabled(True)
    assert rows[1]["failed"] == "RuntimeError: no compiler"
    assert "clock" not in rows[1]


def test_a_method_is_left_out_beyond_its_length_with_the_reason(monkeypatch):
    monkeypatch.setattr(bench, "memory", lambda part, name, n: None)
    short = bench_methods.Method("peer", 16, "too slow")
    monkeypatch.setitem(bench.PARTS["operation"], "chunked", short)
    rows = [*bench.measure("operation", 16, 1, ["plain", "chunked"])]
    rows += bench.measure("operation", 32, 1, ["plain", "chunked"])
    torch.set_grad_enabled(True)
    assert [r["method"] for r in rows if "clock" in r] == ["plain", "chunked", "plain"]
    text = bench_report.table(rows, None, "")
    assert "\nNot run:\n\n- peer, at 32 tokens: too slow\n" in text
    assert "First call" not in text


def test_peers_run_few_rounds_after_all_others_and_every_other_round_is_backwards(monkeypatch):
    ran = []
    monkeypatch.setattr(bench, "memory", lambda part, name, n: None)
    monkeypatch.setattr(bench, "FEW", 2)
    monkeypatch.setattr(bench, "MORE", 1)
    monkeypatch.setattr(bench, "prepare", lambda part, name, n: lambda: ran.append(name))
    monkeypatch.setattr(bench, "give_back", lambda: ran.append("-"))
    names = ["plain", "row", "cheap", "chunked", "flex"]
    plain, *rows = bench.measure("operation", 32, 3, names)
    pairs = ["row", "plain", "cheap", "plain"]
    back = ["cheap", "plain", "row", "plain"]
    peers = ["chunked", "plain", "flex", "plain", "flex", "plain", "chunked", "plain"]
    given_back = [word for name in ["plain", *peers] for word in ("-", name)]
    assert ran == [*names, "plain", *pairs, *back, *pairs, *given_back]  # names: to warm up
    assert plain["rounds"] == 7
    assert [row["rounds"] for row in rows] == [3, 3, 2, 2]
    torch.set_grad_enabled(True)


def test_a_ratio_is_taken_to_the_plain_runs_on_either_side(monkeypatch):
    """A machine that slows down all the time makes nobody look slow."""
    now = [0.0]
    monkeypatch.setattr(bench.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(bench.time, "process_time", lambda: 2 * now[0])
    pace = iter(range(10, 100))

    def run(cost):
        now[0] += 1e-3 * cost * next(pace)

    found = bench.rounds({"plain": lambda: run(1), "row": lambda: run(1.5)}, 6)
    row = bench.summary(found["row"])
    assert row["rounds"] == 30  # as they are short by ENOUGH's clock
    for kind in ("clock", "processor"):
        assert row[kind] == pytest.approx([1.5, 1.5, 1.5])
    assert bench.summary(found["plain"])["clock"] == [1, 1, 1]


def test_peaks_are_medians_taken_with_the_allocator_left_alone(monkeypatch):
    told, environments = iter(["7", "1", "2", "9"]), []

    def run(command, *, env, **options):
        environments.append(env)
        return subprocess.CompletedProcess(command, 0, stdout=next(told))

    for name, value in bench.KEEP_MEMORY.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(bench.subprocess, "run", run)
    assert bench.memory("operation", "row", 64) == 2
    assert bench.memory("operation", "chunked", 64) == 9
    assert not any(bench.KEEP_MEMORY.keys() & env.keys() for env in environments)
    assert all("PATH" in env for env in environments)


def test_the_middle_half_is_shown_and_of_few_runs_all():
    def runs(*ratios):
        return [(bench.Times(r, 2.0), bench.Times(1.0, 1.0)) for r in ratios]

    assert bench.summary(runs(5, 1, 2, 3, 4))["clock"] == [3, 2, 4]
    assert bench.summary(runs(3, 1, 2))["clock"] == [2, 1, 3]
    assert bench.summary(runs(3, 1))["processor"] == [2, 2, 2]


def test_exponents_are_those_of_a_power():
    """Time of 3 N^2 per head and memory of 5 N, whatever the number of heads at a length."""
    rows = [
        {
            **{"part": "operation", "method": "plain", "title": "peer", "tokens": n},
            **{"seconds": 3e-9 * n**2 * bench_methods.heads_at(n)},
            **{"memory": 5e-3 * n * bench_methods.heads_at(n)},
        }
        for n in (1024, 4096, 32768)
    ]
    [line] = bench_report._growth(rows)
    assert line == (
        "- peer: from 1024 to 32768 tokens time grows as N^2.00 per head, memory as N^1.00"
    )


@pytest.mark.slow
def test_the_first_call_compiles_and_the_second_reads():
    first, second, rare = bench.first_call(rounds=1)
    assert 0 < second < min(first, rare)


def test_models_with_statistics_give_the_same_logits(monkeypatch):
    monkeypatch.setitem(bench_methods.LAYERS, 48, 2)
    plain = bench_methods.prepare("model", "plain", 48)()
    for name in ("row", "column", "cheap", "chunked"):
        found = bench_methods.prepare("model", name, 48)()
        torch.testing.assert_close(found.logits, plain.logits, rtol=0, atol=1e-5)
    torch.set_grad_enabled(True)
