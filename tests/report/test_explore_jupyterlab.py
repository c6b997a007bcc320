"""The live view in JupyterLab, in a real browser and with a kernel that answers."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from time import monotonic, sleep

import pytest
from report.browser import needs_browser

needs_lab = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("jupyterlab", "anywidget", "ipykernel"))),
    reason="needs JupyterLab (pip install jupyterlab anywidget ipykernel)",
)
pytestmark = [pytest.mark.slow, needs_browser, needs_lab]

TOKEN, SECONDS = "of-a-test", 120
RUN = "\ue008\ue007"  # shift and enter
CELL = """from interp.report import Explorer
Explorer("bundled:induction", "The cat sat on the mat. The cat sat on the")"""
# The root of the live view inside the output of the cell.
INSIDE = """const live = [...document.querySelectorAll('.jp-OutputArea *')]
  .map((e) => e.shadowRoot).find((r) => r?.querySelector('.logits td'));
if (!live) return false;
"""


@pytest.fixture
def lab(tmp_path: Path):
    """The address of a notebook in a JupyterLab that ends after the test."""
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    cell = {"cell_type": "code", "id": "a", "execution_count": None, "metadata": {},
            "outputs": [], "source": CELL}  # fmt: skip
    whole = {"cells": [cell], "metadata": {"kernelspec": kernel}, "nbformat": 4,
             "nbformat_minor": 5}  # fmt: skip
    (tmp_path / "a.ipynb").write_text(json.dumps(whole))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folders = {f"JUPYTER_{name}_DIR": str(tmp_path / name) for name in ("CONFIG", "RUNTIME")}
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}",
        f"--IdentityProvider.token={TOKEN}", f"--ServerApp.root_dir={tmp_path}",
        "--LabApp.news_url=", "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]  # fmt: skip
    address = f"http://127.0.0.1:{port}"
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(
            command, stdout=log, stderr=log, env={**os.environ, **folders}, cwd=tmp_path
        )
    try:
        end = monotonic() + SECONDS
        while not _answers(f"{address}/api?token={TOKEN}"):
            assert server.poll() is None, (tmp_path / "lab.log").read_text()[-2000:]
            assert monotonic() < end, "JupyterLab did not start"
            sleep(0.5)
        yield f"{address}/lab/tree/a.ipynb?token={TOKEN}&reset"
    finally:
        server.terminate()
        server.wait(30)


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False


def test_the_kernel_redraws_heads_and_logits(browser, lab) -> None:
    browser.emulate("light", 1400)
    browser.call("POST", "/url", {"url": lab})
    browser.wait("return document.querySelector('.jp-CodeCell .cm-content')", SECONDS)
    browser.wait(
        "return /Idle/.test(document.querySelector('.jp-Notebook-ExecutionIndicator')?.title "
        "?? document.body.innerText)", SECONDS,
    )  # fmt: skip
    browser.click(".jp-CodeCell .cm-content")
    browser.type(".jp-CodeCell .cm-content", RUN)
    browser.wait(f"{INSIDE} return true", SECONDS)
    heads = f"{INSIDE} return live.querySelectorAll('rect.pick').length"
    assert browser.run(heads) == 16
    heat = f"{INSIDE} return live.querySelector('.stacks image.heat').getAttribute('href')"
    whole = browser.run(heat)
    browser.run(f"{INSIDE} live.querySelectorAll('rect.pick')[3].dispatchEvent("
                "new MouseEvent('click', { bubbles: true }))")  # fmt: skip
    browser.wait(f"{INSIDE} return live.querySelector('.panel .ablate')", SECONDS)
    browser.run(f"{INSIDE} live.querySelector('.panel .ablate').click()")
    said = f"{INSIDE} return live.querySelector('.named').textContent"
    browser.wait(f"{INSIDE} return live.querySelector('.note.ablated').textContent", SECONDS)
    assert browser.run(said).startswith("zero(decoder L0H3)")
    assert browser.run(heat) != whole
