"""Command `interp study safety`: heads behind a model's refusals, and the cost of ablating them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.value_types import PromptFile
from interp.cli.vocabulary import FROM_2, Spelling
from interp.cli.written import as_given
from interp.core.errors import OptionError
from interp.core.result_folder import own_folder

if TYPE_CHECKING:
    pass

OWN = "bundled:refusal"
BUILT_IN = 64  # number of requests of each kind if no files are given


def _check(run: Run) -> None:
    values = run.values
    if (values["harmful"] is None) != (values["harmless"] is None):
        raise OptionError("--harmful and --harmless must be given together, or neither")
    if values["template"] is not None and values["harmful"] is None:
        raise OptionError(
            "--set template applies to the prompts of --harmful and --harmless; give both"
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

            drawn = requests(1, 2 * (n or BUILT_IN))
            return [r.text for r in drawn if r.harmful], [r.text for r in drawn if not r.harmful]
        sets = marker_sets(model, n=n or BUILT_IN)
        return sets.harmful, sets.harmless
    prompts_of_files = [read_prompts(path)[:n] for path in (harmful, harmless)]
    if template is None:
        return prompts_of_files[0], prompts_of_files[1]
    if not all(isinstance(p, str) for prompts in prompts_of_files for p in prompts):
        raise OptionError("--set template applies to texts, but these prompts are token ids")
    bad, fine = (templated(model, prompts, template) for prompts in prompts_of_files)
    return bad, fine


def _weights(values: dict[str, Any]) -> tuple[str]:
    return (str(values["provenance"]["content_hash"]),)


def _write(run: Run, results: list[Any]) -> None:
    if run.out is None:
        return
    from interp.report.safety_folder import write_safety

    [result] = results
    weights = (str(result.provenance.get("content_hash")),)
    folder = own_folder(run.out, run.model.name, "safety.json", _weights, weights)
    write_safety(result, folder, as_given())
    run.voice.note(f"{folder}: heads.csv, directions.csv, curves.csv, safety.json, safety.html")


safety = command(
    "interp.safety.overview:study",
    over="models",
    usual=OWN,
    omit=("forms", "steps"),
    inputs={
        "harmful": Input(_harmful, ("harmful", "harmless", "template", "n"), _check),
        "harmless": Input(lambda run: run.made["sets"][1]),
    },
    options={
        "harmful": Spelling(
            type=PromptFile(),
            metavar="FILE",
            default=None,
            help="File of prompts that the model should refuse: .txt with one per line, .jsonl or "
            ".json.",
        ),
        "harmless": Spelling(
            type=PromptFile(),
            metavar="FILE",
            default=None,
            help="File of prompts that the model should answer.",
        ),
        "template": Spelling(
            metavar="TEXT",
            help="'chat' for the tokenizer's chat template, or a text with {prompt} in it; none by "
            "default.",
        ),
        "n": Spelling(type=FROM_2, help="Number of prompts of each set; all by default."),
        "refusal_tokens": Spelling(
            type=click.STRING,
            metavar="TOKEN",
            multiple=True,
            default=(),
            read=lambda given: list(given) or None,
            help="A token that begins a refusal, as text. Repeatable; by default those that the "
            "model declares.",
        ),
        "by": Spelling(type=click.Choice(["projection", "ships"])),
        "n_random": Spelling(type=FROM_2),
    },
    text="interp.report.printed.tables:plain_text",
    each=_write,
    help="Without a MODEL, bundled:refusal is used, which learned to refuse requests that contain "
    "a marker. Its requests are used if no files are given. A model that refuses nothing is "
    "reported as an error, without heads. With --out, heads.csv, directions.csv, curves.csv, "
    "safety.json and a page safety.html are written for each model.",
    example="interp study safety models/mine --harmful bad.txt --harmless fine.txt "
    "--set refusal_tokens=I -o results",
)
