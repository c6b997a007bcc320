"""Wrong arguments of public functions: only our own errors, each naming what to give instead.

Every parameter of every public function gets a name where a head is meant, a text where ids are, a
missing path, None, one value for a list and a list for one value, a number below zero, a fraction,
an object of another kind. The other arguments are valid where a small value is known.
"""

from __future__ import annotations

import gc
import inspect
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch
from core.causal_examples import CAUSAL_EXAMPLES
from core.circuit_examples import contrast
from core.result_inputs import table, task
from sampled import sampled

import interp
from interp import cache as caches
from interp.bundled import path, shape_images
from interp.testing.contract import ContractError

ROOT = Path(interp.__path__[0])
WRONG: tuple[Any, ...] = (
    "L5H4",
    "a text",
    "missing/folder.txt",
    3,
    -1,
    2.5,
    None,
    [],
    ["a", "b"],
    [1, 2],
    Path("missing.jsonl"),
    {"a": 1},
    object(),
)
SECONDS = 3
"""After this a call counts as accepted: it is at work."""
PARTS = 18
"""All functions take eight minutes; the second tier tries a ninth of them."""
FEW = (
    "roles",
    "zero",
    "repeats",
    "model.gate",
    "model.reweight",
    "vision.image_batch",
    "cache.small_cache",
    "cache.window_mask",
    "alignment.heads_of_row",
    "text.graphs.graph_of",
    "lens.direct_logits",
    "safety.chosen_direction",
)
"""Functions of the first tier, of each kind of argument."""


def functions() -> dict[str, Callable[..., Any]]:
    """Return every public function, once, by its shortest name."""
    found: dict[Any, str] = {}
    for stub in sorted(ROOT.rglob("__init__.pyi"), key=lambda path: len(path.parts)):
        package = ".".join(["interp", *stub.parent.relative_to(ROOT).parts])
        module = import_module(package)
        for name in module.__all__:
            if inspect.isfunction(getattr(module, name)):
                found.setdefault(getattr(module, name), f"{package}.{name}")
    return {name: function for function, name in found.items()}


class Working(BaseException):
    """A call that did not end in time."""


@contextmanager
def in_time() -> Iterator[None]:
    """Stop what does not end in time."""

    def stop(*_: Any) -> None:
        raise Working

    before = signal.signal(signal.SIGALRM, stop)
    gc.disable()  # what is raised while garbage is collected stops nothing
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        gc.enable()
        signal.signal(signal.SIGALRM, before)


@cache
def model(name: str) -> interp.Model:
    return interp.load(name)


@cache
def few_images() -> Any:
    return shape_images.shape_images(0, 4)


def valid(function: str, parameter: inspect.Parameter) -> Any:
    """Return a small valid argument; None where none is known."""
    sees = ".vision." in function and ".language." not in function
    loaded = model("bundled:shapes" if sees else "bundled:induction")
    images = few_images()
    known: dict[str, Any] = {
        "model": loaded,
        "a": loaded,
        "b": loaded,
        "source": "bundled:induction",
        "text": "1 2 1 2",
        "prompt": "1 2 1 2",
        "texts": ["1 2 1 2", "3 4 3 4"],
        "images": images.pixels,
        "labels": images.labels,
        "heads": ["L1H0"],
        "head": "L1H0",
        "name": "a_name",
        "path": "missing.jsonl",
        "folder": "missing",
        "method": "rollout",
        "methods": ["rollout"],
        "metric": "induction",
        "factor": 0.5,
        "layer": 1,
        "k": 2,
        "n": 2,
        "answers": [1, 2],
        "harmful": [[1, 2, 3]] * 4,
        "harmless": [[1, 2, 4]] * 4,
        "keys": 4,
        "queries": 4,
        "value": torch.zeros(1),
        "inputs": {"input_ids": torch.tensor([[1, 2]])},
        "tasks": ["a"],
    }
    made: dict[str, Callable[[], Any]] = {
        "prompts": lambda: interp.repeats(loaded, n=2, max_length=8),
        "table": table,
        "scores": table,
        "task": contrast if "circuits" in function else task,
        "found": CAUSAL_EXAMPLES["DoseCurve"],
    }
    name = parameter.name
    return made[name]() if name in made else known.get(name)


def raw_errors(name: str, function: Callable[..., Any]) -> list[str]:
    """Return the errors that are not ours, with the call that raised each."""
    several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    signature = inspect.signature(function)
    parameters = [p for p in signature.parameters.values() if p.kind not in several]
    needed = {p.name: valid(name, p) for p in parameters if p.default is p.empty}
    raw = []
    for parameter in parameters:
        for wrong in WRONG:
            try:
                with in_time(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(**needed | {parameter.name: wrong})
            except (interp.InterpError, ContractError):  # a contract is what these functions check
                continue
            except Working:
                model.cache_clear()  # it may have been stopped in between
            except Exception as error:
                raw.append(f"{name}({parameter.name}={wrong!r}): {type(error).__name__}: {error}")
    return raw


def test_wrong_arguments_of_some_functions(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    every = functions()
    raw = [x for name in FEW for x in raw_errors(name, every[f"interp.{name}"])]
    assert not raw, "\n".join(raw)


@pytest.mark.parametrize("first", sampled(range(PARTS), every=PARTS))
def test_wrong_arguments_of_every_function(tmp_path: Path, monkeypatch: Any, first: int) -> None:
    monkeypatch.chdir(tmp_path)
    some = [*functions().items()][first::PARTS]
    raw = [x for name, function in some for x in raw_errors(name, function)]
    assert not raw, "\n".join(raw)


def test_a_wrong_argument_is_named_with_what_to_give() -> None:
    loaded: Any = model("bundled:induction")
    for call, words in (
        (lambda: interp.roles(loaded), "table must be a HeadTable.*interp.score"),
        (lambda: interp.ablate(loaded, "ioi"), "task must be a Task.*interp.repeats_task"),  # type: ignore[arg-type]
        (lambda: interp.score(loaded, metric="x"), "unknown parameter of score 'metric'.*metrics"),  # type: ignore[call-arg]
        (lambda: interp.shapley(loaded), "missing a required argument: 'task'"),  # type: ignore[call-arg]
        (lambda: interp.repeats(loaded, n=-1), "n must be at least 1, not -1"),
        (lambda: interp.repeats(loaded, n=2.5), "n must be a whole number.*2.5"),  # type: ignore[arg-type]
        (lambda: interp.zero(3), "cannot read 3 as a head; write L5H1"),  # type: ignore[arg-type]
        (lambda: loaded.attention("a text"), r"model.capture\(.a text.\)"),
        (lambda: caches.small_cache(loaded, {"L0H1": None}), "write L5KV1"),  # type: ignore[dict-item]
        (
            lambda: interp.record_activations(loaded, "a text", "out"),
            "pathlib.Path or .*a list, and",
        ),
    ):
        with pytest.raises(interp.InterpError, match=words):
            call()


def test_what_has_a_clear_meaning_is_taken() -> None:
    loaded: Any = model("bundled:induction")
    scores = interp.score(loaded, ["induction", "previous_token"], null="none")
    assert scores["L1H2"].heads() == ((1, 2),) == scores[1, 2].heads()
    assert scores["L1H2"]["induction"].to_pandas().equals(scores["induction"]["L1H2"].to_pandas())
    target = interp.attribute(loaded, [[30, 41, 52]], "rollout", target=9).target
    assert target == interp.attribute(loaded, [[30, 41, 52]], "rollout", "id:9").target
    shown = interp.view(loaded, [[30, 41]], heads="L0H1").named  # type: ignore[arg-type]
    assert shown == ((0, 1),)
    assert len(interp.repeats("bundled:induction", n=2.0)) == 2  # type: ignore[arg-type]
    kept: Any = {"L0KV1": caches.Window(1, 4)}
    layer: Any = caches.small_cache(loaded, kept).layers[0]
    assert [list(x.heads) for x in layer.groups if x.budget is not None] == [[1]]


def test_inference_mode_changes_nothing() -> None:
    """Neither of the call, nor of the making of the model."""
    with torch.inference_mode():
        inside = interp.load("bundled:induction")
        scores = interp.score(inside, "induction").to_pandas()
        explained = interp.attribute(inside, [[30, 41, 52, 30]], "attn_lrp").scores
        inside.capture([[30, 41]])
    outside = model(str(path("induction")))
    assert scores["score"].equals(interp.score(outside, "induction").to_pandas()["score"])
    again = interp.attribute(inside, [[30, 41, 52, 30]], "attn_lrp").scores
    assert explained.tolist() == again.tolist()
    assert (interp.attribute(outside, [[30, 41, 52, 30]], "attn_lrp").scores == again).all()
