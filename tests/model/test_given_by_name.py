"""Public calls take a model by name, and say in one line what is wrong with what they are given."""

from __future__ import annotations

import pytest
from together import over

import interp
from interp.causal import banzhaf, patching_gradient
from interp.circuits import evaluate_edges, signals
from interp.core.errors import OptionError
from interp.heads import needle, outliers
from interp.model.model_argument import takes_model
from interp.safety import ships_scores
from interp.syntax import dependency_trees

NAME = "planted:backup"


def test_a_model_by_name_gives_what_the_loaded_one_gives() -> None:
    model = interp.load(NAME)
    task = interp.repeats_task(model, n=2)
    by_name = interp.ablate(NAME, interp.repeats_task(NAME, n=2), null="none")
    loaded = interp.ablate(model, task, null="none")
    assert by_name.score.tolist() == loaded.score.tolist()
    text = "Anna sings so"
    lens = [
        interp.lens.logit_lens(x, text) for x in ("bundled:deceive", interp.load("bundled:deceive"))
    ]
    assert lens[0].to_pandas().equals(lens[1].to_pandas())


def test_a_circuit_is_found_for_a_task_by_name() -> None:
    found = interp.find_circuit(NAME, "induction", "attribution_patching")
    pairs = interp.circuits.make_contrast(NAME, "induction")
    same = interp.find_circuit(interp.load(NAME), pairs, "attribution_patching")
    assert found.to_pandas().equals(same.to_pandas())


@over(
    "call",
    [
        interp.score,
        interp.ablate,
        interp.shapley,
        interp.find_circuit,
        banzhaf,
        interp.circuits.evaluate_circuit,
        interp.faithfulness,
        interp.lens.logit_lens,
        interp.confirm,
        signals,
        evaluate_edges,
        needle.ids_instances,
        outliers.sink_mass,
        ships_scores,
        dependency_trees,
        patching_gradient,
        interp.model.check_model,
    ],
)
def test_something_else_is_refused_in_one_line(call) -> None:
    unchecked = call.__wrapped__  # what is missing beside the model is said first otherwise
    with pytest.raises(OptionError, match=r"int is not a model; give what interp\.load returns"):
        unchecked(3)
    with pytest.raises(OptionError, match=r"int is not a model|missing a required argument: '\w+'"):
        call(3)


def test_a_task_that_is_none_is_refused_in_one_line() -> None:
    with pytest.raises(
        OptionError,
        match=r"task must be a Task, and the text 'induction' was given; interp\.repeats_task",
    ):
        interp.ablate(NAME, "induction")
    with pytest.raises(
        OptionError,
        match=r"task must be a ContrastTask or a text, and the number 3 was given;"
        r" interp\.circuits\.tasks\.make_contrast returns one",
    ):
        interp.find_circuit(NAME, 3)
    with pytest.raises(OptionError, match=r"int is not a model; give what interp\.load returns"):
        interp.repeats(3)


def test_prompts_are_generated_for_a_model_by_name() -> None:
    assert interp.repeats(NAME, n=2).ids == interp.repeats(interp.load(NAME), n=2).ids


def test_signature_and_docstring_stay() -> None:
    @takes_model
    def measured(model, k: int = 2) -> int:
        """Count."""
        return k * model.n_heads

    assert (measured.__name__, measured.__doc__) == ("measured", "Count.")
    assert measured(NAME, k=3) == measured(model=NAME, k=3) == 3 * interp.load(NAME).n_heads
