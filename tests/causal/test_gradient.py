"""Gate gradients against finite differences of the exact game, and against their definitions."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch
import zoo

from interp.causal import (
    accuracy,
    aumann_shapley,
    custom,
    gate_gradient,
    kl_to_clean,
    leave_one_out,
    loss,
    michel,
    patching_gradient,
    repeats_task,
)
from interp.causal.game.game import Game
from interp.causal.gate_derivatives import frozen
from interp.causal.gradient import gradient_scores
from interp.core.errors import NonFiniteError, OptionError, UnknownName
from interp.core.head import Head
from interp.core.prompts import Prompts
from interp.model import edits
from interp.model.locate.probe import probe
from interp.model.model import Model
from interp.planted import build


@cache
def model_of(name: str) -> Model:
    """In float64, so that differences are exact enough to compare with."""
    family = zoo.FAMILIES[name]
    return probe(family.build("sdpa" if "sdpa" in family.attentions else "eager").double(), name)


def task_of(name: str):
    model = model_of(name)
    inputs = zoo.FAMILIES[name].inputs(padding="right", batch=3, length=10)

    def read(x, prompt):
        return x.log_softmax(-1)[:, 5 + prompt].sum()

    return custom(model, inputs, read, name="log", unit="nats", higher_is_better=True, positions=-1)


def derivatives(model, prompts, value):
    """z and dv/dz of each layer, by putting a leaf in z's place, one layer at a time."""
    kept = model.capture(prompts, ["z"])
    for layer in range(model.n_layers):
        z = kept["z", layer].clone().requires_grad_()
        heads = [(layer, h) for h in range(model.n_heads)]
        with model.edited(edits.set_z(heads, z)):
            (g,) = torch.autograd.grad(value(model.run(prompts)), [z])
        yield z.detach(), g


# families that compute everything in the model's own type
@pytest.mark.parametrize("name", ["gpt2", "gpt_bigcode", "bart", "bert", "openai-gpt"])
@pytest.mark.parametrize("kind", ["zero", "mean-batch", "uniform-attention"])
def test_the_signed_gradient_is_a_finite_difference_of_the_game(name, kind):
    model, task = model_of(name), task_of(name)
    found = gate_gradient(model, task, kind=kind, null="none")
    game = Game(model, task, kind=kind, check=False)
    step = 1e-5 * torch.eye(len(game), dtype=torch.double)
    want = (game.values(1 - step) - game.values(1 + step)) / 2e-5
    want = -task.sign * want  # what is lost
    np.testing.assert_allclose(found.per_prompt, want, atol=1e-6 * float(want.abs().max()))
    assert found.of == "removal"


def test_groups_and_heads_that_are_out_have_their_own_derivatives():
    model, task = model_of("gpt2"), task_of("gpt2")
    options = {"players": "layers", "without": ["L1H2", "L0H0"]}
    found = gate_gradient(model, task, null="none", **options)
    game = Game(model, task, **options)
    step = 1e-5 * torch.eye(3, dtype=torch.double)
    want = (game.values(1 - step) - game.values(1 + step)) / 2e-5
    want = -task.sign * want  # what is lost
    np.testing.assert_allclose(found.per_prompt, want, atol=1e-6 * float(want.abs().max()))


def test_the_three_michel_quantities_are_their_formulas():
    """By automatic differentiation of z itself, one prompt at a time without padding."""
    model = model_of("gpt2")
    prompts = Prompts(((5, 6, 7, 8, 9, 10), (11, 12, 13), (14, 15, 16, 17)))
    task = loss(model, prompts)
    scores = gradient_scores(model, task, null="none", max_tokens=9)  # two batches
    per_token = []
    for i, ids in enumerate(prompts.ids):
        by_layer = [
            (z * g).sum(-1)[0]
            for z, g in derivatives(model, [ids], lambda x, i=i: task.values(x[0, :-1], [i])[0])
        ]
        per_token.append(torch.stack(by_layer))
    tokens = sum(len(p) for p in prompts.ids)
    summed = torch.stack([g.sum(-1) for g in per_token]).detach()
    want = {
        "token_abs": sum(g.abs().sum(-1) for g in per_token).detach() / tokens,
        "example_abs": summed.abs().mean(0),
        "batch_abs": summed.mean(0).abs(),
        "signed": -summed.mean(0),
    }
    for form, x in want.items():
        np.testing.assert_allclose(scores[form].score, x.flatten(), rtol=1e-8)
        metric = "gate_gradient" if form == "signed" else f"michel_{form}"
        assert scores[form].metric.startswith(f"{metric}:kind=zero")
    assert len({tuple(s.score) for s in scores.values()}) == 4
    np.testing.assert_array_equal(
        michel(model, task, form="batch_abs", null="none").score.argsort(),
        scores["batch_abs"].score.argsort(),
    )
    groups = gradient_scores(model, task, null="none", players="layers")["token_abs"]
    by_layer = sum(g.sum(1).abs().sum(-1) for g in per_token).detach() / tokens
    np.testing.assert_allclose(groups.score, by_layer, rtol=1e-8)
    normal = gradient_scores(model, task, null="none", normalise_layers=True)["token_abs"]
    np.testing.assert_allclose(np.linalg.norm(normal.score.reshape(3, 6), axis=1), 1)
    assert "normalise_layers=True" in normal.metric


def test_patching_gradient_is_the_derivative_of_patching():
    model = model_of("gpt2")
    clean, other = Prompts(((5, 6, 7), (8, 9, 10))), Prompts(((5, 11, 7), (8, 12, 10)))
    task = loss(model, clean).with_corrupted(other, model)
    found = patching_gradient(model, task, null="none")
    swapped = model.capture(other, ["z"]).z_by_site()

    def total(logits):
        return task.values(logits[:, :-1].flatten(0, 1), (0, 1)).sum()

    for layer, (z, g) in enumerate(derivatives(model, clean, total)):
        want = ((swapped["decoder", layer] - z) * g).sum((2, 3)).T
        np.testing.assert_allclose(found.per_prompt[6 * layer : 6 * layer + 6], want, atol=1e-9)
    # a patch of one thousandth of the way is what a gradient promises
    game = Game(model, task, kind="resample")
    little = (game.values(1 - 1e-3 * torch.eye(18, dtype=torch.double)) - game.clean) * 1e3
    np.testing.assert_allclose(found.per_prompt, little, atol=2e-3 * float(little.abs().max()))


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_integrated_gradients_add_up_and_say_by_how_much_not(name):
    model, task = model_of(name), task_of(name)
    few = aumann_shapley(model, task, steps=2, null="none")
    many = aumann_shapley(model, task, steps=64, null="none")
    game = Game(model, task)
    n = len(game)
    span = game.values(torch.stack([torch.ones(n), torch.zeros(n)]))
    span = task.sign * float((span[0] - span[1]).mean())
    for found in (few, many):
        residual = found.score.sum() - span
        assert found.notes["completeness_residual"] == pytest.approx(residual, abs=1e-9)
    assert abs(many.notes["completeness_residual"]) < 2e-3 * max(1, abs(span))
    assert abs(many.notes["completeness_residual"]) < abs(few.notes["completeness_residual"])
    assert "completeness_residual" in repr(few)
    assert "steps=2" in few.metric


def test_one_step_for_a_linear_game_is_exact():
    """Planted models are linear around their softmaxes, so the logits of one layer are linear."""
    p = build("duplicate_token")
    model = probe(p.model, "planted")
    read = lambda x, i: x[-1, 7]  # noqa: E731
    ids = [[0, 7, 9, 7], [0, 7, 7, 9]]
    task = custom(model, ids, read, name="logit", unit="logits", higher_is_better=True)
    found = aumann_shapley(model, task, steps=1, null="none")
    assert abs(found.notes["completeness_residual"]) < 1e-4
    exact = leave_one_out(model, task, null="none")
    np.testing.assert_allclose(found.score, exact.score, atol=1e-4)


def test_integrated_gradients_credit_the_head_whose_backup_hides_it_from_ablation():
    """They see the main head; the backup, silenced wherever the main one works a little, hardly."""
    p = build("backup")
    model = probe(p.model, "planted:backup")
    task = repeats_task(model, n=4, max_length=8)
    ablated = leave_one_out(model, task, null="none").helps()
    found = aumann_shapley(model, task, steps=24)
    assert abs(found.notes["completeness_residual"]) < 0.05
    helps = dict(zip(found.players.labels, found.helps(), strict=True))
    main, backup = (str(Head(*p.roles[role][0])) for role in ("induction", "backup"))
    assert ablated[found.players.labels.index(main)] < 1e-3
    assert helps[main] > 0.3
    noise = max(abs(helps[str(Head(*h))]) for h in p.roles["noise"])
    assert noise < helps[backup] < 0.1
    assert set(found.top(2).players.labels) == {main, str(Head(*p.roles["previous_token"][0]))}
    assert found.table.to_pandas()["null"].abs().max() < 0.05


def test_no_pattern_is_kept_and_the_weights_stay_frozen():
    family = zoo.FAMILIES["llama"]
    model = probe(family.build("sdpa"), "llama")
    length = 60
    ids = torch.randint(4, 60, (1, length), generator=torch.Generator().manual_seed(0))
    task = loss(model, ids)
    kept = []

    def pack(x):
        kept.append(tuple(x.shape))
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        gate_gradient(model, task, null="none")
    assert kept
    assert not [s for s in kept if s[-2:] == (length, length)]
    weights = {tuple(p.shape) for n, p in model.module.named_parameters() if "norm" not in n}
    assert not any(p.grad is not None for p in model.module.parameters())
    assert all(p.requires_grad for p in model.module.parameters())
    activations = sum(1 for s in kept if s not in weights)
    assert activations < 40 * 3
    model.module.lm_head.weight.requires_grad_(False)
    with pytest.raises(ValueError, match="out"), frozen(model.module):
        _fail_if(any(p.requires_grad for p in model.module.parameters()))
    assert not model.module.lm_head.weight.requires_grad
    assert model.module.model.norm.weight.requires_grad


def _fail_if(wrong):
    assert not wrong
    raise ValueError("out")


def test_what_has_no_gradient_is_refused_in_one_line():
    model = model_of("gpt2")
    prompts = Prompts(((5, 6, 7), (8, 9, 10)))
    with pytest.raises(OptionError, match="is a step function"):
        gate_gradient(model, accuracy(model, prompts))
    with pytest.raises(OptionError, match="every gradient there is 0"):
        michel(model, kl_to_clean(model, prompts))
    with pytest.raises(OptionError, match="no corrupted prompts"):
        patching_gradient(model, loss(model, prompts))
    with pytest.raises(OptionError, match="do not differ"):
        patching_gradient(model, loss(model, prompts).with_corrupted(prompts, model))
    with pytest.raises(UnknownName, match="Michel"):
        michel(model, loss(model, prompts), form="abs")
    with pytest.raises(UnknownName, match="form of gate gradient"):
        gradient_scores(model, loss(model, prompts), forms=("abs",))
    with pytest.raises(OptionError, match="at least 1"):
        aumann_shapley(model, loss(model, prompts), steps=0)
    cut = custom(
        model, prompts, lambda x, i: x[0, 0].item(), name="cut", unit="1", higher_is_better=True
    )
    with pytest.raises(OptionError, match="is not a differentiable function of the logits"):
        gate_gradient(model, cut, null="none")
    flat = custom(
        model, prompts, lambda x, i: 0 * x[0, 0], name="flat", unit="1", higher_is_better=True
    )
    with pytest.raises(OptionError, match="task flat is constant"):
        gate_gradient(model, flat, null="none")
    gone = custom(
        model, prompts, lambda x, i: x[0, 0] / 0, name="gone", unit="1", higher_is_better=True
    )
    with pytest.raises(NonFiniteError, match="gone is NaN or infinite"):
        gate_gradient(model, gone, null="none")
    steep = custom(
        model,
        prompts,
        lambda x, i: (x[0, 0] - x[0, 0].detach()).sqrt() + x[0, 1],
        name="steep",
        unit="1",
        higher_is_better=True,
    )
    with pytest.raises(NonFiniteError, match="NaN or infinity in the gate gradients"):
        gate_gradient(model, steep, null="none", check=False)


def test_a_divergence_from_the_clean_run_has_integrated_gradients():
    model = model_of("gpt2")
    task = kl_to_clean(model, Prompts(((5, 6, 7), (8, 9, 10))))
    found = aumann_shapley(model, task, steps=32, null="none")
    assert found.notes["v_all_minus_v_none"] > 0
    assert abs(found.notes["completeness_residual"]) < 0.01
    with torch.no_grad():
        clean = model.run(task.prompts)[:, -1].log_softmax(-1)
        out = model.run(task.prompts, [edits.zero(model.heads())])[:, -1].log_softmax(-1)
    want = (clean.exp() * (clean - out)).sum(-1).mean()
    assert found.notes["v_all_minus_v_none"] == pytest.approx(float(want), rel=1e-6)


def test_steps_are_doubled_until_the_contributions_add_up():
    model = probe(build("backup").model, "planted:backup")
    task = repeats_task(model, n=4, max_length=12)
    found = aumann_shapley(model, task, null="none")
    whole = abs(found.notes["v_all_minus_v_none"])
    assert abs(found.notes["completeness_residual"]) <= 0.02 * whole
    steps = int(found.metric.partition("steps=")[2].partition(",")[0])
    fewer = aumann_shapley(model, task, steps=steps // 2, null="none")
    assert steps == 8 or abs(fewer.notes["completeness_residual"]) > 0.02 * whole
