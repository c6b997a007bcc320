"""Commands `interp compare profiles` and `corpora`: what descriptions of heads keep elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from interp import bundled
from interp.cli.making import command
from interp.cli.run import Input, Run
from interp.cli.stored import parted, stored_profile
from interp.cli.vocabulary import FROM_0, Spelling
from interp.cli.written import as_given
from interp.core.declaration import split_names
from interp.core.errors import OptionError
from interp.core.result_folder import folder_for, kept_folder
from interp.model.sources.folder import require_known
from interp.profiles.sources import BUNDLED, WORDS

if TYPE_CHECKING:
    from interp.profiles.result import Profile


def _check(run: Run) -> None:
    results, models = parted(run.sources)
    for model in models:
        require_known(model)
    if run.values["corpus"] and not models:
        raise OptionError("--corpus needs a MODEL; a stored profile has its own corpus")
    if models and results and not run.values["corpus"]:
        raise OptionError(
            f"give --corpus with {models[0]}, the one of the stored profile, so that both read the "
            "same documents"
        )


@command(
    over="sources",
    arguments=("A", "B"),
    also={"interp.profiles.run:profile": ("n_documents", "n_queries", "max_length", "seed")},
    options={"max_length": Spelling(default=256), "top": Spelling(type=FROM_0)},
    out="document",
    check=_check,
    example="interp compare profiles results-base results-tuned -o changes",
)
def profiles(
    run: Run,
    sources: tuple[str, str],
    corpus: Any = None,
    *,
    effects: bool = False,
    top: int = 8,
    progress: Any = None,
    **options: Any,
) -> None:
    """Compare what heads do on text in A and B: behaviours gained, lost and grown, by head.

    A and B are folders that `interp profile -o DIR` wrote, or models, which are profiled on the
    same documents first: by default those that come with A or B, else the bundled texts (with
    `sampled` each on its own). Differences are B minus A, paired over documents where both profiles
    read the same ones, with p corrected over all heads and behaviours.

    Args:
        sources: two folders or models.
        corpus: the documents on which models are profiled.
        effects: compare also what heads write and whether they matter, which takes longer.
        top: number of changed heads to print; 0 for all.
    """
    from interp.core.files import write_atomically
    from interp.profiles.changes import compare_profiles
    from interp.profiles.run import profile
    from interp.report.atlas.single import changes_page
    from interp.report.printed.changes import changes_text
    from interp.report.printed.text_lines import text_sentences

    def one(source: str) -> Profile:
        path = Path(source).expanduser()
        if source in parted(sources)[0]:
            return stored_profile(path)
        options["resume"] = None if run.out is None else kept_folder(run.out)
        return profile(run.load(source), text, effects=effects, progress=progress, **options)

    own = next(filter(None, map(bundled.own_texts, sources)), BUNDLED)
    text = corpus or own  # of both, also where they would not suit one
    a, b = one(sources[0]), one(sources[1])
    for each in (a, b):
        if said := text_sentences(each.provenance):
            run.voice.note(f"{each.provenance['model_id']}: {' '.join(said)}")
    changes = compare_profiles(a, b)
    run.say(changes_text([changes], top=top).removesuffix("\n"))
    if run.out is None:
        return
    about = {"hashes": [x.provenance.get("content_hash", "") for x in (a, b)]}
    folder = folder_for(run.out, changes.provenance["model"], "changes.html", about)
    for suffix in (".parquet", ".csv"):
        changes.save(folder / f"changes{suffix}")
    write_atomically(folder / "changes.html", changes_page(a, b, command=as_given()))
    run.voice.note(f"{folder}: changes.html (open it in a browser), changes.parquet, changes.csv")


def _named_corpora(run: Run) -> dict[str, Any]:
    """Return each corpus by the name of its file, made unique."""
    paths: dict[str, Any] = {}
    for corpus in run.values["corpus"]:
        file = Path(corpus).name
        name, again = file, 2
        while name in paths:
            name, again = f"{file} ({again})", again + 1
        paths[name] = corpus if corpus in WORDS else Path(corpus)
    return paths or {BUNDLED: BUNDLED}


def _check_corpora(run: Run) -> None:
    if len(run.values["corpus"]) < 2 and not run.values["alter"]:
        raise OptionError(
            "give --corpus at least twice, or --set alter=first_token: a description is carried "
            "from one corpus to another"
        )


corpora = command(
    "interp.profiles.portability:portability",
    inputs={"corpora": Input(_named_corpora, ("corpus",))},
    options={
        "corpus": Spelling(
            help="A corpus, such as `interp profile` reads; give at least two.", read=list
        ),
        "alter": Spelling(
            type=click.STRING,
            metavar="NAME,...",
            default="",
            read=split_names,
        ),
        "rules": Spelling(
            type=click.STRING,
            metavar="NAME,...",
            read=lambda text: split_names(text or "") or None,
        ),
        "field": Spelling(metavar="NAME"),
        "max_length": Spelling(default=256),
    },
    files=("portability.json", "portability.parquet", "portability.csv"),
    text="interp.report.printed.portability:portability_text",
    check=_check_corpora,
    example="interp compare corpora MODEL --corpus prose.jsonl --corpus code.jsonl -o results",
)
