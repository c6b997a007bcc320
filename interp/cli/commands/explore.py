"""Command `interp explore`: the atlas on a local server, with the model in memory."""

from __future__ import annotations

import gc
from pathlib import Path

import click

from interp.cli.atlas import is_results
from interp.cli.loading import Loading, loaded, loading_options
from interp.cli.name_types import MODEL_NAME
from interp.cli.written import as_given
from interp.cli.wrong_models import require_known
from interp.core.errors import OptionError

GROUP = "Look"
_GB = 1_000_000_000


@click.command(epilog="Example: interp explore results gpt2")
@click.argument("sources", nargs=-1, required=True, metavar="FOLDER_OR_MODEL...", type=MODEL_NAME)
@click.option(
    "--port",
    default=0,
    show_default="any free one",
    type=click.IntRange(0, 65_535),
    metavar="N",
    help="Port of the server, which only this machine can reach.",
)
@click.option("--no-browser", is_flag=True, help="Print the address and do not open it.")
@click.option(
    "--memory",
    default=1.0,
    show_default=True,
    type=click.FloatRange(0, min_open=True),
    metavar="GB",
    help="Maximum memory of the queries, keys and maps of a long prompt, beside the model's own.",
)
@loading_options
def explore(
    sources: tuple[str, ...],
    port: int,
    no_browser: bool,
    memory: float,
    loading: Loading,
    imports: tuple[str, ...],
) -> None:
    """Explore results and a model in the browser: type a prompt, zoom, ablate heads.

    Give a folder or table of results, a MODEL, or both. Without a model the page shows the results
    alone. The server answers to this machine only, under an address with a secret token, and
    writes no file. Ctrl-C stops it.
    """
    results = [source for source in sources if is_results(Path(source).expanduser())]
    models = [source for source in sources if source not in results]
    if len(models) > 1:
        raise OptionError(
            f"{', '.join(models)} are {len(models)} models; one is held in memory, so give one"
        )
    for source in models:
        require_known(source)
    from interp.report.explore.server import listening, require_server, serve

    require_server()
    listening(port).close()  # before a model is loaded
    from interp.report.explore.page import explore_page
    from interp.report.explore.session import Session

    session = None
    if models:
        session = Session(loaded(models[0], loading, imports), memory=round(memory * _GB))
    folders = [Path(source).expanduser() for source in results]
    page, atlas = explore_page(folders, session, as_given())
    serve(
        page, session, atlas=atlas, port=port, browser=not no_browser,
        tell=lambda address: click.echo(f"{address}\nCtrl-C stops the server."),
    )  # fmt: skip
    gc.freeze()  # collecting torch's objects at exit would take a second of processor time
