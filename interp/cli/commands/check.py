"""Command `interp check`: comparison of the heads read from a model with its own output."""

from __future__ import annotations

import click

from interp.cli.loading import (
    Loading,
    device_map_option,
    import_first,
    loading_options,
    remote_option,
    source_labels,
    source_option,
    tp_plan_option,
)
from interp.cli.shared_options import models_argument
from interp.core.errors import InterpError

GROUP = "Models and shell"


@click.command(epilog="Example: interp check models/mine")
@models_argument
@source_option
@device_map_option
@remote_option
@tp_plan_option
@loading_options
def check(sources: tuple[str, ...], loading: Loading, imports: tuple[str, ...]) -> None:
    """Check that the heads of a model are read correctly, layer by layer.

    Two equalities are tested per attention, on a few random tokens: the pattern times the values
    equals the head outputs in the model, and the heads' results plus the bias equal the attention
    output. Errors are relative to the largest entry. The exit code is 1 if a model fails.
    """
    from interp.model.check import check_model
    from interp.report.printed.check import check_text

    loading.require_device()
    import_first(imports)
    failed = False
    for source, name in source_labels(sources).items():
        try:
            model = loading.load(source, name)
            click.echo(repr(model))
            if loading.through is not None:
                click.echo(f"  source: {model.source}")
            found = check_model(model)
        except InterpError as error:
            if click.get_current_context().meta.get("interp.debug"):
                raise
            click.echo(f"interp: error: {error}", err=True)
            failed = True
            continue
        click.echo(check_text([found]))
        failed = failed or not found.passed
    if failed:
        click.get_current_context().exit(1)
