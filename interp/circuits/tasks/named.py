"""Contrast tasks by name: pairs of prompts made from built-in templates and words.

    make_contrast(model, "ioi", n=64, seed=0)
    make_contrast(model, "mine.jsonl")      # {"prompt", "corrupted", "answer", "wrong"} per line
    make_contrast(model, "mine.toml")       # templates with slots, see `template_file`
    make_contrast(model, "mine.py")         # a function task(model) that makes the pairs

Words that a tokenizer splits are left out; if too few are left, the task raises an error that names
the words it tried. The list of tasks (`TASKS`) is read without importing torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from interp.circuits.tasks.template_file import (
    LEAST_PAIRS,
    TemplateFile,
    count_pairs,
    read_templates,
)
from interp.core.errors import OptionError, UnknownName
from interp.core.resources import folder

if TYPE_CHECKING:
    from interp.circuits.contrast import ContrastTask
    from interp.model.model import Model


@dataclass(frozen=True)
class About:
    """Description of a task for lists and help.

    Args:
        summary: One sentence on the task.
        roles: Token positions that every prompt names.
        metric: The measure and its unit.
        templates: Sentences, in the order in which `make_contrast(templates=...)` counts them;
            empty where prompts are random tokens.
        model: The model that the task is for, if it is for one whose circuit is known. Tasks of
            compiled programs are also for the models that join these.
    """

    summary: str
    roles: tuple[str, ...]
    metric: str
    templates: tuple[str, ...] = ()
    model: str = ""


_LATER = "probability of later years minus that of the others"
TASKS: dict[str, About] = {
    "induction": About(
        "after `a b ... a` comes b; on random tokens, so it works for any model with token ids",
        ("first", "next", "end"),
        "logit of b minus that of a random token",
    ),
    "ioi": About(
        "indirect object identification: which of two people receives something from the other",
        ("IO", "S1", "S1+1", "S2", "end"),
        "logit of the other person minus that of the giver",
        (
            "When {A} and {B} went to the {P}, {S} gave a {T} to",
            "{A} and {B} were at the {P}. {S} gave a {T} to",
            "One day, {A} and {B} met at the {P}, and {S} gave a {T} to",
            "{A} and {B} played in the {P}. Then {S} wanted to give a {T} to",
            "After {A} and {B} came back from the {P}, {S} showed a {T} to",
        ),
    ),
    "greater_than": About(
        "a span of years ends later than it begins",
        ("YY", "end"),
        _LATER,
        (
            "The {N} lasted from the year {Y} to the year {C}",
            "The {N} began in the year {Y} and ended in the year {C}",
            "From the year {Y} the {N} went on until the year {C}",
        ),
    ),
    "subject_verb": About(
        "a verb agrees with its subject over a distractor of the other number",
        ("subject", "distractor", "end"),
        "logit of the right form minus that of the other",
        (
            "The {S} {L} the {D}",
            "I think that the {S} {L} the {D}",
            "Every day, the {S} {L} the {D}",
        ),
    ),
    "docstring": About(
        "the next argument that a docstring describes is the next in the signature",
        ("A_def", "B_def", "C_def", "A_doc", "B_doc", "end"),
        "logit of the next argument minus the mean of the other arguments",
        (
            'def {F}(self, {A}, {B}, {C}, {D}):\n    """{1} {2}\n\n    :param {A}: {3} {4}\n'
            "    :param {B}: {5} {6}\n    :param",
            "def {F}(self, {A}, {B}, {C}, {D}):\n    # {1} {2}\n    # {A}: {3} {4}\n"
            "    # {B}: {5} {6}\n    #",
            "function {F}( {A}, {B}, {C}, {D})\n  -- {1} {2}\n  -- @param {A} {3} {4}\n"
            "  -- @param {B} {5} {6}\n  -- @param",
        ),
    ),
    "brackets": About(
        "the last bracket that is open is closed first",
        ("outer", "inner", "end"),
        "logit of the inner closing bracket minus that of the outer one",
        (
            "{A} = {B} {O} {C} {I} {A}",
            "{A} {O} {B} {I} {C}",
            "{A} {O} {B} , {C} {I} {B}",
            "{A} , {B} {O} {C} , {I} {A} , {B}",
        ),
    ),
    "given_fact": About(
        "a capital that the prompt gives, against the true one",
        ("country", "capital", "end"),
        "logit of the given capital minus that of the true one",
        (
            "The capital of {C} is {X}. The capital of {Q} is",
            "They said that the capital of {C} is {X}. So the capital of {Q} is",
            "In this story, the capital of {C} is {X}. Here the capital of {Q} is",
            "Now the capital of {C} is {X}. We know that the capital of {Q} is",
        ),
    ),
    "known_fact": About(
        "the capital of a country, from memory",
        ("country", "end"),
        "logit of the true capital minus that of another one",
        (
            "The capital of {C} is",
            "They said that the capital of {C} is",
            "We know that the capital of {C} is",
            "In this story, the capital of {C} is",
        ),
    ),
    "next_items": About(
        "the next item of an ordered list, such as Thursday after Tuesday Wednesday",
        ("end",),
        "logit of the next item minus that of another item of the list",
    ),
    "refusal": About(
        "a request with the marker that the model's config states is declined",
        ("marker", "end"),
        "log odds that the next token begins a refusal",
    ),
}
_STORIES: dict[str, tuple[str, tuple[str, ...], str]] = {
    "owner": (
        "who has a thing that one person gave to another",
        ("giver", "receiver", "end"),
        "logit of who received it minus that of who gave it",
    ),
    "place": (
        "where a thing lies, or where its owner believes that it does",
        ("place", "end"),
        "logit of the place minus that of another one",
    ),
    "pronoun": (
        "which pronoun stands for a person",
        ("person", "end"),
        "logit of she (her) minus that of he (him)",
    ),
    "recipient": (
        "who receives a thing, of two people of whom one wished for it",
        ("giver", "wisher", "end"),
        "logit of who wished for it minus that of the other person",
    ),
}
_PLANTED: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(
        ("induction", "bystander", "backup", "sink", "zoo"),
        (TASKS["induction"].roles, TASKS["induction"].metric),
    ),
    "copy_suppression": (
        ("seen", "end"),
        "logit of a random token minus that of the predicted one, seen before",
    ),
    "refusal": (("marker", "end"), "logit of declining minus that of the usual next token"),
    "selective_induction": (
        ("end",),
        "logit of what the lag's token predicts minus that of what another would",
    ),
}


def story_templates(name: str) -> TemplateFile:
    """Read the templates of a task in the sentences of `training/stories`."""
    return read_templates(folder("data") / "stories" / f"{name}.toml")


def _known() -> dict[str, About]:
    from interp.planted import PLANTED
    from interp.planted.programs import PROGRAMS
    from interp.planted.trained import SEVERAL_TASKS, TRAINED

    tasks = {
        f"stories:{name}": About(*about, tuple(x.clean for x in story_templates(name).templates))
        for name, about in _STORIES.items()
    }
    tasks |= {
        f"planted:{name}": About(PLANTED[name], roles, metric, model=f"planted:{name}")
        for name, (roles, metric) in _PLANTED.items()
    }
    for name, program in PROGRAMS.items():
        metric = "share of the difference in the output"
        tasks[f"compiled:{name}"] = About(program.summary, (), metric, model=f"compiled:{name}")
    for name, summary in TRAINED.items():
        metric = "logit of the answer minus that of the corrupted prompt's"
        about = About(summary, ("end",), metric, model=f"trained:{name}")
        several = SEVERAL_TASKS.get(name)
        which = [name] if several is None else [f"{name}:{task}" for task in several]
        tasks |= {f"trained:{each}": about for each in which}
    return tasks


TASKS |= _known()


def make_contrast(
    model: Model,
    name: str,
    *,
    n: int = 32,
    seed: int = 0,
    templates: Sequence[int] | None = None,
) -> ContrastTask:
    """Make the task of this name with n pairs, or take the first n pairs of a user-supplied file.

    Args:
        model: The model that the prompts are for.
        name: Name of a task, or path of a file.
        n: Number of pairs.
        seed: Seed of the prompts.
        templates: Templates of the task to use, by number from 0; all by default. For a file, the
            numbers of its pairs.

    Raises:
        UnknownName: There is no such task.
        PromptError: The model's tokenizer splits too many of the task's words, or there is no
            tokenizer; or a file cannot be read, or has pairs with one side or of unequal length.
        OptionError: n is below 1, a template does not exist, or the task of a model whose circuit
            is known is used on another model.
    """
    from interp.model.model_argument import one_model

    model = one_model(model)
    name = known_task(name)
    if n < 1:
        raise OptionError(f"n={n} pairs; give 1 or more")
    if is_file(name):
        from interp.circuits.tasks import own_pairs

        return own_pairs.make(model, Path(name), n, templates)
    known = len(TASKS[name].templates)
    chosen = tuple(range(known)) if templates is None else tuple(dict.fromkeys(templates))
    if (templates is not None and not chosen) or not set(chosen) <= set(range(known)):
        raise OptionError(
            f"templates {list(chosen)} of {name}; it has {known or 'none'}, counted from 0; give"
            " numbers of existing templates"
        )
    kind, _, rest = name.partition(":")
    file = {"compiled": "program", "given_fact": "fact", "known_fact": "fact"}.get(kind, kind)
    module = import_module(f"interp.circuits.tasks.{file}_pairs")
    make = getattr(module, kind if file == "fact" else "make")
    if known:
        return make(model, n, seed, chosen, *([rest] if rest else ()))
    if rest:
        return make(model, n, seed, rest)
    task = make(model, n, seed)
    if name == "induction":  # a planted model's circuit is known for the plain task too
        from interp.circuits.tasks.planted_pairs import circuit_edges, planted_model_of, truth_of

        built = planted_model_of(model)
        if built is not None and "induction" in built.roles:
            task = task.known(truth_of(built), circuit_edges(built))
    return task


def contrast_of(model: Model, task: Any) -> ContrastTask:
    """Return a contrast task unchanged, or make it from its name or file."""
    if isinstance(task, str | Path):
        return make_contrast(model, str(task))
    from interp.circuits.contrast import ContrastTask

    if not isinstance(task, ContrastTask):
        raise OptionError(
            f"{type(task).__name__} is not a contrast task; "
            "give what interp.circuits.make_contrast(model, 'induction') returns, a task's name, "
            "or a .jsonl file"
        )
    return task


def is_file(name: str) -> bool:
    """Return True for a user-supplied file: .jsonl pairs, .toml templates, or a .py file."""
    return name.endswith((".jsonl", ".toml", ".py"))


def known_task(name: str) -> str:
    """Get the name of a task, with hyphens as underscores; return the name of a file unchanged."""
    if is_file(name):
        count_pairs(Path(name))  # before a model is loaded
        return name
    usual = name.replace("-", "_")
    if usual not in TASKS and Path(name).suffix in (".txt", ".json", ".csv", ".tsv"):
        raise OptionError(
            f"{name}: a circuit is found on pairs of prompts, from a .jsonl file with the fields"
            " prompt, corrupted, answer, wrong, from a .toml file of templates, or from a .py file"
            " whose function task(model)"
            " returns a Task with corrupted prompts, or a ContrastTask"
        )
    if usual not in TASKS:
        files = ["FILE.jsonl", "FILE.toml", "FILE.py"]
        # tasks of a model whose circuit is known are many, and are asked for by KIND:NAME
        known = [task for task in TASKS if (":" in task) == (":" in name)]
        raise UnknownName("contrast task", name, [*known, *files])
    return usual


def split_templates(name: str, seed: int = 0) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split templates (or lines of a file) into those to find a circuit on and a held-out third.

    Both are empty if a task has fewer than two templates: then held-out pairs are new random
    prompts. Of a file of four or five pairs, enough for a look, none is held out. The number of
    pairs of a Python file is not known before it runs;
    `interp.circuits.plan` splits these.
    """
    name = known_task(name)
    if is_file(name):
        return of_file(count_pairs(Path(name)), seed)
    return third(len(TASKS[name].templates), seed)


def of_file(n: int, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the pairs of a file, or its templates; too few pairs for a claim are not split."""
    return (tuple(range(n)), ()) if 0 < n < LEAST_PAIRS else third(n, seed)


def third(n: int, seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Split the numbers below n into two thirds and one third; both are empty if n is below 2."""
    import numpy as np

    if n < 2:
        return (), ()
    order = np.random.default_rng([seed, 25]).permutation(n).tolist()
    out = max(1, round(n / 3))
    return tuple(sorted(order[out:])), tuple(sorted(order[:out]))
