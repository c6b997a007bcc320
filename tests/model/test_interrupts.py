"""An interrupt at any step of a public call leaves the caller's model as it was."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
import zoo
from torch import nn
from transformers import LlamaConfig, LlamaForCausalLM

import interp
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.residual_graph import ResidualGraph
from interp.core.interrupts import held, interrupt_point
from interp.model.hooks.inference import inference
from interp.model.layer_tensors import watched_places

PROMPT = [[9, 33, 21, 40, 11, 52, 9, 33]]
INTERP = str(Path(interp.__file__).parent)
OURS = (INTERP, contextlib.__file__)


def stepping(call: Callable[[], Any], at: int | None, line: int = 0) -> tuple[int, bool]:
    """Run a call, with a SIGINT at a line of one of the functions that it calls.

    Returns the number of functions, and whether it was interrupted.
    """
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        count += 1
        return counted() if count == at else None

    def counted() -> Callable[..., Any]:
        left = line

        def step(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal left
            left -= 1
            if left == -1:
                signal.raise_signal(signal.SIGINT)
            return step

        return step

    before = sys.gettrace()
    interrupted = False
    sys.settrace(trace)
    try:
        call()
    except KeyboardInterrupt:
        interrupted = True
    finally:
        sys.settrace(before)
    return count, interrupted


def small() -> nn.Module:
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM._from_config(config, attn_implementation="eager").train()


def looks(module: nn.Module) -> dict[str, Any]:
    """What an interrupted call could leave behind on a model in training mode."""
    parts = list(module.modules())
    return {
        "training": [m.training for m in parts],
        "forward": ["forward" in m.__dict__ for m in parts],
        "hooks": [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in parts],
        "learns": [p.requires_grad for p in module.parameters()],
        "weights": [float(p.detach().sum()) for p in module.parameters()],
        "interface": sorted(torch_functions()),
    }


def torch_functions() -> list[str]:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry

    return [f"{name} {function.__module__}" for name, function in registry.items()]


def edited(model: interp.Model) -> None:
    with model.edited(interp.zero([(0, 1)])):
        model.run(PROMPT)


def placed(model: interp.Model) -> None:
    sites = [s for s in model.sites if s.layer == 1]
    places = dict.fromkeys(("attn_in", "attn_out", "resid_mid"), lambda x: None)
    with watched_places(model, sites[0], places):
        model.run(PROMPT)


def mixed(model: interp.Model) -> None:
    edges = EdgeForward(ResidualGraph.of(model), PROMPT, [PROMPT[0][::-1]], check=False)
    edges.run(edges.graph.full() - edges.graph.mask([("embed", "L1H0.q")]))


CALLS: dict[str, Callable[[interp.Model], Any]] = {
    "load": lambda model: interp.load(model.module, name="again"),
    "score": lambda model: interp.score(model, "entropy", PROMPT, null="none"),
    "weights": lambda model: interp.score(model, "ov_norm", null="none"),
    "capture": lambda model: model.capture(PROMPT, ["pattern", "result", "resid_post"]),
    "edited": edited,
    "places": placed,
    "edges": mixed,
    "logit_lens": lambda model: interp.lens.logit_lens(model, PROMPT),
}


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a generator
@pytest.mark.parametrize("name", CALLS)
def test_an_interrupt_at_a_random_step_changes_nothing(name):
    module = small()
    model = interp.load(module, name="llama")
    call = CALLS[name]
    call(model)  # what is found out once is known
    steps, interrupted = stepping(lambda: call(model), None)
    assert not interrupted
    before = looks(module)
    rng = np.random.default_rng(0)
    some = 0
    for at in sorted(rng.choice(np.arange(1, steps + 1), 12, replace=False).tolist()):
        line = int(rng.integers(0, 4))
        some += stepping(lambda: call(model), at, line)[1]
        assert looks(module) == before, f"line {line} of function {at} of {steps}"
    assert some >= 6
    call(model)
    assert looks(module) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # in a generator
def test_an_interrupt_at_many_functions_of_a_run_changes_nothing():
    module = small()
    model = interp.load(module, name="llama")
    steps, _ = stepping(lambda: edited(model), None)
    before = looks(module)
    for at in range(1, steps + 1, 5):
        for line in (0, 3):
            stepping(lambda: edited(model), at, line)
            assert looks(module) == before, f"line {line} of function {at} of {steps}"


def interrupt(seen: list[Any], what: Callable[[], Any] = lambda: "reached") -> None:
    signal.raise_signal(signal.SIGINT)
    seen.append(what())


def test_an_interrupt_waits_for_the_end_of_the_block_or_a_point():
    module = nn.Sequential(nn.Linear(1, 1)).train()
    seen: list[Any] = []
    with pytest.raises(KeyboardInterrupt), inference(module):
        interrupt(seen, lambda: module.training)
    assert seen == [False]
    assert module.training
    with pytest.raises(KeyboardInterrupt), held():
        interrupt(seen, interrupt_point)
    assert seen == [False]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_does_not_wait():
    seen: list[Any] = []
    with pytest.raises(KeyboardInterrupt), held():
        interrupt(seen, lambda: interrupt(seen))
    assert seen == []


def test_a_run_is_interrupted_between_its_layers():
    """It does not wait for the end of a long run."""
    module = zoo.FAMILIES["llama"].build("sdpa")
    model = interp.load(module, name="llama")
    seen = []

    def visit(site: Any, call: Any, real: Any) -> None:
        seen.append(site.layer)
        if len(seen) == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        model.read(PROMPT, visit)
    assert seen == [0]
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


def test_an_interrupt_in_the_search_for_streams_leaves_it_unlocked():
    streams = interp.load(small(), name="llama").sites[0].streams
    lock, known = streams._search._lock, len(streams)
    steps, _ = stepping(lambda: len(streams), None)
    some = 0
    for at in range(1, steps + 1):
        for line in range(8):
            some += stepping(lambda: len(streams), at, line)[1]
            assert lock.acquire(timeout=1), f"line {line} of function {at} of {steps}"
            lock.release()
    assert some > 3
    assert len(streams) == known
