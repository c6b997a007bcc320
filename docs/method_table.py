"""The method table: every declared method with definition, cost, null and when not to use it.

    python docs/method_table.py     writes docs/methods.md anew

Definition, unit, range and source are read from the code, and so is when not to use a method, where
its docstring has a paragraph `Not for: ...`; docs/when_not.toml says it of all others, and what a
method costs where that is not what its kind costs.
"""

from __future__ import annotations

import ast
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from interp.causal.comparison.questions import METHODS as QUESTIONS
from interp.causal.game.replacement import KINDS
from interp.cli.commands.methods import needs
from interp.cli.commands.metrics import span
from interp.core import registry as catalogue
from interp.core.calibration import chance_of

HERE = Path(__file__).parent
PAGE = HERE / "methods.md"

# Sections of the page: title, and what the reader must know of all in it.
SECTIONS = {
    "heads": (
        "Where heads attend",
        "`interp score MODEL -m NAME`, `interp.score(model, NAME)`. A detector is one line that "
        "says which keys an ideal head attends to; the score is the mean attention there over the "
        "rows that have such a key, so an ideal head scores 1 on any prompt.",
    ),
    "weights": (
        "What heads compute, from weights alone",
        "`interp score MODEL -m NAME`. Exact: no prompts, no standard error. They say what a head "
        "would do with what it might read.",
    ),
    "special": (
        "Kinds of head that show in an experiment",
        "`interp score MODEL -m NAME`, not by default. Each makes prompts of its own. Where one "
        "head scores what chance gives, the column of the null says how much that is.",
    ),
    "flow": (
        "Which tokens a number comes from",
        "`interp attribute TEXT --model MODEL -m NAME`, `interp.attribution.attribute`. The null "
        "of all is `random_scores`, and the standing test is `bundled:deceive`, a model trained "
        "to hide the deciding word from its attention.",
    ),
    "importance": (
        "What a task loses without a head",
        "`interp ablate`, `interp shapley`, `interp importance`; in Python "
        "`from interp.causal import *`. They answer different questions, so their rankings differ. "
        "The unit is the task's.",
    ),
    "importance_more": ("More about heads and tasks", "In Python; some have a command."),
    "replacement": (
        "Seven things that are called ablation",
        "What stands in for a head that is taken out is part of every score's name (`--kind`; "
        "`interp.model.edits`). They give different numbers.",
    ),
    "discovery": (
        "Which circuit does a task",
        "`interp circuit TASK MODEL --method NAME`, `interp.circuits.find.find_circuit`. Scores are"
        " "
        "measured again on other pairs of prompts, beside heads in random order.",
    ),
    "circuits": ("How good a circuit is", "Part of `interp circuit`."),
    "syntax": ("Dependency trees", "`interp trees MODEL`; `interp.syntax`."),
    "safety": ("What a refusal hangs on", "`interp safety MODEL`; `interp.safety`."),
    "needle": (
        "Needles in haystacks",
        "`interp.heads.needle`; as metrics `retrieval`, `qr_retrieval`.",
    ),
    "outliers": (
        "Sinks, silent heads and outliers on your own prompts",
        "`interp.heads.outliers`; on random tokens they are metrics (above).",
    ),
    "lens": ("The residual stream read as logits", "`interp.lens`."),
}
# Rooms of functions that have no catalogue of their own: their public functions are methods,
# but for these, which make what a method takes or draw what it found.
PACKAGES = {
    "importance_more": "interp.causal",
    "syntax": "interp.syntax",
    "safety": "interp.safety",
    "needle": "interp.heads.needle",
    "outliers": "interp.heads.outliers",
    "lens": "interp.lens",
}
NO_METHODS = {
    "interp.causal": {
        # tasks and their measures
        "accuracy", "answer_probability", "custom", "kl_to_clean", "logit_difference", "loss",
        "next_token_task", "repeats_task",
        # what is said before a run, drawn after it, or shared by several methods
        "compare", "estimate_pruning", "estimate_shapley", "plot_curves", "shapley_of",
        "gradient_scores", "michel",
        # the table of importances has them
        "all_but_one", "patching_gradient", "banzhaf", "gate_gradient", "aumann_shapley",
        "leave_one_out", "shapley", "shapley_per_layer", "truncated_shapley",
    },
    "interp.syntax": {"read_conllu", "read_pairs", "word_attention"},
    "interp.safety": {
        "candidates", "marker_sets", "participation_ratio", "principal_angle", "read_labelled",
        "read_prompts", "templated",
    },
    "interp.heads.needle": {
        "haystack_ids", "ids_instances", "read_task", "select", "sentence_instances",
        "text_instances",
    },
    "interp.heads.outliers": {"kurtosis", "random_tokens", "replace_channel"},
    "interp.lens": set(),
}  # fmt: skip
NULLS = {"shuffled-tokens": "tokens shuffled", "random-init": "random weights"}


@dataclass(frozen=True)
class Row:
    """One method of the table."""

    name: str
    definition: str
    unit: str
    cost: str
    null: str
    not_for: str
    source: str


def notes() -> dict[str, dict[str, dict[str, str]]]:
    """What docs/when_not.toml and docstrings say, by section and method."""
    said = written()
    for section, entries in catalogued().items():
        for entry in entries:
            _, found, rest = entry.doc.partition("\nNot for:")
            if found:
                text = " ".join(rest.partition("\n\n")[0].split())
                said[section].setdefault(entry.name, {})["not_for"] = text[0].upper() + text[1:]
    return said


def written() -> dict[str, dict[str, dict[str, str]]]:
    """What docs/when_not.toml says, by section and method."""
    return tomllib.loads((HERE / "when_not.toml").read_text(encoding="utf-8"))


def catalogued() -> dict[str, list[catalogue.Entry]]:
    """Every declared analysis, by section."""
    metrics = list(catalogue.catalogue().values())
    found = {room: [e for e in metrics if e.room == room] for room in catalogue.ROOMS}
    found["flow"] = list(catalogue.methods().values())
    found["discovery"] = list(catalogue.discoveries().values())
    return found


def declared() -> dict[str, list[str]]:
    """The methods that the code declares, by section: what the data file must speak of."""
    found = {section: [e.name for e in entries] for section, entries in catalogued().items()}
    found["importance"] = list(QUESTIONS)
    found["replacement"] = [*KINDS, "gate"]
    for section, package in PACKAGES.items():
        found[section] = list(functions(package))
    return found


def functions(package: str) -> Iterator[str]:
    """Public functions of a package that are methods."""
    module = import_module(package)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isfunction(value) and name not in NO_METHODS[package]:
            yield name


def rows(section: str, said: Mapping[str, Mapping[str, str]], costs: Mapping[str, Any]) -> list:
    """The rows of one section, in the order of the code."""
    make = {"flow": _method, "discovery": _finder}.get(section, _metric)
    if section in catalogued():
        return [make(e, said[e.name], costs) for e in catalogued()[section]]
    if section == "importance":
        return [
            Row(name, q.asks, "of the task", x["cost"], x["null"], x["not_for"], _of(q.call, x))
            for name, q in QUESTIONS.items()
            for x in [said[name]]
        ]
    return [_function(name, x) for name, x in said.items()]


def _metric(e: catalogue.Entry, said: Mapping[str, str], costs: Mapping[str, str]) -> Row:
    definition = e.summary
    if e.kind == "detector":
        definition += f" Target: `{predicate(e)}`."
    analysis = catalogue.analysis(e.name)
    null = said.get("null") or NULLS[analysis.default_null]
    if e.kind == "experiment" and (chance := analysis.chance):
        says_more = not any(x in chance for x in ("of the null", "of random weights"))
        null += f"; chance: {chance}" if says_more else ""
    if e.kind == "experiment" and (found := chance_of(e.name)):
        median, low, high = found
        null += f"; heads of small random models score {median:g} ({low:g} to {high:g})"
    unit = f"{e.unit}, {span(e)}" if span(e) != "unbounded" else e.unit
    return Row(
        e.name, definition, unit, said.get("cost", costs[e.kind]), null, said["not_for"],
        e.source or "this project",
    )  # fmt: skip


def _method(e: catalogue.Entry, said: Mapping[str, str], costs: Mapping[str, str]) -> Row:
    cost = said.get("cost", costs[needs(e)])
    return Row(
        e.name, e.summary, "of the target" if e.unit == "target" else e.unit, cost,
        said.get("null", "`random_scores`"), said["not_for"], e.source or "this project",
    )  # fmt: skip


def _finder(e: catalogue.Entry, said: Mapping[str, str], costs: Mapping[str, str]) -> Row:
    cost = said.get("cost", costs["discovery"])
    return Row(e.name, e.summary, said["unit"], cost, said["null"], said["not_for"], e.source)


def _function(name: str, said: Mapping[str, str]) -> Row:
    if "what" in said:  # a replacement: nothing but what it is
        return Row(name, said["what"], "", "", "", said["not_for"], "")
    module, _, function = said["call"].rpartition(".")
    doc = inspect.getdoc(getattr(import_module(module), function)) or ""
    return Row(
        name, " ".join(doc.partition("\n\n")[0].split()), said["unit"], said["cost"], said["null"],
        said["not_for"], f"{said['source']}; `{said['call']}`",
    )  # fmt: skip


def _of(call: str, said: Mapping[str, str]) -> str:
    return f"{said['source']}; `interp.causal.{call}`"


def predicate(e: catalogue.Entry) -> str:
    """The line of a detector that says where its target is, with what it is made of put in."""
    tree = ast.parse(e.path.read_text(encoding="utf-8"))
    body = next(n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == e.name).body
    steps = [ast.unparse(n) for n in body if isinstance(n, (ast.Assign, ast.Return))]
    return "; ".join(steps).replace("return ", "")


def page() -> str:
    """The whole page as Markdown."""
    said = notes()
    costs = said.pop("costs")
    for section, names in declared().items():
        if missing := sorted(set(names) - set(said[section])):
            raise KeyError(f"docs/when_not.toml says nothing of {section}: {', '.join(missing)}")
    parts = [
        "# Methods",
        "<!-- Written by `python docs/method_table.py`; do not edit. -->",
        "Every method that is declared, with what it is, what it costs, the null it is held "
        "against, and when it is the wrong one. A score says where a head attends or what its "
        "weights could do; that the model needs it is another question, which the importances ask.",
    ]
    for section, (title, about) in SECTIONS.items():
        parts += [f"## {title}", about, table(section, rows(section, said[section], costs))]
    return "\n\n".join(parts) + "\n"


def table(section: str, found: list[Row]) -> str:
    """One section's table; columns that say nothing are left out."""
    heads = {
        "name": "method", "definition": "definition", "unit": "unit, range", "cost": "cost",
        "null": "null", "not_for": "not to be used", "source": "source",
    }  # fmt: skip
    if section == "importance":
        heads["definition"] = "the question it answers"
    used = [c for c in heads if any(getattr(row, c) for row in found)]
    lines = [
        "| " + " | ".join(heads[c] for c in used) + " |",
        "|" + "---|" * len(used),
    ]
    for row in found:
        cells = {c: " ".join(getattr(row, c).split()).replace("|", "\\|") for c in used}
        cells["name"] = f"`{cells['name']}`"
        lines.append("| " + " | ".join(cells[c] for c in used) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
