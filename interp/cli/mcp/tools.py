"""The tools that agents call, each declared from one public function."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.causal.game.interventions import INTERVENTIONS
from interp.cli.inputs import is_contrast
from interp.cli.mcp.declared import MOST_VALUES, AgentTool
from interp.cli.vocabulary import FROM_1, Spelling
from interp.core.columns import with_noun
from interp.core.errors import UnknownName
from interp.core.registry import CIRCUIT_METHODS
from interp.core.signature import REQUIRED
from interp.core.tokens import shown

if TYPE_CHECKING:
    from interp.model.model import Model

PROFILED = 64  # documents of a profile of a few heads: enough for intervals, within seconds
STRONGEST = 3  # keys of a query that are shown
EXAMPLES = 4  # of a kind
QUESTIONS = 20  # of the ledger, the latest


def asked_questions(model: Model, questions: str | os.PathLike) -> list[dict[str, Any]]:
    """List the hypotheses that were judged about a model, with their verdicts."""
    from interp.model.content import model_provenance
    from interp.profiles.ledger import QuestionLedger

    about = {"model": str(model_provenance(model)["content_hash"])}
    return QuestionLedger(Path(questions), about).questions()


def _scores(found: Any, given: Mapping[str, Any]) -> str:
    from interp.report.printed.scores import top_heads
    from interp.report.printed.verdict import verdict_text

    text = "" if "metrics" in given else verdict_text(found, hint=False)
    return text or top_heads(found, STRONGEST)


def _about(found: Any, given: Mapping[str, Any]) -> str:
    return "\n".join(found.about(head, n_examples=1, full=False) for head in given["heads"])


def _examples(found: Any, given: Mapping[str, Any]) -> str:
    from interp.profiles.examples import KINDS
    from interp.report.printed.profile import example_lines

    lines = ["The query is in > <, its keys in [ ], the largest with its share."]
    for head in given["heads"]:
        for kind, about in KINDS.items():
            lines.append(f"{head}: {about}")
            for one in found.examples_of(head, kind)[:EXAMPLES]:
                lines += example_lines(one)
    return "\n".join(lines)


def _pattern(found: Any, given: Mapping[str, Any]) -> str:
    lines = []
    for head in given["heads"]:
        stack = found.stack(given.get("stack"))
        lines.append(f"{head}: each query, and the keys with most of its attention")
        for query, row in enumerate(found.pattern(head, given.get("stack"))):
            keys = (-row).argsort(kind="stable")[:STRONGEST]
            parts = [f"{key} {shown(stack.keys[key])!r} {row[key]:.2f}" for key in keys if row[key]]
            lines.append(f"  {query} {shown(stack.queries[query])!r}: {', '.join(parts)}")
    return "\n".join(lines)


def _printed(found: Any, given: Mapping[str, Any]) -> str:
    from interp.report.printed import printed

    return printed([found])


def _circuit(found: Any, given: Mapping[str, Any]) -> str:
    from interp.report.printed.circuit import found_lines

    return found_lines(found, 10)


def _ledger(found: Any, given: Mapping[str, Any]) -> str:
    lines = [f"{with_noun(len(found), 'question')} so far; each was judged on documents of its own"]
    if not all(one["p"] for one in found):
        lines[0] += ", or on those held back, which answer without numbers"
    for one in found[-QUESTIONS:]:
        tests = [
            f"{word!r} p {p:.2g}, level {one['level'][word]:.2g}" for word, p in one["p"].items()
        ] or ["held back"]
        lines.append(f"  {one['number']}. {one['asked']}: {one['verdict']} ({'; '.join(tests)})")
    return "\n".join(lines)


def _task(model: Model, name: str) -> Any:
    """Return a task of ablation by its name."""
    if is_contrast(name):
        from interp.circuits.tasks import make_contrast

        return make_contrast(model, name).task
    from interp.causal.task_file import make_task
    from interp.circuits.tasks.named import TASKS

    if name != "repeats" and not Path(name).suffix:
        known = [task for task in TASKS if (":" in task) == (":" in name)]
        raise UnknownName("task", name, ["repeats", *known])
    return make_task(model, name)


_NAME = {"type": "string", "maxLength": 200}
ENTRY = {
    "type": "object",
    "properties": {
        "keys": {**_NAME, "description": "A rule, such as stops."},
        "tokens": {"type": "array", "items": _NAME, "maxItems": MOST_VALUES},
        "queries": {**_NAME, "description": "A kind of query, such as names."},
        "share": {"type": "number", "description": "The claimed share of the attention."},
    },
    "additionalProperties": False,
}
"""Schema of an entry of a list, of which the first that names a key counts."""
LIST = {
    "type": "object",
    "properties": {
        "head": _NAME,
        "entries": {"type": "array", "items": ENTRY},
        "queries": {**_NAME, "description": "A kind of query, which alone judges the list."},
    },
    "required": ["head", "entries"],
    "additionalProperties": False,
}
"""Schema of a list."""
_HEADS = Spelling(default=REQUIRED, help='Names of heads, such as ["L5H4"].')
_TASK = Spelling(type=click.STRING, help="repeats, or a contrast task such as induction or ioi.")
_OF_HEADS: dict[str, Any] = {
    "takes": ("heads", "n_documents", "max_length"),
    "options": {"heads": _HEADS, "n_documents": Spelling(type=FROM_1, default=PROFILED)},
    "fixed": {"behaviours": False},
}
TOOLS = {
    one.name: one
    for one in (
        AgentTool(
            "list_heads",
            "interp.heads.scoring:score",
            ("metrics",),
            _scores,
            "Next: head for what one of these does on text, or judge for a claim about one.",
            help="Without metrics it names the heads that have a known role.",
            options={"metrics": Spelling(help='Names, such as ["induction"]; by default all.')},
            fixed={"null": "shuffled-tokens", "null_cache": False},
        ),
        AgentTool(
            "head",
            "interp.profiles.run:profile",
            tell=_about,
            then="Next: examples or pattern to look at it, ablate for whether it matters, judge for"
            " a claim.",
            help="For a few heads, with the effect of each on the loss.",
            stem=lambda found, given: f"profile-{'-'.join(given['heads'])}",
            **_OF_HEADS,
        ),
        AgentTool(
            "examples",
            "interp.profiles.run:profile",
            tell=_examples,
            then="Next: pattern on a text of your own, or judge for what the examples suggest.",
            help="Here its examples: queries of a few heads, with their keys in context.",
            **_OF_HEADS,
        ),
        AgentTool(
            "pattern",
            "interp.heads.patterns.capturing:view",
            ("text", "heads", "stack"),
            _pattern,
            "Next: the same on a changed text, or judge for what the pattern suggests.",
            options={"heads": _HEADS, "text": Spelling(help="The text.")},
            fixed={"terms": False},
        ),
        AgentTool(
            "ablate",
            "interp.causal.ablation:leave_one_out",
            ("heads", "task", "kind"),
            _printed,
            "Next: circuit for how heads work together on a task.",
            also={"interp.causal.game.game:Game": ("heads",)},
            options={
                "heads": Spelling(help="Names of heads; by default all."),
                "task": Spelling(default="repeats").over(_TASK),
                "kind": Spelling(type=click.Choice([*INTERVENTIONS])),
            },
            made={"task": _task},
        ),
        AgentTool(
            "circuit",
            "interp.circuits.find:find_circuit",
            ("task", "method"),
            _circuit,
            "Next: head and judge for what its heads attend to.",
            options={
                "task": Spelling(default="induction").over(_TASK),
                "method": Spelling(type=click.Choice([*CIRCUIT_METHODS])),
            },
            stem=lambda found, given: f"circuit-{given['task']}-{given['method']}",
        ),
        AgentTool(
            "judge",
            "interp.profiles.judge:judge",
            ("hypothesis", "n_documents"),
            _printed,
            "Next: ledger for what was asked before. Every question is counted, and makes later"
            " ones harder to pass.",
            options={
                "hypothesis": Spelling(
                    type={"anyOf": [{"type": "string", "maxLength": 2_000}, LIST]},
                    help="HEAD=RULE with a rule or detector by its name, such as L1H0=induction,"
                    " which may be limited to a kind of query (L1H0=names from pronouns), or a list"
                    " of entries, of which the first that names a key counts.",
                )
            },
            stem=lambda found, given: f"verdict-{found.facts['question']}",
        ),
        AgentTool(
            "ledger",
            "interp.cli.mcp.tools:asked_questions",
            (),
            _ledger,
            "Next: judge for another hypothesis.",
        ),
    )
}
"""Tools by name."""
