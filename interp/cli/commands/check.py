"""Command `interp check`: comparison of the heads read from a model with its own output."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

if TYPE_CHECKING:
    from interp.model.self_check import SelfCheck

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
        click.echo(check_text(found))
        failed = failed or not found.passed
    if failed:
        click.get_current_context().exit(1)


def check_text(found: SelfCheck) -> str:
    """Format the check: a line per layer, then the largest error and the modules not read."""
    names = [f"{s.site.name}{' with a picture' if s.picture else ''}" for s in found.sites]
    width = max(map(len, names))
    lines = [f"  {'':<{width}}  pattern·v = z  heads = output"]
    for name, s in zip(names, found.sites, strict=True):
        result = "-" if s.result_error is None else f"{s.result_error:.1e}"
        verdict = "ok" if s.passed(found.tolerance) else f"FAILS in {s.site.module}"
        note = f" ({s.note})" if s.note else ""
        lines.append(f"  {name:<{width}}  {s.pattern_error:>13.1e}  {result:>14}  {verdict}{note}")
    largest = max(max(s.pattern_error, s.result_error or 0.0) for s in found.sites)
    verdict = "passed" if found.passed else "FAILED: its scores would not describe this model"
    lines.append(f"  {verdict}; largest error {largest:.1e}, allowed {found.tolerance:.0e}")
    if found.unread:
        lines.append(f"  not read (no softmax attention seen there): {', '.join(found.unread)}")
    if found.unread_why:
        lines.append(f"  towers not read: {found.unread_why}")
    if found.unused:
        from interp.model.surplus import described

        lines.append(f"  {described(found.unused)}")
    return "\n".join(lines)
