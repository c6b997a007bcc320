"""Certificates: every leaf is compared when a checkpoint is verified, or named as not checked."""

from __future__ import annotations

import copy
import functools
import json
import math
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interp.causal.checkpoint import verify
from interp.causal.checkpoint.certificate import (
    Judged,
    certificate_text,
    judged_task,
    removed_unit,
)
from interp.causal.checkpoint.choose import heads_by_name
from interp.causal.checkpoint.save import save_pruned
from interp.causal.checkpoint.verify import verify_certificate
from interp.causal.task_file import make_task
from interp.core.documents import seal, unseal
from interp.core.errors import InterpError, StoreError

SPEC = {"source": "repeats", "measure": None, "n": 6, "max_length": 8, "seed": 0}
SOURCE = "bundled:induction"


def saved(folder, model, heads=("L0H1", "L1H0", "L1H2"), **options):
    judged = [Judged.of(make_task(model, **SPEC), 0, SPEC)]
    options = {
        "n_random": 4,
        "source": SOURCE,
        "tasks": judged,
        "made_with": {"by": "me"},
    } | options
    save_pruned(model, list(heads), folder, **options)
    return unseal(json.loads((folder / "certificate.json").read_text()))


def write_document(folder, told):
    """Write a certificate with its checksum, so that a later check sees what it says."""
    (folder / "certificate.json").write_text(json.dumps(seal(told)))


def write(folder, told):
    """Write a certificate, and the sentences that fit it."""
    write_document(folder, told)
    (folder / "certificate.txt").write_text(certificate_text(told) + "\n")


@pytest.fixture
def quick(monkeypatch):
    """Measure and load once: between the checks of a test only the certificate changes."""
    for name in ("judged_task", "make_task", "load", "sizes", "output_difference"):
        plain = getattr(verify, name)
        kept: dict[str, Any] = {}

        @functools.wraps(plain)
        def once(*args, plain=plain, kept=kept, **options):
            if (key := repr((args, options))) not in kept:
                kept[key] = plain(*args, **options)
            return kept[key]

        monkeypatch.setattr(verify, name, once)
    monkeypatch.setattr(verify, "speed", lambda *_: {})


def leaves(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Paths of all leaves, with empty lists and objects."""
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for key, each in inside:
        if isinstance(each, (dict, list)) and each:
            yield from leaves(each, (*path, key))
        else:
            yield (*path, key)


def changed(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return value + 1 if isinstance(value, int) else value * 1.5 + 0.01
    return {None: "other"}.get(value, f"{value}x") if not isinstance(value, (list, dict)) else ["x"]


def place(path: tuple) -> str:
    text = "".join(f"[{x}]" if isinstance(x, int) else f".{x}" for x in path)
    return text.lstrip(".")


def noticed(folder, tasks=()) -> str:
    """What verification says of a certificate, or "" where it says nothing."""
    try:
        found = verify_certificate(folder, tasks=tasks)
    except InterpError as error:
        return str(error)
    return "; ".join(found.differences)


def unnoticed(folder, told) -> list[str]:
    """Leaves that can be changed, removed or doubled although no check of them is disclaimed."""
    write(folder, told)
    good = verify_certificate(folder)
    assert good.holds, good
    named = [x.partition(": ")[0] for x in good.not_checked]
    free = []
    for path in leaves(told):
        where = place(path)
        for how in ("changed", "removed"):
            other = copy.deepcopy(told)
            owner = functools.reduce(lambda x, key: x[key], path[:-1], other)
            if how == "changed":
                owner[path[-1]] = changed(owner[path[-1]])
            else:
                del owner[path[-1]]
            try:
                write(folder, other)
            except (KeyError, TypeError, ValueError):  # no sentences can be made of it
                write_document(folder, other)
            disclaimed = any(where == x or where.startswith((f"{x}.", f"{x}[")) for x in named)
            if not disclaimed and not noticed(folder):
                free.append(f"{where} {how}")
    write(folder, told)
    return free


@pytest.mark.slow
def test_every_leaf_is_compared_or_named_as_not_checked(tmp_path, bundled_induction, quick):
    told = saved(tmp_path / "out", bundled_induction)
    assert len(list(leaves(told))) > 70
    assert unnoticed(tmp_path / "out", told) == []
    good = verify_certificate(tmp_path / "out")
    assert {x.partition(": ")[0] for x in good.not_checked} == {
        "chosen",
        "tokens_per_second",
        "versions",
        "original.name",
        "original.revision",
        "logits.difference",
    }


@pytest.mark.slow
@pytest.mark.parametrize("form", ["zeroed", "smaller", "compact"])
@pytest.mark.parametrize("kind", ["zero", "mean"])
def test_every_leaf_of_every_form(tmp_path, bundled_induction, quick, monkeypatch, form, kind):
    heads = [f"L{layer}H{h}" for layer in (0, 1) for h in range(4)]
    told = saved(tmp_path / "out", bundled_induction, heads, form=form, kind=kind)
    trusting = functools.partial(verify_certificate, trust_remote_code=True)
    monkeypatch.setitem(globals(), "verify_certificate", trusting)
    assert unnoticed(tmp_path / "out", told) == []


def test_a_certificate_that_says_nothing_does_not_hold(tmp_path, bundled_induction, quick, run):
    folder = tmp_path / "out"
    told = saved(folder, bundled_induction)
    assert run("prune", "verify", folder).exit_code == 0
    write(folder, told | {"tasks": []})
    empty = run("prune", "verify", folder)
    assert empty.exit_code == 1
    assert "no task was computed again: nothing says what the removal costs" in empty.stdout
    write(folder, told | {"files": {}})
    assert "model.safetensors is not a statement" not in noticed(folder)
    assert "model.safetensors is in the folder but not in the certificate" in noticed(folder)
    write(folder, told | {"logits": {"difference": 1.0, "allowed": told["logits"]["allowed"]}})
    assert "states a difference of 1, allowed 1e-05" in noticed(folder)
    write(folder, told)
    (folder / "more").mkdir()
    (folder / "more" / "weights.bin").write_bytes(b"1")
    assert "more/weights.bin is in the folder but not in the certificate" in noticed(folder)
    os.mkfifo(folder / "more" / "pipe")
    assert "more/pipe is in the folder but not in the certificate" in noticed(folder)


@pytest.fixture(scope="module")
def plain_save(tmp_path_factory, bundled_induction) -> Path:
    """A saved model that tests copy."""
    folder = tmp_path_factory.mktemp("saved") / "out"
    saved(folder, bundled_induction, n_random=0)
    return folder


@pytest.mark.parametrize(
    ("path", "value", "text"),
    [
        (("seed",), 0.5, "seed is 0.5, not a whole number of 0 or more"),
        (("seed",), -1, "seed is -1, not a whole number of 0 or more"),
        (("n_random",), True, "n_random is True, not a whole number of 0 or more"),
        (("tasks", 0, "held_out", 0), 1.0, r"tasks\[0\]\.held_out\[0\] is 1\.0, not a whole"),
        (("tasks", 0, "after", "n"), 3.0, r"tasks\[0\]\.after\.n is 3\.0, not a whole number"),
        (("size", "after", "heads"), 13.0, r"size\.after\.heads is 13\.0, not a whole number"),
        (("removed",), "L0H1", "removed is 'L0H1', not a list"),
        (("tasks", 0), 3, r"tasks\[0\] is 3, not an object with fields"),
        (("form",), "tiny", "form is 'tiny', not one of 'zeroed', 'smaller', 'compact'"),
        (("repair",), {}, r"repair\.steps is missing"),
        (("logits", "difference"), "0", r"logits\.difference is '0', not a number"),
        (("logits", "difference"), math.inf, r"logits\.difference is inf, not a number"),
        (("more",), 1, "more is unknown"),
    ],
)
def test_a_value_of_another_type_is_one_clear_error(tmp_path, plain_save, path, value, text):
    shutil.copytree(plain_save, tmp_path / "out")
    told = json.loads((tmp_path / "out" / "certificate.json").read_text())
    functools.reduce(lambda x, key: x[key], path[:-1], told)[path[-1]] = value
    write_document(tmp_path / "out", told)
    with pytest.raises(StoreError, match=text) as refused:
        verify_certificate(tmp_path / "out")
    assert len(str(refused.value).splitlines()) == 1


def test_without_the_original_what_needs_it_is_named(tmp_path, bundled_induction):
    told = saved(tmp_path / "out", bundled_induction, source=str(tmp_path / "gone"))
    found = verify_certificate(tmp_path / "out")
    assert found.differences == ()
    named = {x.partition(": ")[0] for x in found.not_checked}
    assert {"removed", "size.before", "logits", "tasks[0].before", "tasks[0].random"} <= named
    assert found.holds
    told["tasks"][0]["after"]["value"] += 1
    write(tmp_path / "out", told)
    assert not verify_certificate(tmp_path / "out").holds


def test_a_task_that_is_a_program_runs_only_with_trust(tmp_path, bundled_induction):
    told = saved(tmp_path / "out", bundled_induction)
    program = tmp_path / "task.py"
    program.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    told["tasks"][0]["spec"]["source"] = str(program)
    write(tmp_path / "out", told)
    found = verify_certificate(tmp_path / "out")
    assert not found.holds
    assert any("is a program; trust_remote_code runs it" in x for x in found.not_checked)
    assert not (tmp_path / "ran").exists()


def test_random_sets_are_drawn_in_the_units_of_the_removal(tmp_path, bundled_induction):
    model = bundled_induction  # 8 heads that share 4 kv heads in each layer
    for heads, unit in (
        (["L0H0", "L0H1", "L1H6", "L1H7"], "kv_groups"),
        (["L0H0", "L0H1", "L1H6"], "heads"),
        ([f"L0H{h}" for h in range(8)], "layers"),
    ):
        assert removed_unit(heads_by_name(model, heads)) == unit
    told = saved(tmp_path / "out", model, ["L0H2", "L0H3", "L1H2", "L1H3"], n_random=200)
    band = told["tasks"][0]["random"]
    assert band["unit"] == "kv_groups"
    # of the 16 removals of a kv group per layer this is one: some random sets equal it
    by_hand = []
    task = make_task(model, **SPEC)
    for a in range(4):
        for b in range(4):
            names = [f"L{at}H{2 * group + h}" for at, group in ((0, a), (1, b)) for h in (0, 1)]
            one = Judged.of(task, 0, SPEC)
            found = judged_task(model, model, heads_by_name(model, names), one, 0, 0, repaired=True)
            by_hand.append(found["unrepaired"]["value"])
    assert min(by_hand) - 1e-5 <= band["low"] <= band["high"] <= max(by_hand) + 1e-5
    assert band["mean"] == pytest.approx(sum(by_hand) / 16, abs=0.1 * (max(by_hand) - min(by_hand)))
