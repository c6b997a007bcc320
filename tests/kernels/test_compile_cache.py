"""The CPU kernel is compiled once per machine, and its cache survives what happens to it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("numba")

RUN = """
import sys
from interp_kernels import Attention, Entropy, attention_statistics
import torch
torch.manual_seed(0)
q = torch.randn(1, 2, 9, 4)
print("ready", flush=True)
found = attention_statistics(Attention(q=q, k=q, v=q, causal=True), [Entropy()], backend="cpu")
assert found.backend == "cpu", found.backend
print(float(found["entropy"].sum()))
"""
CANNOT_WRITE = """
import tempfile
def refused(*args, **options):
    raise PermissionError(13, "Permission denied")
tempfile.TemporaryFile = refused  # how numba tries a folder
"""


def start(folder: Path, code: str = RUN) -> subprocess.Popen[str]:
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    environment.pop("INTERP_KERNELS_QUIET", None)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def ended(process: subprocess.Popen[str]) -> tuple[str, list[str]]:
    out, err = process.communicate(timeout=200)
    assert process.returncode == 0, err
    return out.splitlines()[-1], err.splitlines()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[tuple[str, list[str]]]]:
    """A cache that two processes filled at once, and what each of them said."""
    folder = tmp_path_factory.mktemp("cache")
    both = [start(folder), start(folder)]
    return folder, [ended(process) for process in both]


@pytest.mark.slow
def test_two_processes_compile_at_once_and_the_third_reads_their_cache(filled) -> None:
    folder, values = filled
    for _, lines in values:
        assert len(lines) <= 1, "one line, or none for the one that was late"
    assert any("compiling the CPU kernel" in line for _, lines in values for line in lines)
    assert any(f"(stored in {folder}" in line for _, lines in values for line in lines)
    value, lines = ended(start(folder))
    assert lines == []
    assert {value, *(v for v, _ in values)} == {value}


@pytest.mark.slow
def test_an_interrupted_compilation_leaves_no_broken_cache(tmp_path) -> None:
    process = start(tmp_path)
    assert process.stderr is not None
    said = process.stderr.readline()
    assert said.startswith("interp_kernels: compiling the CPU kernel"), "it says so before"
    with pytest.raises(subprocess.TimeoutExpired):  # it compiles
        process.wait(timeout=0.5)
    while process.poll() is None:  # Python ignores one that arrives while a finalizer runs
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, err = process.communicate(timeout=100)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in err
    value, lines = ended(start(tmp_path))
    assert len(lines) == 1
    assert ended(start(tmp_path)) == (value, [])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["nbi", "nbc"])
def test_a_damaged_cache_is_written_anew(filled, tmp_path, kind) -> None:
    whole, [(value, _), _] = filled
    shutil.copytree(whole, tmp_path, dirs_exist_ok=True)
    [file] = tmp_path.rglob(f"*attend_*.{kind}")
    file.write_bytes(file.read_bytes()[:20])
    again, lines = ended(start(tmp_path))
    assert again == value
    assert len(lines) == 1
    assert ended(start(tmp_path)) == (value, [])


@pytest.mark.slow
def test_without_a_writable_folder_it_compiles_and_says_what_to_do(tmp_path) -> None:
    _, [line] = ended(start(tmp_path, CANNOT_WRITE + RUN))
    assert "for this process alone" in line
    assert "set NUMBA_CACHE_DIR" in line
    assert not list(tmp_path.rglob("*.nbi"))


@pytest.mark.slow
def test_what_is_not_asked_for_is_not_compiled(tmp_path) -> None:
    code = (
        "from interp_kernels import cpu_pass, cpu_rows; cpu_pass.attend(False, False); "
        "parts = (cpu_pass.columns, cpu_rows.add_rows, cpu_rows.add_top, cpu_rows.add_moments); "
        "print([len(x.signatures) for x in parts], len(cpu_rows.soft_weights.signatures))"
    )
    value, lines = ended(start(tmp_path, code))
    assert value == "[0, 0, 0, 0] 1"
    assert len(lines) == 1
