"""Command `interp explore`: the atlas on a local server, with the model in memory."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.stored import parted
from interp.cli.vocabulary import ABOVE_0, Spelling
from interp.cli.written import as_given
from interp.core.declaration import split_names
from interp.core.errors import OptionError
from interp.model.sources.folder import require_known

GROUP = "Look"
_GB = 1_000_000_000


def _check(run: Run) -> None:
    from interp.report.explore.server import listening, require_server

    _, models = parted(run.sources)
    for source in models:
        require_known(source)
    if len(models) > 1:
        raise OptionError(
            f"{', '.join(models)} are {len(models)} models; one is held in memory, so give one"
        )
    require_server()
    listening(run.values["port"]).close()  # before a model is loaded


@command(
    over="sources",
    arguments=("FOLDER_OR_MODEL...",),
    options={
        "port": Spelling(type=click.IntRange(0, 65_535)),
        "rules": Spelling(
            type=click.STRING,
            metavar="FILE",
            help="A rule of your own to score on every prompt, a .py file that declares a "
            "detector. Repeatable.",
            multiple=True,
            read=lambda names: [name for text in names for name in split_names(text)],
        ),
        "max_gb": Spelling(type=ABOVE_0, metavar="GB"),
    },
    out=None,
    check=_check,
    example="interp explore results gpt2",
)
def explore(
    run: Run,
    sources: tuple[str, ...],
    *,
    port: int = 0,
    browser: bool = True,
    rules: Any = (),
    max_gb: float = 1.0,
) -> None:
    """Explore results and a model in the browser: type a prompt, zoom, ablate heads.

    Give a folder or table of results, a MODEL, or both. The page begins with an example prompt that
    the model understands; without a model it shows the results alone. With a profile of the model
    among the results (`interp profile MODEL -o FOLDER`) a click on a pair says which rules fire on
    it and what they explain of its row. The server answers to this machine only, under an address
    with a secret token, and writes no file. Ctrl-C stops it.

    Args:
        sources: results and a model.
        port: port of the server, which only this machine can reach; 0 for any free one.
        browser: open the address in a browser.
        rules: further rules.
        max_gb: maximum memory of the queries, keys and maps of a long prompt, beside the model's
            own.
    """
    from interp.report.explore.page import explore_page
    from interp.report.explore.server import serve
    from interp.report.explore.session import Session

    results, models = parted(sources)
    session = None
    if models:
        session = Session(run.load(models[0]), memory=round(max_gb * _GB), rules=rules)
    folders = [Path(source).expanduser() for source in results]
    page, atlas = explore_page(folders, session, as_given())
    serve(
        page,
        session,
        atlas=atlas,
        port=port,
        browser=browser,
        tell=lambda address: run.say(f"{address}\nCtrl-C stops the server."),
    )
    gc.freeze()  # collecting torch's objects at exit would take a second of processor time
