"""Contrast tasks by name: prompts from our own templates and words, with their counterfactuals.

    make_contrast(model, "ioi", n=64, seed=0)
    make_contrast(model, "mine.jsonl")      # {"prompt", "corrupted", "answer", "wrong"} per line
    make_contrast(model, "mine.py")         # a function task(model) that makes the pairs

Words that a tokenizer splits are left out; where too few are left, the task refuses and says which
words it tried. What there is (`TASKS`) is read without importing torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.core.errors import OptionError, UnknownName

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model


@dataclass(frozen=True)
class About:
    """A task as it is listed.

    Args:
        roles: token positions that every prompt names.
        metric: what is read from the logits, and its unit.
        templates: sentences, in the order in which `make_contrast(templates=...)` counts them;
            empty where prompts are random tokens.
        model: the only model that it is for, if there is one.
    """

    summary: str
    roles: tuple[str, ...]
    metric: str
    templates: tuple[str, ...] = ()
    model: str = ""


_LATER = "probability of later years less that of the others"
TASKS: dict[str, About] = {
    "induction": About(
        "after `a b ... a`, b; on random tokens, so that any model with ids can be asked",
        ("first", "next", "end"), "logit of b less that of a random token",
    ),
    "ioi": About(
        "indirect object identification: who of two is given something by the other",
        ("IO", "S1", "S1+1", "S2", "end"), "logit of the other less that of the giver",
        (
            "When {A} and {B} went to the {P}, {S} gave a {T} to",
            "{A} and {B} were at the {P}. {S} gave a {T} to",
            "One day, {A} and {B} met at the {P}, and {S} gave a {T} to",
            "{A} and {B} played in the {P}. Then {S} wanted to give a {T} to",
            "After {A} and {B} came back from the {P}, {S} showed a {T} to",
        ),
    ),
    "greater_than": About(
        "a span of years ends later than it begins", ("YY", "end"), _LATER,
        (
            "The {N} lasted from the year {Y} to the year {C}",
            "The {N} began in the year {Y} and ended in the year {C}",
            "From the year {Y} the {N} went on until the year {C}",
        ),
    ),
    "subject_verb": About(
        "a verb agrees with its subject over a distractor of the other number",
        ("subject", "distractor", "end"), "logit of the right form less that of the other",
        (
            "The {S} {L} the {D}",
            "I think that the {S} {L} the {D}",
            "Every day, the {S} {L} the {D}",
        ),
    ),
    "docstring": About(
        "the next argument that a docstring describes is the next in the signature",
        ("A_def", "B_def", "C_def", "A_doc", "B_doc", "end"),
        "logit of the next argument less the mean of the other arguments",
        (
            'def {F}(self, {A}, {B}, {C}, {D}):\n    """{1} {2}\n\n    :param {A}: {3} {4}\n'
            "    :param {B}: {5} {6}\n    :param",
            "def {F}(self, {A}, {B}, {C}, {D}):\n    # {1} {2}\n    # {A}: {3} {4}\n"
            "    # {B}: {5} {6}\n    #",
            "function {F}( {A}, {B}, {C}, {D})\n  -- {1} {2}\n  -- @param {A} {3} {4}\n"
            "  -- @param {B} {5} {6}\n  -- @param",
        ),
    ),
}  # fmt: skip
_PLANTED: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(
        ("induction", "bystander", "backup", "sink", "zoo"),
        (TASKS["induction"].roles, TASKS["induction"].metric),
    ),
    "copy_suppression": (
        ("seen", "end"), "logit of a token at random less that of the predicted one, seen before",
    ),
    "refusal": (("marker", "end"), "logit of declining less that of the usual next token"),
    "selective_induction": (
        ("end",), "logit of what the lag's token predicts less that of what another would",
    ),
}  # fmt: skip


def _planted() -> dict[str, About]:
    from interp.planted import PLANTED

    return {
        f"planted:{name}": About(PLANTED[name], roles, metric, model=f"planted:{name}")
        for name, (roles, metric) in _PLANTED.items()
    }


TASKS |= _planted()


def make_contrast(
    model: Model,
    name: str,
    *,
    n: int = 32,
    seed: int = 0,
    templates: Sequence[int] | None = None,
) -> ContrastTask:
    """A task by name, with n pairs of prompts; or the first n pairs of a .jsonl or .py file.

    Args:
        templates: which of the task's templates to write prompts from, by number from 0; all of
            them unless given. Of a file, which of its pairs.

    Raises:
        UnknownName: no such task.
        PromptError: the model's tokenizer splits too many of its words, or there is none; a file
            that cannot be read, or whose pairs have one side, or sides of unequal length.
        OptionError: n is below 1; a template that there is not; a planted task on another model.
    """
    from interp.model.given import one_model

    model = one_model(model)
    name = known_task(name)
    if n < 1:
        raise OptionError(f"n={n} pairs; 1 or more")
    if is_file(name):
        from interp.circuits.tasks import own_pairs

        return own_pairs.make(model, Path(name), n, templates)
    known = len(TASKS[name].templates)
    chosen = tuple(range(known)) if templates is None else tuple(dict.fromkeys(templates))
    if (templates is not None and not chosen) or not set(chosen) <= set(range(known)):
        raise OptionError(
            f"templates {list(chosen)} of {name}; it has {known or 'none'}, counted from 0"
        )
    kind, _, rest = name.partition(":")
    if rest:
        return import_module("interp.circuits.tasks.planted_pairs").make(model, n, seed, rest)
    module = import_module(f"interp.circuits.tasks.{kind}_pairs")
    if known:
        return module.make(model, n, seed, chosen)
    task = module.make(model, n, seed)
    if name == "induction":  # a planted model's circuit is known whatever the task is called
        from interp.circuits.tasks.planted_pairs import circuit_edges, planted_model_of, truth_of

        built = planted_model_of(model)
        if built is not None and "induction" in built.roles:
            task = task.known(truth_of(built), circuit_edges(built))
    return task


def contrast_of(model: Model, task: Any) -> ContrastTask:
    """Return a contrast task as it is, or make the one of a name or file.

    Raises:
        OptionError: something else; what `make_contrast` raises.
    """
    if isinstance(task, str | Path):
        return make_contrast(model, str(task))
    from interp.circuits.contrast import ContrastTask

    if not isinstance(task, ContrastTask):
        raise OptionError(
            f"{type(task).__name__} is not a contrast task; give what"
            " interp.make_contrast(model, 'induction') returns, a task's name, or a .jsonl file"
        )
    return task


def is_file(name: str) -> bool:
    """True if a task is the user's own pairs: a .jsonl file, or a .py file that makes them."""
    return name.endswith((".jsonl", ".py"))


def known_task(name: str) -> str:
    """The name of a task, in which hyphens are as good as underscores; a file as it is.

    Raises:
        UnknownName: no such task.
        OptionError: a file of another kind.
    """
    if is_file(name):
        return name
    usual = name.replace("-", "_")
    if usual not in TASKS and Path(name).suffix in (".txt", ".json", ".csv", ".tsv"):
        raise OptionError(
            f"{name}: a circuit is found on pairs of prompts, from a .jsonl file with the fields"
            " prompt, corrupted, answer, wrong, or from a .py file whose function task(model)"
            " returns a Task with corrupted prompts, or a ContrastTask"
        )
    if usual not in TASKS:
        raise UnknownName("contrast task", name, [*TASKS, "FILE.jsonl", "FILE.py"])
    return usual


def split_templates(name: str, seed: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Templates (or lines of a file) to find a circuit on, and others, about a third, held out.

    Both are empty where a task has fewer than two: then new random prompts are all there is. How
    many pairs a Python file makes is not known before it runs; `interp.circuits.plan` splits these.

    Raises:
        PromptError: a file that cannot be read, or with too few pairs.
    """
    name = known_task(name)
    if is_file(name):
        from interp.circuits.tasks import own_pairs

        return third(own_pairs.count_pairs(Path(name)), seed)
    return third(len(TASKS[name].templates), seed)


def third(n: int, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Numbers below n in two parts, of which the second is about a third; empty if n is below 2."""
    import numpy as np

    if n < 2:
        return (), ()
    order = np.random.default_rng([seed, 25]).permutation(n).tolist()
    out = max(1, round(n / 3))
    return tuple(sorted(order[out:])), tuple(sorted(order[:out]))
