"""Path patching: against hooks on GPT-2, exact edges, and the planted path."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from circuits.contrasts import induction_pairs
from circuits.slow_gpt2 import forward
from transformers import GPT2Config, GPT2LMHeadModel

import interp
from interp.circuits.methods import exact_patching
from interp.circuits.path_patching import path_patching, routes_of
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError, UnknownName

HEADS, WIDTH = 2, 16


@pytest.fixture(scope="module")
def hooked_gpt2():
    torch.manual_seed(1)
    config = GPT2Config(
        n_layer=3,
        n_head=HEADS,
        n_embd=WIDTH,
        vocab_size=24,
        n_positions=12,
        bos_token_id=0,
        eos_token_id=None,
        initializer_range=0.4,
        attn_implementation="eager",
    )
    model = interp.load(GPT2LMHeadModel(config).eval(), name="gpt2")
    pairs = induction_pairs(model, 24, length=5)
    batch = pairs.some(range(0, 24, 2))
    clean, corrupted = batch.values(model)
    return model, batch.some(np.flatnonzero(clean > corrupted).tolist())


def hooked(module, ids, *, z=None, attn=None):
    """Run with replaced inputs of output projections and outputs of q, k, v; record both."""
    seen, handles = {"z": {}, "qkv": {}}, []
    for i, block in enumerate(module.transformer.h):

        def on_z(_, args, i=i):
            x = args[0] if z is None or z.get(i) is None else z[i](args[0])
            seen["z"][i] = x.clone()
            return (x,)

        def on_qkv(_, args, out, i=i):
            out = out if attn is None or attn.get(i) is None else attn[i](out)
            seen["qkv"][i] = out.clone()
            return out

        handles.append(block.attn.c_proj.register_forward_pre_hook(on_z))
        handles.append(block.attn.c_attn.register_forward_hook(on_qkv))
    try:
        with torch.no_grad():
            return module(ids).logits, seen
    finally:
        for handle in handles:
            handle.remove()


def columns(head, part=None):
    size = WIDTH // HEADS
    first = head * size + (0 if part is None else "qkv".index(part) * WIDTH)
    return slice(first, first + size)


def put(where, given):
    def change(x):
        x = x.clone()
        x[..., where] = given[..., where]
        return x

    return change


def test_the_published_procedure_gives_the_same(hooked_gpt2) -> None:
    """Heads frozen by hooks, MLPs recomputed by the model: h > R, and h > R > logits."""
    model, task = hooked_gpt2
    module = model.module
    (batch,) = task.batches()
    clean, corrupted = (
        torch.tensor([list(x) for x in p.ids]) for p in (batch.clean, batch.corrupted)
    )
    base, on = hooked(module, clean)
    _, off = hooked(module, corrupted)
    frozen = {i: (lambda x, i=i: on["z"][i]) for i in range(3)}
    one = frozen | {0: put(columns(1), off["z"][0])}
    frozen_at_source = {**one, 0: lambda x: put(columns(1), off["z"][0])(on["z"][0])}
    _, read = hooked(module, clean, z=frozen_at_source)
    total, seen = hooked(module, clean, attn={2: put(columns(0, "k"), read["qkv"][2])})
    last = {**frozen, 2: lambda x: put(columns(0), seen["z"][2])(on["z"][2])}
    direct, _ = hooked(module, clean, z=last)
    found = path_patching(model, task, ["0.1>2.0.k", "0.1>2.0.k>logits"])
    assert tuple(found.route) == ("L0H1>L2H0.k", "L0H1>L2H0.k>logits")
    for row, logits in zip(found.per_prompt, (total, direct), strict=True):
        want = (batch.value(base) - batch.value(logits)).numpy()
        np.testing.assert_allclose(row, want, atol=2e-5)
        assert np.abs(want).max() > 1e-3


def test_a_frozen_hop_is_one_edge(hooked_gpt2) -> None:
    model, task = hooked_gpt2
    exact = exact_patching(model, task, "edge")
    names = [f"{a}>{b}" for a, b in exact.edges if b.startswith("L2") or b in ("mlp1", "logits")]
    found = path_patching(model, task, names, mlps="freeze")
    known = dict(zip((f"{a}>{b}" for a, b in exact.edges), exact.edges_per_prompt, strict=True))
    for route, row in zip(found.route, found.per_prompt, strict=True):
        np.testing.assert_allclose(row, known[route], atol=2e-5)
    assert found.forwards == len(names) + 3
    again = path_patching(model, task, "0.0>2.1.q")
    plain = path_patching(model, task, "0.0>2.1.q", mlps="freeze")
    assert np.abs(again.per_prompt - plain.per_prompt).max() > 1e-4  # MLPs carry a part


@pytest.mark.parametrize(
    ("start", "readers"),
    [
        ("embed+L0H0+L0H1+mlp0+L1H0+L1H1", "L1H0.k+L2H0.k"),  # the first reads before L1H0 writes
        ("L0H1+L1H0", "L1H1.v+L2H1.q+logits"),
        ("embed+mlp0+L1H1+mlp1", "mlp0+L1H0.q+mlp2"),
    ],
)
def test_readers_read_what_is_written_before_them(hooked_gpt2, start, readers) -> None:
    """GPT-2 written out: patched edges carry corrupted values, all others live ones."""
    model, task = hooked_gpt2
    (batch,) = task.batches()
    clean, corrupted = (torch.tensor([*p.ids]) for p in (batch.clean, batch.corrupted))
    writers = start.split("+")
    names = {r.name for x in readers.split("+") for r in ResidualGraph.of(model).readers_of(x)}
    with torch.no_grad():
        base, _ = forward(model.module, clean, lambda writer, reader: True)
        _, other = forward(model.module, corrupted, lambda writer, reader: True)
        patched, _ = forward(
            model.module, clean, lambda w, reader: w not in writers or reader not in names, other
        )
    want = (batch.value(base) - batch.value(patched)).numpy()
    found = path_patching(model, task, f"{start}>{readers}", mlps="freeze")
    np.testing.assert_allclose(found.per_prompt[0], want, atol=2e-5)
    assert np.abs(want).max() > 1e-2


def test_the_planted_path_carries_everything(planted_induction) -> None:
    task = make_contrast(planted_induction, "induction", n=6)
    found = path_patching(
        planted_induction,
        task,
        [
            "L0H3>L1H0.k",
            "L0H3>L1H0.k>logits",
            "embed>L0H3.v>L1H0.k>logits",
            "0.3>1.0.q",
            "0.3>logits",
        ],
    )
    share = dict(zip(found.route, found.wide()["share"], strict=True))
    for route in found.route[:3]:
        assert share[route] == pytest.approx(1, abs=0.02), route
    assert abs(share["L0H3>L1H0.q"]) < 0.01
    assert abs(share["L0H3>logits"]) < 0.01
    every = path_patching(planted_induction, task, "*>1.0.k")
    assert len(every) == planted_induction.n_heads + 2  # embeddings, the heads of layer 0, its MLP
    assert tuple(every.top(1).route) == ("L0H3>L1H0.k",)


def test_several_readers_at_once(hooked_gpt2) -> None:
    model, task = hooked_gpt2
    whole, parts = (
        path_patching(model, task, text) for text in ("0.1>2.0", "0.1>2.0.q+2.0.k+2.0.v")
    )
    assert tuple(whole.route) == tuple(parts.route) == ("L0H1>L2H0",)
    np.testing.assert_array_equal(whole.per_prompt, parts.per_prompt)


def test_what_is_no_route_is_said(planted_induction) -> None:
    graph = ResidualGraph.of(planted_induction)
    for text, said in (
        ("L0H3", "is not a route"),
        ("1.0>0.3.q", "L0H3.q reads before L1H0 write"),
        ("0.3>logits>1.0.q", "nothing reads after the logits"),
    ):
        with pytest.raises(OptionError, match=said):
            routes_of(graph, text)
    with pytest.raises(UnknownName, match="L9H0"):
        routes_of(graph, "9.0>logits")
    task = make_contrast(planted_induction, "induction", n=4)
    with pytest.raises(UnknownName, match="way to treat MLPs"):
        path_patching(planted_induction, task, "0.3>logits", mlps="zero")
    with pytest.raises(OptionError, match="no route is given"):
        path_patching(planted_induction, task, [])
