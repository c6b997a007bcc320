"""Command `interp circuit`: heads and edges that perform a task, found and evaluated."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from interp.causal.game.interventions import ON_PAIRS
from interp.circuits.tasks.template_file import LOOK, require_task_files
from interp.cli.inputs import reference_prompts, require_reference
from interp.cli.making import command
from interp.cli.name_types import CIRCUIT_METHOD_NAME, note_left_out
from interp.cli.run import Input, Run
from interp.cli.vocabulary import FROM_1, FROM_2, Spelling
from interp.cli.wrapping import print_text
from interp.cli.written import as_given
from interp.core.result_folder import own_folder

if TYPE_CHECKING:
    from interp.model.model import Model

SHARE = click.FloatRange(0, 1, min_open=True, max_open=True)


def _listed(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from interp.core.registry import CIRCUIT_METHODS
        from interp.report.printed.listing import circuit_listing

        print_text(circuit_listing())
        note_left_out(CIRCUIT_METHODS)
        context.exit()


def _require_reference(run: Run) -> None:
    require_reference(run.values["kind"], run.values["reference"])


def _check(run: Run) -> None:
    from interp.circuits.published import published
    from interp.circuits.tasks.named import known_task, split_templates

    values = run.values
    require_task_files(values["task"], values["circuit"])
    if values["against"] is not None:
        published(values["against"])
    values["task"] = known_task(values["task"])
    from interp.circuits.find import asked_method  # with torch, so that names are checked before

    asked_method(values["method"], values["faithful"], values["size"], values["max_evaluations"])
    split_templates(values["task"], values["seed"])  # an unreadable file is reported before loading


@command(
    over="models",
    inputs={
        "task": Input(lambda run: run.values["task"], ("task",)),
        "reference": Input(
            lambda run: reference_prompts(run.values["reference"], run.model),
            ("reference",),
            _require_reference,
        ),
    },
    options={
        "kind": Spelling(type=click.Choice([*ON_PAIRS])),
        "task": Spelling(default="induction", help="A name of --list, or a .jsonl or .py file."),
        "method": Spelling(type=CIRCUIT_METHOD_NAME, metavar="NAME[:OPTION=VALUE,...]"),
        "faithful": Spelling(type=SHARE, metavar="SHARE"),
        "size": Spelling(type=FROM_1),
        "n": Spelling(
            type=click.IntRange(4),
            default=64,
            help=f"Number of pairs of prompts; {LOOK} of a file are a look, not evaluated.",
        ),
        "top": Spelling(type=FROM_1),
        "maps": Spelling(type=click.Choice(["stream", "attention", "mlp"]), multiple=True),
        "n_random": Spelling(type=FROM_2),
    },
    check=_check,
    text="interp.report.printed:nothing",
    example="interp circuit bundled:stories --task stories:recipient -o out",
)
def find(
    run: Run,
    model: Model,
    task: str,
    *,
    method: str = "verified_edges",
    units: Literal["head", "edge"] | None = None,
    faithful: float = 0.8,
    size: int | None = None,
    max_evaluations: int | None = None,
    n: int = 64,
    kind: str = "corrupted",
    reference: Any = None,
    against: str | None = None,
    circuit: Path | None = None,
    same_templates: bool = False,
    top: int = 10,
    maps: Sequence[str] = (),
    n_random: int = 10,
    seed: int = 0,
    progress: Any = None,
    resume: Any = None,
) -> Any:
    """Find the circuit of each MODEL for a task, and evaluate it on held-out pairs.

    What is found is printed and written before it is evaluated; Ctrl-C keeps it.

    \b
    Tasks: induction (random tokens), ioi, greater_than, subject_verb,
    docstring; stories:owner (the default for bundled:stories), stories:pronoun,
    stories:recipient; planted:NAME, compiled:NAME and trained:NAME on the models of these
    names, whose circuit is known;
    FILE.jsonl: user-supplied pairs, lines of {"prompt": ..., "corrupted": ...,
    "answer": ..., "wrong": ...}; FILE.toml: templates with slots, see
    `interp circuit pairs`; FILE.py: a function task(model) that returns a Task with
    corrupted prompts and a metric, or a ContrastTask. Tasks with several
    templates hold some of them out: a circuit is found on some and evaluated
    on the others; for a file, on other pairs of the file.
    `interp circuit --list` lists all tasks.
    Methods: verified_edges (nodes and edges measured by patching, within a
    budget of forward passes), screen_verify (heads, with a
    search for backups among all pairs), exact_patching, attribution_patching,
    integrated_patching, gim_patching, relevance_patching; acdc removes edges
    one by one, edge_masks trains masks; svd_trace traces what makes heads
    attend, then patches the heads it finds; codes finds heads whose output
    varies with the contrast, not heads that are causally needed: check its
    controls, printed below the scores. --list shows which methods score edges.

    Args:
        method: method that finds the circuit: one listed above, or a .py file that declares one.
        units: units of the circuit: nodes, or edges between them too; by default edge for
            verified_edges, head for other methods.
        faithful: find the smallest set that keeps this share of the behaviour.
        size: take the first N nodes as the set, instead of a share.
        max_evaluations: maximum number of forward passes of the search (verified_edges, acdc); by
            default as many as there are nodes, for acdc one per edge.
        n: number of pairs of prompts.
        kind: replacement for heads outside the circuit in the evaluation.
        reference: prompts of the replacement.
        against: a published circuit of this model to compare with: the name of a file in circuits/,
            or a user-supplied .toml file, such as one that this command wrote.
        circuit: evaluate an existing circuit (circuit.toml or .json) instead of finding one.
        same_templates: evaluate on the templates of the search, not held-out ones.
        top: number of nodes (and edges) to print, and to patch on held-out pairs.
        maps: also patch this at one role (or position) of one layer at a time, on held-out pairs,
            and print the map; may be given several times.
        n_random: number of random orders of heads, and of random sets.
        seed: seed of prompts, methods and random orders.
        resume: folder of finished steps.
    """
    from interp.circuits.explained import explained_nodes
    from interp.circuits.find import asked_method, find_circuit, stored_circuit
    from interp.circuits.plan import Plan
    from interp.circuits.published import published
    from interp.circuits.whole_evaluation import evaluated, with_set
    from interp.report.circuit_folder import write_evaluation, write_found
    from interp.report.printed.circuit import evaluation_lines, found_lines

    known = None if against is None else published(against)
    if known is not None:
        known.require(model)
    run.voice.stopping = "; Ctrl-C keeps what is finished"
    shared: dict[str, Any] = {"resume": resume, "progress": progress}
    start, no_set = Plan(task, n, seed, same_templates), "the circuit was found without one"
    if circuit is None:
        way, stated = asked_method(method, faithful, size, max_evaluations)
        options: Any = stated
        if "seed" in way.options:
            options = {"seed": seed, **options}
        pairs = start.pairs(model)
        discovered = find_circuit(model, pairs, way, units, **shared, **options)
        discovered, no_set = with_set(model, discovered, start, faithful, size or 0, **shared)
    else:
        discovered = stored_circuit(circuit, model, task)
    run.say(found_lines(discovered, top, against=known, called=against or "").removesuffix("\n"))
    folder, run.interrupted = None, " in the evaluation: what was found is printed above"
    if run.out is not None:
        folder = own_folder(run.out, model.name, "circuit.json", _of, _of(discovered.to_dict()))
        write_found(discovered, folder, model)
        run.interrupted = f" in the evaluation: what was found is in {folder}"
    if look := start.only_look(model):
        run.say(f"  note: {look}{'; no map was made' if maps else ''}")
        if folder is not None:
            discovered.save_html(folder / "circuit.html")
            run.voice.note(f"{folder}: circuit.toml, circuit.html and others")
        run.interrupted = ""
        return discovered
    measured, parts, doubt = evaluated(
        model,
        discovered,
        start,
        no_set,
        top=top,
        maps=tuple(maps),
        ablation=kind,
        reference=reference or {},
        n_random=n_random,
        **shared,
    )
    run.say(evaluation_lines(measured, **parts) + doubt)
    if folder is not None:
        parts["explained"] = explained_nodes(model, discovered, start.pairs(model))
        write_evaluation(discovered, measured, folder, command=as_given(), against=known, **parts)
        run.voice.note(f"{folder}: circuit.toml, circuit.html and others")
    run.interrupted = ""
    return discovered


find.params.append(
    click.Option(
        ["--list"],
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_listed,
        help="Print tasks, methods and published circuits, and exit.",
    )
)


def _of(values: dict[str, Any]) -> tuple[str, ...]:
    """Return weights, task, method and level of a circuit.json."""
    weights = str(values["made"].get("content_hash"))
    return weights, values["task"], values["method"], values["level"]
