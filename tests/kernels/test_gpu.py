"""The Triton backend: through its interpreter, compiled without a device, and on a real one."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fixtures.kernels import MASKS, Conformance
from together import over

from interp_kernels import (
    Attention,
    AttentionShape,
    BackendUnavailable,
    Entropy,
    Mass,
    Output,
    Received,
    ResultNorm,
    TopK,
    attention_statistics,
    backends,
    gpu,
    verdicts,
)
from interp_kernels.moving import moved

HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)


@pytest.mark.slow
@needs_triton
def test_every_kernel_through_the_interpreter():
    """Tests of all backends, and those of interpreted.py, in a process that interprets Triton."""
    env = {**os.environ, "TRITON_INTERPRET": "1", "CUDA_VISIBLE_DEVICES": ""}
    ask = [sys.executable, "-c", "from interp_kernels import gpu; print(gpu.missing() or '')"]
    reason = subprocess.run(ask, env=env, check=True, capture_output=True, text=True).stdout.strip()
    if reason:
        pytest.skip(reason)
    files = ("conformance", "predicates", "segments", "modes", "bad_input", "self_test")
    names = ("interpreted", *(f"test_{name}" for name in files))
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        *(str(HERE / f"{name}.py") for name in names),
        "-k",
        "triton and not float64 and not thousand and not estimated",
    ]
    ran = subprocess.run(
        command, env=env, cwd=HERE.parents[1], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert all(re.search(rf"{name}\.py::.+ PASSED", ran.stdout) for name in names)
    assert len(re.findall(r"interpreted\.py::.+ PASSED", ran.stdout)) == 18


def test_says_what_is_missing(monkeypatch):
    versions = {"triton": "3.6.0", "numpy": "2.4.6"}
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: None)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert gpu.missing() == "triton is not installed; pip install 'interp[triton]'"
    monkeypatch.setattr(gpu.importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert "there is no CUDA device" in gpu.missing()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert gpu.missing() is None
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(gpu.importlib.metadata, "version", versions.get)
    assert "interpreter of triton 3.6 fails with numpy 2.4" in gpu.missing()
    versions["triton"] = "3.7.1"
    assert gpu.missing() is None


def test_says_what_it_cannot_do(calls, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    assert "tensors are on cpu" in gpu.unsupported(calls.make(), [Output()])
    monkeypatch.setattr(gpu, "missing", lambda: None)
    with pytest.raises(BackendUnavailable, match="'triton' cannot do this: the tensors are on cpu"):
        attention_statistics(calls.make(), [Output()], backend="triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert gpu.unsupported(calls.make(), [Output()]) is None
    assert "float64" in gpu.unsupported(calls.make(dtype=torch.float64), [Output()])
    wide = calls.make(sizes=(2, 2), widths=(257, 8))
    assert "head size is 257; it takes up to 256" in gpu.unsupported(wide, [Output()])


def test_auto_takes_it_on_a_gpu_and_only_there(calls, monkeypatch):
    monkeypatch.setattr(gpu, "missing", lambda: None)
    monkeypatch.setattr(verdicts, "why_untrusted", lambda device, width: None)
    for interpreting in ("0", "1"):
        monkeypatch.setenv("TRITON_INTERPRET", interpreting)
        assert backends.choose("auto", calls.make(), [Entropy()]) != "triton"
        assert backends.choose("auto") != "triton"
        shape = AttentionShape(1, 2, 1, 9, 9, 64, 64)
        q = SimpleNamespace(device=torch.device("cuda"), dtype=torch.bfloat16)
        there = SimpleNamespace(
            q=q, shape=shape, activation="softmax", ranges=None, bias=None, relative_bias=None
        )
        assert backends.choose("auto", there, [Entropy()]) == "triton"


COMPILE = """
import sys, warnings, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from interp_kernels import gpu_columns, gpu_forward
from interp_kernels.gpu_tiles import tiles_for

POINTERS = {"top_key": "*i64", "bits": "*u8", "key_padding": "*u8", "query_padding": "*u8"}
FLOATS = ("scale", "cap", "hidden_below")
TENSORS = "bias sinks out lse entropy top distance mean variance maximum vectors received product"

def build(kernel, dtype, tiles, **constants):
    types = {name: f"*{dtype}" for name in "qkv"}
    types |= {name: "*fp32" for name in TENSORS.split()} | POINTERS
    types |= {name: "fp32" for name in FLOATS}
    names = kernel.arg_names
    fixed = {n: v for n, v in constants.items() if n in names}
    signature = {n: "constexpr" if n in fixed else types.get(n, "i32") for n in names}
    at = {(names.index(n),): v for n, v in fixed.items()}
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages, "enable_fp_fusion": True}
    source = ASTSource(fn=kernel, signature=signature, constexprs=at)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert made.metadata.shared <= 227 * 1024, made.metadata.shared
    assert len(made.asm["cubin"]) > 1000
    print(kernel.__name__, dtype)

everything = dict.fromkeys(
    "CAPPED CAUSAL WINDOW KEY_PADDING QUERY_PADDING SINKS VALUES SPLIT LSE ENTROPY TOP DISTANCE "
    "MOMENTS RECEIVED PRODUCT".split(), True)
for dtype, width, size, activation in (("bf16", 128, 2, 0), ("fp32", 64, 4, 1)):
    tiles = tiles_for(width, size)
    common = everything | dict(BIAS=1, SIZES=False, PRECISION="ieee", D=width, BN=tiles.keys,
                               N=8, NV=16, DV=width, ACTIVATION=activation)
    common["SINKS"] = activation == 0
    for kernel in (gpu_forward.forward_kernel, gpu_columns.columns_kernel,
                   gpu_columns.masses_kernel, gpu_columns.pooled_kernel):
        rows = tiles.queries if kernel is gpu_forward.forward_kernel else min(tiles.queries, 64)
        build(kernel, dtype, tiles, BM=rows, **common)
"""


@needs_triton
@pytest.mark.slow
def test_every_kernel_compiles_for_a_gpu_without_one():
    """For compute capability 9.0, everything asked for at once, within its on-chip memory."""
    env = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "error::UserWarning", "-c", COMPILE]
    ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=900, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert len(ran.stdout.splitlines()) == 8


# On a device


def there_and_back(call, asked, **options):
    """Runs on the GPU what is described on the CPU."""
    there = [moved(r, "cuda") for r in asked]
    found = attention_statistics(moved(call, "cuda"), there, **options)
    return {r: moved(found[r.name], "cpu") for r in asked}


@pytest.fixture
def on_gpu():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    if (reason := backends.why_not("triton")) is not None:
        pytest.skip(reason)
    return Conformance("triton", there_and_back)


@pytest.mark.gpu
@pytest.mark.parametrize("activation", ["softmax", "signed", "sigmoid"])
@over("mask", MASKS)
def test_masks_on_a_device(calls, on_gpu, mask, activation):
    if activation != "softmax" and ("sinks" in mask or mask == "all at once"):
        pytest.skip("only a softmax has sinks")
    if mask in ("chunks", "documents", "ranges and padding", "rows", "bool rows"):
        pytest.skip("refused: ranges and rows of a bias are those of 'chunked'")
    on_gpu(calls.make(activation=activation, **calls.masks(mask)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("tokens", "heads", "width"), [(1000, (4, 4), 64), (1000, (8, 2), 128), (4097, (2, 1), 64)]
)
def test_long_calls_on_a_device(calls, on_gpu, dtype, tokens, heads, width):
    size = {"heads": heads, "sizes": (tokens, tokens), "widths": (width, width), "batch": 1}
    on_gpu(calls.make(dtype=dtype, **size))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [8, 80, 256])
def test_head_sizes_on_a_device(calls, on_gpu, width):
    on_gpu(calls.make(sizes=(150, 150), widths=(width, width), dtype=torch.bfloat16))
    on_gpu(calls.make(sizes=(150, 150), widths=(width, width)))


@pytest.mark.gpu
def test_memory_on_a_device_is_linear_and_as_estimated(on_gpu):
    growth = []
    asked = [Output(), ResultNorm(), Entropy(), Received(), TopK(4)]
    asked += [Mass("even", lambda query, key, tokens: key % 2 == 0)]
    for tokens in (8192, 32768):
        q, k, v = (
            torch.randn(1, 4, tokens, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3)
        )
        call = Attention(q=q, k=k, v=v, causal=True)
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        attention_statistics(call, asked, backend="triton", memory=2 << 30)
        growth.append(torch.cuda.max_memory_allocated() - before)
        estimate = backends.load("triton").workspace(call.shape, asked, None)
        assert growth[-1] < 1.2 * estimate + (64 << 20)
    assert growth[1] < 5 * growth[0]
