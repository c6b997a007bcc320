"""Models that were trained to hold a known algorithm hold it, by another forward pass."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch

import interp
from interp.circuits.find import find_circuit
from interp.circuits.tasks import TASKS, make_contrast
from interp.core.errors import OptionError, UnknownName
from interp.planted.trained import HERE, SEVERAL_TASKS, TRAINED, trained_card, trained_model
from interp.planted.trained.cases import CASES

NAMES = sorted(TRAINED)
TRAINED_TASKS = [name for name in TASKS if name.startswith("trained:")]


def test_lists_agree() -> None:
    assert set(CASES) == set(TRAINED)
    assert {n: tuple(c.ends) for n, c in CASES.items() if len(c.ends) > 1} == SEVERAL_TASKS
    assert {n.split(":")[1] for n in TRAINED_TASKS} == set(TRAINED)
    files = {f.name: f.stat().st_size for f in HERE.glob("*.safetensors")}
    assert set(files) == {f"{name}.safetensors" for name in TRAINED}
    assert max(files.values()) < 300_000
    assert sum(files.values()) < 1_500_000


@pytest.mark.parametrize("name", NAMES)
def test_interchange_by_hooks_of_the_plain_model(name) -> None:
    """Each variable's head, from another prompt, gives the algorithm's answer; others change none.

    Training has a forward pass of its own; here the plain GPT-2 runs, with hooks.
    """
    case: Any = CASES[name]
    model: Any = trained_model(name)
    rng = np.random.default_rng(7)
    n = 200
    base, other = (case.draw(rng, n) for _ in range(2))
    _, source, _ = case.run(other)
    size = case.width // case.heads
    held: dict[str, torch.Tensor] = {}

    def answers(ids: np.ndarray, nodes: tuple[str, ...] | None) -> dict[str, np.ndarray]:
        """Answers; with None, what every node writes is stored, else it is put in for some."""
        hooks = []
        for i, block in enumerate(model.transformer.h):

            def heads(module, args, i=i):
                if nodes is None:
                    held[f"L{i}"] = args[0].clone()
                    return None
                x = args[0].clone()
                for h in range(case.heads):
                    if f"L{i}H{h}" in nodes:
                        at = slice(h * size, (h + 1) * size)
                        x[..., at] = held[f"L{i}"][..., at]
                return (x,)

            def mlp(module, args, out, i=i):
                if nodes is None:
                    held[f"mlp{i}"] = out.clone()
                return held[f"mlp{i}"] if nodes is not None and f"mlp{i}" in nodes else None

            hooks += [
                block.attn.c_proj.register_forward_pre_hook(heads),
                block.mlp.register_forward_hook(mlp),
            ]
        with torch.no_grad():
            logits = model(torch.from_numpy(ids)).logits
        for hook in hooks:
            hook.remove()
        return {task: logits[:, end].argmax(-1).numpy() for task, end in case.ends.items()}

    answers(other, None)
    every = [f"L{i}H{h}" for i in range(case.layers) for h in range(case.heads)]
    every += [f"mlp{i}" for i in range(case.layers)]
    outside = [node for node in every if node not in case.nodes.values()]
    moved = 0
    taken = [((v,), (node,)) for v, node in case.nodes.items()]
    taken += [((), (node,)) for node in outside]
    taken += [((), tuple(outside)), (tuple(case.nodes), tuple(case.nodes.values()))]
    plain, _, _ = case.run(base)
    for variables, nodes in taken:
        wanted, _, _ = case.run(base, source, {v: np.ones(n, dtype=bool) for v in variables})
        got = answers(base, nodes)
        for task in case.ends:
            assert (got[task] == wanted[task]).mean() >= 0.97, (task, variables, nodes)
            moved += int(len(variables) == 1 and (wanted[task] != plain[task]).mean() > 0.1)
    assert moved >= len(case.nodes)  # every variable changes answers


@pytest.mark.parametrize("name", NAMES)
def test_a_card_states_what_was_required(name) -> None:
    stated, case = trained_card(name), CASES[name]
    assert stated["nodes"] == dict(case.nodes)
    assert stated["n"] >= 5000
    assert min(stated["agreement"].values()) >= 0.99
    outside = case.layers * (case.heads + 1) - len(case.nodes)
    assert len(stated["effects_outside"]) == outside
    assert all(each["resampled"] <= 0.05 for each in stated["effects_outside"].values())
    assert set(case.decoys.values()) <= set(stated["effects_outside"])
    assert json.dumps(stated)


@pytest.mark.parametrize("name", TRAINED_TASKS)
def test_pairs_differ_in_the_answer_that_is_read(name) -> None:
    case = CASES[name.split(":")[1]]
    model = interp.load(TASKS[name].model)
    task = make_contrast(model, name, n=12)
    which = name.split(":")[-1]
    clean, corrupted = (np.array(x.ids) for x in (task.clean, task.corrupted))
    assert (case.run(clean)[0][which] != case.run(corrupted)[0][which]).all()
    mean, sem = task.gap(model)
    assert mean > 5 * sem
    nodes, edges = case.circuit(which)
    assert {x for heads in task.truth.values() for x in heads} == {
        node for node in nodes.values() if node[0] == "L"
    }
    assert task.truth_edges == edges


def test_decoys_attend_as_the_circuit_does() -> None:
    case, model = CASES["names"], interp.load("trained:names")
    ids = case.draw(np.random.default_rng(0), 64)
    cache = model.capture(ids.tolist(), ["pattern"])
    _, _, looks = case.run(ids)
    for variable, decoy in case.decoys.items():
        layer, head = (int(x) for x in decoy[1:].split("H"))
        look = torch.from_numpy(looks[variable].copy())
        rows = look.any(-1)
        mass = (cache["pattern", layer][:, head] * look).sum(-1)[rows]
        assert float(mass.mean()) > 0.5, variable


def test_the_default_method_finds_the_circuit_and_no_decoy() -> None:
    model = interp.load("trained:induction")
    task = make_contrast(model, "trained:induction", n=16)
    found: Any = find_circuit(model, task)
    assert {node for node in found.chosen.nodes if node[0] == "L"} == {"L0H1", "L1H2"}


def test_a_task_is_for_its_model_alone() -> None:
    model: Any = interp.load("trained:names")
    with pytest.raises(OptionError, match="is for the model trained:induction, and not for"):
        make_contrast(model, "trained:induction")
    with torch.no_grad():
        model.module.transformer.wte.weight[3] += 1
    with pytest.raises(OptionError, match="is for the model trained:names"):
        make_contrast(model, "trained:names")
    with pytest.raises(UnknownName, match="trained model 'nmes'; did you mean names"):
        interp.load("trained:nmes")
