"""Command `interp study safety`: heads behind a model's refusals, and the cost of ablating them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import FROM_1, FROM_2, Spelling
from interp.cli.written import as_given, own_folder
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.safety.overview import SafetyStudy

OWN = "bundled:refusal"
BUILT_IN = 64  # number of requests of each kind if no files are given


def _check(run: Run) -> None:
    given = run.values
    if (given["harmful"] is None) != (given["harmless"] is None):
        raise OptionError("--harmful and --harmless must be given together, or neither")
    if given["template"] is not None and given["harmful"] is None:
        raise OptionError(
            "--template applies to the prompts of --harmful and --harmless; give both"
        )


def _harmful(run: Run) -> Any:
    run.made["sets"] = _sets(run)
    return run.made["sets"][0]


def _sets(run: Run) -> tuple[Any, Any]:
    """Return the prompts to refuse and those to answer: of files, or made for the model."""
    from interp.safety.marker import marker_sets
    from interp.safety.prompts import read_prompts, templated

    model = run.model
    names = ("harmful", "harmless", "template", "n")
    harmful, harmless, template, n = (run.values[name] for name in names)
    if harmful is None or harmless is None:
        if model.tokenizer is not None and model.name == OWN:
            from interp.bundled.refusal_text import requests

            made = requests(1, 2 * (n or BUILT_IN))
            return [r.text for r in made if r.harmful], [r.text for r in made if not r.harmful]
        sets = marker_sets(model, n=n or BUILT_IN)
        return sets.harmful, sets.harmless
    given = [read_prompts(path)[:n] for path in (harmful, harmless)]
    if template is None:
        return given[0], given[1]
    if not all(isinstance(p, str) for prompts in given for p in prompts):
        raise OptionError("--template applies to texts, but these prompts are token ids")
    bad, fine = (templated(model, prompts, template) for prompts in given)
    return bad, fine


def _weights(told: dict[str, Any]) -> tuple[str]:
    return (str(told["provenance"]["content_hash"]),)


def _write(run: Run, results: list[Any]) -> None:
    if run.out is None:
        return
    [found] = results
    weights = (str(found.made.get("content_hash")),)
    folder = own_folder(run.out, run.model.name, "safety.json", _weights, weights)
    write_safety(found, folder, as_given())
    run.voice.note(f"{folder}: heads.csv, directions.csv, curves.csv, safety.json, safety.html")


def write_safety(found: SafetyStudy, folder: Path, command: str) -> None:
    """Write tables, one JSON document and a page, each atomically."""
    from interp.core.files import write_atomically
    from interp.core.json_document import json_document
    from interp.draw.page import page
    from interp.draw.svg import element

    heads = found.table.to_pandas()
    directions, curves = found.search.to_pandas(), found.curves.wide()
    made = found.made | {"command": command}
    document = {
        "heads": heads.to_dict("records"), "directions": directions.to_dict("records"),
        "curves": curves.to_dict("records"),
        "sahara": {s.form: list(s.taken) for s in found.sahara},
        "spread": {name: vars(one) for name, one in found.spread.items()},
        "refused": list(found.search.refused), "provenance": made,
    }  # fmt: skip
    parts = [
        ("In short", element("pre", str(found))),
        ("Heads", heads.drop(columns=["model", "kv_head"])),
        ("Candidate directions", directions),
        ("Heads out, one after another", curves),
    ]
    title = f"Refusal of {found.model}"
    content = page(title, found.curves.plot(), parts, made)
    for name, frame in (("heads", heads), ("directions", directions), ("curves", curves)):
        write_atomically(folder / f"{name}.csv", frame.to_csv(index=False).encode())
    write_atomically(folder / "safety.json", json_document(document))
    write_atomically(folder / "safety.html", content)


safety = command(
    "interp.safety.overview:study",
    usual=OWN,
    omit=("forms", "steps"),
    inputs={
        "harmful": Input(_harmful, ("harmful", "harmless", "template", "n"), _check),
        "harmless": Input(lambda run: run.made["sets"][1]),
    },
    options={
        "harmful": Spelling(
            type=PromptFile(), metavar="FILE", default=None,
            help="File of prompts that the model should refuse: .txt with one per line, .jsonl or "
            ".json.",
        ),
        "harmless": Spelling(
            type=PromptFile(), metavar="FILE", default=None,
            help="File of prompts that the model should answer.",
        ),
        "template": Spelling(
            metavar="TEXT",
            help="'chat' for the tokenizer's chat template, or a text with {prompt} in it; none by "
            "default.",
        ),
        "n": Spelling(type=FROM_2, help="Number of prompts of each set; all by default."),
        "refusal_tokens": Spelling(
            ("--refuses",), click.STRING, "TOKEN", multiple=True, default=(),
            read=lambda given: list(given) or None,
            help="A token that begins a refusal, as text. Repeatable; by default those that the "
            "model declares.",
        ),
        "k": Spelling(
            ("-k", "--n-heads"), FROM_1, help="Number of heads to ablate, one after another."
        ),
        "ranking": Spelling(("--by",), click.Choice(["projection", "ships"])),
        "n_random": Spelling(type=FROM_2),
    },
    loading=(),
    text="interp.report.printed.top:plain_text",
    each=_write,
    help="Without a MODEL, bundled:refusal is used, which learned to refuse requests that contain "
    "a marker. Its requests are used if no files are given. A model that refuses nothing is "
    "reported as an error, without heads. With --out, heads.csv, directions.csv, curves.csv, "
    "safety.json and a page safety.html are written for each model.",
    example="interp study safety models/mine --harmful bad.txt --harmless fine.txt -o results",
)  # fmt: skip
