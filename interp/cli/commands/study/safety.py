"""Command `interp study safety`: heads behind a model's refusals, and the cost of ablating them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp.cli.each import each_model
from interp.cli.loading import Loading, import_first, loading_options, source_labels
from interp.cli.name_types import MODEL_NAME
from interp.cli.progress import Voice
from interp.cli.reference import reference_option, reference_prompts, require_reference
from interp.cli.value_types import OUT_FOLDER, PromptFile
from interp.cli.vocabulary import KINDS
from interp.cli.written import as_given, kept_folder, own_folder
from interp.cli.wrong_models import checked_sources
from interp.core.errors import OptionError

if TYPE_CHECKING:
    from interp.model.model import Model
    from interp.safety.overview import SafetyStudy

OWN = "bundled:refusal"
BUILT_IN = 64  # number of requests of each kind if no files are given


@click.command(
    epilog="Example: interp study safety models/mine --harmful bad.txt --harmless fine.txt"
    "--template chat --refuses I -o results"
)
@click.argument(
    "sources", nargs=-1, metavar="[MODEL]...", type=MODEL_NAME, callback=checked_sources
)
@click.option(
    "--harmful", type=PromptFile(), metavar="FILE",
    help="File of prompts that the model should refuse: .txt with one per line, .jsonl or .json.",
)  # fmt: skip
@click.option(
    "--harmless", type=PromptFile(), metavar="FILE",
    help="File of prompts that the model should answer.",
)  # fmt: skip
@click.option(
    "--template", metavar="TEXT",
    help="'chat' for the tokenizer's chat template, or a text with {prompt} in it; none by "
    "default.",
)  # fmt: skip
@click.option(
    "--refuses", "tokens", multiple=True, metavar="TOKEN",
    help="A token that begins a refusal, as text. Repeatable; by default those that the model "
        "declares.",
)  # fmt: skip
@click.option(
    "-n", type=click.IntRange(2), metavar="N", help="Number of prompts of each set; all by default."
)
@click.option("--kind", default="zero", show_default=True, type=click.Choice(KINDS),
              help="Replacement for the output of an ablated head.")  # fmt: skip
@reference_option()
@click.option("-k", "--n-heads", "k", default=6, show_default=True, type=click.IntRange(1),
              help="Number of heads to ablate, one after another.")  # fmt: skip
@click.option("--by", "ranking", type=click.Choice(["projection", "ships"]), show_default=True,
              default="projection", help="Score that ranks the heads.")  # fmt: skip
@click.option("--random", "n_random", default=20, show_default=True, type=click.IntRange(2),
              metavar="N", help="Number of random orders, as a baseline.")  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of splits and random orders.")
@click.option(
    "-o", "--out", type=OUT_FOLDER, metavar="DIR",
    help="Write heads.csv, directions.csv, curves.csv, safety.json and a page safety.html for "
        "each model to this folder; an interrupted run resumes after the last finished forward "
        "pass.",
)  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print progress and notes.")
@loading_options
def safety(
    sources: tuple[str, ...],
    harmful: Path | None,
    harmless: Path | None,
    template: str | None,
    tokens: tuple[str, ...],
    n: int | None,
    reference: Path | None,
    out: Path | None,
    quiet: bool,
    loading: Loading,
    imports: tuple[str, ...],
    **options: Any,
) -> None:
    """Find the refusal direction of each MODEL, the heads that write it, and their effect.

    Without a MODEL, bundled:refusal is used, which learned to refuse requests that contain a
    marker. Its requests are used if no files are given. A model that refuses nothing is reported as
    an error, without heads.
    """
    if (harmful is None) != (harmless is None):
        raise OptionError("--harmful and --harmless must be given together, or neither")
    if template is not None and harmful is None:
        raise OptionError(
            "--template applies to the prompts of --harmful and --harmless; give both"
        )
    require_reference(options["kind"], reference)
    sources = sources or (OWN,)
    loading.require_device()
    import_first(imports)
    context = click.get_current_context()
    voice = Voice(quiet=quiet, debug=bool(context.meta.get("interp.debug")))
    if out is not None:
        from interp.core.store import Store

        Store(out).prepare()

    def work(source: str, name: str) -> None:
        with voice.bars(name) as tell:
            model = loading.checked(source, name, tell)
            from interp.safety.overview import study

            bad, fine = _sets(model, harmful, harmless, template, n)
            ledger = None if out is None else kept_folder(out)
            found = study(model, bad, fine, list(tokens) or None, ledger=ledger, progress=tell,
                          **reference_prompts(reference, model), **options)  # fmt: skip
        click.echo(f"{found}\n")
        if out is not None:
            weights = (str(found.made.get("content_hash")),)
            folder = own_folder(out, name, "safety.json", _weights, weights)
            write_safety(found, folder, as_given())
            voice.note(f"{folder}: heads.csv, directions.csv, curves.csv, safety.json, safety.html")

    try:
        failed = each_model(source_labels(sources), voice, work)
    except KeyboardInterrupt:
        goes_on = "the same command resumes from the finished steps"
        voice.error(f"interrupted; {goes_on if out is not None else f'with --out {goes_on}'}")
        context.exit(130)
    context.exit(int(bool(failed)))


def _weights(told: dict[str, Any]) -> tuple[str]:
    return (str(told["provenance"]["content_hash"]),)


def _sets(
    model: Model, harmful: Path | None, harmless: Path | None, template: str | None, n: int | None
) -> tuple[Any, Any]:
    from interp.safety.marker import marker_sets
    from interp.safety.prompts import read_prompts, templated

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
