"""Taps are the thread's and the model's own: what runs meanwhile is not seen nor changed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import zoo

import interp

IDS = torch.tensor([[9, 33, 21, 40, 11], [52, 17, 30, 8, 44]])
OTHER = torch.tensor([[12, 13, 14]])


def in_a_thread(work) -> Any:
    """The result of `work` in a thread of its own; an exception there is raised here."""
    box: list[Any] = []

    def run() -> None:
        try:
            box.append((True, work()))
        except Exception as error:
            box.append((False, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    fine, value = box[0]
    if not fine:
        raise value
    return value


# gpt2 goes through the interface; bloom is watched, by hooks that run in every thread
BOTH = ("gpt2", "bloom")


@pytest.mark.parametrize("name", BOTH)
def test_a_capture_does_not_see_another_threads_run(loaded, name):
    model, seen = loaded(name), []
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    inputs = {"input_ids": IDS, "attention_mask": mask}
    plain = model.capture(inputs, ["z"])

    def visit(site, call, real):
        seen.append((site.name, tuple(call.z.shape), real))
        if site.layer == 0:  # in the midst of our forward another thread runs the same model
            other = in_a_thread(lambda: model.module(OTHER).logits)
            assert other.shape[:2] == OTHER.shape

    with model.visited(visit), torch.no_grad():
        logits = model.module(**inputs).logits
    assert torch.equal(logits, plain.logits)
    assert [s for s, *_ in seen] == [site.name for site in model.sites]
    assert all(z[0] == 2 and z[2] == 5 for _, z, _ in seen)
    assert all(torch.equal(real, mask.bool()) for *_, real in seen)


@pytest.mark.parametrize("name", BOTH)
def test_streams_and_results_are_this_threads(loaded, name):
    model = loaded(name)
    names = ["resid_pre", "resid_post", "result", "z"]
    want = model.capture(IDS, names)
    started, go_on = threading.Event(), threading.Event()
    found: list[Any] = []

    def capture() -> None:
        def wait(site, call, real):
            if site.layer == 0:
                started.set()
                go_on.wait(10)

        with model.visited(wait):
            found.append(model.capture(IDS, names))

    thread = threading.Thread(target=capture)
    thread.start()
    started.wait(10)
    with torch.no_grad():
        model.module(OTHER)
    go_on.set()
    thread.join()
    (got,) = found
    assert set(got) == set(want)
    for key in want:
        assert torch.equal(got[key], want[key]), key


@pytest.mark.parametrize("name", BOTH)
def test_edits_and_their_names_stay_in_their_thread(loaded, name):
    model = loaded(name)
    plain = model.run(IDS)
    edit = interp.zero("L0H1")
    with model.edited(edit):
        elsewhere = in_a_thread(lambda: (model.capture(IDS, ["z"]), model.active_edits))
        here = model.capture(IDS, ["z"])
    assert torch.equal(elsewhere[0].logits, plain)
    assert elsewhere[0].edits == elsewhere[1] == ()
    assert here.edits == (edit.name,)
    assert not torch.equal(here.logits, plain)


def test_four_threads_capture_at_once(loaded):
    models = [loaded(name) for name in ("gpt2", "llama", "bloom", "gpt2")]
    wanted = [m.capture(IDS, ["pattern"]) for m in models]
    results: list[Any] = [None] * 4

    def work(i: int) -> None:
        for _ in range(5):
            results[i] = models[i].capture(IDS, ["pattern"])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for got, want in zip(results, wanted, strict=True):
        assert set(got) == set(want)
        assert all(torch.equal(got[key], want[key]) for key in want)
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    assert not ALL_ATTENTION_FUNCTIONS._local_mapping
    assert "get_interface" not in vars(ALL_ATTENTION_FUNCTIONS)


def test_two_models_at_once(loaded):
    """Inside each other's blocks, each is edited and seen by its own edits and visits only."""
    one, two = loaded("gpt2"), loaded("llama")
    plain = {m.name: m.run(IDS) for m in (one, two)}
    seen: list[str] = []
    with (
        one.edited(interp.zero("L0H0")),
        two.visited(lambda site, call, real: seen.append(site.name)),
    ):
        edited = one.run(IDS)
        assert seen == []
        assert torch.equal(two.run(IDS), plain["llama"])
        assert two.active_edits == ()
    assert not torch.equal(edited, plain["gpt2"])
    assert seen == [site.name for site in two.sites]


def test_one_model_runs_inside_a_run_of_another(loaded):
    outer, inner = loaded("llama"), loaded("gpt2")
    plain = inner.capture(IDS, ["pattern"])
    caches = []

    def visit(site, call, real):
        caches.append(inner.capture(IDS, ["pattern"]))

    with outer.visited(visit):
        outer.run(IDS)
    assert len(caches) == len(outer.sites)
    assert all(torch.equal(c["pattern", 2], plain["pattern", 2]) for c in caches)


@pytest.mark.parametrize("name", BOTH)
def test_nested_captures_of_one_model_see_the_same(loaded, name):
    model, seen = loaded(name), []
    with model.visited(lambda site, call, real: seen.append(call.z)):
        cache = model.capture(IDS, ["z"])
        again = model.capture(IDS, ["z"])
    assert len(seen) == 2 * len(model.sites)
    for site, first in zip(model.sites, seen, strict=False):
        assert torch.equal(first, cache["z", site.layer])
        assert torch.equal(first, again["z", site.layer])


@pytest.mark.parametrize("name", ["albert", "gpt2", "bloom"])
def test_a_broken_off_run_shifts_nothing(loaded, name):
    """ALBERT's layers are told apart by counting: an exception in the midst must not shift them."""
    model = loaded(name)
    ids = torch.tensor([[9, 33, 21, 40, 11]])
    want = model.capture(ids, ["z"])
    break_at = [model.sites[1].layer]
    got = {}

    def visit(site, call, real):
        if site.layer in break_at:
            break_at.clear()
            raise KeyboardInterrupt
        got[site.layer] = call.z

    with model.visited(visit):
        with pytest.raises(KeyboardInterrupt):
            model.run(ids)
        got.clear()
        model.run(ids)
    assert all(torch.equal(got[s.layer], want["z", s.layer]) for s in model.sites)


def test_the_callers_own_override_of_the_registry_survives():
    """An entry the caller has set is called by the wrapper, and is there again afterwards."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry

    original, called = registry["sdpa"], []

    def mine(*args, **kwargs):
        called.append(True)
        return original(*args, **kwargs)

    registry["sdpa"] = mine
    try:
        model = interp.load(zoo.FAMILIES["llama"].model("sdpa"))
        called.clear()
        model.capture(IDS, ["pattern"])
        assert len(called) == len(model.sites)
        assert registry["sdpa"] is mine
        assert dict(registry._local_mapping) == {"sdpa": mine}
    finally:
        del registry["sdpa"]


def test_an_exception_in_a_visitor_restores_everything(loaded):
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as registry

    for name in BOTH:
        model = loaded(name)
        hooks = [len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.module.modules()]

        def fail(site, call, real):
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"), model.visited(fail):
            model.run(IDS)
        with pytest.raises(ValueError, match="mine"), model.edited(interp.zero("L0H0")):
            raise ValueError("mine")
        assert not registry._local_mapping
        assert "get_interface" not in vars(registry)
        assert model.active_edits == ()
        assert hooks == [
            len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.module.modules()
        ]
        assert torch.equal(model.run(IDS), model.capture(IDS).logits)
