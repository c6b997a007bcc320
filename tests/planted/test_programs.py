"""Compiled programs compute what they state, alone and side by side, without Tracr."""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
import torch

import interp
from interp.circuits.edge_forward import EdgeForward
from interp.circuits.methods._exact import path_effects
from interp.circuits.residual_graph import ResidualGraph
from interp.circuits.tasks import make_contrast
from interp.core.errors import OptionError, UnknownName
from interp.planted import known_models
from interp.planted.programs import JOINS, PROGRAMS, joined, program


def balanced(x, pairs):
    """What Tracr's `shuffle_dyck` states: no prefix closes too much, and all is closed."""
    good = True
    for begin, end in pairs:
        depth = [sum((w == begin) - (w == end) for w in x[: i + 1]) for i in range(len(x))]
        good = good and min(depth) >= 0 and depth[-1] == 0
    return [good] * len(x)


def shares(x, word):
    return [x[: i + 1].count(word) / (i + 1) for i in range(len(x))]


def differ(x):
    return len(set(x)) == len(list(x))


def by_frequency(x):
    return sorted(x, key=lambda w: (-x.count(w), x.index(w)))


ANSWERS = {
    "length": lambda x: [len(x)] * len(x),
    "hist": lambda x: [x.count(w) for w in x],
    "count": lambda x: [x.count("a")] * len(x),
    "shift_by": lambda x: [None, *x[:-1]],
    "reverse": lambda x: x[::-1],
    "sort_unique": lambda x: sorted(x) if differ(x) else None,
    "sort": sorted,
    "sort_freq": lambda x: by_frequency(x) if differ(Counter(x).values()) else None,
    "nary_sequencemap": lambda x: [w + w % 3 - i for i, w in enumerate(x)],
    "frac_prevs": lambda x: shares(x, "x"),
    "frac_prevs_causal": lambda x: shares(x, "x"),
    "count_less_freq": lambda x: [sum(x.count(w) <= 2 for w in x)] * len(x),
    "detect_pattern": lambda x: [
        tuple(x[max(i - 2, 0) : i + 1]) == ("a", "b", "c") for i in range(len(x))
    ],
    "pair_balance": lambda x: [a - b for a, b in zip(shares(x, "("), shares(x, ")"), strict=True)],
    "shuffle_dyck": lambda x: balanced(x, ["()"]),
    "shuffle_dyck2": lambda x: balanced(x, ["()", "{}"]),
}


def lists_of(name: str, n: int) -> list[list]:
    draw = random.Random(0)
    entry = PROGRAMS[name]
    lists = [[draw.choice(entry.words) for _ in range(entry.longest)] for _ in range(n)]
    if name.startswith("shuffle"):
        lists += [list("()()()"), list("((()))"), list("())(()")]
    if name == "sort_unique":
        lists = [draw.sample(entry.words, 4) for _ in range(n)]
    return lists


def answers(outputs, values):
    """What the outputs at the words stand for."""
    if not values:
        return outputs[:, 0].tolist()
    return [values[i] for i in outputs.argmax(-1).tolist()]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_computes_what_it_states(name) -> None:
    made = joined(name)
    checked = 0
    for x in lists_of(name, 24):
        want = ANSWERS[name](x)
        if want is None:
            continue
        with torch.no_grad():
            out = made.module(torch.tensor([made.ids([x])])).logits[0, 1:]
        got = answers(out, made.parts[name].outputs)
        known = [(a, b) for a, b in zip(got, want, strict=True) if b is not None]
        assert [a for a, _ in known] == pytest.approx([b for _, b in known], abs=1e-3), x
        checked += len(known)
    assert checked > 20


@pytest.mark.parametrize("name", [name for name in JOINS if "shuffle_dyck2" not in name])
def test_a_joined_program_computes_what_it_computes_alone(name) -> None:
    made = joined(name)
    draw = random.Random(1)
    for _ in range(4):
        lists = [
            [draw.choice(PROGRAMS[each].words) for _ in range(made.longest)] for each in made.parts
        ]
        with torch.no_grad():
            out = made.module(torch.tensor([made.ids(lists)])).logits[0]
            for x, part in zip(lists, made.parts.values(), strict=True):
                alone = joined(part.name)
                want = alone.module(torch.tensor([alone.ids([x])])).logits[0]
                torch.testing.assert_close(out[:, list(part.columns)], want, atol=1e-3, rtol=0)


def test_heads_of_one_program_have_no_effect_on_the_other() -> None:
    """Every known edge has an effect and no other edge has any, in a model of two programs."""
    model = interp.load("compiled:detect_pattern+sort_unique")
    graph = ResidualGraph.of(model)
    for name, heads in (("detect_pattern", {"L1H0", "L1H1"}), ("sort_unique", {"L0H2", "L1H2"})):
        task = make_contrast(model, f"compiled:{name}", n=8)
        assert set(task.truth[name]) == heads
        (batch,) = task.batches()
        paths = EdgeForward(graph, batch.clean, batch.corrupted)
        effects = path_effects(paths, batch.value, graph.edges).abs().amax(1)
        found = {e for e, x in zip(graph.edges, effects.tolist(), strict=True) if x > 1e-4}
        assert found == set(task.truth_edges)
        # the other program's heads do differ between the two sides of a pair
        differs = make_contrast(model, f"compiled:{name}", n=8)
        assert differs.gap(model)[0] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "shuffle_dyck2"])
def test_every_known_edge_has_an_effect_and_no_other(name) -> None:
    model = interp.load(f"compiled:{name}")
    graph = ResidualGraph.of(model)
    task = make_contrast(model, f"compiled:{name}", n=16)
    (batch,) = task.batches()
    effects = path_effects(
        EdgeForward(graph, batch.clean, batch.corrupted), batch.value, graph.edges
    )
    sizes = effects.abs().amax(1).tolist()
    assert {e for e, x in zip(graph.edges, sizes, strict=True) if x > 1e-4} == set(task.truth_edges)


def test_programs_that_cannot_be_joined() -> None:
    with pytest.raises(UnknownName, match="compiled program 'nosuch'"):
        joined("hist+nosuch")
    with pytest.raises(UnknownName, match="compiled model 'hisst'; did you mean hist"):
        interp.load("compiled:hisst")
    with pytest.raises(OptionError, match="with itself"):
        interp.load("compiled:hist+hist")
    with pytest.raises(OptionError, match="causal attention and others"):
        interp.load("compiled:hist+pair_balance")
    with pytest.raises(OptionError, match="do not know the words"):
        joined("hist").ids([["a", "z"]])
    with pytest.raises(OptionError, match="1 lists of words for the 2 programs"):
        joined("hist+count").ids([["a"]])


@pytest.mark.parametrize("name", ["shuffle_dyck2", "reverse", "detect_pattern"])
def test_few_pairs_differ_too_where_the_program_is_read(name) -> None:
    made = joined(name)
    for n in (1, 3):
        task = make_contrast(interp.load(f"compiled:{name}"), f"compiled:{name}", n=n, seed=5)
        assert len(task) == n
        for clean, corrupted, at in zip(
            task.clean.ids, task.corrupted.ids, task.task.positions, strict=True
        ):
            with torch.no_grad():
                out = made.module(torch.tensor([clean, corrupted])).logits[:, list(at)]
            assert float((out[0] - out[1]).abs().max()) > 0.1
            assert made.pad not in [side[p] for side in (clean, corrupted) for p in at]


def test_the_task_of_a_program_is_for_models_that_hold_it() -> None:
    model: Any = interp.load("compiled:hist")
    with pytest.raises(
        OptionError, match="the task compiled:count is for the model compiled:count"
    ):
        make_contrast(model, "compiled:count")
    with torch.no_grad():
        model.module.token_embed.weight[0] += 1
    with pytest.raises(OptionError, match="not for compiled:hist"):
        make_contrast(model, "compiled:hist")
    assert make_contrast(
        interp.load("compiled:hist"), "compiled:hist", n=2
    ).truth  # none of it kept


@pytest.mark.parametrize("name", ["length", "hist", "frac_prevs_causal", "nary_sequencemap"])
def test_programs_are_scored_and_padded_only_where_it_changes_nothing(name: str) -> None:
    """They take no mask: an attention that looks ahead sees what fills, also beside its words."""
    model = interp.load(f"compiled:{name}")
    exact = name in ("frac_prevs_causal", "nary_sequencemap")
    assert model.padding.way("right", 6) == ("mask" if exact else None)
    assert model.padding.way("left", 6) is None
    table = interp.score(model, ["entropy", "first_token"], null="none")
    assert table.to_pandas()["score"].notna().all()


def test_the_names_import_no_torch() -> None:
    code = (
        "import sys; from interp.planted import KINDS, known_models;"
        "assert all(known_models(kind) for kind in KINDS); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert set(known_models("compiled")) == {*PROGRAMS, *JOINS}
    assert program("hist").nodes == {"embed", "L0H0", "mlp0"}
