"""The benchmark refuses wrong numbers, and writes what it measured."""

from __future__ import annotations

import json

import pytest
import torch

from interp_kernels import bench, bench_check, bench_methods


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
    monkeypatch.setitem(bench_methods.LAYERS, 32, 1)
    monkeypatch.setitem(bench_methods.LAYERS, 64, 1)
    asked = ["--lengths", "32", "64", "--methods", "row", "--repeats", "2", "--parts", part]
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


def test_models_with_statistics_give_the_same_logits(monkeypatch):
    monkeypatch.setitem(bench_methods.LAYERS, 48, 2)
    plain = bench_methods.prepare("model", "plain", 48)()
    for name in ("row", "column", "cheap", "chunked"):
        found = bench_methods.prepare("model", name, 48)()
        torch.testing.assert_close(found.logits, plain.logits, rtol=0, atol=1e-5)
    torch.set_grad_enabled(True)
