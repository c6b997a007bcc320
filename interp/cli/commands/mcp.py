"""Command `interp mcp`: tools and results for agents, by the Model Context Protocol."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import click

from interp.cli.making import command
from interp.cli.run import Run
from interp.cli.value_types import OUT_FOLDER
from interp.cli.vocabulary import Spelling
from interp.core.declaration import split_names
from interp.model.sources.folder import require_known

GROUP = "Look"


def _check(run: Run) -> None:
    from interp.cli.mcp.server import require_protocol

    for source in run.sources:
        require_known(source)
    require_protocol()
    if (port := run.values["port"]) is not None:
        from interp.report.explore.server import listening

        listening(port).close()


@command(
    over="sources",
    arguments=("MODEL...",),
    options={
        "port": Spelling(type=click.IntRange(0, 65_535)),
        "rules": Spelling(
            type=click.STRING,
            metavar="FILE",
            help="A file that agents may name in a hypothesis, such as rules.py or names.toml; the"
            " code of a .py file is run. Repeatable.",
            multiple=True,
            read=lambda names: [name for text in names for name in split_names(text)],
        ),
    },
    out=None,
    loading=("chat",),
    check=_check,
    example="interp mcp bundled:stories -o results",
)
def mcp(
    run: Run,
    sources: tuple[str, ...],
    *,
    corpus: Any = None,
    field: str = "text",
    port: int | None = None,
    rules: Any = (),
) -> None:
    """Serve tools for agents on each MODEL, by the Model Context Protocol.

    The tools list heads, show what they do on text, ablate them, find circuits and judge
    hypotheses, with a ledger of all that was asked. Only the models and files that are given here
    are read, and only the folder of -o is written to. The server talks over standard input and
    output, as clients of the protocol start it; with a port, by HTTP to this machine only, under
    an address with a secret token. Ctrl-C stops it.

    Args:
        sources: the models.
        corpus: documents of profiles and verdicts.
        field: field or column of the text, or of token ids.
        port: port of the server, which only this machine can reach; 0 for any free one; without
            it, standard input and output.
        rules: files that a hypothesis may name.
    """
    from interp.cli.mcp.server import serve_http, serve_standard
    from interp.cli.mcp.session import AgentSession

    options = {"corpus": corpus, "field": field, "rules": rules, "debug": run.voice.debug}
    session = AgentSession(sources, run.loading, run.out or Path("results"), **options)
    if port is None:
        serve_standard(session)
    else:
        serve_http(session, port, lambda text: run.say(f"{text}\nCtrl-C stops the server."))
    gc.freeze()  # collecting torch's objects at exit would keep a client waiting


mcp.params.append(
    click.Option(
        ["-o", "--out"],
        type=OUT_FOLDER,
        metavar="DIR",
        help="Folder for profiles, verdicts and the ledger; by default results.",
    )
)
