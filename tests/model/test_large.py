"""Large models on one host: sharded files, half precision, placement, and memory that runs out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import zoo
from torch import nn

import interp
from interp.core.errors import LoadError, PromptError, StatisticsError
from interp.model.each_batch import LessAtOnce
from interp.model.inputs import ran_out

SCRIPT = Path(__file__).with_name("two_ranks.py")
PROMPTS = interp.Prompts(tuple((9, 33, 21, 40, 33, 21, 21, 17, 9, 33)[: 10 - i] for i in range(7)))
METRICS = ["induction", "entropy", "previous_token"]


def numbers(model: interp.Model, prompts: Any = PROMPTS, **options: Any) -> torch.Tensor:
    table = interp.score(model, METRICS, prompts, null="none", **options).to_pandas()
    return torch.tensor(table[["score", "sem", "n"]].to_numpy(dtype=float))


@pytest.fixture
def sharded_folder(tmp_path: Path) -> Path:
    zoo.FAMILIES["llama"].build("sdpa").save_pretrained(tmp_path, max_shard_size="30KB")
    return tmp_path


# --- files and types --------------------------------------------------------------------------


def test_sharded_safetensors_give_the_model_that_was_saved(sharded_folder) -> None:
    index = json.loads((sharded_folder / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    model, plain = interp.load(sharded_folder), interp.load(zoo.FAMILIES["llama"].model("sdpa"))
    assert model.content_hash == plain.content_hash
    assert torch.equal(numbers(model), numbers(plain))


def test_scores_of_a_half_precision_model_are_computed_in_single(sharded_folder) -> None:
    model = interp.load(sharded_folder, dtype="bfloat16")
    assert model.dtype == torch.bfloat16
    ids = [list(PROMPTS.ids[0])]
    cache = model.capture(ids, ["q", "k", "pattern"])
    got = interp.score(model, ["entropy"], ids, null="none").to_pandas().score
    want, rounded = [], []
    for layer in range(3):
        q, k = cache["q", layer], cache["k", layer].repeat_interleave(3, 1)
        assert q.dtype == torch.bfloat16
        hidden = torch.ones(10, 10).triu(1).bool()
        for exact, keep in ((q.double() @ k.double().mT, want), (q @ k.mT, rounded)):
            s = (exact * 8**-0.5).masked_fill(hidden, -torch.inf)
            p = s.softmax(-1).double()
            keep.append(-(p * p.clamp_min(1e-300).log()).sum(-1).mean(-1)[0])
        assert cache["pattern", layer].dtype == torch.float32
    got, want, rounded = torch.tensor(got.to_numpy()), torch.cat(want), torch.cat(rounded)
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)
    assert (rounded - want).abs().max() > 1e-4, "otherwise the type makes no difference here"


# --- placement --------------------------------------------------------------------------------


def test_a_device_map_changes_no_number(sharded_folder) -> None:
    pytest.importorskip("accelerate")
    plain = numbers(interp.load(sharded_folder))
    for device_map in ("cpu", {"": "cpu"}):
        assert torch.equal(numbers(interp.load(sharded_folder, device_map=device_map)), plain)


def test_layers_left_on_the_disk_are_told(sharded_folder, tmp_path) -> None:
    pytest.importorskip("accelerate")
    where = {
        "model.embed_tokens": "cpu",
        "model.norm": "cpu",
        "lm_head": "cpu",
        "model.rotary_emb": "cpu",
        "model.layers": "disk",
    }
    with pytest.raises(LoadError, match=r"\d+ tensors stay on the disk.*model\.layers"):
        interp.load(sharded_folder, device_map=where)


def test_a_device_map_without_accelerate_says_what_to_install(sharded_folder, monkeypatch) -> None:
    monkeypatch.setattr("interp.model.sources.placement.find_spec", lambda name: None)
    with pytest.raises(LoadError, match=r"device_map needs .* pip install accelerate"):
        interp.load(sharded_folder, device_map="auto")


def test_two_ways_to_place_a_model_are_one_too_many(sharded_folder) -> None:
    with pytest.raises(LoadError, match=r"device and device_map are different ways"):
        interp.load(sharded_folder, device="cpu", device_map="auto")
    with pytest.raises(LoadError, match=r"tp_plan spreads .* torchrun"):
        interp.load(sharded_folder, tp_plan="auto")
    with pytest.raises(LoadError, match="device_map cannot be chosen for a model that is already"):
        interp.load(zoo.FAMILIES["llama"].model("sdpa"), device_map="auto")


@pytest.mark.slow
def test_two_processes_with_half_the_heads_each_give_the_scores_of_one(
    sharded_folder, tmp_path
) -> None:
    pytest.importorskip("accelerate")
    from model.two_ranks import found

    out = tmp_path / "found.pt"
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            "2",
            "--master-port",
            "0",
            "--rdzv-backend",
            "c10d",
            "--rdzv-endpoint",
            "127.0.0.1:0",
            str(SCRIPT),
            str(sharded_folder),
            str(out),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    spread, whole = torch.load(out), found(interp.load(sharded_folder, name="m"))
    assert spread["heads"] == [3, 3, 3], "each process has half of six heads"
    assert spread["hash"] == whole["hash"]
    for column, got in spread["table"].items():
        want = whole["table"][column]
        if isinstance(want[0], float):
            torch.testing.assert_close(
                torch.tensor(got), torch.tensor(want), atol=1e-6, rtol=0, equal_nan=True
            )
        else:
            assert got == want, column
    assert whole["ablated"].abs().max() > 1e-3
    torch.testing.assert_close(spread["ablated"], whole["ablated"], atol=1e-6, rtol=0)
    torch.testing.assert_close(
        torch.tensor(spread["edited"]), torch.tensor(whole["edited"]), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(spread["logits"], whole["logits"], atol=5e-6, rtol=0)
    assert spread["edited"] != whole["table"]["score"][18:36], "the edits change something"
    assert max(max(errors) for errors in spread["check"]) < 1e-5
    # numbers, never patterns: two prompts by three heads, for each metric and layer
    assert spread["sent"] == [(2, 3)] * 9
    assert "spread over 2 processes" in spread["refused"][0]
    assert (
        "ov_norm: its weights are not available here, since m runs on 2 processes"
        in spread["refused"][1]
    )
    assert "no head L0H6; it has 6 heads" in spread["refused"][2]


# --- memory -----------------------------------------------------------------------------------


def raising(module: nn.Module, error: Callable[[], Exception], most: int) -> Any:
    """As if memory ran out in a module whenever more than `most` prompts are in it."""

    def check(_: nn.Module, args: tuple, kwargs: dict) -> None:
        x = next(x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor))
        if x.shape[0] > most:
            raise error()

    return module.register_forward_pre_hook(check, with_kwargs=True)


ERRORS = {
    "gpu": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "python": lambda: MemoryError("Unable to allocate 2.00 GiB"),
    "cpu": lambda: RuntimeError("[enforce] DefaultCPUAllocator: can't allocate memory: you tried"),
}


@pytest.fixture
def small_llama() -> interp.Model:
    return interp.load(zoo.FAMILIES["llama"].build("sdpa"), name="small")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ERRORS)
def test_fewer_prompts_at_a_time_give_the_same_numbers(kind, small_llama) -> None:
    want = numbers(small_llama, batch_size=7)
    # in the last layer: what the first two layers of a failed run left behind must not count
    hook = raising(small_llama.module.model.layers[2], ERRORS[kind], most=2)
    steps = []
    with pytest.warns(LessAtOnce) as told:
        got = numbers(small_llama, batch_size=7, progress=lambda *step: steps.append(step[1:]))
    hook.remove()
    assert [str(w.message) for w in told] == [
        f"small: memory ran out with {n} prompts of up to 10 tokens at a time; continuing with "
        f"{n // 2}, which changes no number"
        for n in (7, 3)
    ]
    torch.testing.assert_close(got, want, atol=1e-6, rtol=0)
    assert steps == [(i, 3) for i in range(4)], "what is told never goes back and ends at the end"


def test_later_batches_start_with_what_fitted(small_llama) -> None:
    hook = raising(small_llama.module, ERRORS["gpu"], most=3)
    with pytest.warns(LessAtOnce) as told:
        numbers(small_llama, batch_size=4)
    hook.remove()
    assert len(told) == 1, "a trial of padding that runs out goes on with fewer, untold"
    assert small_llama.padding.way("right", 10) == "mask"


@pytest.mark.slow
def test_a_trial_of_padding_goes_on_with_fewer_prompts(small_llama, recwarn) -> None:
    hook = raising(small_llama.module, ERRORS["gpu"], most=2)
    for writing in (False, True):
        assert small_llama.padding.way("left", 10, writing=writing) is not None
    hook.remove()
    assert not [w for w in recwarn if w.category is LessAtOnce]
    hook = raising(small_llama.module, ERRORS["gpu"], most=0)
    with pytest.raises(PromptError, match="ran out with one prompt"):
        small_llama.padding.way("right", 10)
    hook.remove()


def test_given_tensors_are_cut_too(loaded) -> None:
    vit = loaded("vit")
    pixels = zoo.FAMILIES["vit"].inputs(batch=5)
    want = interp.score(vit, ["entropy"], pixels, null="none").to_pandas()
    hook = raising(vit.module, ERRORS["gpu"], most=2)
    try:
        with pytest.warns(LessAtOnce, match="5 prompts at a time; continuing with 2"):
            got = interp.score(vit, ["entropy"], pixels, null="none").to_pandas()
    finally:
        hook.remove()
    for column in ("score", "sem"):
        torch.testing.assert_close(
            torch.tensor(got[column]), torch.tensor(want[column]), atol=1e-6, rtol=0
        )


def test_one_prompt_that_does_not_fit_is_told(small_llama) -> None:
    assert small_llama.padding.way("right", 10) == "mask"  # tried before memory runs out
    hook = raising(small_llama.module, ERRORS["cpu"], most=0)
    with (
        pytest.warns(LessAtOnce),
        pytest.raises(PromptError, match=r"ran out with one prompt of up to 10 tokens .*streamed"),
    ):
        numbers(small_llama, batch_size=2)
    hook.remove()


def test_other_errors_are_not_taken_for_memory(small_llama) -> None:
    hook = raising(small_llama.module, lambda: RuntimeError("shapes do not match"), most=0)
    with pytest.raises(RuntimeError, match="shapes do not match"):
        numbers(small_llama)
    hook.remove()
    assert not ran_out(ValueError("DefaultCPUAllocator"))
    assert not ran_out(RuntimeError("index out of range"))


def test_memory_that_runs_out_beyond_the_context_is_not_blamed_on_the_length(small_llama) -> None:
    long = interp.Prompts(((9, 33) * 40, (9, 33) * 40))
    assert len(long.ids[0]) > small_llama.context
    hook = raising(small_llama.module.model.layers[0], ERRORS["cpu"], most=1)
    with pytest.warns(LessAtOnce, match="2 prompts of up to 80 tokens"):
        numbers(small_llama, long)
    hook.remove()


def test_statistics_that_do_not_fit_are_met_the_same_way(small_llama, monkeypatch) -> None:
    from interp.heads import engine
    from interp_kernels.errors import KernelError, TooLittleMemory

    real = engine.attention_statistics

    def small(attention: Any, asked: Any, **options: Any) -> Any:
        if attention.shape.batch > 3:
            raise TooLittleMemory("a block of 1 queries needs 9 bytes; 8 are free")
        return real(attention, asked, **options)

    want = numbers(small_llama)
    monkeypatch.setattr(engine, "attention_statistics", small)
    with pytest.warns(LessAtOnce, match="7 prompts"):
        torch.testing.assert_close(numbers(small_llama), want, atol=1e-6, rtol=0)

    def broken(*_: Any, **__: Any) -> Any:
        raise KernelError("no such thing")

    monkeypatch.setattr(engine, "attention_statistics", broken)
    with pytest.raises(StatisticsError, match=r"small, decoder\.0: no such thing"):
        numbers(small_llama)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits the process's memory as Linux does")
def test_memory_that_really_runs_out() -> None:
    """In a process that may take little more than it has: the allocator itself refuses."""
    code = """
import resource, warnings, torch, zoo, interp
warnings.simplefilter("always")
model = interp.load(zoo.FAMILIES["gpt2"].build("sdpa"), name="m")
g = torch.Generator().manual_seed(0)
prompts = torch.randint(4, 64, (192, 64), generator=g)
def run(size):
    return torch.tensor(interp.score(model, ["entropy"], prompts, null="none", batch_size=size,
                                     engine="stored").to_pandas().score.to_numpy())
want = run(8)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 40 * 2**20, resource.RLIM_INFINITY))
got = run(192)
print(float((got - want).abs().max()))
"""
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-1500:]
    assert "LessAtOnce: m: memory ran out with 192 prompts" in done.stderr
    assert float(done.stdout.strip()) < 1e-6
