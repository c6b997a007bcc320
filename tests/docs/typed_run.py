"""Command lines typed in a folder: as processes of a shell, or in a fork of a warm process."""

from __future__ import annotations

import contextlib
import glob
import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 600
WARM = (  # what most commands import in the end; a name of a package alone would import little
    "transformers.modeling_utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
    "pandas",
    "scipy.stats",
    "sklearn.linear_model",
    "numba",
    "networkx",
    "plotly.graph_objects",
    "interp.cli.main",
    "interp.model.load",
    "interp.heads.sweep.scored_models",
)


@dataclass
class Typed:
    """How a command line ended."""

    code: int
    output: str


def environment(home: Path, folder: Path) -> dict[str, str]:
    """Return the environment of a command line: its folder as home, `interp` on the path."""
    script = home / "bin" / "interp"
    if not script.exists():
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m interp "$@"\n')
        script.chmod(0o755)
    paths = [str(script.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    return os.environ | {
        "HOME": str(folder),
        "PATH": os.pathsep.join(paths),
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "kernels"))),
        "BROWSER": "true",
    }


def in_shell(line: str, folder: Path, home: Path) -> Typed:
    """Run a command line in bash, as a user does."""
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env=environment(home, folder),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Typed(done.returncode, done.stdout)


def in_fork(line: str, folder: Path, home: Path) -> Typed:
    """Run a command line in a fork of a process that has imported torch: the imports are shared."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(WARM))
    output = folder.parent / f"{folder.name}.output"
    process = context.Process(target=_run, args=(line, folder, environment(home, folder), output))
    process.start()
    process.join(SECONDS)
    if process.is_alive():
        process.kill()
        process.join()
    assert process.exitcode is not None
    return Typed(process.exitcode, output.read_text(encoding="utf-8", errors="replace"))


def _run(line: str, folder: Path, variables: dict[str, str], output: Path) -> None:
    written = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(written, stream)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.chdir(folder)
    os.environ |= variables
    words = []
    for word in shlex.split(line, comments=True):
        there = sorted(glob.glob(os.path.expanduser(word))) if {"*", "~"} & {*word} else []
        words += there or [word]
    sys.argv = words
    from interp.cli.main import main

    with (
        contextlib.redirect_stdout(open(1, "w", closefd=False)),
        contextlib.redirect_stderr(open(2, "w", closefd=False, buffering=1)),
    ):
        main(words[1:], prog_name="interp")


def until_address(line: str, folder: Path, home: Path) -> Typed:
    """Run a command line that serves a page until it prints its address, then interrupt it."""
    process = subprocess.Popen(
        ["bash", "-c", f"exec {line}"],
        cwd=folder,
        env=environment(home, folder),
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert process.stdout is not None
    output = ""
    for said in process.stdout:
        output += said
        if "http://" in said:
            process.send_signal(signal.SIGINT)
            break
    output += process.communicate(timeout=SECONDS)[0]
    interrupted = process.returncode in (0, 130) and "http://" in output
    return Typed(0 if interrupted else process.returncode or 1, output)
