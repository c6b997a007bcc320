"""Taps are the thread's and the model's own: what runs meanwhile is not seen nor changed."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest
import torch
import zoo

import interp
from interp.model.hooks.inference import forward_here, replaced

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


def at_once(*works) -> list[Any]:
    """The results of works that run in a thread each, all at the same time, switching often."""
    results: list[Any] = [None] * len(works)
    together = threading.Barrier(len(works))

    def run(i: int) -> None:
        together.wait(20)
        try:
            results[i] = works[i]()
        except Exception as error:
            results[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(works))]
    often = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    finally:
        sys.setswitchinterval(often)
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results


def in_training(name: str) -> interp.Model:
    """A model of the zoo whose module is being trained, with much dropout."""
    module = zoo.FAMILIES[name].build("eager")
    for m in module.modules():
        if isinstance(m, torch.nn.Dropout):
            m.p = 0.5
    return interp.load(module.train(), name=name)


@pytest.mark.parametrize("name", BOTH)
def test_threads_share_a_module_in_train_mode(name):
    """None of them may put dropout back while another is still running."""
    model = in_training(name)
    modes = [m.training for m in model.module.modules()]
    want = model.run(IDS).detach()
    for found in at_once(*[lambda: [model.run(IDS).detach() for _ in range(20)]] * 4):
        assert all(torch.equal(x, want) for x in found)
    assert modes == [m.training for m in model.module.modules()]
    assert any(modes)


def analyses(model: interp.Model) -> dict[str, Any]:
    """One call for each way in which a run changes the module that it runs."""
    from interp.causal import next_token_task
    from interp.causal.methods import importances

    ids = [[9, 33, 21, 40, 11, 9], [52, 17, 30, 8, 44, 17]]

    def scored() -> Any:
        return interp.score(model, ["entropy", "induction"], ids).to_pandas()["score"].tolist()

    def null() -> Any:
        return interp.score(model, "entropy", ids, null="random-init").to_pandas()["null"].tolist()

    def importance(method: str) -> Any:
        task = next_token_task(model, ids)
        return importances(model, task, [method])[method].per_prompt.tolist()

    def captured() -> Any:
        return model.capture(ids, ["resid_post", "result"]).logits.tolist()

    return {
        "score": scored,
        "random weights": null,
        "ablation, which puts other forwards in place": lambda: importance("ablation"),
        "gradients, which freeze the weights": lambda: importance("gate_gradient"),
        "load, which stirs the streams": lambda: [
            sorted((name, at) for name, at in site.streams.items())
            for site in interp.load(model.module).sites
        ],
        "capture": captured,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", BOTH)
def test_analyses_of_one_module_do_not_meet(name):
    """Every analysis, beside all others on one module, gives what it gives alone."""
    model = in_training(name)
    works = analyses(model)
    alone = {key: work() for key, work in works.items()}
    forwards = [m.__dict__.get("forward") for m in model.module.modules()]
    learns = [p.requires_grad for p in model.module.parameters()]
    for _ in range(3):
        together = at_once(*works.values(), *works.values())
        for key, found in zip([*works, *works], together, strict=True):
            assert str(found) == str(alone[key]), key
    assert learns == [p.requires_grad for p in model.module.parameters()]
    assert all(learns)
    assert forwards == [m.__dict__.get("forward") for m in model.module.modules()]
    assert all(m.training for m in model.module.modules())


def test_forwards_put_in_place_by_two_threads_do_not_meet():
    """Ended in either order, each thread ran its own, and the module's own is back."""
    module = torch.nn.Linear(1, 1)
    inside, done = threading.Event(), threading.Event()

    def other() -> Any:
        with replaced(module, lambda x: x + 2):
            inside.set()
            done.wait(10)
            return module(torch.zeros(1)).item()

    box: list[Any] = []
    thread = threading.Thread(target=lambda: box.append(other()))
    with replaced(module, lambda x: forward_here(module) and x + 1):
        thread.start()
        inside.wait(10)
        assert module(torch.zeros(1)).item() == 1
        with replaced(module, lambda x: x + 5):
            assert module(torch.zeros(1)).item() == 5
        assert module(torch.zeros(1)).item() == 1
    assert module(torch.zeros(1)).item() == module.bias.item()
    done.set()
    thread.join()
    assert box == [2.0]
    assert "forward" not in module.__dict__
