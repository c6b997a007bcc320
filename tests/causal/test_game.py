"""The evaluator against the slow way: edits one at a time, full forwards, all logits."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
import torch
import zoo
from torch import Tensor

from interp.causal import Task, custom, kl_to_clean, loss, repeats_task
from interp.causal.game.game import Game
from interp.causal.game.interventions import INTERVENTIONS, Intervention
from interp.causal.game.patching import rebuilt, tensors_in
from interp.causal.game.players import Players
from interp.causal.game.replay import Reuse, Wanted
from interp.causal.game.verify import reuse_of
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.model import edits
from interp.model.hooks.inference import replaced
from interp.model.locate.probe import probe
from interp.model.model import Model
from interp.planted import build

# one family per way of being different: fused qkv, grouped queries, cross attention with a bias
# table that the first block hands on, encoders whose projection lies outside the attention module,
# attention code of their own, attention and MLP side by side, a shared module, blocks without
# attention, a batch that is not the first axis, experts
FAMILIES = [
    "gpt2",
    "llama",
    "t5",
    "bart",
    "bert",
    "gpt_neo",
    "bloom",
    "gptj",
    "falcon_gqa",
    "cohere",
    "albert",
    "jamba",
    "qwen3_next",
    "xlnet",
    "mixtral",
    "gpt_oss",
    "deberta",
]


@cache
def model_of(name: str) -> Model:
    family = zoo.FAMILIES[name]
    return probe(family.build("sdpa" if "sdpa" in family.attentions else "eager"), name)


def probe_task(model: Model, inputs: dict[str, Tensor], positions=(-1,), **more) -> Task:
    width = model.run(inputs).shape[-1]
    direction = torch.randn(width, generator=torch.Generator().manual_seed(1))
    return custom(
        model,
        inputs,
        lambda x, i: (x.log_softmax(-1) * direction).sum(),
        name="probe",
        unit="nats",
        higher_is_better=True,
        positions=positions,
        **more,
    )


def one_at_a_time(game: Game, entry: Intervention) -> Tensor:
    """`[player, prompt]` by edits and full forwards of the whole batch."""
    (batch,) = game.batches
    source = None
    if entry.needs == "corpus":
        source = game.model.mean_z(game.reference)
    elif entry.needs == "prompt":
        source = {(s.stack, s.layer): z for s, z in batch.replacement.fixed.items()}
    rows = []
    with torch.no_grad():
        for player in range(len(game)):
            ((site, head),) = game.players.heads_of(player)
            edit = entry.edit_of([Head(site.layer, head)], source, site.stack)
            assert edit.kind == entry.name
            logits = game.model.run(batch.inputs, [edit])
            rows.append(game.task.values(batch.wanted.of(logits), batch.which))
    return torch.stack(rows)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_head_equals_edits_and_full_forwards(name):
    family, model = zoo.FAMILIES[name], model_of(name)
    padding = "right" if "right" in family.paddings else None
    inputs = family.inputs(padding=padding, batch=3, length=10)
    task = probe_task(model, inputs)
    corpus = Prompts(((5, 6, 7, 8), (9, 8, 7)), "reference")
    for kind in ("mean-batch",) if name != "gpt2" else INTERVENTIONS:
        entry = INTERVENTIONS[kind]
        if entry.needs == "prompt":  # of equal length
            inputs = family.inputs(batch=3, length=10)
            other = {"input_ids": inputs["input_ids"].flip(0)}
            task = probe_task(model, inputs).with_corrupted(inputs | other, model)
        game = Game(model, task, kind=kind, reference=corpus if entry.needs == "corpus" else None)
        got = game.values(1 - torch.eye(len(game)))
        want = one_at_a_time(game, entry)
        change = (want - game.clean).abs().max()
        assert change > 1e-4
        # the mean of edits is taken in float32
        torch.testing.assert_close(got, want, rtol=0, atol=float(change) * 1e-4)


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "bert", "gpt_neo", "gptj"])
def test_replayed_runs_equal_full_ones_bit_for_bit(name):
    model = model_of(name)
    assert reuse_of(model).blocks
    task = probe_task(model, zoo.FAMILIES[name].inputs(batch=2, length=9))
    draw = torch.Generator().manual_seed(0)
    gates = torch.randint(2, (6, sum(s.n_heads for s in model.sites)), generator=draw)
    gates[:3, : gates.shape[1] // 2] = 1  # some start high up
    replayed = Game(model, task, fold=False, restrict=False).values(gates)
    full = Game(model, task, reuse=False).values(gates)
    assert torch.equal(replayed, full)
    assert replayed.std(0).min() > 0


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "albert"])
def test_folding_and_batch_sizes_change_nothing(name):
    model = model_of(name)
    inputs = zoo.FAMILIES[name].inputs(padding="right", batch=3, length=9)
    task = probe_task(model, inputs, positions=[-1, -2])
    draw = torch.Generator().manual_seed(0)
    gates = torch.rand(7, sum(s.n_heads for s in model.sites), generator=draw).round(decimals=1)
    want = Game(model, task, reuse=False).values(gates)
    for options in ({"max_tokens": 1}, {"max_tokens": 40}, {"max_tokens": 4000}, {"fold": False}):
        got = Game(model, task, **options).values(gates)
        torch.testing.assert_close(got, want, rtol=0, atol=1e-5 * float(want.abs().max()))


def test_coalitions_may_come_in_any_order():
    model = model_of("gpt2")
    game = Game(model, repeats_task(model, n=2, max_length=5), max_tokens=200)
    gates = 1 - torch.eye(18)
    order = torch.randperm(18, generator=torch.Generator().manual_seed(0))
    got, want = game.values(gates[order]), game.values(gates)[order]
    torch.testing.assert_close(got, want, rtol=0, atol=1e-5)
    assert game.reuse.fold
    assert (want - game.clean).abs().max() > 1e-3


def test_clean_runs_that_do_not_fit_are_run_again():
    model = model_of("gpt2")
    task = repeats_task(model, n=4, max_length=5)
    gates = 1 - torch.eye(18)
    small = Game(model, task, max_tokens=12, cache_bytes=0)
    assert len(small.batches) > 1
    torch.testing.assert_close(
        small.values(gates), Game(model, task).values(gates), rtol=0, atol=1e-5
    )
    assert not small._kept


def test_images_have_one_output_and_windows_keep_their_rows():
    family = zoo.FAMILIES["swin"]
    model = probe(family.build("sdpa"), "swin")
    inputs = family.inputs(batch=2)
    read = lambda x, i: x.reshape(-1, x.shape[-1]).mean(0)[:3].sum()  # noqa: E731
    task = custom(model, inputs, read, name="sum", unit="1", higher_is_better=True, positions=[0])
    game = Game(model, task)
    gates = 1 - torch.eye(len(game))
    assert game.reuse.fold
    torch.testing.assert_close(
        game.values(gates), Game(model, task, reuse=False).values(gates), rtol=0, atol=1e-5
    )


def test_gates_between_zero_and_one_mix():
    model = model_of("gpt2")
    task = repeats_task(model, n=2, max_length=6)
    game = Game(model, task, heads=["L1H2"])
    with torch.no_grad(), model.edited(edits.gate("L1H2", 0.3)):
        logits = model.run(task.prompts)
    want = task.values(game.batches[0].wanted.of(logits), range(2))
    torch.testing.assert_close(game.values([[0.3]])[0], want, rtol=0, atol=1e-6)


def test_players_are_heads_groups_and_layers():
    model = model_of("llama")
    assert len(Players.of(model, "heads")) == 18
    groups, layers = Players.of(model, "kv_groups"), Players.of(model, "layers")
    assert groups.labels == tuple(f"L{i}KV{j}" for i in range(3) for j in range(2))
    assert [h for _, h in groups.heads_of(1)] == [3, 4, 5]
    assert layers.labels == ("L0", "L1", "L2")
    task = repeats_task(model, n=2, max_length=6)
    heads = Game(model, task)
    together = torch.ones(1, 18)
    together[0, 9:12] = 0  # the second group of layer 1
    by_group = 1 - torch.eye(6)[3:4]
    got = Game(model, task, players="kv_groups").values(by_group)
    assert torch.equal(got, heads.values(together))
    named = Game(model, task, players={"pair": ["L0H0", "L2H5"], "one": "L1H1"})
    together = torch.ones(1, 18)
    together[0, [0, 17]] = 0
    assert torch.equal(named.values([[0.0, 1.0]]), heads.values(together))


def test_heads_that_are_always_out_are_part_of_the_clean_run():
    model = model_of("gpt2")
    task = repeats_task(model, n=2, max_length=6)
    whole, without = Game(model, task), Game(model, task, without=["L1H3"])
    out = torch.ones(1, 18)
    out[0, 9] = 0
    assert torch.equal(whole.values(out)[0], without.clean)
    assert "L1H3" not in without.players.labels
    assert len(without) == 17
    both = out.clone()
    both[0, 0] = 0
    gates = 1 - torch.eye(17)
    torch.testing.assert_close(without.values(gates)[0], whole.values(both)[0], rtol=0, atol=1e-6)
    high = Game(model, task, without=["L2H3"])  # above what is put back
    both = torch.ones(1, 18)
    both[0, [2, 15]] = 0
    torch.testing.assert_close(high.values(gates)[2], whole.values(both)[0], rtol=0, atol=1e-6)


def test_kl_is_zero_clean_and_compares_with_the_clean_run():
    model = model_of("gpt2")
    prompts = Prompts(((5, 6, 7, 8), (9, 10, 11)))
    game = Game(model, kl_to_clean(model, prompts, [-1, -2]), max_tokens=4)
    assert game.clean.abs().max() < 1e-12
    got = game.values(1 - torch.eye(18)[:2])
    for head in range(2):
        for i, ids in enumerate(prompts.ids):
            with torch.no_grad():
                p = model.run([ids])[0, -2:].double().softmax(-1)
                q = model.run([ids], [edits.zero((0, head))])[0, -2:].double().softmax(-1)
            want = (p * (p / q).log()).sum(-1).mean()
            torch.testing.assert_close(got[head, i], want, rtol=1e-3, atol=1e-7)
    assert got.min() > 0


def test_estimates_progress_and_provenance():
    model = model_of("gpt2")
    game = Game(model, repeats_task(model, n=3, max_length=5), max_tokens=20)
    told = []
    game.values(1 - torch.eye(18), progress=lambda *x: told.append(x))
    assert told[-1][1:] == (18, 18)
    assert [x[1] for x in told] == sorted(x[1] for x in told)
    estimate = game.estimate(1 - torch.eye(18))
    assert estimate.share == pytest.approx(2 / 3)  # (3 + 2 + 1) / 3 blocks of 3
    assert game.estimate(4).share == 1
    assert estimate.n_bytes > 0
    assert "18 coalitions" in str(estimate)
    assert game.about()["reuse"] == "prefix"
    albert = Game(
        model_of("albert"), probe_task(model_of("albert"), zoo.FAMILIES["albert"].inputs())
    )
    assert albert.about()["reuse"] == "none"
    assert "serves several layers" in albert.notes[0]
    assert "serves several layers" in str(albert.estimate(1))


def test_nothing_of_the_model_is_left_changed_after_an_error_inside_a_run():
    model = model_of("gpt2")
    modules = dict(model.module.named_modules())

    def state():
        return {
            name: (*m.__dict__.keys(), len(m._forward_hooks), len(m._forward_pre_hooks), m.training)
            for name, m in modules.items()
        }

    game = Game(model, loss(model, Prompts(((5, 6, 7),))))
    model.module.train()
    before = state()

    def broken(*args):
        raise ZeroDivisionError("in the middle")

    handle = modules["transformer.ln_f"].register_forward_hook(broken)
    try:
        with pytest.raises(ZeroDivisionError):
            game.values(1 - torch.eye(18))
    finally:
        handle.remove()
    after = state()
    model.module.eval()
    assert after == before


def test_a_wrapped_forward_is_put_back():
    module = torch.nn.Linear(2, 2)
    own = lambda x: x  # noqa: E731  what accelerate and others do
    module.forward = own
    with pytest.raises(ZeroDivisionError), replaced(module, lambda x: 2 * x):
        float(module(torch.ones(1)).item() == 2) / 0
    assert module.forward is own


def test_a_family_that_cannot_be_replayed_runs_in_full(monkeypatch):
    """A block that looks at its input's history breaks the replay; the trial must notice."""
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "stateful")
    first = model.module.transformer.h[0]
    last = model.module.transformer.h[2]
    seen = []
    own_first, own_last = first.forward, last.forward

    def remember(x, *a, **k):
        seen.append(x)
        return own_first(x, *a, **k)

    def use(x, *a, **k):
        y = own_last(x, *a, **k)
        return y + 0.1 * seen.pop() if seen else y

    first.forward, last.forward = remember, use
    reuse = reuse_of(model)
    assert reuse.blocks == ()
    assert "differs from a full one" in reuse.notes[0]
    task = repeats_task(model, n=2, max_length=5)
    game = Game(model, task)
    assert game.about()["reuse"] == "none"


def test_a_block_that_changes_its_input_in_place_does_not_spoil_the_next_run():
    model = probe(zoo.FAMILIES["gpt2"].build("sdpa"), "in place")
    block = model.module.transformer.h[1]
    own = block.forward

    def forward(x, *args, **kwargs):
        out = own(x, *args, **kwargs)
        x.add_(1)
        return out

    block.forward = forward
    task = repeats_task(model, n=2, max_length=5)
    game = Game(model, task, heads=["L1H0", "L1H1"], fold=False, restrict=False)
    assert game.reuse.blocks
    gates = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    got = game.values(gates)
    assert torch.equal(got[0], got[2])
    full = Game(model, task, heads=["L1H0", "L1H1"], reuse=False).values(gates)
    assert torch.equal(got, full)


def test_attention_below_the_first_changed_head_does_not_run():
    model = model_of("bart")
    game = Game(model, probe_task(model, zoo.FAMILIES["bart"].inputs()), stack="cross")
    ran = []
    names = {
        "encoder": "model.encoder.layers.1.self_attn.q_proj",
        "own": "model.decoder.layers.0.self_attn.q_proj",
        "first": "model.decoder.layers.0.encoder_attn.q_proj",
        "above": "model.decoder.layers.1.self_attn.q_proj",
    }
    handles = [
        model.module.get_submodule(n).register_forward_hook(lambda m, a, o, k=k: ran.append(k))
        for k, n in names.items()
    ]
    try:
        game.values(1 - torch.eye(12)[:1])
    finally:
        for handle in handles:
            handle.remove()
    assert ran == ["above"]


def test_the_trial_sees_a_wrong_replay():
    """Every part of what may be put back is needed for the equality that is asked of it."""
    from interp.causal.game.verify import _Trial

    model = model_of("gpt2")
    good = reuse_of(model)
    trial = _Trial(model)
    with torch.no_grad():
        assert trial._replays(good) is None
        swapped = replace(good, blocks=(good.blocks[1], good.blocks[0], good.blocks[2]))
        assert trial._replays(swapped) is not None
        wrong = dict.fromkeys(good.attention, "heads")  # skips the output projection
        assert trial._replays(replace(good, attention=wrong)) is not None
        t5 = model_of("t5")
        assert reuse_of(t5).keep_rest  # the first block's bias table is handed on
        assert _Trial(t5)._replays(replace(reuse_of(t5), keep_rest=False)) is not None


def test_only_pointwise_modules_run_at_some_positions():
    tail = reuse_of(model_of("llama")).tail
    assert [n.rpartition("layers.2.")[2] for n in tail] == [
        "self_attn.o_proj",
        "post_attention_layernorm",
        "mlp",
    ]
    # planted models have heads whose keys and values nobody reads on random tokens
    planted = probe(build("induction").model, "planted")
    assert not [n for n in reuse_of(planted).tail if n.endswith(("q_proj", "k_proj", "v_proj"))]


def test_wanted_rows_of_several_copies():
    wanted = Wanted(torch.tensor([1, 5]), (2, 3))
    assert wanted.copies(2).tolist() == [1, 5, 7, 11]
    logits = torch.arange(12.0).reshape(4, 3, 1)
    assert wanted.of(logits, 2).flatten().tolist() == [1, 5, 7, 11]


def test_trees_are_rebuilt_as_they_were():
    tree = (torch.zeros(1), [torch.ones(2), None], {"a": torch.zeros(3), "b": "text"})
    doubled = rebuilt(tree, iter([x + 1 for x in tensors_in(tree)]))
    assert doubled[1][1] is None
    assert doubled[2]["b"] == "text"
    assert [float(x.sum()) for x in tensors_in(doubled)] == [1, 4, 3]
    assert Reuse().depth(model_of("gpt2").sites[2]) == 1
