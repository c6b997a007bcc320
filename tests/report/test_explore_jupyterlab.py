"""The live view in a running JupyterLab, in a real browser, with a kernel behind it."""

from __future__ import annotations

import json
import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest
from report.browser import needs_browser

_NEEDED = ("jupyterlab", "ipykernel", "anywidget")
_MISSING = [name for name in _NEEDED if find_spec(name) is None]
pytestmark = [
    pytest.mark.slow,
    needs_browser,
    pytest.mark.skipif(bool(_MISSING), reason=f"needs {', '.join(_MISSING)}: extra jupyter"),
]
TEXT = "The cat sat on the mat. The cat sat on the"
CODE = f"from interp.report import Explorer\nshown = Explorer('bundled:induction', {TEXT!r})\nshown"
SECONDS = 240  # for a server, a kernel and the imports of torch on a busy machine
INSIDE = "[...document.querySelectorAll('.jp-OutputArea *')].find((e) => e.shadowRoot)?.shadowRoot"


def notebook(path: Path) -> None:
    import nbformat

    cell = nbformat.v4.new_code_cell(CODE)
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = nbformat.v4.new_notebook(cells=[cell], metadata={"kernelspec": kernel})
    nbformat.write(made, path)


@contextmanager
def lab(folder: Path) -> Iterator[str]:
    """Address of a JupyterLab of a folder; settings and history of this machine are not read."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    token = secrets.token_hex(16)
    own = {
        name: str(folder / f".{name.lower()}")
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR")
    }
    command = [
        sys.executable,
        "-m",
        "jupyterlab",
        "--no-browser",
        "--allow-root",
        "--ip=127.0.0.1",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
        "--LabApp.news_url=None",
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",
    ]
    told = folder / "lab.log"
    address = f"http://127.0.0.1:{port}"
    with told.open("w") as log:
        server = subprocess.Popen(
            command, env=os.environ | own, cwd=folder, stdout=log, stderr=subprocess.STDOUT
        )
        try:
            end = time.monotonic() + SECONDS
            while True:
                try:
                    urllib.request.urlopen(f"{address}/api/status?token={token}", timeout=5).close()
                    break
                except OSError:
                    assert server.poll() is None, told.read_text()
                    assert time.monotonic() < end, told.read_text()
                    time.sleep(0.2)
            yield f"{address}/lab/tree/live.ipynb?token={token}&reset"
            for kernel in kernels(address, token):
                asked = f"{address}/api/kernels/{kernel['id']}?token={token}"
                urllib.request.urlopen(urllib.request.Request(asked, method="DELETE"), timeout=120)
        finally:
            ended(server)


def ended(server: subprocess.Popen[bytes]) -> None:
    """Stop a server; how long it takes to say goodbye on a busy machine is not tested."""
    server.terminate()
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


def kernels(address: str, token: str) -> list[dict]:
    with urllib.request.urlopen(f"{address}/api/kernels?token={token}", timeout=10) as found:
        return json.load(found)


def test_the_widget_runs_in_jupyterlab_and_a_click_recomputes_in_the_kernel(
    browser, tmp_path
) -> None:
    notebook(tmp_path / "live.ipynb")
    with lab(tmp_path) as address:
        browser.emulate("light", 1280)
        browser.call("POST", "/url", {"url": address})
        idle = "document.querySelector('.jp-Notebook-ExecutionIndicator[data-status=idle]')"
        loaded = "document.querySelector('.jp-CodeCell .cm-content')?.textContent"
        browser.wait(f"return {idle} && {loaded}?.includes('Explorer')", SECONDS)
        begun = "return document.querySelector('.jp-CodeCell .jp-InputPrompt').textContent"
        for _ in range(20):  # a click before the kernel is connected is lost
            if browser.run(begun).strip() != "[ ]:":
                break
            browser.click(".jp-CodeCell .cm-content")  # the toolbar runs the notebook with focus
            browser.click("[data-jp-item-name='run'] [data-command^='notebook:run-cell']")
            time.sleep(2)
        browser.wait(f"return {INSIDE}?.querySelectorAll('rect.pick').length === 16", SECONDS)
        assert browser.run(f"return {INSIDE}.querySelector('textarea').value") == TEXT
        # the still picture is for readers without a kernel
        still = "document.querySelector('[id^=interp-still]')"
        browser.wait(f"return {still} && ({still}.hidden || !{still}.offsetHeight)")
        heat = f"return {INSIDE}.querySelector('.stacks image.heat').getAttribute('href')"
        whole = browser.run(heat)
        browser.run(
            f"{INSIDE}.querySelector('rect.pick[data-at=\"0,3\"]')"
            ".dispatchEvent(new MouseEvent('click', {bubbles: true}))"
        )
        browser.wait(f"return {INSIDE}.querySelector('.panel canvas')", 30)
        assert browser.run(f"return {INSIDE}.querySelector('.panel h3').textContent").endswith(
            "L0H3"
        )
        browser.run(f"{INSIDE}.querySelector('.panel .ablate').click()")
        named = f"{INSIDE}.querySelector('.named').textContent"
        browser.wait(f"return {named}.startsWith('zero(decoder L0H3)')", 30)
        rows = browser.run(
            f"return [...{INSIDE}.querySelectorAll('.logits tbody tr')]"
            ".map((r) => [...r.cells].map((c) => c.textContent))"
        )
        assert any(row[1] not in ("0.00", "+0.00", "-0.00") for row in rows)
        assert browser.run(heat) != whole  # the heads of layer 1 read L0H3
