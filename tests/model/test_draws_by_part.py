"""Random weights that are drawn part by part, against whole models of the same seeds."""

from __future__ import annotations

import os
import signal
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from together import over
from torch import nn

import interp
from interp.model import random_weights, streamed
from interp.model.content import content_hash
from interp.model.hooks.inference import inference
from interp.model.initialisation import NotApart, initialisation
from interp.model.random_weights import RandomWeights, WholeDraws, random_init
from interp.model.streamed import Streamed, WeightPart, lent_weights, streamed_weights

# Families that initialise a parameter outside `_init_weights`: their draws are made whole.
WHOLE = {"wav2vec2": "original0", "clip": "logit_scale", "openai-gpt": "weight"}
APART = [pytest.param(f, id=f.name) for f in zoo.FAMILIES.values() if f.name not in WHOLE]
IDS = [[(7 * i + 3 * j) % 50 + 4 for j in range(12)] for i in range(10)]


def model_of(family: zoo.Family) -> Any:
    module = family.model(family.attentions[0])
    here = {"device": torch.device("cpu"), "dtype": torch.float32}
    return SimpleNamespace(module=module, config=module.config, ranks=None, elsewhere=None, **here)


def streams(model: Any) -> Streamed:
    found = streamed_weights(model.module)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def llama() -> interp.Model:
    return interp.load("bundled:induction")


@pytest.mark.slow
@over("family", APART)
def test_a_streamed_draw_of_every_family_equals_the_whole_one(family: zoo.Family) -> None:
    require_equal(family)


@over("name", ["gpt2", "t5", "vit", "fnet", "siglip"])
def test_a_streamed_draw_equals_the_whole_one(name: str) -> None:
    """Tied and shared tensors, writes through `.data`, and convolutions among them."""
    require_equal(zoo.FAMILIES[name])


@torch.no_grad()
def require_equal(family: zoo.Family) -> None:
    drawn = initialisation(model_of(family))
    whole, by_part = drawn.fill(5), drawn.stream(5)
    given = family.inputs()
    with inference(whole), inference(by_part):
        assert torch.equal(zoo.output(whole(**given)), zoo.output(by_part(**given)))
    assert content_hash(whole) == content_hash(by_part)
    assert all(bool(p.isfinite().all()) for p in whole.parameters())


@over("name", list(WHOLE))
def test_a_class_that_initialises_elsewhere_is_named(name: str) -> None:
    with pytest.raises(NotApart, match=rf"does not initialise \S*{WHOLE[name]} in _init_weights"):
        initialisation(model_of(zoo.FAMILIES[name]))


def test_draws_have_the_spread_of_the_class(llama: interp.Model) -> None:
    one: Any = random_init(llama, 0).module
    other: Any = random_init(llama, 1).module
    weight = one.model.layers[0].mlp.up_proj.weight.detach()
    std = llama.config.initializer_range
    assert float(weight.std()) == pytest.approx(std, rel=0.1)
    assert not torch.equal(weight, other.model.layers[0].mlp.up_proj.weight)
    assert not torch.equal(weight, one.model.layers[1].mlp.up_proj.weight)
    assert bool((one.model.norm.weight == 1).all())


def test_the_global_generator_is_left_as_it_was(llama: interp.Model) -> None:
    before = torch.get_rng_state()
    random_init(llama, 0, streamed=True).run(IDS[:1])
    random_init(llama, 0, streamed=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_batches_in_step_make_each_part_once(llama: interp.Model) -> None:
    require_once(llama, "stored")


@pytest.mark.slow
@over("engine", ["streamed", "fused"])
def test_batches_in_step_make_each_part_once_in_tiles(llama: interp.Model, engine: str) -> None:
    require_once(llama, engine)


def require_once(llama: interp.Model, engine: str) -> None:
    whole, by_part = (random_init(llama, 3, streamed=s) for s in (False, True))
    options = {"null": "none", "batch_size": 3, "engine": engine}
    metrics = ["induction", "entropy", "previous_token"]
    expected = interp.score(whole, metrics, IDS, **options).to_pandas()
    weights = streams(by_part)
    _ = by_part.content_hash  # provenance reads all weights, here before the count
    weights.made = [0] * len(weights.parts)
    found = interp.score(by_part, metrics, IDS, **options).to_pandas()
    assert found.equals(expected)
    assert max(weights.made) == 1
    assert not weights.present


def test_measures_of_layers_make_each_part_once(llama: interp.Model) -> None:
    whole, by_part = (random_init(llama, 3, streamed=s) for s in (False, True))
    prompts = [x[: 6 + i] for i, x in enumerate(IDS[:4])]
    _ = by_part.content_hash  # this and trials of padding come before the count
    for side in ("left", "right"):
        by_part.padding.way(side, max(map(len, prompts)))
    weights = streams(by_part)
    weights.made = [0] * len(weights.parts)
    tables = [
        interp.score(m, "key_rank", prompts, null="none").to_pandas() for m in (whole, by_part)
    ]
    assert tables[0].equals(tables[1])
    assert max(weights.made) == 1


def test_all_default_metrics_have_the_same_null(
    llama: interp.Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"prompts": IDS, "null_cache": False, "null_draws": 2}
    whole = interp.score(llama, **options).to_pandas()
    monkeypatch.setattr(random_weights, "_SMALL", 0)
    assert streamed_weights(RandomWeights(llama, 0, again=False).draw(0).module) is not None
    assert interp.score(llama, **options).to_pandas().equals(whole)


def test_capture_and_gradients_of_a_streamed_draw(llama: interp.Model) -> None:
    whole, by_part = (random_init(llama, 3, streamed=s) for s in (False, True))
    names = ("pattern", "z", "resid_post")
    one, other = (m.capture(IDS[:2], names) for m in (whole, by_part))
    for name in names:
        assert torch.equal(one[name, 1], other[name, 1])
    found = [gradient(m) for m in (whole, by_part)]
    assert torch.equal(*found)
    assert float(found[0].abs().sum()) > 0


def gradient(model: interp.Model) -> torch.Tensor:
    """The gradient of the logits by the output of the embedding."""
    seen: list[torch.Tensor] = []

    def leave(module: nn.Module, args: Any, output: torch.Tensor) -> torch.Tensor:
        seen.append(output.detach().requires_grad_())
        return seen[0]

    module: Any = model.module
    handle = module.get_input_embeddings().register_forward_hook(leave)
    try:
        logits = model.run(IDS[:2])
    finally:
        handle.remove()
    return torch.autograd.grad(logits.sin().sum(), seen[0])[0]


def test_no_more_than_a_part_is_in_memory(llama: interp.Model) -> None:
    """Also in the graph of a backward pass, which keeps the places of weights."""
    by_part = random_init(llama, 3, streamed=True)
    weights = streams(by_part)
    most, make = 0, weights.make
    sizes = dict(zip((p.name for p in weights.parts), weights.bytes, strict=True))

    def checked(part: streamed.WeightPart) -> Any:
        nonlocal most
        there = sum(
            x.numel() * x.element_size() for p in weights.present.values() for x in p.values()
        )
        most = max(most, there + sizes[part.name])
        return make(part)

    weights.make = checked
    by_part.read(IDS, lambda *_: None)
    gradient(by_part)
    assert 0 < most <= max(weights.bytes)


def test_an_interrupt_ends_all_batches(llama: interp.Model) -> None:
    by_part = random_init(llama, 3, streamed=True)
    weights = streams(by_part)
    threads, make = threading.active_count(), weights.make
    calls = 0

    def interrupted(part: streamed.WeightPart) -> Any:
        nonlocal calls
        calls += 1
        if calls == 4:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.2)
        return make(part)

    weights.make = interrupted
    by_part._hashed = weights.identity, "known"
    with pytest.raises(KeyboardInterrupt):
        interp.score(by_part, "induction", IDS, null="none", batch_size=2)
    assert threading.active_count() == threads
    assert not weights.present
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in by_part.module.modules())
    weights.make = make
    assert torch.equal(by_part.run(IDS[:1]), random_init(llama, 3).run(IDS[:1]))


def test_an_error_in_one_batch_is_that_of_the_run(llama: interp.Model) -> None:
    by_part = random_init(llama, 3, streamed=True)

    def run(i: int) -> None:
        by_part.run(IDS[:1])
        if i == 2:
            raise ValueError("batch 2")

    threads = threading.active_count()
    with pytest.raises(ValueError, match="batch 2"):
        streamed.in_step(by_part.module, range(5), run)
    assert threading.active_count() == threads


def test_edits_act_on_streamed_weights(llama: interp.Model) -> None:
    whole, by_part = (random_init(llama, 3, streamed=s) for s in (False, True))
    edit = interp.zero(interp.Head(0, 1))
    with whole.edited(edit), by_part.edited(edit):
        tables = [
            interp.score(m, "entropy", IDS, null="none", batch_size=3).to_pandas()
            for m in (whole, by_part)
        ]
    plain = interp.score(whole, "entropy", IDS, null="none", batch_size=3).to_pandas()
    assert tables[0].equals(tables[1])
    assert not np.array_equal(tables[0]["score"], plain["score"])


def test_large_draws_that_are_made_whole_say_what_they_take(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = interp.load(zoo.FAMILIES["openai-gpt"].build())
    monkeypatch.setattr(random_weights, "_SMALL", 0)
    draws = RandomWeights(model, 0, 3, again=False)
    with pytest.warns(WholeDraws, match=r"3 draws .* made whole, .* MiB beside .*_init_weights"):
        draws.draw(0)
    assert streamed_weights(draws.draw(1).module) is None


class _Sliced(nn.Module):
    """A product with some rows of a weight, as of a matrix that holds q, k and v together."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(24.0).reshape(6, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight[4:].mT


def test_a_gradient_reads_the_rows_of_a_weight_that_were_used() -> None:
    module = _Sliced()
    whole = module.weight.detach().clone()
    part = WeightPart("", ("weight",))
    like = {"weight": (torch.float32, torch.device("cpu"))}
    made = Streamed(module, [part], lambda _: {"weight": whole.clone()}, like, "sliced")
    x = torch.ones(1, 4, requires_grad=True)
    with lent_weights(module):
        out = module(x)
    made.release()
    out.sum().backward()
    assert torch.equal(x.grad, whole[4:].sum(0, keepdim=True))
