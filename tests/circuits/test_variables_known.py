"""Variables of models trained to hold an algorithm: in their heads, not outside the circuit."""

from __future__ import annotations

import numpy as np
import pytest

import interp
from interp.circuits import find_variables
from interp.circuits.variables.interchanges import Interchange
from interp.planted.trained.cases import CASES, Case


def _interchanges(case: Case, task: str, variable: str, n: int) -> list[Interchange]:
    """Return pairs whose answer the variable changes, by the algorithm itself."""
    rng = np.random.default_rng(0)
    base, source = case.draw(rng, 20 * n), case.draw(rng, 20 * n)
    values, plain = case.run(source)[1], case.run(base)[0][task]
    answer = case.run(base, values, {variable: np.ones(len(base), bool)})[0][task]
    return [
        Interchange(
            tuple(base[i].tolist()),
            tuple(source[i].tolist()),
            int(answer[i]),
            int(plain[i]),
            f"{task}: {variable}",
            read_at=case.ends[task],
        )
        for i in np.flatnonzero(answer != plain)[:n]
    ]


@pytest.mark.parametrize(
    "name",
    [
        "suppression",
        *(pytest.param(x, marks=pytest.mark.slow) for x in CASES if x != "suppression"),
    ],
)
def test_each_variable_is_found_in_its_head_and_nowhere_outside_the_circuit(name: str) -> None:
    case, model = CASES[name], interp.load(f"trained:{name}")
    heads = [f"L{site.layer}H{h}" for site in model.sites for h in range(site.n_heads)]
    pairs, truth = [], {}
    for task in case.outputs:
        for variable in case.needed(task):
            some = _interchanges(case, task, variable, 120)
            if case.nodes[variable] in heads and len(some) == 120:
                truth[f"{task}: {variable}"] = case.nodes[variable]
                pairs += some
    assert len(truth) >= 2
    found = find_variables(model, pairs, heads, steps=8).to_pandas()
    for variable, rows in found.groupby("variable"):
        scores = dict(zip(rows["place"], rows["score"].fillna(0), strict=True))
        whole = dict(zip(rows["place"], rows["whole"], strict=True))
        places = set(rows["place"][rows["finding"] == "found"])
        # heads before and after it may pass on what gives the same answer
        inside = {case.nodes[v] for v in case.needed(str(variable).partition(":")[0])}
        assert truth[str(variable)] in places <= inside, (variable, places)
        assert whole[truth[str(variable)]] > 0.95
        assert scores[truth[str(variable)]] > 0.7
