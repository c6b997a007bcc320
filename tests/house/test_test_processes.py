"""The plain test command runs one thread per process and never reaches for a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SET = ("OMP_NUM_THREADS", "HF_HUB_OFFLINE", "TOKENIZERS_PARALLELISM")


def test_threads_and_network_of_a_test_process():
    import huggingface_hub.constants

    started = "import torch; print(torch.get_num_threads())"
    threads = subprocess.run(
        [sys.executable, "-c", started], capture_output=True, text=True, check=True
    ).stdout
    assert threads.strip() == "1"
    assert huggingface_hub.constants.HF_HUB_OFFLINE


@pytest.mark.slow
def test_workers_need_no_variables_from_the_shell():
    bare = {k: v for k, v in os.environ.items() if k not in SET and not k.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider"]
    ran = subprocess.run(
        [*command, f"{__file__}::test_threads_and_network_of_a_test_process"],
        cwd=ROOT,
        env=bare,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
