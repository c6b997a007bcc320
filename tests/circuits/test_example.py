"""The example of a circuit: the first pair, its named positions, and where heads attend on it."""

from __future__ import annotations

import re

import interp
from interp.circuits import find_circuit, make_contrast
from interp.circuits.contrast import example_pair
from interp.report.atlas.graph import graph_figure, pair_figure
from interp.report.atlas.mechanisms import circuit_part


def test_planted_heads_attend_where_they_were_built_to() -> None:
    model = interp.load("planted:induction")
    task = make_contrast(model, "induction", n=4)
    found = example_pair(model, task)
    at, tokens = found["positions"], found["clean"]
    differ = [i for i, (a, b) in enumerate(zip(tokens, found["corrupted"], strict=True)) if a != b]
    assert differ == [at["first"]]
    assert tokens[at["first"]] == tokens[at["end"]]
    truth = {role: heads[0] for role, heads in task.truth.items()} or {
        "previous_token": "L0H0",
        "induction": "L1H0",
    }
    query, key, weight = found["attends"][truth["previous_token"]]
    assert (query, key) == (at["next"], at["first"])
    assert weight > 0.9
    query, key, weight = found["attends"][truth["induction"]]
    assert (query, key) == (at["end"], at["next"])
    assert weight > 0.9


def test_the_figure_names_positions_and_tokens() -> None:
    model = interp.load("planted:induction")
    task = make_contrast(model, "induction", n=4)
    part = circuit_part(find_circuit(model, task, "attribution_patching", "edge"), {}).part
    figure = part["figure"]
    assert "example" not in part["provenance"]
    drawn = graph_figure(figure, "c", "Circuit")  # type: ignore[arg-type]
    assert re.search(r"end \u2192 next (0\.9\d|1\.00)", drawn)
    line = pair_figure(figure["pair"])  # type: ignore[typeddict-item]
    assert line.count("<li") == len(figure["pair"]["clean"])  # type: ignore[typeddict-item]
    assert line.count("<s>") == 1
    assert line.count('class="named"') == 3
