"""The benchmark of the product measures what users type, and names what it could not measure."""

from __future__ import annotations

import json
from functools import reduce
from importlib import import_module

import pytest
import torch

from benchmarks import product, product_measure
from benchmarks.product_cases import (
    SHAPES,
    build,
    cases,
    four_statistics,
    plain,
    prompts_of,
    size_of,
)
from benchmarks.product_parts import TARGETS, Timers


@pytest.fixture(autouse=True)
def same_threads():
    """The benchmark changes the number of threads, on which later tests of this process depend."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_quick_run_of_two_cases_writes_every_field(tmp_path):
    asked = [
        "--quick",
        "--case",
        "^(gptj score 256|gpt2 nulls 256)$",
        "--note",
        "It was a busy day.",
    ]
    product.main([*asked, "-o", str(tmp_path)])
    found = json.loads((tmp_path / "product.json").read_text())
    nulls, score = found["rows"]
    assert (nulls["case"], score["case"]) == ("gpt2 nulls 256", "gptj score 256")
    for row in found["rows"]:
        assert "failed" not in row
        assert row["rounds"] == 1
        assert row["threads"]["torch"] == torch.get_num_threads()
        for kind in ("clock", "processor"):
            middle, low, high = row[kind]
            assert 0 < low <= middle <= high
        worst = max(row["clock"][0], row["processor"][0])
        assert row["met"] == (worst <= row["bound"])
        assert row["first_call_seconds"] > 0
        assert min(row["over_all_logits"].values()) > 0
    assert (score["bound"], score["forwards"], score["layers"], score["tokens"]) == (1.3, 1, 2, 16)
    assert score["engine"]  # from the provenance, where "auto" was asked
    assert (nulls["bound"], nulls["forwards"]) == (1.25, 8)
    assert nulls["drawing_seconds"] > 0
    text = (tmp_path / "product.md").read_text()
    assert "these are no measurements" in text
    assert "It was a busy day." in text
    assert "| GPT-J-shaped, 16 tokens, 2 layers | own forward | 1.30," in text


def test_a_case_that_fails_is_named_and_kept_rows_stay(monkeypatch, tmp_path):
    kept = {"case": "gpt2 score 256", "title": "GPT-2 small", "failed": "of an earlier run"}
    kept |= {"prompts": 1, "tokens": 256, "layers": 12}
    (tmp_path / "product.json").write_text(json.dumps({"rows": [kept], "parts": None}))

    def broken(*_, **__):
        raise ValueError("no such shape")

    monkeypatch.setattr(product_measure, "build", broken)
    product.main(["--quick", "--case", "bloom score 256", "--keep", "-o", str(tmp_path)])
    rows = json.loads((tmp_path / "product.json").read_text())["rows"]
    assert rows[0] == kept
    assert rows[1]["failed"] == "ValueError: no such shape"
    text = (tmp_path / "product.md").read_text()
    assert "- BLOOM-shaped, 16 tokens, 2 layers: ValueError: no such shape" in text


def test_a_case_that_does_not_exist_is_refused(capsys):
    with pytest.raises(SystemExit):
        product.main(["--case", "gpt5"])
    assert "--case gpt5 matches no case; --list prints their names" in capsys.readouterr().err


@pytest.mark.parametrize("shape", list(SHAPES))
def test_every_shape_runs_its_plain_forward(shape):
    case = next(case for case in cases(long=True) if case.shape == shape)
    size = size_of(case, None, quick=True)
    module, ids = build(shape, size, quick=True), prompts_of(case, size)
    assert plain(module, ids)().shape == (case.prompts, 1, module.config.vocab_size)


def test_peers_compute_the_statistics_by_their_definition():
    ids = torch.tensor([[5, 6, 5, 6]])
    pattern = torch.tensor([[1, 0, 0, 0], [0.25, 0.75, 0, 0], [0.5, 0.5, 0, 0], [0, 0.25, 0.75, 0]])
    previous, first, induction, entropy = four_statistics([pattern[None, None]], ids).flatten()
    assert previous == (0.25 + 0.5 + 0.75) / 3
    assert first == (1 + 0.25 + 0.5) / 4
    assert induction == (0.5 + 0.75) / 2  # the tokens after the earlier 5 and 6
    expected = -(2 * (0.25 * torch.tensor(0.25).log() + 0.75 * torch.tensor(0.75).log()))
    torch.testing.assert_close(entropy, (expected + torch.tensor(2.0).log()) / 4)


def test_time_by_part_and_what_stands_beside_are_reported(monkeypatch, tmp_path):
    part = {"clock": 1.0, "processor": 1.0, "share": 0.25, "calls": 2, "met": False}
    parts = {"rounds": 1, "clock": 4.0, "processor": 4.0, "parts": {"pages": part}, "missing": []}
    row = {"what": "a wrong argument", "over": None, "bound": 1.0, "rounds": 3, "seconds": 0.5}
    monkeypatch.setattr(product, "parts_of", lambda *_: parts)
    monkeypatch.setattr(product, "beside_all", lambda *_, **__: [row | {"met": True}])
    product.main(["--quick", "--case", "^$", "--parts", "--beside", "-o", str(tmp_path)])
    text = (tmp_path / "product.md").read_text()
    assert "| pages | 1.00 | 1.00 | 25.0% | 2 | above a tenth |" in text
    assert "| a wrong argument | - | 1.00 s, met | - | - | 0.5 | 3 |" in text


def test_every_timed_function_exists():
    for _, module, name in TARGETS:
        assert callable(reduce(getattr, name.split("."), import_module(module))), (module, name)


def test_a_part_excludes_the_parts_inside_it_and_a_null_includes_them():
    timers, model, prompts = Timers(), object(), object()
    forward = timers.wrap(lambda model, prompts: 1, "forward")
    table = timers.wrap(lambda: forward(model, prompts), "tables")
    draw = timers.wrap(lambda: drawn.append(object()) or drawn[-1], "drawing random weights")
    drawn: list[object] = []
    table()
    forward(draw(), prompts)
    forward(model, object())
    assert timers.calls == {"tables": 1, "forward": 1, "null": 2, "drawing random weights": 1}
    timers.total()
    assert set(timers.seconds) == {"other", "tables", "forward", "null", "drawing random weights"}
